/* peft.c — adapters of a checkpoint as a folder of Hugging Face's peft. Kernels of ours that are
 * parts of one weight of theirs become one adapter with the ranks of all, in blocks; parts of one
 * kernel that are weights of their own have its A each. */
#include "lora.h"
#include "peft.h"

bool mx_peft_is_dir(const char *dir) {
    MxArena arena = {.name = "peft"};
    bool is = mx_file_exists(mx_path_join(&arena, dir, PEFT_CONFIG));
    mx_arena_release(&arena);
    return is;
}

/* ---- values */

static void put_part(MxArena *arena, const PeftModule *m, const PeftPart *part, const MxTree *tree,
                     PeftFactors *out) {
    const MxLeaf *leaf_a = &tree->leaves[part->a], *leaf_b = &tree->leaves[part->b];
    const float *a = mx_leaf_values(arena, leaf_a), *b = mx_leaf_values(arena, leaf_b);
    const int64_t *in = peft_places(arena, m, part, true);
    const int64_t *at = peft_places(arena, m, part, false);
    int64_t rank = leaf_a->shape.dim[leaf_a->shape.rank - 1], first = part->block * rank;
    for (int64_t e = 0; e < m->n_experts; e++)
        for (int64_t k = 0; k < rank; k++) {
            for (int64_t i = 0; i < part->inputs; i++)
                *peft_at(m, out, true, e, first + k, in[i]) = a[(e * part->inputs + i) * rank + k];
            for (int64_t j = 0; j < part->outputs; j++)
                if (at[j] >= 0)
                    *peft_at(m, out, false, e, first + k, at[j]) =
                        b[(e * rank + k) * part->outputs + j] / part->map.factor;
        }
    if (part->m < 0) return;
    const float *magnitudes = mx_leaf_values(arena, &tree->leaves[part->m]);
    for (int64_t j = 0; j < part->outputs; j++)
        if (at[j] >= 0) out->m[at[j]] = magnitudes[j] / part->map.factor;
}

/* The tensors of a module, of our rank. */
static PeftFactors make_factors(MxArena *arena, const PeftModule *m, const MxTree *tree,
                                int64_t rank) {
    PeftFactors out = {.rank = m->n_blocks * rank};
    out.a = mx_new_n(arena, float, mx_shape_count(peft_shape(m, 'A', out.rank)));
    out.b = mx_new_n(arena, float, mx_shape_count(peft_shape(m, 'B', out.rank)));
    if (peft_has_magnitudes(m)) out.m = mx_new_n(arena, float, m->size_b);
    for (const PeftPart *part = m->parts; part; part = part->next) {
        MxArena places = {.name = "places"};
        put_part(&places, m, part, tree, &out);
        mx_arena_release(&places);
    }
    return out;
}

/* At most three of each module and one of what is trained as it is, in the arena; returns how many
 * there are. */
static int make_tensors(MxArena *arena, const PeftModules *modules, const PeftWholes *wholes,
                        const MxTree *tree, MxTensorData **out) {
    int n = 0;
    *out = mx_new_n(arena, MxTensorData, 3 * modules->n + wholes->n + 1);
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        if (!m->parts) continue;
        PeftFactors f = make_factors(arena, m, tree, modules->rank);
        (*out)[n++] = (MxTensorData){peft_name(arena, m, 'A'), peft_shape(m, 'A', f.rank), f.a};
        (*out)[n++] = (MxTensorData){peft_name(arena, m, 'B'), peft_shape(m, 'B', f.rank), f.b};
        if (!f.m) continue;
        (*out)[n++] = (MxTensorData){peft_name(arena, m, 'M'), peft_shape(m, 'M', f.rank), f.m};
    }
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        if (!w->n_trained) continue;
        (*out)[n] = (MxTensorData){w->name, w->shape, peft_whole_values(arena, tree, w)};
        if (w == peft_tied_head(wholes))
            (*out)[n + 1] = (MxTensorData){PEFT_HEAD, w->shape, (*out)[n].data};
        n += 1 + (w == peft_tied_head(wholes));
    }
    return n;
}

/* Every tensor holds what was to be written. */
static bool verify(MxArena *arena, const char *path, const MxTensorData *tensors, int n,
                   MxError *err) {
    MxTensors *file;
    if (!mx_tensors_open(arena, path, &file, err)) return false;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const MxTensor *tensor = mx_tensors_find(file, tensors[i].name);
        int64_t count = mx_shape_count(tensors[i].shape);
        float *found = mx_new_n(arena, float, count);
        bool is_there = tensor && mx_shape_equal(tensor->shape, tensors[i].shape);
        if (is_there && !mx_tensors_read(file, tensor, found, err)) return false;
        if (!is_there || memcmp(found, tensors[i].data, (size_t)count * sizeof *found))
            ok = mx_fail(err, MX_EXIT_IO, (MxWhere){.file = path},
                         "\"%s\" does not read back as it was written", tensors[i].name);
    }
    return ok;
}

/* ---- out of a checkpoint */

/* One config tells whether there are magnitudes. */
static bool check_all_or_none(const CkptLora *lora, MxError *err) {
    const CkptAdapter *first = &lora->adapters[0];
    for (int i = 1; i < lora->n; i++)
        if ((lora->adapters[i].m < 0) != (first->m < 0))
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = lora->file.ref.ref},
                           "the adapters of one of \"%s\" and \"%s\" have magnitudes, those of the "
                           "other none; peft's config tells one",
                           first->weight, lora->adapters[i].weight);
    return true;
}

static bool read_array(MxArena *arena, const CkptLora *lora, int at, MxTree *out, MxError *err) {
    MxLeaf leaf = lora->leaves.leaves[at];
    leaf.kind = MX_KIND_LORA_PARAM;
    leaf.dtype = MX_F32;
    leaf.data = mx_new_n(arena, float, mx_shape_count(leaf.shape));
    if (!ckpt_read_piece(&lora->file, &lora->pieces[at], ckpt_box(leaf.shape, -1, 0), MX_F32,
                         leaf.data, err))
        return false;
    mx_tree_add(out, leaf);
    return true;
}

/* All adapters in memory: A, B, A, B … of `n`, behind them the magnitudes, and what was trained as
 * it is. */
static bool read_adapters(MxArena *arena, const MxCkptRef *from, MxTree *out, int *n,
                          MxError *err) {
    CkptFile file;
    CkptLora lora;
    mx_tree_init(out, arena);
    if (!ckpt_open(arena, from, &file, err) || !ckpt_lora_find(arena, &file, &lora, err))
        return false;
    bool ok = true;
    for (int i = 0; ok && i < lora.n; i++)
        ok = read_array(arena, &lora, lora.adapters[i].a, out, err) &&
             read_array(arena, &lora, lora.adapters[i].b, out, err);
    for (int i = 0; ok && i < lora.n; i++)
        ok = lora.adapters[i].m < 0 || read_array(arena, &lora, lora.adapters[i].m, out, err);
    for (int i = lora.n; ok && i < lora.n + lora.n_whole; i++)
        ok = read_array(arena, &lora, lora.adapters[i].whole, out, err);
    *n = lora.n;
    return ok && check_all_or_none(&lora, err);
}

static int64_t last_dim(const MxLeaf *leaf) {
    return leaf->shape.dim[leaf->shape.rank - 1];
}

/* The rank of all of them. */
static bool find_rank(const MxCkptRef *from, const MxTree *adapters, int n, int64_t *out,
                      MxError *err) {
    *out = last_dim(&adapters->leaves[0]);
    bool ok = true;
    for (int i = 0; i < 2 * n; i += 2)
        if (last_dim(&adapters->leaves[i]) != *out)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = from->ref},
                         "\"%s\" has rank %lld, \"%s\" %lld; peft's config tells one",
                         adapters->leaves[i].path, (long long)last_dim(&adapters->leaves[i]),
                         adapters->leaves[0].path, (long long)*out);
    return ok;
}

/* Each of our arrays and the tensor that it is, or is in. */
static void tell_names(MxArena *arena, const PeftModules *modules, const PeftWholes *wholes,
                       const MxTree *adapters, MxText *notes) {
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        for (const PeftPart *part = m->parts; part; part = part->next) {
            if (part->next && part->next->a == part->a) continue;
            const int of[] = {part->a, part->b, part->m};
            const char *names = m->is_flipped ? "BAM" : "ABM";
            for (int k = 0; k < MX_COUNT(of) && of[k] >= 0; k++) {
                const MxLeaf *leaf = &adapters->leaves[of[k]];
                char which = names[k];
                mx_text_add(
                    notes, "%s %s -> %s %s\n", leaf->path, mx_shape_text(arena, leaf->shape),
                    peft_name(arena, m, which),
                    mx_shape_text(arena, peft_shape(m, which, m->n_blocks * modules->rank)));
            }
        }
    }
    for (int i = 0; i < wholes->n; i++)
        for (const PeftWholePart *part = wholes->item[i].parts; part; part = part->next)
            mx_text_add(notes, "%s %s -> %s %s\n", adapters->leaves[part->leaf].path,
                        mx_shape_text(arena, adapters->leaves[part->leaf].shape),
                        wholes->item[i].name, mx_shape_text(arena, wholes->item[i].shape));
}

static bool write_all(MxArena *arena, const MxPeftConvert *how, const PeftModules *modules,
                      const PeftWholes *wholes, const MxTree *adapters, const char *dir,
                      MxError *err) {
    const char *path = mx_path_join(arena, dir, PEFT_TENSORS);
    const char *config = peft_config_text(arena, modules, wholes, how, err);
    if (!config) return false;
    MxTensorData *tensors;
    int n = make_tensors(arena, modules, wholes, adapters, &tensors);
    return mx_tensors_write(path, tensors, n, err) &&
           mx_file_write(mx_path_join(arena, dir, PEFT_CONFIG), config, strlen(config), err) &&
           (!how->verifies || verify(arena, path, tensors, n, err));
}

bool mx_peft_convert(const MxCkptRef *from, const MxPeftConvert *how, const char *dir,
                     MxText *notes, MxError *err) {
    static const char hint[] = "--merge-lora --to-hf writes the weights with all adapters in them";
    MxArena arena = {.name = "peft"};
    MxTree adapters;
    PeftModules modules = {.model = how->model, .hint = hint};
    PeftWholes wholes = {.n = 0};
    int n = 0;
    const MxWhere where = {.file = from->ref};
    bool ok = read_adapters(&arena, from, &adapters, &n, err);
    if (ok && how->alpha <= 0)
        ok = mx_fail(
            err, MX_EXIT_BAD_INPUT, where,
            "the lora_alpha of its adapters is not known; --lora-alpha tells it, or --config");
    if (adapters.n && !how->model)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where,
                     "its model is not known; --config names the config of its run");
    if (adapters.n) ok = find_rank(from, &adapters, n, &modules.rank, err) && ok;
    if (how->model) modules.within = peft_within(how->model);
    if (adapters.n && how->model)
        ok = peft_modules(&arena, &adapters, &modules, err) &&
             peft_wholes(&arena, &adapters, &modules, &wholes, err) && ok;
    if (ok && !dir) tell_names(&arena, &modules, &wholes, &adapters, notes);
    if (ok && dir) ok = write_all(&arena, how, &modules, &wholes, &adapters, dir, err);
    if (ok && how->dropout > 0 && peft_has_parameters(&modules))
        mx_text_add(notes,
                    "lora_dropout %.9g is left out: peft has none beside target_parameters\n",
                    how->dropout);
    if (ok)
        mx_text_add(notes, "result: %d adapters, r %lld, lora_alpha %.9g\n", n,
                    (long long)modules.rank, how->alpha);
    mx_arena_release(&arena);
    return ok;
}

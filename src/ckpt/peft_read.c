/* peft_read.c — adapters of a folder of Hugging Face's peft, as those of a model of ours. One
 * kernel of ours that is parts of several of their modules has the ranks of all of them, one behind
 * the other; those that have the same A, as in folders of our own, share theirs. Ranks that a
 * module does not have keep their A, with a B of zeros. */
#include "peft.h"

typedef struct Reader {
    PeftConfig config;
    PeftModules modules;
    PeftWholes wholes;
    PeftFactors *factors; /* of each module that is adapted */
    MxTensors *file;
    MxWhere where;
    MxTree *state;
    double scale;
    int64_t most;         /* ranks that a kernel of ours would need */
    const char *neediest; /* the kernel */
    int n_evened;         /* modules whose B was multiplied by a number */
    const char *evened;   /* the first of them */
    int n_left_out;       /* modules of layers that the config leaves out */
    const char *left_out; /* the first of them */
    MxError *err;
} Reader;

/* ---- tensors */

/* Of a module, by its A; as the config says where that has none. */
static int64_t rank_of(const Reader *r, MxArena *arena, const PeftModule *m) {
    const MxTensor *a = mx_tensors_find(r->file, peft_name(arena, m, 'A'));
    bool has_rank = a && a->shape.rank == 2 && a->shape.dim[0] && !(a->shape.dim[0] % m->n_experts);
    return has_rank ? a->shape.dim[0] / m->n_experts : (int64_t)r->config.rank;
}

static bool read_tensor(const Reader *r, MxArena *arena, const PeftModule *m, char which,
                        int64_t rank, float **out) {
    const char *name = peft_name(arena, m, which);
    const MxTensor *tensor = mx_tensors_find(r->file, name);
    MxShape want = peft_shape(m, which, rank);
    if (!tensor)
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where, "\"%s\" is missing; the model wants %s",
                       name, mx_shape_text(arena, want));
    if (!mx_shape_equal(tensor->shape, want))
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where,
                       "\"%s\" has shape %s; the model wants %s", name,
                       mx_shape_text(arena, tensor->shape), mx_shape_text(arena, want));
    *out = mx_new_n(arena, float, mx_shape_count(want));
    return mx_tensors_read(r->file, tensor, *out, r->err);
}

static bool is_in_file(const Reader *r, MxArena *arena, const PeftModule *m) {
    return mx_tensors_find(r->file, peft_name(arena, m, 'A')) ||
           mx_tensors_find(r->file, peft_name(arena, m, 'B')) ||
           mx_tensors_find(r->file, peft_name(arena, m, 'M'));
}

/* Whether the file may lack a module: all its kernels are in others too, that are there. */
static bool may_lack(const Reader *r, MxArena *arena, const PeftModule *m) {
    for (const PeftPart *part = m->parts; part; part = part->next) {
        bool has_other = false;
        for (int i = 0; i < r->modules.n && !has_other; i++)
            has_other = peft_has(&r->modules.module[i], part->a) &&
                        is_in_file(r, arena, &r->modules.module[i]);
        if (!has_other) return false;
    }
    return true;
}

/* Names of one kind of modules: equal but for their numbers. */
static bool are_alike(const char *a, const char *b) {
    static const char digits[] = "0123456789";
    for (; *a && *b; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b) return false;
    }
    return *a == *b;
}

/* Whether the folder has adapters of this kind in other layers alone, and its config says so. */
static bool is_left_out(const Reader *r, MxArena *arena, const PeftModule *m) {
    if (m->is_parameter || peft_adapts(&r->config, m)) return false;
    for (int i = 0; i < r->modules.n; i++)
        if (are_alike(r->modules.module[i].module, m->module) &&
            is_in_file(r, arena, &r->modules.module[i]))
            return true;
    return false;
}

/* One adapter of a model of ours counts as much as every other. */
static bool even_out(Reader *r, const PeftModule *m, const PeftFactors *f) {
    double factor;
    if (!peft_factor(&r->config, m, f->rank, r->scale, &factor, r->err)) return false;
    if (factor == 1) return true;
    if (!r->n_evened++) r->evened = m->key;
    int64_t n = mx_shape_count(peft_shape(m, 'B', f->rank));
    for (int64_t i = 0; f->b && i < n; i++) f->b[i] = (float)(f->b[i] * factor);
    return true;
}

/* Of a module that is trained as a whole, under bias: all. */
static bool is_copy(const char *name) {
    return strstr(name, ".modules_to_save.") || strstr(name, ".original_module.");
}

/* Tensors of no module, and weights that peft saves beside adapters of the output projection. */
static bool check_extra(const Reader *r, MxArena *arena, const MxMap *wanted) {
    bool ok = true, has_weights = false;
    int n_wholes = 0;
    MxMap kinds;
    mx_map_init(&kinds, arena);
    for (int i = 0; i < mx_tensors_count(r->file); i++) {
        const char *name = mx_tensors_at(r->file, i)->name;
        if (mx_map_get(wanted, name, -1) >= 0 || is_copy(name)) continue;
        const PeftWhole *w = peft_whole_of(&r->wholes, name);
        if (w && (!w->n_parts || mx_map_get(&kinds, w->kind, -1) >= 0)) continue;
        if (w) mx_map_set(&kinds, w->kind, n_wholes++);
        ok = mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where,
                     w ? "\"%s\" is trained as it is there and not here"
                       : "\"%s\" belongs to no module that is adapted here",
                     name);
        has_weights |= mx_text_has_suffix(name, ".base_layer.weight");
    }
    if (n_wholes) peft_hint_wholes(&r->wholes, &kinds, r->err);
    if (has_weights)
        mx_note(r->err, "hint: peft leaves weights of the base out with save_pretrained(DIR, "
                        "save_embedding_layers=False)");
    return ok;
}

/* With transformers 4 each expert was a module. */
static bool check_experts(const Reader *r) {
    static const char mark[] = ".experts.";
    for (int i = 0; i < mx_tensors_count(r->file); i++) {
        const char *name = mx_tensors_at(r->file, i)->name, *at = strstr(name, mark);
        if (!at || !strspn(at + strlen(mark), "0123456789")) continue;
        mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where,
                "\"%s\": adapters of each expert apart are not available here", name);
        mx_note(r->err, "hint: peft with transformers 5 reads them, and saves those of all experts "
                        "together");
        return false;
    }
    return true;
}

static bool read_all(Reader *r, MxArena *arena) {
    MxMap wanted;
    bool ok = true, counts = true;
    mx_map_init(&wanted, arena);
    r->factors = mx_new_n(arena, PeftFactors, r->modules.n + 1);
    for (int i = 0; i < r->modules.n; i++) {
        const PeftModule *m = &r->modules.module[i];
        PeftFactors *f = &r->factors[i];
        if (!m->parts || (!is_in_file(r, arena, m) && may_lack(r, arena, m))) continue;
        if (!is_in_file(r, arena, m) && is_left_out(r, arena, m)) {
            if (!r->n_left_out++) r->left_out = m->key;
            continue;
        }
        const char *a = peft_name(arena, m, 'A');
        mx_map_set(&wanted, a, i);
        mx_map_set(&wanted, peft_name(arena, m, 'B'), i);
        f->rank = rank_of(r, arena, m);
        ok = read_tensor(r, arena, m, 'A', f->rank, &f->a) && ok;
        ok = read_tensor(r, arena, m, 'B', f->rank, &f->b) && ok;
        if (peft_has_magnitudes(m)) {
            mx_map_set(&wanted, peft_name(arena, m, 'M'), i);
            ok = read_tensor(r, arena, m, 'M', f->rank, &f->m) && ok;
        }
        counts = counts && (!mx_tensors_find(r->file, a) || even_out(r, m, f));
    }
    for (int i = 0; i < r->wholes.n; i++)
        if (r->wholes.item[i].n_trained) mx_map_set(&wanted, r->wholes.item[i].name, i);
    if (peft_tied_head(&r->wholes)) mx_map_set(&wanted, PEFT_HEAD, 0);
    return check_extra(r, arena, &wanted) && ok && counts;
}

/* ---- kernels */

/* The adapters of one of ours, as they are put together. */
typedef struct Pair {
    int leaf; /* of A */
    float *a, *b;
    int64_t rank, n_used;
} Pair;

static float *our_a(const Pair *p, const PeftPart *part, int64_t expert, int64_t i, int64_t k) {
    return &p->a[(expert * part->inputs + i) * p->rank + k];
}

static float *our_b(const Pair *p, const PeftPart *part, int64_t expert, int64_t k, int64_t j) {
    return &p->b[(expert * p->rank + k) * part->outputs + j];
}

/* Whether a rank of a module has the A that is in one of ours. */
static bool has_same_a(const Pair *p, const PeftModule *m, const PeftFactors *f,
                       const PeftPart *part, const int64_t *in, int64_t k) {
    for (int64_t e = 0; e < m->n_experts; e++)
        for (int64_t i = 0; i < part->inputs; i++)
            if (*peft_at(m, f, true, e, k, in[i]) != *our_a(p, part, e, i, k)) return false;
    return true;
}

/* Whether a rank of a weight that is of other kernels too says something of this one. */
static bool says_something(MxArena *arena, const Pair *p, const PeftModule *m, const PeftFactors *f,
                           int64_t k) {
    bool is_shared = false;
    for (const PeftPart *part = m->parts; part; part = part->next) {
        is_shared |= part->a != p->leaf;
        if (part->a != p->leaf) continue;
        const int64_t *at = peft_places(arena, m, part, false);
        for (int64_t e = 0; e < m->n_experts; e++)
            for (int64_t j = 0; j < part->outputs; j++)
                if (at[j] >= 0 && *peft_at(m, f, false, e, k, at[j]) != 0) return true;
    }
    return !is_shared;
}

/* Magnitudes of outputs that no module has stay the norms of the base. */
static void take_magnitudes(const PeftModule *m, const PeftFactors *f, const PeftPart *part,
                            float *ours) {
    MxArena arena = {.name = "places"};
    const int64_t *at = peft_places(&arena, m, part, false);
    for (int64_t j = 0; j < part->outputs; j++)
        if (at[j] >= 0 && f->m) ours[j] = part->map.factor * f->m[at[j]];
    mx_arena_release(&arena);
}

static void take_part(MxArena *arena, const Pair *p, const PeftModule *m, const PeftFactors *f,
                      const PeftPart *part, int64_t from, int64_t to) {
    const int64_t *in = peft_places(arena, m, part, true);
    const int64_t *at = peft_places(arena, m, part, false);
    for (int64_t e = 0; e < m->n_experts; e++) {
        for (int64_t i = 0; i < part->inputs; i++)
            *our_a(p, part, e, i, to) = *peft_at(m, f, true, e, from, in[i]);
        for (int64_t j = 0; j < part->outputs; j++)
            if (at[j] >= 0)
                *our_b(p, part, e, to, j) =
                    part->map.factor * *peft_at(m, f, false, e, from, at[j]);
    }
}

/* The ranks of a module, each behind those that are there or in the one that has its A. */
static void take_module(Pair *p, const PeftModule *m, const PeftFactors *f) {
    int64_t n_before = p->n_used;
    const PeftPart *first = m->parts;
    while (first->a != p->leaf) first = first->next;
    for (int64_t k = 0; k < f->rank; k++) {
        MxArena arena = {.name = "places"};
        const int64_t *in = peft_places(&arena, m, first, true);
        bool has_place = k < n_before && k < p->rank && has_same_a(p, m, f, first, in, k);
        bool is_needed = has_place || says_something(&arena, p, m, f, k);
        int64_t to = has_place ? k : p->n_used;
        p->n_used += is_needed && !has_place;
        for (const PeftPart *part = m->parts; is_needed && to < p->rank && part; part = part->next)
            if (part->a == p->leaf) take_part(&arena, p, m, f, part, k, to);
        mx_arena_release(&arena);
    }
}

float *peft_floats_of(MxArena *arena, const MxLeaf *leaf) {
    const void *values = mx_leaf_values(arena, leaf);
    int64_t n = mx_shape_count(leaf->shape);
    float *out = mx_new_n(arena, float, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = leaf->dtype == MX_BF16 ? mx_bf16_to_f32(((const MxBf16 *)values)[i])
                                        : ((const float *)values)[i];
    return out;
}

void peft_write_floats(MxArena *arena, const MxLeaf *leaf, const float *values) {
    void *out = mx_arena_alloc(arena, mx_leaf_bytes(leaf) + 1);
    int64_t n = mx_shape_count(leaf->shape);
    for (int64_t i = 0; i < n; i++) hf_put(out, leaf->dtype, i, values[i]);
    mx_leaf_write(leaf, out);
}

static void load_magnitudes(const Reader *r, int leaf) {
    MxArena arena = {.name = "magnitudes"};
    float *ours = peft_floats_of(&arena, &r->state->leaves[leaf]);
    for (int i = 0; i < r->modules.n; i++)
        for (const PeftPart *part = r->modules.module[i].parts; part; part = part->next)
            if (part->m == leaf) take_magnitudes(&r->modules.module[i], &r->factors[i], part, ours);
    peft_write_floats(&arena, &r->state->leaves[leaf], ours);
    mx_arena_release(&arena);
}

static void load_pair(Reader *r, int a, int b) {
    MxArena arena = {.name = "pair"};
    const MxLeaf *leaf_a = &r->state->leaves[a], *leaf_b = &r->state->leaves[b];
    Pair p = {.leaf = a, .rank = leaf_a->shape.dim[leaf_a->shape.rank - 1]};
    p.a = peft_floats_of(&arena, leaf_a);
    p.b = mx_new_n(&arena, float, mx_shape_count(leaf_b->shape));
    for (int i = 0; i < r->modules.n; i++)
        if (peft_has(&r->modules.module[i], a))
            take_module(&p, &r->modules.module[i], &r->factors[i]);
    if (p.n_used > r->most) r->neediest = leaf_a->path;
    if (p.n_used > r->most) r->most = p.n_used;
    if (p.n_used <= p.rank) peft_write_floats(&arena, leaf_a, p.a);
    if (p.n_used <= p.rank) peft_write_floats(&arena, leaf_b, p.b);
    mx_arena_release(&arena);
}

/* Of each kernel once, whatever number of modules it is in. */
static bool load_all(Reader *r, MxArena *arena) {
    bool *is_done = mx_new_n(arena, bool, r->state->n + 1);
    int64_t rank = 0;
    for (int i = 0; i < r->modules.n; i++)
        for (const PeftPart *part = r->modules.module[i].parts; part; part = part->next) {
            const MxShape *a = &r->state->leaves[part->a].shape;
            rank = a->dim[a->rank - 1];
            if (!is_done[part->a]) load_pair(r, part->a, part->b);
            if (!is_done[part->a] && part->m >= 0) load_magnitudes(r, part->m);
            is_done[part->a] = true;
        }
    if (r->most <= rank) return true;
    mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where,
            "its adapters have rank %lld together in \"%s\"; the run's lora_rank is %lld",
            (long long)r->most, r->neediest, (long long)rank);
    mx_note(r->err, "hint: lora.lora_rank=%lld lora.lora_alpha=%.9g", (long long)r->most,
            r->scale * (double)r->most);
    return false;
}

/* How modules are named: as of a model around the text model, if the tensors are. */
static const MxHfSpelling *find_within(const MxTensors *file) {
    static const char head[] = "base_model.model.";
    for (int i = 0; i < mx_tensors_count(file); i++)
        for (int k = 0; k < hf_n_withins; k++) {
            const char *name = mx_tensors_at(file, i)->name;
            if (mx_text_has_prefix(name, head) &&
                mx_text_has_prefix(name + strlen(head), hf_withins[k].with))
                return &hf_withins[k];
        }
    return NULL;
}

/* Adapters with magnitudes are others than those without. */
static bool check_dora(const Reader *r) {
    bool has = false;
    for (int i = 0; i < r->modules.n; i++) has |= peft_has_magnitudes(&r->modules.module[i]);
    if (has == r->config.is_dora) return true;
    mx_fail(r->err, MX_EXIT_BAD_INPUT, r->config.where,
            "its adapters have %s (use_dora is %s), those of this run have %s",
            has ? "no magnitudes" : "magnitudes", has ? "false" : "true", has ? "some" : "none");
    mx_note(r->err, "hint: lora.use_dora=%s", has ? "false" : "true");
    return false;
}

static void tell(const Reader *r) {
    const char *file = r->config.where.file;
    if (r->n_evened)
        mx_log("%s: %d modules have an r or a lora_alpha of their own, \"%s\" first; their B is "
               "multiplied so that they count the same with lora_alpha / lora_rank = %.9g",
               file, r->n_evened, r->evened, r->scale);
    if (r->n_left_out)
        mx_log("%s: %d modules are left out, \"%s\" first; their adapters begin with a B of zeros",
               file, r->n_left_out, r->left_out);
}

bool mx_peft_load(const char *dir, const MxHfModel *model, double scale, MxTree *state,
                  MxError *err) {
    static const char hint[] = "lora.lora_module_path chooses what is adapted, and "
                               "lora.modules_to_save what is trained as it is";
    MxArena arena = {.name = "peft"};
    Reader r = {.state = state,
                .scale = scale,
                .err = err,
                .where = {.file = mx_path_join(&arena, dir, PEFT_TENSORS)}};
    bool ok = peft_read_config(&arena, dir, &r.config, err) &&
              mx_tensors_open(&arena, r.where.file, &r.file, err) && check_experts(&r);
    r.modules = (PeftModules){.model = model, .hint = hint};
    if (ok) r.modules.within = find_within(r.file);
    ok = ok && peft_modules(&arena, state, &r.modules, err) &&
         peft_wholes(&arena, state, &r.modules, &r.wholes, err) && check_dora(&r) &&
         read_all(&r, &arena) && load_all(&r, &arena) &&
         peft_load_wholes(&r.wholes, r.file, state, r.where, err);
    if (ok) tell(&r);
    mx_arena_release(&arena);
    return ok;
}

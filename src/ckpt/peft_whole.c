/* peft_whole.c — what is trained as it is beside adapters, in folders of Hugging Face's peft: each
 * tensor has its weight's own name there. What adapter_config.json says of them is in peft_saved.c.
 * Source: peft 0.21, utils/other.py (ModulesToSaveWrapper). */
#include "lora.h"
#include "peft.h"

static const char buffer[] = ".e_score_correction_bias"; /* no parameter of theirs */
static const char head[] = "base_model.model.", bias_suffix[] = ".bias";
static const char embedding[] = "model/token_embedder/embedding";

/* ---- what there is */

typedef struct Builder {
    MxArena *arena;
    const MxTree *tree;
    PeftWholes *out;
    MxMap by_name;
    bool *is_theirs; /* leaves of the tree */
} Builder;

/* Of any layer, however layers are stacked: a pattern that the key takes. */
static const char *kind_of(MxArena *arena, const char *path) {
    static const char dir[] = "model/", number[] = "layers_", digits[] = "0123456789";
    const char *from = mx_text_has_prefix(path, dir) ? path + strlen(dir) : path;
    const char *at = strstr(from, number), *behind = at ? at + strlen(number) : NULL;
    if (!at || behind[strspn(behind, digits)] != '/') return from;
    behind += strspn(behind, digits);
    while (at > from && at[-1] != '/') at--;
    return mx_arena_printf(arena, "%.*s.*%s", (int)(at - from), from, behind);
}

/* Those of all parameters that are in a tensor. */
static void add_kind(MxArena *arena, PeftWhole *w, const char *kind) {
    if (!w->kind)
        w->kind = kind;
    else if (!strstr(w->kind, kind))
        w->kind = mx_arena_printf(arena, "%s|%s", w->kind, kind);
}

/* Those of an encoder of images are not of the text model, but of the one around it. */
static const char *spell(MxArena *arena, const PeftModules *modules, const HfRow *row,
                         const char *name) {
    static const char around[] = "model.";
    const MxHfSpelling *within = modules->within;
    if (!hf_is_eye(row)) return peft_spell(arena, within, name);
    bool is_around = within && mx_text_has_prefix(within->with, around);
    if (!is_around || mx_text_has_prefix(name, around)) return name;
    return mx_arena_printf(arena, "%s%s", around, name);
}

static void add_tensor(Builder *b, const PeftModules *modules, const HfRow *row, int i) {
    const char *theirs = hf_their_name(b->arena, modules->held, row, i);
    const char *ours = hf_our_name(b->arena, modules->held, row, i);
    const char *trained = ckpt_is_head(ours) ? ours : mx_arena_printf(b->arena, "%s_lora_w", ours);
    int leaf = mx_tree_find(b->tree, trained);
    if (!theirs || row->folds) return;
    if (leaf >= 0) b->is_theirs[leaf] = true;
    theirs = spell(b->arena, modules, row, theirs);
    PeftWholes *out = b->out;
    int at = (int)mx_map_get(&b->by_name, theirs, out->n);
    PeftWhole *w = &out->item[at];
    if (at == out->n) *w = (PeftWhole){.weight = theirs};
    add_kind(b->arena, w, kind_of(b->arena, ours));
    out->n += at == out->n;
    mx_map_set(&b->by_name, theirs, at);
    if (mx_text_has_suffix(theirs, buffer)) return;
    w->n_parts++;
    w->n_trained += leaf >= 0;
    HfMap map = hf_map(modules->held, row, i);
    w->shape = map.theirs;
    if (leaf < 0) return;
    PeftWholePart *part = mx_new(b->arena, PeftWholePart);
    *part = (PeftWholePart){.leaf = leaf, .map = map, .next = w->parts};
    w->parts = part;
}

static bool is_adapted(const PeftModules *modules, const char *module, size_t n) {
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        if (m->parts && !strncmp(m->module, module, n) && !m->module[n]) return true;
    }
    return false;
}

/* Biases of adapted modules are those of the layer inside. */
static void name_tensor(MxArena *arena, const PeftModules *modules, PeftWhole *w) {
    size_t n = (size_t)(strrchr(w->weight, '.') - w->weight);
    w->is_bias = mx_text_has_suffix(w->weight, bias_suffix);
    w->is_of_adapted = w->is_bias && is_adapted(modules, w->weight, n);
    w->name = mx_arena_printf(arena, "%s%.*s%s%s", head, (int)n, w->weight,
                              w->is_of_adapted ? ".base_layer" : "", w->weight + n);
}

static bool check_shape(const Builder *b, const PeftWhole *w, MxError *err) {
    for (const PeftWholePart *part = w->parts; part; part = part->next) {
        const MxLeaf *leaf = &b->tree->leaves[part->leaf];
        if (!mx_shape_equal(leaf->shape, part->map.ours))
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" is %s; the model wants %s",
                           leaf->path, mx_shape_text(b->arena, leaf->shape),
                           mx_shape_text(b->arena, part->map.ours));
    }
    return true;
}

static bool check_all(const Builder *b, const char *hint, MxError *err) {
    MxText kinds;
    MxMap seen;
    mx_text_init(&kinds, b->arena);
    mx_map_init(&seen, b->arena);
    for (int i = 0; i < b->tree->n; i++) {
        const char *path = b->tree->leaves[i].path, *kind = kind_of(b->arena, path);
        bool is_one = b->tree->leaves[i].kind == MX_KIND_LORA_PARAM && ckpt_is_whole(path);
        if (!is_one || b->is_theirs[i]) continue;
        if (mx_map_get(&seen, kind, -1) >= 0) continue;
        mx_map_set(&seen, kind, i);
        mx_text_add(&kinds, "%s\"%s\"", kinds.len ? ", " : "", kind);
    }
    if (!kinds.len) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "peft has no tensors for %s", kinds.data);
    mx_note(err, "hint: %s", hint);
    return false;
}

bool peft_wholes(MxArena *arena, const MxTree *tree, const PeftModules *modules, PeftWholes *out,
                 MxError *err) {
    Builder b = {.arena = arena, .tree = tree, .out = out};
    bool ok = true;
    *out = (PeftWholes){.is_tied = modules->held->is_tied};
    b.is_theirs = mx_new_n(arena, bool, tree->n + 1);
    mx_map_init(&b.by_name, arena);
    out->item = mx_new_n(arena, PeftWhole, hf_most_names(modules->held));
    for (int r = 0; r < hf_n_rows; r++)
        for (int i = 0, n = (int)hf_count(modules->held, &hf_rows[r]); i < n; i++)
            if (hf_has(modules->held, &hf_rows[r], i)) add_tensor(&b, modules, &hf_rows[r], i);
    for (int i = 0; i < out->n; i++) {
        name_tensor(arena, modules, &out->item[i]);
        ok = check_shape(&b, &out->item[i], err) && ok;
    }
    return check_all(&b, modules->hint, err) && ok;
}

/* ---- values */

static void put_part(const PeftWholePart *part, const float *ours, float *theirs) {
    const MxBox all = mx_box_of(part->map.ours);
    HfRun run;
    for (bool goes_on = hf_run_start(&run, &part->map, &all, &all); goes_on;
         goes_on = hf_run_next(&run))
        for (int64_t i = 0; i < run.n; i++)
            theirs[run.theirs + i * run.apart] =
                hf_in_theirs(&part->map, ours[run.at + i * run.step]);
}

static void take_part(const PeftWholePart *part, const float *theirs, float *ours) {
    const MxBox all = mx_box_of(part->map.ours);
    HfRun run;
    for (bool goes_on = hf_run_start(&run, &part->map, &all, &all); goes_on;
         goes_on = hf_run_next(&run))
        for (int64_t i = 0; i < run.n; i++)
            ours[run.at + i * run.step] =
                hf_in_ours(&part->map, theirs[run.theirs + i * run.apart]);
}

float *peft_whole_values(MxArena *arena, const MxTree *tree, const PeftWhole *w) {
    float *theirs = mx_new_n(arena, float, mx_shape_count(w->shape));
    for (const PeftWholePart *part = w->parts; part; part = part->next) {
        MxArena own = {.name = "whole"};
        put_part(part, mx_leaf_values(&own, &tree->leaves[part->leaf]), theirs);
        mx_arena_release(&own);
    }
    return theirs;
}

static void take(const MxTree *tree, const PeftWhole *w, const float *theirs) {
    for (const PeftWholePart *part = w->parts; part; part = part->next) {
        MxArena own = {.name = "whole"};
        const MxLeaf *leaf = &tree->leaves[part->leaf];
        float *ours = peft_floats_of(&own, leaf);
        take_part(part, theirs, ours);
        peft_write_floats(&own, leaf, ours);
        mx_arena_release(&own);
    }
}

const PeftWhole *peft_tied_head(const PeftWholes *wholes) {
    for (int i = 0; wholes->is_tied && i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        if (w->n_trained && !strcmp(w->kind, embedding + strlen("model/"))) return w;
    }
    return NULL;
}

/* ---- in */

typedef struct Reader {
    const PeftWholes *wholes;
    const MxTensors *file;
    const MxTree *state;
    MxWhere where;
    MxError *err;
} Reader;

static bool refuse_tensor(const Reader *r, const PeftWhole *w, const char *what) {
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, r->where, "\"%s\" %s", w->name, what);
}

/* With tied embeddings both are one here. */
static bool check_tied(const Reader *r, const PeftWhole *w, const float *values) {
    const MxTensor *output = mx_tensors_find(r->file, PEFT_HEAD);
    if (w != peft_tied_head(r->wholes)) return true;
    MxArena arena = {.name = "output"};
    int64_t n = mx_shape_count(w->shape);
    float *found = mx_new_n(&arena, float, n);
    bool is_there = output && mx_shape_equal(output->shape, w->shape);
    bool ok = !is_there || mx_tensors_read(r->file, output, found, r->err);
    bool is_one = is_there && ok && !memcmp(found, values, (size_t)n * sizeof *found);
    mx_arena_release(&arena);
    if (is_one || !ok) return ok;
    refuse_tensor(r, w,
                  "is trained apart from the output matrix (ensure_weight_tying is false); here "
                  "both are one (logits_via_embedding=true)");
    mx_note(r->err, "hint: logits_via_embedding=false keeps them apart%s",
            is_there ? ", with decoder/logits_dense in lora.modules_to_save" : "");
    return false;
}

static bool load_whole(const Reader *r, const PeftWhole *w) {
    MxArena arena = {.name = "whole"};
    const MxTensor *tensor = mx_tensors_find(r->file, w->name);
    const char *why = NULL;
    if (!tensor)
        why = "is missing; it is trained as it is here (lora.modules_to_save)";
    else if (!mx_shape_equal(tensor->shape, w->shape))
        why =
            mx_arena_printf(&arena, "has shape %s; the model wants %s",
                            mx_shape_text(&arena, tensor->shape), mx_shape_text(&arena, w->shape));
    else if (w->n_trained < w->n_parts)
        why = "is several parameters, not all of which are trained as they are here";
    float *values = mx_new_n(&arena, float, mx_shape_count(w->shape));
    bool ok = why ? refuse_tensor(r, w, why)
                  : mx_tensors_read(r->file, tensor, values, r->err) && check_tied(r, w, values);
    if (ok) take(r->state, w, values);
    mx_arena_release(&arena);
    return ok;
}

bool peft_load_wholes(const PeftWholes *wholes, const MxTensors *file, const MxTree *state,
                      MxWhere where, MxError *err) {
    MxArena arena = {.name = "wholes"};
    const Reader r = {wholes, file, state, where, err};
    MxMap refused; /* one of each kind is told of */
    bool ok = true;
    mx_map_init(&refused, &arena);
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        if (!w->n_trained || mx_map_get(&refused, w->kind, -1) >= 0 || load_whole(&r, w)) continue;
        mx_map_set(&refused, w->kind, i);
        ok = false;
    }
    mx_arena_release(&arena);
    return ok;
}

const PeftWhole *peft_whole_of(const PeftWholes *wholes, const char *name) {
    for (int i = 0; i < wholes->n; i++)
        if (!strcmp(wholes->item[i].name, name)) return &wholes->item[i];
    return NULL;
}

void peft_hint_wholes(const PeftWholes *wholes, const MxMap *kinds, MxError *err) {
    MxArena arena = {.name = "hint"};
    MxText text;
    MxMap seen;
    mx_text_init(&text, &arena);
    mx_map_init(&seen, &arena);
    for (int i = 0; i < wholes->n; i++) {
        const PeftWhole *w = &wholes->item[i];
        bool is_in = w->n_trained || mx_map_get(kinds, w->kind, -1) >= 0;
        if (!is_in || mx_map_get(&seen, w->kind, -1) >= 0) continue;
        mx_map_set(&seen, w->kind, i);
        mx_text_add(&text, "%s%s", text.len ? "|" : "", w->kind);
    }
    mx_note(err, "hint: lora.modules_to_save=%s", text.data);
    mx_arena_release(&arena);
}

/* peft_modules.c — the modules of transformers' model that peft can adapt, by the rows that name
 * their weights in Hugging Face's files, and the places of our adapters' elements in theirs. A
 * product of two matrices stays one if rows of the first or columns of the second are permuted,
 * left out or multiplied; so any map of a kernel that keeps inputs and outputs apart is one of its
 * adapters too. */
#include "lora.h"
#include "peft.h"

/* ---- what they are */

/* As transformers holds them, one matrix for each expert or all in one become all in one. Source:
 * transformers 5.24, conversion_mapping.py. */
static const MxHfExperts held_experts[] = {
    [MX_HF_EXPERTS_W] = MX_HF_EXPERTS_TURNED,      [MX_HF_EXPERTS_PROJ] = MX_HF_EXPERTS_TURNED,
    [MX_HF_EXPERTS_HALVES] = MX_HF_EXPERTS_HALVES, [MX_HF_EXPERTS_TURNED] = MX_HF_EXPERTS_TURNED,
    [MX_HF_EXPERTS_PAIRS] = MX_HF_EXPERTS_PAIRS,   [MX_HF_EXPERTS_GATED] = MX_HF_EXPERTS_TURNED,
    [MX_HF_EXPERTS_PACKED] = MX_HF_EXPERTS_PAIRS};

static const char weight_suffix[] = ".weight";

/* A model under the names that transformers has in memory. */
typedef struct Held {
    MxHfNames names;
    MxHfModel model;
} Held;

static const MxHfModel *hold(MxArena *arena, const MxHfModel *model) {
    Held *held = mx_new(arena, Held);
    *held = (Held){.names = *model->names, .model = *model};
    held->names.is_bare = false;
    if (held->names.held_ffn) held->names.ffn = held->names.held_ffn;
    held->model.names = &held->names;
    MX_ASSERT((int)model->names->experts < MX_COUNT(held_experts));
    held->model.experts = (int)held_experts[model->names->experts];
    held->model.sees = model->sees && model->see_dim; /* else nothing is known of the encoder */
    held->model.hears = model->hears && model->hear_dim;
    held->model.is_meta = false;
    return &held->model;
}

static bool are_experts(const HfRow *row, const HfMap *map) {
    return row->holder == HF_ROUTED && map->theirs.rank == 3;
}

/* Matrices that something is multiplied with, but for heads that are trained as they are. */
static bool is_matrix(const HfRow *row, const HfMap *map) {
    bool is_weight = row->theirs && mx_text_has_suffix(row->theirs, weight_suffix);
    bool is_plain = row->role == HF_PLAIN || row->role == HF_KEY || row->role == HF_QUERY;
    return is_plain && !hf_is_eye(row) && !row->folds && !(row->wants & HF_SCORE) &&
           (is_weight ? map->theirs.rank == 2 : are_experts(row, map));
}

/* Routers are no modules of torch's. peft takes names of feed-forward units in models with experts
 * for those of these. Source: peft 0.21, utils/transformers_weight_conversion.py. */
static bool is_parameter(const MxHfModel *model, const HfRow *row) {
    bool is_ffn = row->holder == HF_GLU || row->holder == HF_SHARED;
    return row->holder == HF_ROUTED || (is_ffn && model->n_experts > 1);
}

/* Whether our inputs are the last dim of theirs. */
static bool reads_last(const HfRow *row, bool has_experts) {
    const char *inputs = has_experts ? strchr(row->our_shape, ' ') + 1 : row->our_shape;
    return strchr(strrchr(row->their_shape, ' '), *inputs) != NULL;
}

static PeftModule make_module(MxArena *arena, const MxHfModel *model, const HfRow *row,
                              const HfMap *map, const char *theirs) {
    PeftModule m = {.weight = theirs,
                    .is_parameter = is_parameter(model, row),
                    .has_experts = are_experts(row, map),
                    .n_experts = 1};
    size_t n = (size_t)(strrchr(theirs, '.') - theirs);
    m.module = m.prefix = mx_arena_strndup(arena, theirs, n);
    m.key = m.is_parameter ? m.weight : m.module;
    const int64_t *size = &map->theirs.dim[map->theirs.rank - 2];
    if (m.has_experts) m.n_experts = map->theirs.dim[0];
    /* Of matrices [inputs, outputs]. Source: peft 0.21, tuners/lora/layer.py, ParamWrapper. */
    bool is_turned = m.has_experts && row->experts == MX_HF_EXPERTS_PAIRS;
    m.size_a = size[is_turned ? 0 : 1];
    m.size_b = size[is_turned ? 1 : 0];
    m.reads_last = reads_last(row, m.has_experts);
    m.is_flipped = m.reads_last == is_turned;
    return m;
}

/* ---- our adapters */

static const MxLeaf *leaf_of(const MxTree *tree, int leaf) {
    return &tree->leaves[leaf];
}

static bool refuse_shape(const MxTree *tree, const HfMap *map, const PeftPart *part, MxError *err) {
    MxArena arena = {.name = "shape"};
    const MxLeaf *a = leaf_of(tree, part->a), *b = leaf_of(tree, part->b);
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
            "\"%s\" is %s and \"%s\" %s; the model's kernel is %s", a->path,
            mx_shape_text(&arena, a->shape), b->path, mx_shape_text(&arena, b->shape),
            mx_shape_text(&arena, map->ours));
    mx_arena_release(&arena);
    return false;
}

/* Which dims of the kernel are inputs follows from the adapters' sizes. */
static bool measure(const MxTree *tree, bool has_experts, PeftPart *part, MxError *err) {
    const MxShape *a = &leaf_of(tree, part->a)->shape, *b = &leaf_of(tree, part->b)->shape;
    const MxShape *ours = &part->map.ours;
    int64_t inputs = 1, outputs = 1;
    part->inputs = a->dim[a->rank - 2];
    part->outputs = b->dim[b->rank - 1];
    part->n_in = has_experts;
    while (part->n_in < ours->rank && inputs < part->inputs) inputs *= ours->dim[part->n_in++];
    for (int d = part->n_in; d < ours->rank; d++) outputs *= ours->dim[d];
    bool fits = !has_experts || (a->dim[0] == ours->dim[0] && b->dim[0] == ours->dim[0]);
    return (fits && inputs == part->inputs && outputs == part->outputs) ||
           refuse_shape(tree, &part->map, part, err);
}

/* peft has magnitudes of a module's outputs, in the norms of which all of its inputs count. */
static bool check_magnitudes(const MxTree *tree, const PeftModule *m, const PeftPart *part,
                             MxError *err) {
    bool fits = !m->is_parameter && !m->is_flipped && part->inputs == m->size_a;
    return part->m < 0 || fits ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "\"%s\": peft has no magnitudes (use_dora) for %s", leaf_of(tree, part->m)->path,
                   m->key);
}

/* Adds what the adapters of a row's kernel are in a module; those of the same kernel that are
 * there count the same ranks. */
static bool add_part(MxArena *arena, const MxTree *tree, PeftModule *m, PeftPart part,
                     MxError *err) {
    part.block = m->n_blocks;
    for (const PeftPart *p = m->parts; p; p = p->next)
        if (p->a == part.a) part.block = p->block;
    if (!measure(tree, m->has_experts, &part, err) || !check_magnitudes(tree, m, &part, err))
        return false;
    m->n_blocks += part.block == m->n_blocks;
    part.next = m->parts;
    m->parts = mx_new(arena, PeftPart);
    *m->parts = part;
    return true;
}

/* The adapters of a kernel that a module's are; experts have some each, others none. */
static bool find_pair(MxArena *arena, const MxTree *tree, const char *kernel, bool has_experts,
                      PeftPart *part) {
    part->a = mx_tree_find(tree, mx_arena_printf(arena, "%s_lora_a", kernel));
    part->b = mx_tree_find(tree, mx_arena_printf(arena, "%s_lora_b", kernel));
    part->m = mx_tree_find(tree, mx_arena_printf(arena, "%s_lora_m", kernel));
    int rank = 2 + has_experts;
    return part->a >= 0 && part->b >= 0 && leaf_of(tree, part->a)->shape.rank == rank &&
           leaf_of(tree, part->b)->shape.rank == rank;
}

/* "self_attention/q_norm/scale", of an adapter in any layer. */
static const char *kind_of(MxArena *arena, const char *path) {
    static const char dir[] = "model/", number[] = "layers_";
    const char *layer = strstr(path, number), *from = layer ? strchr(layer, '/') + 1 : path;
    if (!layer && mx_text_has_prefix(path, dir)) from = path + strlen(dir);
    return mx_arena_strndup(arena, from, strlen(from) - strlen("_lora_a"));
}

/* All kinds of adapters that are in no module. */
static bool check_all(MxArena *arena, const MxTree *tree, const bool *has_module, const char *hint,
                      MxError *err) {
    MxText kinds;
    MxMap seen;
    mx_text_init(&kinds, arena);
    mx_map_init(&seen, arena);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = leaf_of(tree, i);
        bool is_pair = !ckpt_is_whole(leaf->path) && !ckpt_is_head(leaf->path);
        if (leaf->kind != MX_KIND_LORA_PARAM || has_module[i] || !is_pair) continue;
        const char *kind = kind_of(arena, leaf->path);
        if (mx_map_get(&seen, kind, -1) >= 0) continue;
        mx_map_set(&seen, kind, i);
        mx_text_add(&kinds, "%s\"%s\"", kinds.len ? ", " : "", kind);
    }
    if (!kinds.len) return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "peft has no modules for the adapters of %s",
            kinds.data);
    mx_note(err, "hint: %s", hint);
    return false;
}

/* The parameters of one module are adapted one around another, the first one inside. */
static void nest(MxArena *arena, PeftModules *modules) {
    MxMap around;
    mx_map_init(&around, arena);
    for (int i = modules->n - 1; i >= 0; i--) {
        PeftModule *m = &modules->module[i];
        if (!m->has_experts || !m->parts) continue;
        int64_t n = mx_map_get(&around, m->module, 0);
        for (int64_t k = 0; k < n; k++)
            m->prefix = mx_arena_printf(arena, "%s.base_layer", m->prefix);
        mx_map_set(&around, m->module, n + 1);
    }
}

const MxHfSpelling *peft_within(const MxHfModel *model) {
    const MxHfEncoder *hf = model->encoder ? &model->encoder->hf : NULL;
    if (!hf || (!model->sees && (!model->is_within || hf->has_text_class))) return NULL;
    return hf->held.with ? &hf->held : &hf->text;
}

const char *peft_spell(MxArena *arena, const MxHfSpelling *within, const char *name) {
    if (!within || !mx_text_has_prefix(name, within->without)) return name;
    return mx_arena_printf(arena, "%s%s", within->with, name + strlen(within->without));
}

typedef struct Builder {
    MxArena *arena;
    const MxTree *tree;
    const MxHfModel *held;
    PeftModules *out;
    MxMap by_name;
    bool *has_module; /* adapters of the tree */
    MxError *err;
} Builder;

/* The module of a row's i-th parameter, and which adapters of ours it is. */
static bool add_parameter(Builder *b, const HfRow *row, int i, PeftPart part) {
    PeftModules *out = b->out;
    const char *theirs =
        peft_spell(b->arena, out->within, hf_their_name(b->arena, b->held, row, i));
    const char *ours = hf_our_name(b->arena, b->held, row, i);
    int at = (int)mx_map_get(&b->by_name, theirs, out->n);
    PeftModule *m = &out->module[at];
    if (at == out->n) *m = make_module(b->arena, b->held, row, &part.map, theirs);
    out->n += at == out->n;
    mx_map_set(&b->by_name, theirs, at);
    if (!find_pair(b->arena, b->tree, ours, m->has_experts, &part)) return true;
    b->has_module[part.a] = b->has_module[part.b] = true;
    if (part.m >= 0) b->has_module[part.m] = true;
    return add_part(b->arena, b->tree, m, part, b->err);
}

bool peft_modules(MxArena *arena, const MxTree *tree, PeftModules *modules, MxError *err) {
    if (!modules->model->names) return hf_check(modules->model, MX_NOWHERE, err);
    Builder b = {.arena = arena, .tree = tree, .out = modules, .err = err};
    bool ok = true;
    b.held = modules->held = hold(arena, modules->model);
    b.has_module = mx_new_n(arena, bool, tree->n + 1);
    mx_map_init(&b.by_name, arena);
    modules->module = mx_new_n(arena, PeftModule, hf_most_names(b.held));
    for (int r = 0; r < hf_n_rows; r++) {
        const HfRow *row = &hf_rows[r];
        for (int i = 0, n = (int)hf_count(b.held, row); i < n; i++) {
            if (!hf_has(b.held, row, i)) continue;
            PeftPart part = {.map = hf_map(b.held, row, i)};
            if (!is_matrix(row, &part.map)) break;
            ok = add_parameter(&b, row, i, part) && ok;
        }
    }
    nest(arena, modules);
    return check_all(arena, tree, b.has_module, modules->hint, err) && ok;
}

/* ---- places */

bool peft_has_magnitudes(const PeftModule *module) {
    return module->parts && module->parts->m >= 0;
}

bool peft_has(const PeftModule *module, int a) {
    const PeftPart *p = module->parts;
    while (p && p->a != a) p = p->next;
    return p != NULL;
}

/* Where an element of some dims of ours, counted through, is in the tensor; -1 = in another part.
 */
static int64_t place(const HfMap *map, int from, int to, int64_t i) {
    int64_t at = 0;
    for (int d = to - 1; d >= from; d--) {
        int64_t width = map->ours.dim[d], k = i % width - map->part.start[d];
        i /= width;
        if (k < 0 || k >= map->part.count[d]) return -1;
        if (d == map->rotated)
            k = map->spreads ? hf_place_spread(width, k) : hf_place_in_head(width, k);
        at += k * map->stride[d];
    }
    return at;
}

const int64_t *peft_places(MxArena *arena, const PeftModule *m, const PeftPart *part,
                           bool of_inputs) {
    const HfMap *map = &part->map;
    int64_t n = of_inputs ? part->inputs : part->outputs, *out = mx_new_n(arena, int64_t, n);
    int64_t columns = map->theirs.dim[map->theirs.rank - 1], offset = of_inputs ? 0 : map->offset;
    int from = of_inputs ? m->has_experts : part->n_in,
        to = of_inputs ? part->n_in : map->ours.rank;
    bool is_last = of_inputs == m->reads_last;
    for (int64_t i = 0; i < n; i++) {
        out[i] = place(map, from, to, i);
        if (out[i] < 0) continue;
        out[i] += offset;
        MX_ASSERT(is_last ? out[i] < columns : out[i] % columns == 0);
        if (!is_last) out[i] /= columns;
    }
    return out;
}

const char *peft_name(MxArena *arena, const PeftModule *module, char which) {
    const char *tensor = which == 'A' ? "A.weight" : which == 'B' ? "B.weight" : "magnitude_vector";
    return mx_arena_printf(arena, "base_model.model.%s.lora_%s", module->prefix, tensor);
}

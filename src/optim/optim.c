/* optim.c — the table of optimizers, and an optimizer for a model's parameters: which rule updates
 * which parameter, its state, and the place of that state in checkpoints. Wrappers are nested as in
 * MaxText: trainable_parameters_mask outside, skip_step_on_spikes inside. */
#include "internal.h"

static const OptimRow *const rows[] = {
#define MX_OPTIMIZER(name, keys) &optim_##name,
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
};

static const char *const trees[] = {
    [OPTIM_NOTHING] = NULL,
#define MX_OPTIM_TREE(name) [OPTIM_##name] = #name,
#include <mx/config_optimizers.def>
#undef MX_OPTIM_TREE
};

static const OptimRow *find_row(const MxConfig *config) {
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(rows[i]->name, config->opt_type)) return rows[i];
    MX_BUG("opt_type is not in the table");
}

static MxArena *arena_of(const MxOptim *o) {
    return o->numbers.arena;
}

/* ---- which part steps a parameter */

static bool choose(MxOptim *o, const OptimRow *row, int i, MxError *err) {
    const MxConfig *c = o->config;
    const MxLeaf *leaf = &o->params->leaves[i];
    bool is_trained = !leaf->is_unoptimized;
    if (is_trained && c->trainable_parameters_mask.n &&
        !mx_config_match(c, MX_KEY_trainable_parameters_mask, &c->trainable_parameters_mask, leaf,
                         &is_trained, err))
        return false;
    if (!mx_config_match(c, MX_KEY_adamw_mask, &c->adamw_mask, leaf, &o->is_masked[i], err))
        return false;
    if (is_trained) o->part[i] = row->part ? row->part(c, leaf) : 0;
    return true;
}

static bool choose_all(MxOptim *o, const OptimRow *row, MxKind trains, MxError *err) {
    int n = o->params->n, n_chosen = 0;
    o->part = mx_new_n(arena_of(o), int, n);
    o->is_masked = mx_new_n(arena_of(o), bool, n);
    for (int i = 0; i < n; i++) {
        o->part[i] = MX_NONE;
        if (o->params->leaves[i].kind != trains) continue;
        if (!choose(o, row, i, err)) return false;
        n_chosen += o->part[i] != MX_NONE;
    }
    return n_chosen || mx_config_fail(err, o->config, MX_KEY_trainable_parameters_mask,
                                      "matches no parameter that is trained");
}

static int find_pace(MxOptim *o, int part, double rate) {
    int at = 0;
    while (at < o->n_paces && (o->paces[at].part != part || o->paces[at].rate != rate)) at++;
    if (at == o->n_paces) o->paces[o->n_paces++] = (MxOptimPace){part, rate};
    return at;
}

/* The part's own comes first, whether any parameter has it or not. */
static void set_paces(MxOptim *o) {
    int n = o->params->n;
    o->paces = mx_new_n(arena_of(o), MxOptimPace, n + o->n_parts);
    o->pace = mx_new_n(arena_of(o), int, n);
    for (int part = 0; part < o->n_parts; part++) find_pace(o, part, 1);
    for (int i = 0; i < n; i++) {
        double rate = o->params->leaves[i].rate;
        o->pace[i] =
            o->part[i] == MX_NONE ? MX_NONE : find_pace(o, o->part[i], rate > 0 ? rate : 1);
    }
}

/* ---- what is kept */

static MxDtype mu_dtype(const MxConfig *config) {
    MxDtype dtype;
    bool known = mx_dtype_parse(config->mu_dtype, &dtype);
    MX_ASSERT(known);
    return dtype;
}

static OptimParam param_of(const MxOptim *o, int param) {
    return (OptimParam){
        .config = o->config, .leaf = &o->params->leaves[param], .is_masked = o->is_masked[param]};
}

/* The leaf with some of its dims. */
static void take_dims(MxLeaf *leaf, const int *dims, int n) {
    const MxLeaf all = *leaf;
    leaf->shape.rank = n;
    for (int d = 0; d < MX_MAX_RANK; d++) {
        leaf->shape.dim[d] = d < n ? all.shape.dim[dims[d]] : 0;
        leaf->axes[d] = d < n ? all.axes[dims[d]] : NULL;
    }
}

static const char *tree_of(const MxOptim *o, const MxOptimPart *part, OptimKept kept) {
    return mx_arena_printf(arena_of(o), "%s%s%s", part->folder, part->rule->folder,
                           trees[kept.tree]);
}

static MxLeaf kept_leaf(const MxOptim *o, const MxOptimPart *part, OptimKept kept,
                        const MxLeaf *param) {
    MxLeaf leaf = mx_leaf_abstract(*param);
    const char *tree = tree_of(o, part, kept);
    leaf.path = mx_arena_printf(arena_of(o), "%s/%s", tree, param->path);
    if (param->stack.path)
        leaf.stack.path = mx_arena_printf(arena_of(o), "%s/%s", tree, param->stack.path);
    leaf.kind = MX_KIND_OPTIMIZER;
    leaf.dtype = kept.in_mu_dtype ? mu_dtype(o->config) : MX_F32;
    return leaf;
}

/* Blocks of at most 64, at least eight along their dim, so that ranks may have parts of it. Where
 * no dim has such blocks of at least four, the array stays as it is. Source: Dettmers et al. 2022.
 */
static MxQuant quant_of(const MxOptim *o, OptimKept kept, MxShape shape) {
    enum { LARGEST = 64, LEAST = 4, BLOCKS = 8 };
    MxQuant best = {.tile = LEAST - 1};
    for (int d = 0; d < shape.rank - 1; d++)
        for (int64_t tile = LARGEST; tile > best.tile; tile /= 2)
            if (shape.dim[d] % (tile * BLOCKS) == 0)
                best = (MxQuant){.type = kept.bytes, .dim = d, .tile = tile};
    return strcmp(o->config->optimizer_state_dtype, "int8") ? (MxQuant){0} : best;
}

/* Lets an array be codes, with scales in another one beside it. */
static void keep_as_bytes(MxOptim *o, MxOptimArray *array, MxQuant quant, const char *tree) {
    MxOptimArray *scales = &o->arrays[array->scales = o->n_arrays++];
    const size_t n = strlen(tree);
    *scales = *array;
    scales->scales = MX_NONE;
    array->leaf.quant = quant;
    array->leaf.dtype = MX_U8;
    scales->leaf.dtype = MX_F32;
    scales->leaf.shape = mx_quant_scales(quant, array->leaf.shape);
    scales->leaf.path = mx_arena_printf(arena_of(o), "%s_scales%s", tree, array->leaf.path + n);
    if (array->leaf.stack.path)
        scales->leaf.stack.path =
            mx_arena_printf(arena_of(o), "%s_scales%s", tree, array->leaf.stack.path + n);
}

static void keep(MxOptim *o, int part, int slot) {
    OptimKept kept = o->parts[part].rule->kept[slot];
    for (int i = 0; i < o->params->n && kept.tree; i++) {
        if (o->part[i] != part) continue;
        const OptimRule *rule = o->parts[part].rule;
        const OptimParam param = param_of(o, i);
        MxOptimArray *array = &o->arrays[o->n_arrays];
        *array = (MxOptimArray){
            .leaf = kept_leaf(o, &o->parts[part], kept, param.leaf), .param = i, .scales = MX_NONE};
        for (int d = 0; d < MX_MAX_RANK; d++) array->dim[d] = d;
        if (rule->dims) {
            int n = rule->dims(&param, slot, array->dim);
            if (n == MX_NONE) continue;
            take_dims(&array->leaf, array->dim, n);
        }
        o->array[i * MX_OPTIM_KEPT + slot] = o->n_arrays++;
        MxQuant quant = quant_of(o, kept, array->leaf.shape);
        if (quant.type) keep_as_bytes(o, array, quant, tree_of(o, &o->parts[part], kept));
    }
}

static void keep_all(MxOptim *o) {
    int n = o->params->n * MX_OPTIM_KEPT;
    o->arrays = mx_new_n(arena_of(o), MxOptimArray, 2 * n); /* with scales */
    o->array = mx_new_n(arena_of(o), int, n);
    for (int i = 0; i < n; i++) o->array[i] = MX_NONE;
    for (int part = 0; part < o->n_parts; part++)
        for (int slot = 0; slot < MX_OPTIM_KEPT; slot++) keep(o, part, slot);
}

bool mx_optim_has_kept(const MxOptim *o) {
    return o->n_arrays > 0;
}

/* ---- what the host keeps */

void *optim_add_number(MxOptim *o, const char *path, MxDtype dtype, MxShape shape) {
    size_t bytes = (size_t)mx_shape_count(shape) * mx_dtype_bytes(dtype);
    void *data = mx_arena_alloc(arena_of(o), bytes);
    memset(data, 0, bytes);
    mx_tree_add(
        &o->numbers,
        (MxLeaf){
            .path = path, .kind = MX_KIND_COUNTER, .dtype = dtype, .shape = shape, .data = data});
    return data;
}

static const char *number_path(const MxOptim *o, const MxOptimPart *part, const char *folder,
                               const char *name) {
    return mx_arena_printf(arena_of(o), "%s%s%s", part->folder, folder, name);
}

static void add_numbers(MxOptim *o, MxOptimPart *part) {
    const OptimRule *rule = part->rule;
    for (int i = 0; i < OPTIM_MAX_COUNTS && rule->counts[i]; i++)
        o->counts[o->n_counts++] =
            optim_add_number(o, number_path(o, part, "", rule->counts[i]), MX_I32, MX_SCALAR);
    part->new_sums = mx_new_n(arena_of(o), float, OPTIM_MAX_SUMS);
    for (int i = 0; i < OPTIM_MAX_SUMS && rule->sums[i]; i++)
        part->sums[i] =
            optim_add_number(o, number_path(o, part, "", rule->sums[i]), MX_F32, MX_SCALAR);
    if (!rule->constant) return;
    const OptimConstant constant = rule->constant(o->config);
    optim_add_number(o, number_path(o, part, rule->folder, constant.name), MX_F32, constant.shape);
}

/* Checkpoints may say something else. */
static void set_constants(MxOptim *o) {
    for (int i = 0; i < o->n_parts; i++) {
        const MxOptimPart *part = &o->parts[i];
        if (!part->rule->constant) continue;
        const OptimConstant constant = part->rule->constant(o->config);
        int at = mx_tree_find(&o->numbers, number_path(o, part, part->rule->folder, constant.name));
        const MxLeaf *leaf = &o->numbers.leaves[at];
        memcpy(leaf->data, constant.values, mx_leaf_bytes(leaf));
    }
}

/* ---- all of it */

bool mx_optim_new(MxArena *arena, const MxConfig *config, const MxTree *params, MxKind trains,
                  MxOptim **out, MxError *err) {
    const OptimRow *row = find_row(config);
    const char *folder = "optimizer/opt_state/";
    MxOptim *o = *out = mx_new(arena, MxOptim);
    *o = (MxOptim){.config = config, .params = params};
    mx_tree_init(&o->numbers, arena);
    if (!choose_all(o, row, trains, err)) return false;
    if (config->trainable_parameters_mask.n)
        folder = mx_arena_printf(arena, "%sinner_states/trainable/inner_state/", folder);
    if (config->skip_step_on_spikes) {
        o->spikes = optim_spikes_new(o, folder);
        folder = mx_arena_printf(arena, "%sinner_state/", folder);
    }
    o->parts = mx_new_n(arena, MxOptimPart, OPTIM_MAX_PARTS);
    o->counts = mx_new_n(arena, int32_t *, OPTIM_MAX_PARTS * OPTIM_MAX_COUNTS);
    for (; o->n_parts < OPTIM_MAX_PARTS && row->parts[o->n_parts].rule; o->n_parts++) {
        MxOptimPart *part = &o->parts[o->n_parts];
        part->rule = row->parts[o->n_parts].rule;
        part->folder = mx_arena_printf(arena, "%s%s", folder, row->parts[o->n_parts].folder);
        add_numbers(o, part);
    }
    set_constants(o);
    set_paces(o);
    keep_all(o);
    return true;
}

const char *mx_optim_pace(MxArena *arena, const MxOptim *o, int pace) {
    const char *name = o->parts[o->paces[pace].part].rule->name;
    double rate = o->paces[pace].rate;
    return rate == 1 ? name : mx_arena_printf(arena, "%s at %.9g", name, rate);
}

/* ---- a step */

void mx_optim_trace(MxTrace *t, const MxOptim *o, int param, MxOptimStep *step) {
    const MxOptimStep old = *step;
    const OptimParam of = param_of(o, param);
    t->scope = of.leaf->path;
    o->parts[o->part[param]].rule->trace(t, &of, step);
    if (step->is_left_out == MX_NONE) return;
    step->p = mx_select(t, step->p, old.p, step->is_left_out);
    for (int slot = 0; slot < MX_OPTIM_KEPT; slot++)
        if (o->array[param * MX_OPTIM_KEPT + slot] != MX_NONE)
            step->kept[slot] = mx_select(t, step->kept[slot], old.kept[slot], step->is_left_out);
}

bool mx_optim_has_point(const MxOptim *o, int param) {
    return o->part[param] != MX_NONE && o->parts[o->part[param]].rule->point;
}

MxValue mx_optim_point(MxTrace *t, const MxOptim *o, int param, const MxOptimStep *step) {
    const OptimParam of = param_of(o, param);
    t->scope = of.leaf->path;
    return o->parts[o->part[param]].rule->point(t, &of, step);
}

int64_t mx_optim_count(const MxOptim *o) {
    return *o->counts[0];
}

void mx_optim_start(MxOptim *o, int64_t step) {
    for (int i = 0; i < o->numbers.n && !step; i++)
        memset(o->numbers.leaves[i].data, 0, mx_leaf_bytes(&o->numbers.leaves[i]));
    for (int i = 0; i < o->n_counts && !o->spikes; i++) *o->counts[i] = (int32_t)step;
    set_constants(o);
}

void mx_optim_hyper(const MxOptim *o, int pace, MxRates rates, float hyper[MX_HYPER_COUNT]) {
    const MxOptimPart *of = &o->parts[o->paces[pace].part];
    float sums[OPTIM_MAX_SUMS] = {0};
    for (int i = 0; i < OPTIM_MAX_SUMS; i++) sums[i] = of->sums[i] ? *of->sums[i] : 0;
    const OptimUpdate update = {.config = o->config,
                                .t = (double)mx_optim_count(o) + 1,
                                .next = rates.next,
                                .sums = sums,
                                .new_sums = of->new_sums};
    memset(hyper, 0, MX_HYPER_COUNT * sizeof *hyper);
    if (of->rule->hyper) of->rule->hyper(&update, hyper);
    hyper[MX_HYPER_LR] = (float)(rates.now * o->paces[pace].rate);
}

void optim_updated(MxOptim *o) {
    for (int i = 0; i < o->n_counts; i++) ++*o->counts[i];
    for (int i = 0; i < o->n_parts; i++)
        for (int k = 0; k < OPTIM_MAX_SUMS; k++)
            if (o->parts[i].sums[k]) *o->parts[i].sums[k] = o->parts[i].new_sums[k];
}

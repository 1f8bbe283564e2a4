/* arrays.c — a model's parameters as stored in a checkpoint, each with its logical names, specs and
 * shard, and the findings about them, each listed once for all arrays that it concerns. */
#include "internal.h"

#include <mx/ckpt.h>
#include <mx/family.h>

#include <stdlib.h>

/* ---- warnings */

void plan_warnings_init(PlanWarnings *warnings, MxArena *arena) {
    *warnings = (PlanWarnings){.arena = arena};
    mx_map_init(&warnings->seen, arena);
}

static void add_warning(PlanWarnings *w, PlanWarning warning) {
    const MxFinding *f = &warning.finding;
    const char *key =
        mx_arena_printf(w->arena, "%d %p %s", f->kind, (const void *)f->rule, f->text);
    int at = (int)mx_map_get(&w->seen, key, -1);
    if (at >= 0) {
        w->items[at].n_arrays++;
        return;
    }
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 16;
        w->items =
            mx_arena_grow(w->arena, w->items, (size_t)w->n, (size_t)w->cap, sizeof *w->items);
    }
    mx_map_set(&w->seen, key, w->n);
    w->items[w->n++] = warning;
}

bool plan_warn(PlanWarnings *warnings, const MxTrainMesh *mesh, const char *path, MxSpec names,
               bool is_activation, MxError *err) {
    MxArena *arena = warnings->arena;
    MxTrail trail = {.arena = arena};
    MxSpec raw;
    MxFindings found = {0};
    if (!mesh->rules.n) return true;
    if (!mx_shard_resolve(arena, &mesh->rules, names, &trail, &raw, err)) return false;
    if (mesh->mesh.n_ranks == 1) return true; /* which rule wins, changes nothing there */
    mx_shard_findings(arena, &mesh->rules, names, &trail, &mesh->mesh, &found);
    for (int i = 0; i < found.n; i++)
        add_warning(warnings, (PlanWarning){.finding = found.items[i],
                                            .path = path,
                                            .n_arrays = 1,
                                            .is_activation = is_activation});
    return true;
}

void plan_warn_rules(PlanWarnings *warnings, const MxTrainMesh *mesh) {
    MxFindings found = {0};
    mx_rules_findings(warnings->arena, &mesh->rules, &mesh->mesh, &found);
    for (int i = 0; i < found.n; i++)
        add_warning(warnings, (PlanWarning){.finding = found.items[i]});
}

/* ---- arrays */

const char *plan_shape_text(MxArena *arena, MxShape shape) {
    MxText text;
    mx_text_init(&text, arena);
    if (!shape.rank) mx_text_add(&text, "scalar");
    for (int d = 0; d < shape.rank; d++)
        mx_text_add(&text, "%s%lld", d ? "x" : "", (long long)shape.dim[d]);
    return text.data;
}

const char *plan_shard_text(MxArena *arena, const PlanArray *array) {
    if (array->error) return mx_arena_printf(arena, "ERR %s", array->error);
    return plan_shape_text(arena, array->shard);
}

/* Elements of a rank's part; a dim that does not divide is rounded up. */
static MxShape cut(const MxMesh *mesh, MxShape shape, MxSpec spec) {
    for (int d = 0; d < shape.rank && d < spec.rank; d++) {
        int64_t parts = mx_shard_parts(mesh, &spec.dim[d]);
        shape.dim[d] = (shape.dim[d] - 1) / parts + 1;
    }
    return shape;
}

#define LAYER "/layers_"

/* The number of a layer that a pipeline has; -1 = the leaf is in none. */
static long piped_layer(const MxLeaf *leaf) {
    const char *layer = leaf->stack.path ? strstr(leaf->path, LAYER) : NULL;
    return layer ? strtol(layer + strlen(LAYER), NULL, 10) : -1;
}

/* Whether the first layer can stand for all: each has the same arrays. */
static bool layers_are_alike(MxArena *arena, const MxTree *tree, int n_layers) {
    int n_all = 0, n_first = 0;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        long layer = piped_layer(leaf);
        if (layer < 0) continue;
        const char *number = strstr(leaf->path, LAYER) + strlen(LAYER);
        int first =
            mx_tree_find(tree, mx_arena_printf(arena, "%.*s0%s", (int)(number - leaf->path),
                                               leaf->path, number + strspn(number, "0123456789")));
        if (first < 0 || !mx_shape_equal(tree->leaves[first].shape, leaf->shape)) return false;
        n_all++;
        n_first += layer == 0;
    }
    return n_all == n_first * n_layers;
}

/* A stage runs one layer at a time, or one of every place: they lie in [repeats, stages], outside
 * of every other dim; the first ones stand for all. Source: MaxText layers/pipeline.py @e591f30c;
 * golden params, stage meshes. */
static void stack_in_pipeline(MxArena *arena, const MxTrainMesh *mesh, PlanArray *array) {
    const MxLeaf *leaf = array->leaf;
    const MxFamily *family = mx_family_find(mesh->config->decoder_block);
    const char *layer = strstr(array->path, LAYER), *tail = layer ? strchr(layer + 1, '/') : NULL;
    MX_ASSERT(tail);
    const char *place = "";
    if (family->stages_hold_places)
        place = mx_arena_printf(arena, "/%s%ld", family->place, piped_layer(leaf));
    array->path = mx_arena_printf(arena, "%.*s/pipeline_module/layers%s%s",
                                  (int)(layer - array->path), array->path, place, tail);
    const char **axes = mx_new_n(arena, const char *, MX_MAX_RANK);
    array->shape = (MxShape){0};
    int n = 0;
    if (mesh->n_repeats > 1) {
        axes[n] = "circular_repeats";
        array->shape.dim[n++] = mesh->n_repeats;
    }
    axes[n] = "layers";
    array->shape.dim[n++] = mesh->n_stages;
    MX_ASSERT(leaf->shape.rank + n <= MX_MAX_RANK);
    for (int d = 0; d < leaf->shape.rank; d++) {
        axes[n] = leaf->axes[d];
        array->shape.dim[n++] = leaf->shape.dim[d];
    }
    array->shape.rank = n;
    array->how.names = mx_spec_names(arena, axes, n);
}

/* Why the shard has no shape, if it has none. */
static void find_shard(MxArena *arena, const MxTrainMesh *mesh, PlanArray *array) {
    MxError why = {0};
    MxShardArray a = {
        .path = array->path, .dtype = array->dtype, .shape = array->shape, .spec = array->how.spec};
    if (!mx_shard_check(&mesh->mesh, a.spec, a.path, &why))
        array->error = "DuplicateSpecError";
    else if (!mx_shard_shape(&mesh->mesh, &a, &array->shard, &why))
        array->error = "IndivisibleError";
    if (array->error) {
        array->error_text = mx_arena_strdup(arena, why.text.data);
        array->shard = cut(&mesh->mesh, a.shape, a.spec);
    }
    mx_error_release(&why);
}

/* Of a layer's leaf with the dim of the layers inside of a stack. */
static MxSpec names_inside(MxArena *arena, const MxTrainMesh *mesh, const MxLeaf *leaf) {
    const char **axes = mx_new_n(arena, const char *, MX_MAX_RANK);
    int rank = leaf->shape.rank, at = (int)mesh->config->param_scan_axis;
    if (at > rank) at = rank;
    for (int d = 0; d < rank; d++) axes[d + (d >= at)] = leaf->axes[d];
    axes[at] = leaf->stack.inner_axis;
    return mx_spec_names(arena, axes, rank + 1);
}

/* Of a bare array. Linen puts none before the axis of its stack, as many as there is room for. */
static MxSpec names_of_bare(MxArena *arena, const MxTrainMesh *mesh, const MxLeaf *leaf) {
    int rank = leaf->shape.rank, at = (int)mesh->config->param_scan_axis;
    if (at > rank) at = rank;
    if (mesh->config->pure_nnx) at = 0;
    const char **axes = mx_new_n(arena, const char *, MX_MAX_RANK);
    axes[at] = leaf->stack.axis;
    return mx_spec_names(arena, axes, at + 1);
}

/* MaxText annotates no adapter: whole everywhere. What is bare has no axes but that of its stack,
 * and in a pipeline none. */
static bool resolve(MxArena *arena, const MxTrainMesh *mesh, PlanArray *array, bool is_stacked,
                    MxError *err) {
    const MxLeaf *leaf = array->leaf;
    MxVariable variable = {0};
    bool is_piped = array->how.names.rank > 0, is_nnx = mesh->config->pure_nnx;
    bool has_none = leaf->bare == MX_AXES_NONE, is_inside = leaf->stack.inner;
    bool is_bare = leaf->bare == MX_AXES_OF_STACK && (is_nnx || !leaf->axes[0]);
    bool is_adapter = leaf->kind == MX_KIND_LORA_PARAM && !leaf->stands_for;
    if (!is_adapter && !has_none && !is_bare)
        variable.names = mx_spec_names(arena, leaf->axes, leaf->shape.rank);
    if (is_piped) {
        if (!has_none && !is_bare) variable.names = array->how.names;
    } else if (is_stacked && is_bare && (is_nnx || !is_inside)) {
        variable.names = names_of_bare(arena, mesh, leaf);
    } else if (is_stacked && !has_none) {
        if (is_inside) variable.names = names_inside(arena, mesh, leaf);
        variable.partition = leaf->stack.axis;
        variable.scan_axis = (int)mesh->config->param_scan_axis;
    }
    if (!mx_shard_resolve_variable(arena, &variable, &mesh->rules, &mesh->mesh, &array->how, err))
        return mx_context(err, "%s", array->path);
    find_shard(arena, mesh, array);
    return true;
}

bool plan_arrays(MxArena *arena, const MxTrainMesh *mesh, const MxModel *model, PlanArray **out,
                 int *n, MxError *err) {
    const MxConfig *c = mesh->config;
    const MxTree *params = mx_model_params(model);
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    mx_tree_add_under(tree, "model", params);
    MxForm form = {.is_linen = !c->pure_nnx,
                   .is_scanned = c->scan_layers,
                   .scan_axis = (int)c->param_scan_axis};
    const MxLayers layers = mx_model_layers(c);
    const bool holds_places = layers.family->stages_hold_places;
    const int n_held = holds_places ? layers.period : 1;
    *out = mx_new_n(arena, PlanArray, tree->n);
    *n = 0;
    /* Virtual stages of several layers, or layers that differ where the original has no pipeline of
     * them: each layer by itself, as checkpoints have them. */
    bool are_apart =
        mesh->n_stages > 1 &&
        (mesh->stage_layers > 1 || (!holds_places && !layers_are_alike(arena, tree, layers.n)));
    form.is_scanned = form.is_scanned && !are_apart;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        long layer = mesh->n_stages > 1 && !are_apart ? piped_layer(leaf) : -1;
        bool is_piped = layer >= 0;
        bool is_stacked = !is_piped && form.is_scanned && leaf->stack.count;
        if ((is_stacked && leaf->stack.index > 0) || (is_piped && layer >= n_held)) continue;
        MxPlace place =
            mx_ckpt_place(arena, is_piped ? (MxForm){.is_linen = form.is_linen} : form, leaf);
        PlanArray *array = &(*out)[(*n)++];
        *array = (PlanArray){
            .path = place.path, .dtype = place.dtype, .shape = place.shape, .leaf = leaf};
        if (is_piped) stack_in_pipeline(arena, mesh, array);
        if (!resolve(arena, mesh, array, place.scan_dim >= 0, err)) return false;
    }
    return true;
}

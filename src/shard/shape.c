/* shape.c — specs and shapes: the shape of one rank's part of an array, dims that cannot be
 * divided, and MaxText's ways to make a spec fit. Resolution ignores shapes; a spec that does not
 * fit is an error or is adjusted afterwards. */
#include "internal.h"

int64_t mx_shard_parts(const MxMesh *mesh, const MxSpecDim *dim) {
    int64_t parts = 1;
    for (int i = 0; i < dim->n; i++) /* an axis that occurs often, before mx_shard_check */
        if (__builtin_mul_overflow(parts, mx_mesh_size(mesh, dim->axes[i]), &parts))
            return INT64_MAX;
    return parts;
}

/* The first dim whose size its parts do not divide, or -1. */
static int indivisible(const MxMesh *mesh, const MxShardArray *array) {
    for (int d = 0; d < array->spec.rank; d++)
        if (array->shape.dim[d] % mx_shard_parts(mesh, &array->spec.dim[d])) return d;
    return -1;
}

/* "axis \"mlp\" -> " of the rule that bound the dim, if there is one. */
static const char *cause(MxArena *scratch, const MxSpecDim *dim) {
    if (!dim->rule) return "";
    return mx_arena_printf(scratch, "rule %s: ", rule_text(scratch, dim->rule));
}

static bool fail_indivisible(const MxMesh *mesh, const MxShardArray *array, int d, MxError *err) {
    MxArena scratch = {.name = "message"};
    const MxSpecDim *dim = &array->spec.dim[d];
    MxText axes;
    mx_text_init(&axes, &scratch);
    for (int i = 0; i < dim->n; i++)
        mx_text_add(&axes, "%s\"%s\" (size %lld)", i ? " x " : "",
                    dim->axes[i] ? dim->axes[i] : "None",
                    (long long)mx_mesh_size(mesh, dim->axes[i]));
    mx_fail(err, MX_EXIT_CONFIG, dim->rule ? dim->rule->where : MX_NOWHERE,
            "%smesh axis %s does not divide dim %d = %lld of %s", cause(&scratch, dim), axes.data,
            d, (long long)array->shape.dim[d], array->path ? array->path : "the array");
    if (dim->rule && dim->rule->axis)
        mx_note(err, "hint: use a size that divides %lld, or leave \"%s\" unsharded: [%s, []]",
                (long long)array->shape.dim[d], dim->rule->axis, dim->rule->axis);
    mx_arena_release(&scratch);
    return false;
}

bool mx_shard_shape(const MxMesh *mesh, const MxShardArray *array, MxShape *out, MxError *err) {
    if (array->spec.rank > array->shape.rank)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s: a spec of %d entries does not fit an array of rank %d",
                       array->path ? array->path : "the array", array->spec.rank,
                       array->shape.rank);
    int bad = indivisible(mesh, array);
    if (bad >= 0) return fail_indivisible(mesh, array, bad, err);
    *out = array->shape;
    for (int d = 0; d < array->spec.rank; d++)
        out->dim[d] /= mx_shard_parts(mesh, &array->spec.dim[d]);
    return true;
}

typedef struct Fit {
    const MxMesh *mesh;
    int64_t *left; /* size that is not cut yet */
} Fit;

static bool still_divides(const char *axis, const void *data) {
    const Fit *fit = data;
    int64_t size = mx_mesh_size(fit->mesh, axis);
    if (*fit->left % size) return false;
    *fit->left /= size;
    return true;
}

MxSpec mx_shard_adjust(MxArena *arena, const MxMesh *mesh, const MxShardArray *array) {
    MxSpecDim *dim = spec_room(arena, array->spec.rank);
    for (int d = 0; d < array->spec.rank; d++) {
        int64_t left = d < array->shape.rank ? array->shape.dim[d] : 1;
        Fit fit = {mesh, &left};
        dim[d] = spec_filter(arena, &array->spec.dim[d], still_divides, &fit);
    }
    return (MxSpec){.rank = array->spec.rank, .dim = dim};
}

static MxSpecDim with_data(MxArena *arena, const MxSpecDim *old) {
    const char **axes = mx_new_n(arena, const char *, old->n + 1);
    axes[0] = "data";
    for (int i = 0; i < old->n; i++) axes[i + 1] = old->axes[i];
    return (MxSpecDim){.n = old->n + 1, .axes = axes, .rule = old->rule};
}

bool mx_shard_add_data(MxArena *arena, const MxMesh *mesh, const MxShardArray *array, MxSpec *out,
                       MxError *err) {
    MxShape shard;
    if (!mx_shard_shape(mesh, array, &shard, err)) return false;
    int rank = array->shape.rank;
    MxSpecDim *dim = spec_room(arena, rank);
    for (int d = 0; d < array->spec.rank; d++) dim[d] = array->spec.dim[d];
    *out = (MxSpec){.rank = rank, .dim = dim};
    if (mx_mesh_find(mesh, "data") < 0 || mx_spec_uses(array->spec, "data")) return true;
    for (int d = 0; d < rank; d++) {
        if (shard.dim[d] % mx_mesh_size(mesh, "data") || spec_holds(&dim[d], "tensor") ||
            spec_is_unconstrained(&dim[d]))
            continue;
        dim[d] = with_data(arena, &dim[d]);
        return true;
    }
    return true;
}

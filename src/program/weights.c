/* weights.c — the parameters' variables. A parameter stored in few bits (MxLeaf.quant) has two,
 * codes and scales. Entries read dequantized floats; products read the codes themselves
 * (quant_dot). Code that reads and writes the state's tree sees an array of floats: writes are
 * quantised, so any file can be loaded, piece by piece of an array. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

static const MxLeaf *leaf_of(const MxTrainState *s, int param) {
    return &mx_model_params(s->model)->leaves[param];
}

static bool is_in_few_bits(const MxTrainState *s, int param) {
    return leaf_of(s, param)->quant.type != MX_NOT_QUANTIZED;
}

void program_declare_params(MxTrainState *s) {
    int n = mx_model_params(s->model)->n;
    s->var.param = mx_new_n(s->arena, int, n);
    s->var.scales = mx_new_n(s->arena, int, n);
    for (int i = 0; i < n; i++) {
        const MxLeaf *leaf = leaf_of(s, i);
        MxType type = {leaf->dtype, leaf->shape};
        if (is_in_few_bits(s, i)) type = (MxType){MX_U8, mx_quant_codes(leaf->quant, leaf->shape)};
        s->var.param[i] = program_add_var(s, "model", leaf->path, type);
    }
    for (int i = 0; i < n; i++) {
        const MxLeaf *leaf = leaf_of(s, i);
        s->var.scales[i] = MX_NONE;
        if (!is_in_few_bits(s, i)) continue;
        MxType type = {MX_F32, mx_quant_scales(leaf->quant, leaf->shape)};
        s->var.scales[i] = program_add_var(s, "scales", leaf->path, type);
    }
}

/* ---- in graphs */

MxValue program_read_param(MxTrainState *s, MxTrace *t, int i) {
    const MxLeaf *leaf = leaf_of(s, i);
    MxValue value = mx_variable(t, s->var.param[i]);
    if (!is_in_few_bits(s, i)) return value;
    MxQuantAttr attr = {.dtype = leaf->dtype, .quant = leaf->quant};
    return mx_dequantized(t, value, mx_variable(t, s->var.scales[i]), attr);
}

MxValue *program_read_params(MxTrainState *s, MxTrace *t) {
    int n = mx_model_params(s->model)->n;
    MxValue *values = mx_new_n(s->arena, MxValue, n);
    for (int i = 0; i < n; i++) values[i] = program_read_param(s, t, i);
    return values;
}

void program_assign_param(MxTrainState *s, MxTrace *t, int i, MxValue value) {
    if (is_in_few_bits(s, i)) {
        value = mx_quantized(t, mx_cast(t, value, MX_F32), leaf_of(s, i)->quant);
        if (value != MX_NONE) mx_trace_assign(t, value + 1, s->var.scales[i], false);
    }
    mx_trace_assign(t, value, s->var.param[i], false);
}

/* ---- among ranks */

static bool divides(MxTrainState *s, MxShardArray array, MxShape shape, const char *what,
                    MxError *err) {
    MxShape part;
    array.shape = shape;
    array.path = mx_arena_printf(s->arena, "the %s of %s", what, array.path);
    return mx_shard_shape(&s->mesh.mesh, &array, &part, err);
}

bool program_shard_param(MxTrainState *s, int i, MxShardArray array, MxError *err) {
    const MxQuant quant = leaf_of(s, i)->quant;
    MxSharding sharding = mx_sharding_of_spec(&s->mesh.mesh, array.spec);
    s->sharding[s->var.param[i]] = sharding;
    if (!is_in_few_bits(s, i)) return true;
    s->sharding[s->var.scales[i]] = sharding;
    return divides(s, array, mx_quant_codes(quant, array.shape), "codes", err) &&
           divides(s, array, mx_quant_scales(quant, array.shape), "scales of blocks", err);
}

/* ---- as leaves */

/* What a rank has of a parameter, codes and scales, in memory of the host. */
typedef struct HostPart {
    MxQuant quant;
    MxBox all;
    MxShape shape;
    int64_t n;
    uint8_t *codes;
    float *scales, *values;
} HostPart;

static HostPart host_part(MxArena *arena, const MxTrainState *s, int i) {
    HostPart part = {.quant = leaf_of(s, i)->quant};
    part.shape = mx_quant_shape(part.quant, s->local.item[s->var.param[i]].type.shape);
    part.all = mx_box_of(part.shape);
    part.n = mx_shape_count(part.shape);
    part.codes = mx_arena_alloc(arena, program_var_bytes(s, s->var.param[i]) + 1);
    part.scales = mx_arena_alloc(arena, program_var_bytes(s, s->var.scales[i]) + 1);
    part.values = mx_new_n(arena, float, part.n + 1);
    return part;
}

static void read_floats(void *state, int i, MxBox box, void *host) {
    MxArena arena = {.name = "floats"};
    const MxTrainState *s = state;
    HostPart part = host_part(&arena, s, i);
    program_read_all(s, s->var.param[i], part.codes);
    program_read_all(s, s->var.scales[i], part.scales);
    mx_dequantize(part.quant, part.shape, part.codes, part.scales, part.values);
    MX_ASSERT(leaf_of(s, i)->dtype == MX_F32);
    mx_box_copy(&box, &part.all, part.values, &box, host, sizeof(float));
    mx_arena_release(&arena);
}

/* All at once: blocks are made of whole ones. */
static void write_floats(void *state, int i, MxBox box, const void *host) {
    MxArena arena = {.name = "codes"};
    MxTrainState *s = state;
    HostPart part = host_part(&arena, s, i);
    MX_ASSERT(mx_box_equal(&box, &part.all));
    if (!mx_quantize(part.quant, part.shape, host, part.codes, part.scales))
        s->not_finite = leaf_of(s, i)->path;
    program_write_all(s, s->var.param[i], part.codes);
    program_write_all(s, s->var.scales[i], part.scales);
    mx_arena_release(&arena);
}

static void write_codes(void *state, int i, const uint8_t *codes, const float *scales) {
    MxTrainState *s = state;
    int64_t n = mx_shape_count(s->local.item[s->var.scales[i]].type.shape);
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(scales[k])) s->not_finite = leaf_of(s, i)->path;
    program_write_all(s, s->var.param[i], codes);
    program_write_all(s, s->var.scales[i], scales);
}

static void *map_floats(void *state, int i) {
    (void)state;
    (void)i;
    return NULL;
}

void program_show_params(MxTrainState *s) {
    MxLeaf *leaf = program_show_each(s, "model", s->var.param);
    s->few_bits = (MxKeeper){.data = s,
                             .read = read_floats,
                             .write = write_floats,
                             .map = map_floats,
                             .write_codes = write_codes};
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (!is_in_few_bits(s, i)) continue;
        leaf[i].keeper = &s->few_bits;
        leaf[i].array = i;
    }
}

bool mx_train_check_weights(const MxTrainState *s, MxError *err) {
    const char *path = s->not_finite;
    return !path || mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                            "\"%s\" holds what is no number or infinite: %s has no code for it",
                            path, s->config->lora_weight_qtype);
}

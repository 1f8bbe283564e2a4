/* dense.c — products of activations with weights, and norms, with their adapters. */
#include <mx/model.h>

#include "adapter.h"
#include "mapped.h"

MxValue model_param(const Pass *p, int leaf) {
    const Adapter *adapters = p->model->adapters;
    int whole = adapters ? adapters[leaf].whole : -1;
    return p->params[whole < 0 ? leaf : whole];
}

MxValue model_weight(const Pass *p, int leaf) {
    return mx_cast(p->t, model_param(p, leaf), p->model->dtype);
}

const Adapter *model_adapter(const Pass *p, int leaf) {
    const Adapter *adapters = p->model->adapters;
    return adapters && adapters[leaf].a >= 0 ? &adapters[leaf] : NULL;
}

MxValue model_flatten_last(MxTrace *t, MxValue x, int n) {
    MxShape shape = mx_trace_type(t, x).shape, flat = {.rank = shape.rank - n + 1};
    if (x < 0 || n == 1) return x;
    for (int i = 0; i < flat.rank; i++) flat.dim[i] = shape.dim[i];
    for (int i = flat.rank; i < shape.rank; i++) flat.dim[flat.rank - 1] *= shape.dim[i];
    return mx_reshape(t, x, flat);
}

MxValue model_join_a(const Pass *p, int n, const Dense *dense) {
    MxValue a = MX_NONE;
    for (int i = 0; i < n; i++) {
        const Adapter *adapter = model_adapter(p, dense[i].kernel);
        if (!adapter) continue;
        a = a == MX_NONE ? p->params[adapter->a] : mx_concat(p->t, a, p->params[adapter->a]);
    }
    return a == MX_NONE ? a : mx_cast(p->t, a, p->model->dtype);
}

void model_part_low(const Pass *p, MxValue all, int n, const Dense *dense, MxValue *low) {
    int64_t rank = p->model->config->lora_rank;
    int left = 0;
    for (int i = 0; i < n; i++) left += model_adapter(p, dense[i].kernel) != NULL;
    all = mx_scale(p->t, all, p->model->lora.scale);
    for (int i = 0; i < n; i++) {
        if (!model_adapter(p, dense[i].kernel)) continue;
        low[i] = all;
        if (!--left) return;
        low[i] = mx_split(p->t, all, rank);
        all = low[i] + 1;
    }
}

static bool drops_lora(const Pass *p) {
    return p->draws && mx_config_drops_lora(p->model->config);
}

/* What an adapter reads of x. */
static MxValue drop_lora(const Pass *p, MxValue x) {
    if (!drops_lora(p)) return x;
    return mx_dropout(p->t, x, p->draws->rows, p->draws->step,
                      model_random(p, p->model->config->lora_dropout));
}

/* x A scale for the adapter of each kernel that has one. What takes time is to read x, and to write
 * its gradient: so that this is done once, they are made as one product. */
static void adapt_in(const Pass *p, MxValue x, int n, const Dense *dense, MxValue *low) {
    MxValue a = model_join_a(p, n, dense);
    if (a == MX_NONE) return;
    MxValue in = model_flatten_last(p->t, drop_lora(p, x),
                                    p->model->params.leaves[dense[0].kernel].n_contract);
    model_part_low(p, mx_dot(p->t, in, a, MX_DOT_NN, 1), n, dense, low);
}

/* y + low B, for y = x · kernel, and its magnitudes. Made as a product that y is added to. */
static MxValue adapt_out(const Pass *p, MxValue low, MxValue y, int kernel) {
    MxTrace *t = p->t;
    const MxLeaf *leaf = &p->model->params.leaves[kernel];
    const Adapter *adapter = model_adapter(p, kernel);
    if (!adapter) return y;
    MxShape shape = mx_trace_type(t, y).shape;
    MxValue base = model_flatten_last(t, y, leaf->shape.rank - leaf->n_contract);
    MxValue sum = mx_add(t, mx_dot(t, low, model_weight(p, adapter->b), MX_DOT_NN, 1), base);
    sum = model_magnify(p, kernel, sum);
    return base == y ? sum : mx_reshape(t, sum, shape);
}

MxValue model_fold_adapter(const Pass *p, int leaf) {
    MxTrace *t = p->t;
    const Adapter *adapter = model_adapter(p, leaf);
    if (!adapter) return model_param(p, leaf);
    MxValue a = mx_cast(t, p->params[adapter->a], MX_F32);
    MxValue b = mx_cast(t, p->params[adapter->b], MX_F32);
    MxValue delta = mx_dot(t, a, mx_scale(t, b, p->model->lora.scale), MX_DOT_NN, 1);
    MxShape flat = mx_trace_type(t, delta).shape, shape = p->model->params.leaves[leaf].shape;
    MxValue w = mx_cast(t, model_param(p, leaf), MX_F32);
    if (adapter->m < 0) return mx_add(t, mx_reshape(t, delta, shape), w);
    w = model_magnify(p, leaf, mx_add(t, delta, mx_reshape(t, w, flat)));
    return mx_reshape(t, w, shape);
}

static MxCalibration read_calibration(MxArena *arena, const char *text) {
    MxCalibration out;
    const char *why = mx_calibration_parse(arena, text, &out);
    MX_ASSERT(!why); /* the config checks it */
    return out;
}

const Rounding *model_read_rounding(MxArena *arena, const MxConfig *config) {
    static const struct {
        const char *name;
        MxGrid forward, back;
    } rows[] = {
        {"int4", MX_GRID_INT4, MX_GRID_INT4},     {"int8", MX_GRID_INT8, MX_GRID_INT8},
        {"fp4", MX_GRID_E2M1, MX_GRID_E2M1},      {"fp4_e2m1", MX_GRID_E2M1, MX_GRID_E2M1},
        {"fp8", MX_GRID_E4M3, MX_GRID_E4M3},      {"fp8_e4m3", MX_GRID_E4M3, MX_GRID_E4M3},
        {"fp8_e5m2", MX_GRID_E5M2, MX_GRID_E5M2}, {"fp8_full", MX_GRID_E4M3, MX_GRID_E5M2},
    };
    if (!*config->quantization) return NULL;
    int i = 0;
    const char *of_kernels =
        config->drhs_calibration ? config->drhs_calibration : config->bwd_calibration;
    while (i < MX_COUNT(rows) && strcmp(rows[i].name, config->quantization)) i++;
    MX_ASSERT(i < MX_COUNT(rows));
    Rounding *out = mx_new(arena, Rounding);
    *out = (Rounding){
        .x = {rows[i].forward, read_calibration(arena, config->act_calibration)},
        .kernel = {rows[i].forward, read_calibration(arena, config->weight_calibration)},
        .to_x = {rows[i].back, read_calibration(arena, config->bwd_calibration)},
        .to_kernel = {rows[i].back, read_calibration(arena, of_kernels)},
    };
    return out;
}

/* What products of kernels read. */
typedef struct Read {
    MxValue x;
    MxCoded coded; /* of kernels that are multiplied as codes */
} Read;

/* Kernels of the decoder's layers, and of modules that predict further tokens, by their paths.
 * Source: MaxText layers/quantizations.py, get_quantization_rule ("decoder/.*layers.*") @e591f30c,
 * get_fp8_full_qwix_rule_w_sparsity ("mtp_block/.*", ".*" "/gate$") @0.2.5. */
static bool is_rounded(const Pass *p, int kernel) {
    static const char decoder[] = "decoder/";
    const MxConfig *c = p->model->config;
    const char *path = p->model->params.leaves[kernel].path;
    if (!p->model->rounding) return false;
    if (mx_text_has_suffix(path, "/gate/kernel") && !c->quantize_router_proj) return false;
    if (mx_text_has_prefix(path, "mtp_block/")) return c->quantize_mtp;
    return mx_text_has_prefix(path, decoder) && strstr(path + strlen(decoder), "layers");
}

static Read read_for(const Pass *p, MxValue x, int kernel) {
    Read read = {.x = x};
    if (!is_rounded(p, kernel)) return read;
    MxEncodeAttr attr = {.coding = p->model->rounding->x,
                         .n_contract = p->model->params.leaves[kernel].n_contract};
    read.coded = mx_encode(p->t, x, MX_NONE, attr);
    return read;
}

/* The kernel, of which few elements of every so many may stay. */
static MxValue prune(const Pass *p, int kernel) {
    const MxLeaf *leaf = &p->model->params.leaves[kernel];
    int64_t kept = p->model->config->weight_sparsity_n, of = p->model->config->weight_sparsity_m;
    int64_t n = mx_shape_count(leaf->shape);
    if (!kept || !of) return model_weight(p, kernel);
    if (n % of == 0) return mx_prune(p->t, model_weight(p, kernel), kept, of);
    mx_trace_fail(p->t, "weight_sparsity_m=%lld does not divide the %lld elements of %s",
                  (long long)of, (long long)n, leaf->path);
    return MX_NONE;
}

static MxValue multiply_coded(const Pass *p, MxCoded x, int kernel) {
    MxEncodeAttr attr = {.coding = p->model->rounding->kernel,
                         .n_contract = p->model->params.leaves[kernel].n_contract,
                         .leads = true};
    MxCoded w = mx_encode(p->t, prune(p, kernel), MX_NONE, attr);
    return mx_coded_dot(p->t, x, w, attr.n_contract, p->model->rounding->to_x,
                        p->model->rounding->to_kernel);
}

static MxValue kernel_of(const Pass *p, const Dense *dense) {
    if (!dense->mapped) return model_weight(p, dense->kernel);
    return mx_cast(p->t, model_mapped(p->t, p->model, p->params, dense->mapped), p->model->dtype);
}

/* x · kernel. One that is kept in few bits is read as it is kept. */
static MxValue multiply(const Pass *p, Read read, const Dense *dense) {
    int kernel = dense->kernel;
    int n_contract = p->model->params.leaves[kernel].n_contract;
    MxQuantized w;
    if (is_rounded(p, kernel)) return multiply_coded(p, read.coded, kernel);
    if (mx_is_quantized(p->t, model_param(p, kernel), &w))
        return mx_quant_dot(p->t, read.x, w, MX_DOT_NN, n_contract);
    return mx_dot(p->t, read.x, kernel_of(p, dense), MX_DOT_NN, n_contract);
}

/* What is dropped passes the kernel as it is, and the rest with the adapter and its magnitudes: x W
 * - x' W + (x' W + x' A B scale) m / |W + A B scale|, x' being what is left of x. Source: peft
 * 0.21, tuners/lora/variants.py, DoraLinearVariant. */
static MxValue project_magnified(const Pass *p, MxValue x, const Dense *dense) {
    Pass of_rest = *p;
    MxValue rest = drop_lora(p, x), dropped = mx_add(p->t, x, mx_scale(p->t, rest, -1)), y;
    of_rest.draws = NULL;
    model_project_each(&of_rest, rest, 1, dense, &y);
    return mx_add(p->t, multiply(p, read_for(p, dropped, dense->kernel), dense), y);
}

/* Adapters come after the product with x itself: in the backward pass their gradient is then an
 * addend of that product's. Those that drop elements of x drop different ones, so that each has a
 * product of its own. */
void model_project_each(const Pass *p, MxValue x, int n, const Dense *dense, MxValue *y) {
    MxValue low[MODEL_MOST_BESIDE] = {MX_NONE, MX_NONE, MX_NONE};
    Read read = read_for(p, x, dense[0].kernel);
    bool drops = drops_lora(p);
    int together = drops ? 1 : n;
    for (int i = 0; i < n; i++) {
        const Adapter *adapter = model_adapter(p, dense[i].kernel);
        if (drops && adapter && adapter->m >= 0) {
            y[i] = project_magnified(p, x, &dense[i]);
            continue;
        }
        y[i] = multiply(p, read, &dense[i]);
        if (i % together == 0) adapt_in(p, x, together, dense + i, low + i);
        y[i] = adapt_out(p, low[i], y[i], dense[i].kernel);
        if (dense[i].bias >= 0) y[i] = mx_add(p->t, y[i], model_weight(p, dense[i].bias));
    }
}

MxValue model_project(const Pass *p, MxValue x, int kernel, int bias) {
    MxValue y;
    model_project_each(p, x, 1, &(Dense){.kernel = kernel, .bias = bias}, &y);
    return y;
}

void model_project_apart(const Pass *p, MxValue x, Dense dense, int n, const MxShape *tails,
                         MxValue *y) {
    const MxLeaf *leaf = &p->model->params.leaves[dense.kernel];
    MxValue all = model_project(p, x, dense.kernel, dense.bias);
    MxShape lead = mx_trace_type(p->t, all).shape;
    int n_out = leaf->shape.rank - leaf->n_contract;
    all = model_flatten_last(p->t, all, n_out);
    for (int i = 0; i < n; i++) {
        MxShape shape = lead;
        shape.rank = lead.rank - n_out;
        for (int d = 0; d < tails[i].rank; d++) shape.dim[shape.rank++] = tails[i].dim[d];
        if (i < n - 1) all = mx_split(p->t, all, mx_shape_count(tails[i]));
        y[i] = tails[i].rank > 1 ? mx_reshape(p->t, all, shape) : all;
        if (i < n - 1) all++;
    }
}

MxValue model_norm(const Pass *p, MxValue x, Norm norm, double epsilon) {
    if (norm.scale < 0) return x;
    MxValue scale = mx_cast(p->t, model_fold_adapter(p, norm.scale), MX_F32);
    if (model_norms[norm.kind].is_less_1) scale = mx_plus(p->t, scale, 1);
    if (model_norms[norm.kind].centers) x = mx_center(p->t, x);
    MxValue y = mx_rmsnorm(p->t, x, scale, epsilon);
    return norm.bias >= 0 ? mx_add(p->t, y, model_weight(p, norm.bias)) : y;
}

MxValue model_norm_bare(MxTrace *t, MxValue x, double factor, double epsilon) {
    MxShape shape = mx_trace_type(t, x).shape;
    MxInitAttr scale = {.type = {MX_F32, MX_SHAPE(shape.dim[shape.rank - 1])},
                        .fill = MX_FILL_CONSTANT,
                        .value = factor};
    return mx_rmsnorm(t, x, mx_init(t, scale), epsilon);
}

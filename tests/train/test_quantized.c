/* test_quantized.c — training with operands of few bits, against MaxText with qwix: one product and
 * its gradients, what its operands are rounded to, and a model's loss, logits and gradients; and
 * runs from start to end. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <mx/model.h>
#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

static MxArena arena = {.name = "quantized"};
static MxH5 *file;

static bool open_file(const char *name) {
    file = golden_open(&arena, name);
    return file != NULL;
}

static const float *array(const char *path, MxShape *shape) {
    MxH5Array found;
    MxError err = {0};
    int64_t n;
    const float *data = golden_read(&arena, file, path, &n);
    ck_assert_msg(data != NULL, "no %s", path);
    ck_assert(mx_h5_stat(file, path, &found, &err));
    if (shape) *shape = found.shape;
    return data;
}

static const struct {
    const char *word;
    MxGrid forward, back;
} modes[] = {
    {"int8", MX_GRID_INT8, MX_GRID_INT8},     {"int4", MX_GRID_INT4, MX_GRID_INT4},
    {"fp8", MX_GRID_E4M3, MX_GRID_E4M3},      {"fp8_e5m2", MX_GRID_E5M2, MX_GRID_E5M2},
    {"fp8_full", MX_GRID_E4M3, MX_GRID_E5M2},
};

/* ---- a product */

/* How x, w and dy are rounded. */
typedef struct Codings {
    MxCoding x, w, dy;
} Codings;

static Codings of_mode(int mode) {
    const MxCalibration absmax = {MX_ABSMAX, 1};
    const MxCoding forward = {modes[mode].forward, absmax};
    return (Codings){forward, forward, {modes[mode].back, absmax}};
}

/* The product of x and w, and the gradients that dy gives them. */
typedef struct Dense {
    MxVars vars;
    MxRun *run;
    int x, w, dy, y, dx, dw, codes[2], scales[2];
} Dense;

static int add_var(Dense *d, MxShape shape) {
    return mx_vars_add(&d->vars, "x", (MxType){MX_F32, shape});
}

static MxCoded encode(Dense *d, MxTrace *t, int which, MxValue value, MxEncodeAttr attr) {
    MxCoded coded = mx_encode(t, value, MX_NONE, attr);
    d->codes[which] = mx_vars_add(&d->vars, "codes", mx_trace_type(t, coded.codes));
    d->scales[which] = add_var(d, mx_trace_type(t, coded.scales).shape);
    mx_trace_assign(t, coded.codes, d->codes[which], false);
    mx_trace_assign(t, mx_copy(t, coded.scales), d->scales[which], false);
    return coded;
}

static const char *const shapes[] = {"w2d", "w3d", "contract2"};

static const char *in_group(const char *group, const char *path) {
    return mx_path_join(&arena, group, path);
}

static void trace_dense(Dense *d, MxShape x, MxShape w, MxShape y, Codings codings) {
    *d = (Dense){.vars.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "test", &d->vars);
    MxTrace t;
    MxError err = {0};
    MxDevice *device;
    int n = (x.rank + w.rank - y.rank) / 2;
    mx_trace_begin(&t, graph);
    d->x = add_var(d, x), d->dx = add_var(d, x);
    d->w = add_var(d, w), d->dw = add_var(d, w);
    d->y = add_var(d, y), d->dy = add_var(d, y);
    MxValue in[] = {mx_variable(&t, d->x), mx_variable(&t, d->w)};
    MxEncodeAttr attr = {.coding = codings.x, .n_contract = n};
    MxCoded coded_x = encode(d, &t, 0, in[0], attr);
    attr.leads = true, attr.coding = codings.w;
    MxCoded coded_w = encode(d, &t, 1, in[1], attr);
    MxValue product = mx_coded_dot(&t, coded_x, coded_w, n, codings.dy, codings.dy);
    mx_trace_assign(&t, mx_copy(&t, product), d->y, false);
    MxValue loss = mx_dot(&t, product, mx_variable(&t, d->dy), MX_DOT_NN, y.rank);
    const MxGradTarget targets[] = {{.wrt = in[0], .var = d->dx}, {.wrt = in[1], .var = d->dw}};
    mx_grad(&t, loss, targets, MX_COUNT(targets));
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(&arena, device, &d->vars, &graph, 1, MX_REMAT_NONE, &d->run, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
}

static void open_dense(Dense *d, const char *group, Codings codings) {
    MxShape x, w, y;
    const float *data[] = {array(in_group(group, "x"), &x), array(in_group(group, "w"), &w),
                           array(in_group(group, "dy"), &y)};
    trace_dense(d, x, w, y, codings);
    var_fill(d->run, d->x, data[0]), var_fill(d->run, d->w, data[1]);
    var_fill(d->run, d->dy, data[2]);
    mx_run_entry(d->run, 0);
}

static void check_near(const char *group, const char *what, const float *got, double bound) {
    MxShape shape;
    const float *want = array(in_group(group, what), &shape);
    double error = golden_error(got, want, mx_shape_count(shape));
    ck_assert_msg(error <= bound, "%s: %s is off by %g (bound %g)", group, what, error, bound);
}

START_TEST(products_are_qwixs) {
    if (!open_file("train/quant_dense.h5")) return;
    Dense d;
    int mode = _i % MX_COUNT(modes);
    const char *group = shapes[_i / MX_COUNT(modes)];
    open_dense(&d, group, of_mode(mode));
    group = in_group(group, mx_arena_printf(&arena, "qwix_%s", modes[mode].word));
    check_near(group, "y", var_values(&arena, d.run, d.y), 1e-5);
    check_near(group, "dx", var_values(&arena, d.run, d.dx), 1e-4);
    check_near(group, "dw", var_values(&arena, d.run, d.dw), 1e-4);
    mx_arena_release(&arena);
}
END_TEST

/* The codes of an operand, as floats. */
static const float *codes_of(const Dense *d, int which) {
    MxType type = d->vars.item[d->codes[which]].type;
    int64_t n = mx_shape_count(type.shape);
    const void *codes = var_values(&arena, d->run, d->codes[which]);
    float *out = mx_new_n(&arena, float, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = type.dtype == MX_I8 ? ((const int8_t *)codes)[i] : ((const float *)codes)[i];
    return out;
}

/* To the bit: where the largest magnitude is negative, its last bit decides between two codes. */
static void check_operand(const Dense *d, const char *group, int mode, int which) {
    const char *path =
        mx_arena_printf(&arena, "%s/operands/%s/%c", group, modes[mode].word, "xw"[which]);
    MxShape shape, of_scales;
    const float *codes = codes_of(d, which);
    const float *scales = var_values(&arena, d->run, d->scales[which]);
    const float *want = array(mx_arena_printf(&arena, "%s_qvalue", path), &shape);
    const float *want_scales = array(mx_arena_printf(&arena, "%s_scale", path), &of_scales);
    for (int64_t i = 0; i < mx_shape_count(shape); i++)
        ck_assert_msg(codes[i] == want[i], "%s %lld: %g, not %g", path, (long long)i,
                      (double)codes[i], (double)want[i]);
    for (int64_t i = 0; i < mx_shape_count(of_scales); i++)
        ck_assert_msg(scales[i] == want_scales[i], "%s, scale %lld: %.9g, not %.9g", path,
                      (long long)i, (double)scales[i], (double)want_scales[i]);
}

/* Those of fp8_full are fp8's. */
enum { MODES_WITH_OPERANDS = MX_COUNT(modes) - 1 };

START_TEST(operands_are_qwixs) {
    if (!open_file("train/quant_dense.h5")) return;
    Dense d;
    int mode = _i % MODES_WITH_OPERANDS;
    const char *group = shapes[_i / MODES_WITH_OPERANDS];
    open_dense(&d, group, of_mode(mode));
    for (int which = 0; which < 2; which++) check_operand(&d, group, mode, which);
    mx_arena_release(&arena);
}
END_TEST

/* ---- calibrations */

static const char *text_in(MxH5 *in, const char *group, const char *name) {
    MxError err = {0};
    char *text = NULL;
    bool ok = mx_h5_attr(&arena, in, group, name, &text, &err);
    ck_assert_msg(ok && text, "%s: no %s", group, name);
    return text;
}

static const char *text_of(const char *group, const char *name) {
    return text_in(file, group, name);
}

static MxCoding calibrated(MxGrid grid, const char *text) {
    MxCoding coding = {.grid = grid};
    const char *why = mx_calibration_parse(&arena, text, &coding.calibration);
    ck_assert_msg(!why, "%s: %s", text, why);
    return coding;
}

enum { PRODUCTS = 18, CALIBRATED_MODELS = 2 };

static const char *product_text(int product, const char *name) {
    return text_of("products", mx_arena_printf(&arena, "%d_%s", product, name));
}

static void check_product(int product, const char *what, const float *got, double bound) {
    MxShape shape;
    const float *want = array(in_group("products", what), &shape);
    int64_t n = mx_shape_count(shape) / shape.dim[0];
    double error = golden_error(got, want + product * n, n);
    ck_assert_msg(error <= bound, "%d: %s is off by %g (bound %g)", product, what, error, bound);
}

/* The same text gives the same codes and gradients, of which elements that are cut off have none.
 */
START_TEST(calibrations_are_qwixs) {
    if (!open_file("train/calibration.h5")) return;
    Dense d;
    int mode = 0;
    const char *format = product_text(_i, "quantization");
    while (strcmp(modes[mode].word, format) != 0) mode++;
    Codings codings = {calibrated(modes[mode].forward, product_text(_i, "act")),
                       calibrated(modes[mode].forward, product_text(_i, "weight")),
                       calibrated(modes[mode].back, product_text(_i, "bwd"))};
    open_dense(&d, "", codings);
    check_product(_i, "x_codes", codes_of(&d, 0), 0);
    check_product(_i, "w_codes", codes_of(&d, 1), 0);
    check_product(_i, "y", var_values(&arena, d.run, d.y), 1e-6);
    check_product(_i, "dx", var_values(&arena, d.run, d.dx), 1e-6);
    check_product(_i, "dw", var_values(&arena, d.run, d.dw), 1e-6);
    mx_arena_release(&arena);
}
END_TEST

static bool has_nan(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i])) return true;
    return false;
}

/* A NaN in x or w is in a row or a column of the product, and in the gradients, whatever its code
 * is. */
enum { GRIDS = MX_GRID_COUNT - MX_GRID_INT4 };

START_TEST(nans_are_not_rounded_away) {
    static const char *const methods[] = {"absmax", "rms,3", "fixed,2"};
    enum { ROWS = 3, INNER = 20, COLUMNS = 5 };
    MxGrid grid = (MxGrid)(MX_GRID_INT4 + _i % GRIDS);
    MxCoding coding = calibrated(grid, methods[_i / GRIDS]);
    Dense d;
    float x[ROWS * INNER], w[INNER * COLUMNS], dy[ROWS * COLUMNS];
    for (int i = 0; i < MX_COUNT(x); i++) x[i] = (float)i / MX_COUNT(x);
    for (int i = 0; i < MX_COUNT(w); i++) w[i] = -(float)i / MX_COUNT(w);
    for (int i = 0; i < MX_COUNT(dy); i++) dy[i] = 1;
    trace_dense(&d, MX_SHAPE(ROWS, INNER), MX_SHAPE(INNER, COLUMNS), MX_SHAPE(ROWS, COLUMNS),
                (Codings){coding, coding, coding});
    for (int of_w = 0; of_w < 2; of_w++) {
        float *to = of_w ? &w[1] : &x[1], was = *to;
        *to = NAN;
        var_fill(d.run, d.x, x), var_fill(d.run, d.w, w), var_fill(d.run, d.dy, dy);
        *to = was;
        mx_run_entry(d.run, 0);
        const float *y = var_values(&arena, d.run, d.y);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            ck_assert(isnan(y[i]) == (of_w ? i % COLUMNS == 1 : i < COLUMNS));
        ck_assert(has_nan(var_values(&arena, d.run, of_w ? d.dx : d.dw),
                          of_w ? ROWS * INNER : INNER * COLUMNS));
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- a model */

static MxTrainState *open_model(const char *group, MxConfig **config) {
    MxTrainState *s;
    MxError err = {0};
    *config = golden_yaml_config(&arena, file, group, "");
    bool ok = mx_train_state_open(&arena, *config, &s, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    mx_train_state_init(s);
    ck_assert_msg(mx_ckpt_read(file, "linen", "model/", 1, mx_train_state_tree(s), &err), "%s",
                  err.text.data);
    close_nudge(mx_train_state_tree(s));
    return s;
}

static Close figure(const char *name, CloseKind kind, const char *what) {
    return (Close){.golden = name, .kind = kind, .what = what};
}

static void check_gradients(const MxTrainState *s, const char *group, const char *name) {
    MxTree got = golden_gradient_tree(&arena, s), want;
    MxError err = {0};
    bool ok = golden_like(&arena, s, file, in_group(group, "grads"), 1, &want, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    for (int i = 0; i < got.n; i++) {
        Close c = figure(name, CLOSE_GRADIENT, got.leaves[i].path);
        close_array(&c, got.leaves[i].data, want.leaves[i].data,
                    mx_shape_count(got.leaves[i].shape));
    }
}

/* Of the integers a row whose largest magnitude is negative has an element between two codes; what
 * a start that is moved by one bit makes of it is measured (tests/golden/noise.tsv). */
START_TEST(models_are_maxtexts) {
    if (!open_file("train/quant_model.h5")) return;
    MxConfig *config;
    MxShape shape;
    const char *group = modes[_i].word;
    const char *name = mx_arena_printf(&arena, "train/quant_model.h5:%s", group);
    MxTrainState *s = open_model(group, &config);
    MxBatch batch = golden_batch(&arena, file, "batch", 0);
    Close loss = figure(name, CLOSE_LOSS, "loss"), logits = figure(name, CLOSE_LOGITS, "logits");
    close_number(&loss, mx_train_loss_and_grad(s, &batch).loss,
                 (double)*array(in_group(group, "loss"), NULL));
    const float *want = array(in_group(group, "logits_row0"), &shape);
    GoldenProgram *program = golden_program(&arena, config, false);
    close_array(&logits, golden_logits(program, mx_train_state_tree(s), &batch), want,
                mx_shape_count(shape));
    if (mx_h5_has_group(file, in_group(group, "grads"))) check_gradients(s, group, name);
    mx_arena_release(&arena);
}
END_TEST

/* MaxText's model by keys that a group of the file says, as attributes and in the config; loss and
 * gradients of its first step. Parameters and batch are those of a file without quantisation. */
typedef struct NamedKey {
    const char *name, *key;
} NamedKey;

typedef struct KeyedModel {
    const char *group, *name;
    MxTrainState *s;
    MxBatch batch;
} KeyedModel;

static KeyedModel check_keyed_model(const char *golden, int i_model, const NamedKey *keys, int n) {
    MxConfig *config;
    MxTrainState *s;
    MxError err = {0};
    MxH5 *plain = golden_open(&arena, "models/llama2.h5");
    ck_assert(plain != NULL);
    const char *group = mx_arena_printf(&arena, "models/%d", i_model);
    const char *name = mx_arena_printf(&arena, "%s:%s", golden, group);
    const char *words = "quantization=fp8_full";
    for (int i = 0; i < n; i++)
        words =
            mx_arena_printf(&arena, "%s %s=%s", words, keys[i].key, text_of(group, keys[i].name));
    bool ok = golden_config(&arena, text_in(plain, "", "config_cli"), words, &config, &err) &&
              mx_train_state_open(&arena, config, &s, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    mx_train_state_init(s);
    ok = mx_ckpt_read(plain, "linen", "model/", 1, mx_train_state_tree(s), &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    close_nudge(mx_train_state_tree(s));
    MxBatch batch = golden_batch(&arena, plain, "batch", 0);
    Close c = figure(name, CLOSE_LOSS, "loss");
    close_number(&c, mx_train_loss_and_grad(s, &batch).loss,
                 (double)*array(in_group(group, "loss"), NULL));
    MxTree got = golden_gradient_tree(&arena, s);
    int n_compared = 0;
    for (int i = 0; i < got.n; i++) {
        const char *path =
            mx_path_join(&arena, in_group(group, "grads"), got.leaves[i].path + strlen("model/"));
        if (!mx_h5_has_array(file, path)) continue;
        n_compared++;
        c = figure(name, CLOSE_GRADIENT, got.leaves[i].path);
        close_array(&c, got.leaves[i].data, array(path, NULL), mx_shape_count(got.leaves[i].shape));
    }
    ck_assert_int_eq(n_compared, 3);
    return (KeyedModel){group, name, s, batch};
}

#define METHODS                                                                                    \
    {"act", "act_quantization_calibration_method"},                                                \
        {"weight", "weight_quantization_calibration_method"}, {                                    \
        "bwd", "bwd_quantization_calibration_method"                                               \
    }

START_TEST(calibrated_models_are_maxtexts) {
    static const NamedKey keys[] = {METHODS};
    if (!open_file("train/calibration.h5")) return;
    check_keyed_model("train/calibration.h5", _i, keys, MX_COUNT(keys));
    mx_arena_release(&arena);
}
END_TEST

/* ---- pruned kernels */

enum { MASKS = 7, PRUNED_MODELS = 2, PRUNED_STEPS = 5 };

static int number_of(const char *group, const char *name) {
    return (int)strtol(text_of(group, name), NULL, 10);
}

START_TEST(masks_are_qwixs) {
    if (!open_file("train/sparsity.h5")) return;
    MxVars vars = {.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "test", &vars);
    MxTrace t;
    MxError err = {0};
    MxDevice *device;
    MxRun *run;
    MxShape shape;
    const char *group = mx_arena_printf(&arena, "masks/%d", _i);
    const float *x = array(in_group(group, "x"), &shape);
    const float *mask = array(in_group(group, "mask"), NULL);
    int in = mx_vars_add(&vars, "x", (MxType){MX_F32, shape});
    int out = mx_vars_add(&vars, "y", (MxType){MX_F32, shape});
    mx_trace_begin(&t, graph);
    MxValue y = mx_prune(&t, mx_variable(&t, in), number_of(group, "n"), number_of(group, "m"));
    mx_trace_assign(&t, mx_copy(&t, y), out, false);
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(&arena, device, &vars, &graph, 1, MX_REMAT_NONE, &run, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    var_fill(run, in, x);
    mx_run_entry(run, 0);
    const float *got = var_values(&arena, run, out);
    for (int64_t i = 0; i < mx_shape_count(shape); i++)
        ck_assert_msg(got[i] == x[i] * mask[i], "%s, %d: %g", group, (int)i, (double)got[i]);
    mx_arena_release(&arena);
}
END_TEST

/* Also the losses of steps, after which other elements are the largest. */
START_TEST(pruned_models_are_maxtexts) {
    static const NamedKey keys[] = {
        {"n", "weight_sparsity_n"}, {"m", "weight_sparsity_m"}, METHODS};
    if (!open_file("train/sparsity.h5")) return;
    KeyedModel m = check_keyed_model("train/sparsity.h5", _i, keys, MX_COUNT(keys));
    const float *losses = array(in_group(m.group, "losses"), NULL);
    for (int step = 0; step < PRUNED_STEPS; step++) {
        Close c = figure(m.name, step ? CLOSE_LATER_LOSS : CLOSE_LOSS,
                         mx_arena_printf(&arena, "loss of step %d", step));
        if (step) mx_train_update(m.s);
        close_number(&c, mx_train_loss_and_grad(m.s, &m.batch).loss, (double)losses[step]);
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- other models, and runs */

static const char small[] =
    "base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2 "
    "head_dim=16 base_mlp_dim=64 vocab_size=300 max_target_length=16 per_device_batch_size=2 "
    "dataset_type=synthetic ";

static MxTrainState *state_of(const char *more) {
    MxConfig *config;
    MxTrainState *s;
    MxError err = {0};
    bool ok = golden_config(&arena, small, more, &config, &err) &&
              mx_train_state_open(&arena, config, &s, &err);
    ck_assert_msg(ok, "%s: %s", more, ok ? "" : err.text.data);
    mx_train_state_init(s);
    return s;
}

static double loss_of_state(MxTrainState *s) {
    MxBatch batch = mx_batch_new(&arena, 2, mx_train_state_config(s)->max_target_length);
    for (int64_t i = 0; i < batch.rows * batch.length; i++) {
        batch.field[MX_INPUTS][i] = (int32_t)(37 * i % 300);
        batch.field[MX_TARGETS][i] = (int32_t)(37 * (i + 1) % 300);
        batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % batch.length);
        batch.field[MX_INPUTS_SEGMENTATION][i] = batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    }
    return mx_train_loss_and_grad(s, &batch).loss;
}

static double loss_of(const char *more) {
    return loss_of_state(state_of(more));
}

/* Every block's products are rounded, and none but theirs: the loss moves, and not far. */
static const char *const models[] = {
    "",
    "dtype=bfloat16",
    "remat_policy=full fused_qkv=true fused_mlp=true attention_bias=true",
    "decoder_block=deepseek attention_type=mla first_num_dense_layers=1 kv_lora_rank=32 "
    "q_lora_rank=32 qk_nope_head_dim=16 qk_rope_head_dim=8 v_head_dim=16 num_experts=4 "
    "num_experts_per_tok=2 shared_experts=1 base_moe_mlp_dim=48",
    ("lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 lora.lora_weight_qtype=nf4 "
     "lora.lora_tile_size=8"),
};

START_TEST(losses_move_a_little) {
    double plain = loss_of(models[_i]);
    double rounded = loss_of(mx_arena_printf(&arena, "%s quantization=int8", models[_i]));
    ck_assert_double_ne(plain, rounded);
    ck_assert_double_eq_tol(plain, rounded, 0.02 * plain);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(groups_must_fit) {
    MxConfig *config;
    MxTrainState *s;
    MxError err = {0};
    ck_assert(golden_config(
        &arena, small, "quantization=fp8 weight_sparsity_n=2 weight_sparsity_m=7", &config, &err));
    ck_assert(!mx_train_state_open(&arena, config, &s, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data,
                                 "weight_sparsity_m=7 does not divide the 1024 elements of "
                                 "decoder/layers_0/self_attention/query/kernel"));
    mx_error_release(&err);
    mx_arena_release(&arena);
}
END_TEST

/* Adapters that are 0 change nothing. What reaches them is what other products have rounded, so
 * their gradients are near those without. */
START_TEST(adapters_are_not_rounded) {
    enum { FORMATS = 2 };
    static const char *const formats[FORMATS] = {"", "quantization=int8"};
    static const char adapters[] = "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8";
    MxTree tree[FORMATS];
    for (int i = 0; i < FORMATS; i++) {
        MxTrainState *s = state_of(mx_arena_printf(&arena, "%s %s", formats[i], adapters));
        double loss = loss_of_state(s);
        ck_assert_double_eq(loss, loss_of(formats[i]));
        tree[i] = golden_gradient_tree(&arena, s);
    }
    for (int leaf = 0; leaf < tree[0].n; leaf++) {
        const MxLeaf *plain = &tree[0].leaves[leaf], *rounded = &tree[1].leaves[leaf];
        ck_assert(!plain->data == !strstr(plain->path, "_lora_"));
        if (!plain->data) continue;
        double error = golden_error(rounded->data, plain->data, mx_shape_count(plain->shape));
        bool is_b = mx_text_has_suffix(plain->path, "_lora_b");
        ck_assert_msg(is_b == (error > 0), "%s is off by %g", plain->path, error);
        ck_assert_msg(error < 0.1, "%s is off by %g", plain->path, error);
    }
    mx_arena_release(&arena);
}
END_TEST

/* A run that is cut and goes on ends with the same bytes as one that is not. */
START_TEST(runs_go_on_exactly) {
    const char *dir = process_dir(&arena, "quantized_resume");
    static const char *const runs[][2] = {{"whole", "4"}, {"cut", "2"}, {"cut", "4"}};
    for (int i = 0; i < MX_COUNT(runs); i++)
        ck_assert_int_eq(
            process_run(&arena, dir,
                        mx_arena_printf(&arena,
                                        "--config configs/base.yml %s quantization=fp8_full "
                                        "run_name=%s base_output_directory=%s steps=%s "
                                        "eval_interval=-1 learning_rate_schedule_steps=4",
                                        small, runs[i][0], dir, runs[i][1])),
            0);
    size_t size[2];
    const char *state[] = {
        process_file(&arena, dir, "whole/checkpoints/3/state.h5", &size[0]),
        process_file(&arena, dir, "cut/checkpoints/3/state.h5", &size[1]),
    };
    ck_assert(size[0] && size[0] == size[1] && !memcmp(state[0], state[1], size[0]));
    mx_arena_release(&arena);
}
END_TEST

Suite *quantized_suite(void) {
    Suite *suite = suite_create("quantized");
    TCase *tcase = tcase_create("goldens");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, products_are_qwixs, 0, MX_COUNT(shapes) * MX_COUNT(modes));
    tcase_add_loop_test(tcase, operands_are_qwixs, 0, MX_COUNT(shapes) * MODES_WITH_OPERANDS);
    tcase_add_loop_test(tcase, calibrations_are_qwixs, 0, PRODUCTS);
    tcase_add_loop_test(tcase, nans_are_not_rounded_away, 0, MX_MEASURE_COUNT * GRIDS);
    tcase_add_loop_test(tcase, calibrated_models_are_maxtexts, 0, CALIBRATED_MODELS);
    tcase_add_loop_test(tcase, masks_are_qwixs, 0, MASKS);
    tcase_add_loop_test(tcase, pruned_models_are_maxtexts, 0, PRUNED_MODELS);
    tcase_add_loop_test(tcase, models_are_maxtexts, 0, MX_COUNT(modes));
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, losses_move_a_little, 0, MX_COUNT(models));
    tcase_add_test(tcase, groups_must_fit);
    tcase_add_test(tcase, adapters_are_not_rounded);
    tcase_add_test(tcase, runs_go_on_exactly);
    suite_add_tcase(suite, tcase);
    return suite;
}

/* test_qlora.c — adapters over weights in few bits: the same losses and gradients as over the
 * floats that the codes stand for, what they take, and runs from start to end. */
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <unistd.h>

static const char small[] = "base_emb_dim=64 base_num_decoder_layers=2 base_num_query_heads=2 "
                            "base_num_kv_heads=2 head_dim=32 base_mlp_dim=96 vocab_size=1000 "
                            "max_target_length=24 per_device_batch_size=2 dataset_type=synthetic "
                            "sliding_window_size=8 lora.enable_lora=true lora.lora_rank=4 "
                            "lora.lora_alpha=8 lora.lora_tile_size=16 ";

/* ---- a state, its batch, and the same over floats */

typedef struct Side {
    MxTrainState *state;
    MxBatch batch;
} Side;

static void draw(MxTree *tree, MxKind kind, float size) {
    MxArena arena = {.name = "draw"};
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (leaf->kind != kind) continue;
        float *x = golden_values(&arena, leaf);
        uint32_t words[4];
        for (int64_t k = 0; k < mx_shape_count(leaf->shape); k++) {
            mx_philox(3, (uint64_t)i, (uint64_t)k, words);
            x[k] = size * (mx_uniform(words[0]) - 0.5f);
        }
        mx_leaf_write(leaf, x);
    }
    mx_arena_release(&arena);
}

static Side open_side(MxArena *arena, const char *more) {
    MxConfig *config;
    MxError err = {0};
    Side side;
    ck_assert_msg(golden_config(arena, small, more, &config, &err) &&
                      mx_train_state_open(arena, config, &side.state, &err),
                  "%s: %s", more, err.text.data);
    mx_train_state_init(side.state);
    draw(mx_train_state_tree(side.state), MX_KIND_LORA_PARAM, 0.4f);
    side.batch = mx_batch_new(arena, 2, config->max_target_length);
    for (int64_t i = 0; i < side.batch.rows * side.batch.length; i++) {
        side.batch.field[MX_INPUTS][i] = (int32_t)(37 * i % 1000);
        side.batch.field[MX_TARGETS][i] = (int32_t)(37 * (i + 1) % 1000);
        side.batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % side.batch.length);
        side.batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        side.batch.field[MX_TARGETS_SEGMENTATION][i] = 1;
    }
    return side;
}

/* Gives `to` the weights that `from` has, as floats. */
static void copy_weights(MxArena *arena, const Side *from, const Side *to) {
    const MxTree *tree = mx_train_state_tree(from->state);
    MxTree *target = mx_train_state_tree(to->state);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (leaf->kind != MX_KIND_PARAM) continue;
        mx_leaf_write(&target->leaves[mx_tree_find(target, leaf->path)],
                      mx_leaf_values(arena, leaf));
    }
    mx_train_state_restored(to->state);
}

/* ---- products with codes */

static const struct {
    const char *config;
    double loss, gradient; /* relative; the norm of the difference */
} models[] = {
    {"", 1e-6, 1e-5},
    {"decoder_block=qwen3 use_qk_norm=true remat_policy=full", 1e-6, 1e-5},
    {"dtype=bfloat16", 1e-3, 4e-2}, /* sums are rounded in another order */
    {"scan_layers=false attention_bias=true fused_qkv=true", 1e-6, 1e-5},
    {"lora.lora_module_path=.*", 1e-6, 1e-5}, /* norms stay, the output matrix is not a product */
    {"lora.lora_module_path=.*MoeBlock_0 decoder_block=mixtral num_experts=4 num_experts_per_tok=2 "
     "base_moe_mlp_dim=96",
     1e-6, 1e-5},
    {"decoder_block=deepseek attention_type=mla first_num_dense_layers=1 kv_lora_rank=32 "
     "q_lora_rank=32 qk_nope_head_dim=16 qk_rope_head_dim=8 v_head_dim=32 num_experts=4 "
     "num_experts_per_tok=2 shared_experts=1 base_moe_mlp_dim=64",
     1e-6, 1e-5},
};

/* Some have blocks of one size. */
#define BY_32 "lora.lora_tile_size=32"
static const struct {
    const char *name, *more;
    double share; /* of the floats' bytes, in blocks of 64 or in these */
} types[] = {
    {"nf4", "", 0.16},         {"int8", "", 0.27},
    {"int4", "", 0.16},        {"float8_e4m3fn", "", 0.27},
    {"float8_e5m2", "", 0.27}, {"mxfp8", BY_32, 0.29},
    {"mxfp4", BY_32, 0.16},    {"nvfp4", "lora.lora_tile_size=16", 0.19},
};

START_TEST(losses_are_those_over_the_floats) {
    MxArena arena = {.name = "qlora"};
    int which = _i / MX_COUNT(types);
    const int type = _i % MX_COUNT(types);
    const char *config = mx_arena_printf(&arena, "%s %s", models[which].config, types[type].more);
    Side few = open_side(
        &arena, mx_arena_printf(&arena, "%s lora.lora_weight_qtype=%s", config, types[type].name));
    Side floats = open_side(&arena, config);
    double before = mx_train_eval(floats.state, &floats.batch).loss;
    copy_weights(&arena, &few, &floats);
    double want = mx_train_loss_and_grad(floats.state, &floats.batch).loss;
    double got = mx_train_loss_and_grad(few.state, &few.batch).loss;
    ck_assert_double_ne(before, want); /* they are not the weights that were drawn */
    ck_assert_msg(fabs(got - want) <= models[which].loss * fabs(want), "%.9g, not %.9g", got, want);
    const MxTree *params = mx_model_params(mx_train_state_model(few.state));
    for (int i = 0; i < params->n; i++) {
        const float *g = mx_train_gradient(&arena, few.state, i);
        if (!g) continue;
        double error = golden_error(g, mx_train_gradient(&arena, floats.state, i),
                                    mx_shape_count(params->leaves[i].shape));
        ck_assert_msg(error <= models[which].gradient, "%s is off by %g", params->leaves[i].path,
                      error);
    }
    double few_norm = mx_train_update(few.state).param_norm;
    double norm = mx_train_update(floats.state).param_norm;
    ck_assert_msg(fabs(few_norm - norm) <= 1e-5 * norm, "%.9g, not %.9g", few_norm, norm);
    mx_arena_release(&arena);
}
END_TEST

/* What is read of a weight can be written again: codes stay (of int8 the scale would change). */
START_TEST(nf4_of_its_own_floats_is_itself) {
    MxArena arena = {.name = "again"};
    Side side = open_side(&arena, "lora.lora_weight_qtype=nf4");
    double want = mx_train_eval(side.state, &side.batch).loss;
    copy_weights(&arena, &side, &side);
    ck_assert_double_eq(mx_train_eval(side.state, &side.batch).loss, want);
    mx_arena_release(&arena);
}
END_TEST

/* ---- MaxText with qwix (scripts/golden_qlora.py) */

enum { STEPS = 5 };

typedef struct Golden {
    MxArena arena;
    MxH5 *file;
    const char *type; /* "nf4" */
    MxConfig *config;
    MxTrainState *state;
    MxError err;
} Golden;

/* The parameters of a kind, out of a group. */
static MxTree *read_kind(Golden *g, const char *group, MxKind kind) {
    MxTree *tree = mx_tree_select(&g->arena, mx_train_state_tree(g->state), kind);
    for (int i = 0; i < tree->n; i++) {
        tree->leaves[i].keeper = NULL;
        tree->leaves[i].data = mx_new_n(&g->arena, float, mx_shape_count(tree->leaves[i].shape));
    }
    ck_assert_msg(
        mx_ckpt_read(g->file, group, "model/", (int)g->config->param_scan_axis, tree, &g->err),
        "%s", g->err.text.data);
    return tree;
}

static void give(Golden *g, const MxTree *from) {
    const MxTree *state = mx_train_state_tree(g->state);
    for (int i = 0; i < from->n; i++)
        mx_leaf_write(&state->leaves[mx_tree_find(state, from->leaves[i].path)],
                      from->leaves[i].data);
}

static void open_golden(Golden *g, const char *type) {
    char *overrides;
    *g = (Golden){.arena = {.name = "golden"}, .type = type};
    const char *path = goldens_need(&g->arena, "train/qlora.h5");
    ck_assert_msg(mx_h5_open(&g->arena, path, &g->file, &g->err) &&
                      mx_h5_attr(&g->arena, g->file, type, "overrides", &overrides, &g->err),
                  "%s", g->err.text.data);
    g->config = golden_yaml_config(
        &g->arena, g->file, "",
        mx_arena_printf(&g->arena,
                        "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 steps=5 %s",
                        overrides));
    ck_assert_msg(mx_train_state_open(&g->arena, g->config, &g->state, &g->err), "%s",
                  g->err.text.data);
    mx_train_state_init(g->state);
    give(g, read_kind(g, "nnx", MX_KIND_PARAM));
    give(g, read_kind(g, mx_path_join(&g->arena, type, "nnx"), MX_KIND_LORA_PARAM));
    mx_train_state_restored(g->state);
}

static const char *in_type(Golden *g, const char *path) {
    return mx_path_join(&g->arena, g->type, path);
}

/* Codes times scales are what a leaf shows, to the bit. Layers are dim 1 of qwix's arrays. */
START_TEST(codes_are_qwixs) {
    Golden g;
    open_golden(&g, types[_i].name);
    const MxTree *params = mx_model_params(mx_train_state_model(g.state));
    int n_checked = 0;
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        if (!leaf->quant.type) continue;
        const char *dir = mx_arena_printf(&g.arena, "%s/codes/%s/array", g.type, leaf->stack.path);
        int64_t n, n_scales, n_layers = leaf->stack.count, width = 1;
        const float *codes =
            golden_read(&g.arena, g.file, mx_path_join(&g.arena, dir, "qvalue"), &n);
        const float *scales =
            golden_read(&g.arena, g.file, mx_path_join(&g.arena, dir, "scale"), &n_scales);
        const float *got = mx_leaf_values(&g.arena, &mx_train_state_tree(g.state)->leaves[i]);
        if (!codes || !scales) continue; /* the file has those of some modules */
        for (int d = 1; d < leaf->shape.rank; d++) width *= leaf->shape.dim[d];
        for (int64_t row = 0; row < leaf->shape.dim[0]; row++)
            for (int64_t c = 0; c < width; c++) {
                int64_t layer = leaf->stack.index;
                float code = codes[(row * n_layers + layer) * width + c];
                float scale = scales[(row / leaf->quant.tile * n_layers + layer) * width + c];
                float want = (leaf->quant.type == MX_NF4 ? mx_nf4_values[(int)code] : code) * scale;
                ck_assert_msg(got[row * width + c] == want, "%s %d: %g, not %g", leaf->path,
                              (int)(row * width + c), (double)got[row * width + c], (double)want);
                n_checked++;
            }
    }
    ck_assert_int_gt(n_checked, 0);
    mx_arena_release(&g.arena);
}
END_TEST

static void check_near(const char *what, double got, double want, double relative) {
    ck_assert_msg(fabs(got - want) <= relative * fabs(want), "%s: %.9g, not %.9g", what, got, want);
}

START_TEST(losses_are_maxtexts) {
    Golden g;
    int64_t n;
    open_golden(&g, types[_i].name);
    MxBatch batch = golden_batch(&g.arena, g.file, "batch", 0);
    double got = mx_train_loss_and_grad(g.state, &batch).loss;
    check_near("loss", got, (double)*golden_read(&g.arena, g.file, in_type(&g, "loss/loss"), &n),
               1e-5);
    MxTree *want = read_kind(&g, in_type(&g, "loss/grads"), MX_KIND_LORA_PARAM);
    const MxTree *params = mx_model_params(mx_train_state_model(g.state));
    for (int i = 0, k = 0; i < params->n; i++) {
        const float *x = mx_train_gradient(&g.arena, g.state, i);
        if (!x) continue;
        const MxLeaf *leaf = &want->leaves[k++];
        const float *y = leaf->data;
        for (int64_t e = 0; e < mx_shape_count(leaf->shape); e++)
            ck_assert_msg(fabsf(x[e] - y[e]) <= 1e-4f * fabsf(y[e]) + 2e-5f, "%s: %g, not %g",
                          leaf->path, (double)x[e], (double)y[e]);
    }
    const float *losses = golden_read(&g.arena, g.file, in_type(&g, "traj/loss"), &n);
    const float *norms = golden_read(&g.arena, g.file, in_type(&g, "traj/raw_grad_norm"), &n);
    for (int step = 0; step < STEPS; step++) {
        batch = golden_batch(&g.arena, g.file, "batches", step);
        check_near("loss of a step", mx_train_loss_and_grad(g.state, &batch).loss,
                   (double)losses[step], 1e-4);
        check_near("norm of a step", mx_train_update(g.state).raw_grad_norm, (double)norms[step],
                   1e-3);
    }
    mx_arena_release(&g.arena);
}
END_TEST

/* ---- other objectives */

static const char *const objectives[] = {"use_dpo=true", "use_kto=true", "use_grpo=true"};

/* Whatever reads the weights reads floats, or products that know codes: else nothing is traced. */
START_TEST(every_objective_reads_them) {
    MxArena arena = {.name = "objective"};
    MxConfig *config;
    MxError err = {0};
    MxTrainState *state;
    const char *more = mx_arena_printf(&arena,
                                       "%s packing=false dataset_type=hf hf_train_files=x "
                                       "lora.lora_weight_qtype=nf4",
                                       objectives[_i]);
    ck_assert_msg(golden_config(&arena, small, more, &config, &err) &&
                      mx_train_state_open(&arena, config, &state, &err),
                  "%s", err.text.data);
    mx_arena_release(&arena);
}
END_TEST

/* ---- ranks (tests/mpi/train.c trains) */

START_TEST(no_rank_has_a_part_of_a_block) {
    MxArena arena = {.name = "mesh"};
    MxConfig *config;
    MxError err = {0};
    MxTrainState *state;
    ck_assert_msg(golden_config(&arena, small,
                                "num_devices=2 ici_fsdp_parallelism=2 "
                                "lora.lora_weight_qtype=nf4 lora.lora_tile_size=64 "
                                "lora.lora_module_path=.*query",
                                &config, &err),
                  "%s", err.text.data);
    ck_assert(!mx_train_state_open(&arena, config, &state, &err));
    const char *want =
        "mesh axis \"fsdp\" (size 2) does not divide dim 0 = 1 of the scales of blocks "
        "of decoder/layers_0/self_attention/query/kernel";
    ck_assert_msg(strstr(err.text.data, want) != NULL, "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&arena);
}
END_TEST

/* ---- memory */

/* Blocks of 64: half a byte and a sixteenth of one, of four. */
START_TEST(weights_take_their_bits) {
    MxArena arena = {.name = "bits"};
    const char *larger = mx_arena_printf(
        &arena, "head_dim=64 lora.lora_tile_size=64 base_emb_dim=128 base_mlp_dim=256 %s",
        types[_i].more);
    Side few = open_side(
        &arena, mx_arena_printf(&arena, "%s lora.lora_weight_qtype=%s", larger, types[_i].name));
    Side floats = open_side(&arena, larger);
    const MxTree *params = mx_model_params(mx_train_state_model(few.state));
    int64_t n = 0;
    for (int i = 0; i < params->n; i++)
        if (params->leaves[i].quant.type) n += 4 * mx_shape_count(params->leaves[i].shape);
    MxTrainBytes a = mx_train_state_bytes(few.state), b = mx_train_state_bytes(floats.state);
    double saved = (double)(b.parameters - a.parameters) / (double)n;
    ck_assert_msg(n && 1 - saved <= types[_i].share, "%g of the floats", 1 - saved);
    /* never a whole weight beside them */
    ck_assert_uint_lt(a.activations, b.activations + 128 * 256 * 4);
    mx_arena_release(&arena);
}
END_TEST

/* ---- what has no code */

START_TEST(what_is_no_number_is_told) {
    MxArena arena = {.name = "nan"};
    MxError err = {0};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    Side side = open_side(&arena, "lora.lora_weight_qtype=nf4");
    MxTree *tree = mx_train_state_tree(side.state);
    const MxLeaf *leaf = &tree->leaves[mx_tree_find(tree, "model/decoder/layers_1/mlp/wo/kernel")];
    float *x = golden_values(&arena, leaf);
    ck_assert(mx_train_check_weights(side.state, &err));
    x[777] = values[_i];
    mx_leaf_write(leaf, x);
    ck_assert(!mx_train_check_weights(side.state, &err));
    ck_assert_ptr_nonnull(strstr(err.text.data, "\"decoder/layers_1/mlp/wo/kernel\" holds what is "
                                                "no number or infinite: nf4 has no code for it"));
    mx_error_release(&err);
    mx_arena_release(&arena);
}
END_TEST

/* ---- runs */

static const char tiny[] =
    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 "
    "base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=2 "
    "dataset_type=synthetic vocab_size=300 eval_interval=-1 warmup_steps_fraction=0 "
    "learning_rate_schedule_steps=8 log_config=false ";

static int run_tiny(MxArena *arena, const char *dir, const char *name, const char *more) {
    return process_run(arena, dir,
                       mx_arena_printf(arena, "%s run_name=%s base_output_directory=%s %s", tiny,
                                       name, dir, more));
}

static void check_log(MxArena *arena, const char *dir, const char *words) {
    size_t size;
    const char *log = process_file(arena, dir, "log", &size);
    ck_assert_msg(strstr(log, words) != NULL, "the log lacks \"%s\":\n%s", words, log);
}

/* A run that is cut and goes on ends with the same bytes as one that is not, over weights that were
 * loaded and over weights that were drawn; another type of weights is another base. */
START_TEST(runs_go_on_exactly) {
    static const char *const layouts[] = {"", "pure_nnx=true", "scan_layers=false"};
    static const char adapted[] = "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8";
    MxArena arena = {.name = "resume"};
    const char *dir = process_dir(&arena, "qlora_resume");
    ck_assert_int_eq(run_tiny(&arena, dir, "base", "steps=2"), 0);
    const char *more =
        mx_arena_printf(&arena, "%s %s lora.lora_weight_qtype=nf4 lora.lora_tile_size=16 %s%s",
                        adapted, layouts[_i], _i ? "load_parameters_path=" : "",
                        _i ? mx_arena_printf(&arena, "%s/base", dir) : "");
    ck_assert_int_eq(run_tiny(&arena, dir, "whole", mx_arena_printf(&arena, "%s steps=4", more)),
                     0);
    check_log(&arena, dir, "QLoRA configured: rank=4 alpha=8");
    check_log(&arena, dir, "weights are kept in nf4: 6.00 bits each with their scales");
    ck_assert_int_eq(run_tiny(&arena, dir, "cut", mx_arena_printf(&arena, "%s steps=2", more)), 0);
    ck_assert_int_eq(run_tiny(&arena, dir, "cut", mx_arena_printf(&arena, "%s steps=4", more)), 0);
    check_log(&arena, dir, "restoring from this run's directory step 1");
    size_t size[2];
    const char *state[] = {
        process_file(&arena, dir, "whole/checkpoints/3/state.h5", &size[0]),
        process_file(&arena, dir, "cut/checkpoints/3/state.h5", &size[1]),
    };
    ck_assert(size[0] && size[0] == size[1] && !memcmp(state[0], state[1], size[0]));
    more = mx_arena_printf(&arena, "%s lora.lora_weight_qtype=int8 steps=5", more);
    ck_assert_int_ne(run_tiny(&arena, dir, "cut", more), 0);
    check_log(&arena, dir, "lora.lora_weight_qtype");
    mx_arena_release(&arena);
}
END_TEST

Suite *qlora_suite(void) {
    Suite *suite = suite_create("qlora");
    TCase *tcase = tcase_create("states");
    tcase_add_loop_test(tcase, losses_are_those_over_the_floats, 0,
                        MX_COUNT(models) * MX_COUNT(types));
    tcase_add_loop_test(tcase, codes_are_qwixs, 0, MX_COUNT(types));
    tcase_add_loop_test(tcase, losses_are_maxtexts, 0, MX_COUNT(types));
    tcase_add_loop_test(tcase, every_objective_reads_them, 0, MX_COUNT(objectives));
    tcase_add_test(tcase, no_rank_has_a_part_of_a_block);
    tcase_add_test(tcase, nf4_of_its_own_floats_is_itself);
    tcase_add_loop_test(tcase, weights_take_their_bits, 0, MX_COUNT(types));
    tcase_add_loop_test(tcase, what_is_no_number_is_told, 0, 3);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, runs_go_on_exactly, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}

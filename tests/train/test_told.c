/* test_told.c — metrics that parts of a program tell, against MaxText: what layers give
 * (record_internal_nn_metrics), and norms of routers' biases (log_moe_bias_norms); and what is
 * known of experts that zeros choose (log_expert_load). */
#include "close.h"
#include "common/told.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

static const char golden[] = "train/told.h5";

static const char *const models[] = {"llama2",
                                     "gemma3",
                                     "gpt3",
                                     "mixtral",
                                     "olmo3",
                                     "variants/dense_mla_unscanned",
                                     "variants/deepseek_streams",
                                     "variants/gemma4_experts",
                                     "variants/envy"};

/* Layers are made once or twice, batches are split: sums are the same. */
static const char *const ways[] = {
    "remat_policy=none",
    "remat_policy=full",
    "remat_policy=minimal per_device_batch_size=1 gradient_accumulation_steps=3",
};

/* A step of a golden file's model with its first batch. */
static MxTrainState *make_step(MxArena *arena, const char *model, const char *words) {
    MxError err = {0};
    MxConfig *config;
    MxTrainState *state;
    char *cli;
    MxH5 *file = golden_open(arena, mx_arena_printf(arena, "models/%s.h5", model));
    ck_assert_msg(mx_h5_attr(arena, file, "", "config_cli", &cli, &err) && cli, "%s: no config",
                  model);
    ck_assert_msg(golden_config(arena, cli, words, &config, &err) &&
                      mx_train_state_open(arena, config, &state, &err),
                  "%s: %s", model, err.text.data);
    mx_train_state_init(state);
    MxTree *tree = mx_train_state_tree(state);
    ck_assert_msg(mx_ckpt_read(file, "linen", "model/", (int)config->param_scan_axis, tree, &err),
                  "%s: %s", model, err.text.data);
    close_nudge(tree);
    mx_train_state_begin(state);
    MxBatch batch = golden_batch(arena, file, "train/batches", 0);
    mx_train_loss_and_grad(state, &batch);
    mx_train_update(state);
    return state;
}

START_TEST(layers_are_measured) {
    static const char *const figures[] = {"activ_fraction_zero", "activ_mean", "activ_stdev"};
    MxArena arena = {.name = "told"};
    const char *model = models[_i / MX_COUNT(ways)], *way = ways[_i % MX_COUNT(ways)];
    MxH5 *file = golden_open(&arena, golden);
    if (!file) return;
    MxTrainState *state =
        make_step(&arena, model, mx_arena_printf(&arena, "record_internal_nn_metrics=1 %s", way));
    for (int f = 0; f < MX_COUNT(figures); f++) {
        int64_t n;
        const char *path = mx_arena_printf(&arena, "%s/%s", model, figures[f]);
        const float *want = golden_read(&arena, file, path, &n);
        float *got = mx_new_n(&arena, float, n);
        ck_assert_int_eq(n, mx_train_state_config(state)->num_decoder_layers);
        for (int l = 0; l < n; l++)
            got[l] =
                (float)told_value(state, mx_arena_printf(&arena, "%s/layer_%03d", figures[f], l));
        Close c = {.golden = golden, .kind = CLOSE_LOGITS, .what = path};
        close_array(&c, got, want, n);
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(biases_of_routers_have_norms) {
    MxArena arena = {.name = "told"};
    MxH5 *file = golden_open(&arena, golden);
    if (!file) return;
    MxTrainState *state = make_step(&arena, "variants/deepseek4", "log_moe_bias_norms=true");
    for (int layer = 2; layer < 5; layer++)
        for (int k = 0; k < 2; k++) {
            int64_t n;
            const char *metric =
                mx_arena_printf(&arena, "learning/moe_bias_%s_norm_decoder-layers_%d",
                                k ? "update" : "before", layer);
            const float *want = golden_read(
                &arena, file, mx_arena_printf(&arena, "variants/deepseek4/%s", metric), &n);
            Close c = {.golden = golden, .kind = CLOSE_NORM, .what = metric};
            close_number(&c, told_value(state, metric), (double)*want);
        }
    mx_arena_release(&arena);
}
END_TEST

/* A step of a model whose parameters are all zeros. */
static MxTrainState *make_empty_step(MxArena *arena, const char *words, const char *more) {
    MxError err = {0};
    MxConfig *config;
    MxTrainState *state;
    ck_assert_msg(golden_config(arena, words, more, &config, &err) &&
                      mx_train_state_open(arena, config, &state, &err),
                  "%s", err.text.data);
    int64_t rows = config->global_batch_size_to_load, length = config->max_target_length;
    MxBatch batch = {
        .part = {.rows = rows, .of_rows = rows, .length = length}, .rows = rows, .length = length};
    for (int i = 0; i < MX_BATCH_FIELDS; i++)
        batch.field[i] = mx_new_n(arena, int32_t, rows * length);
    mx_train_loss_and_grad(state, &batch);
    mx_train_update(state);
    return state;
}

/* Without parameters layers give zeros. */
START_TEST(zeros_are_counted) {
    MxArena arena = {.name = "told"};
    MxTrainState *state = make_empty_step(&arena, "base_num_decoder_layers=2 vocab_size=300",
                                          "record_internal_nn_metrics=1 max_target_length=8");
    ck_assert_double_eq(told_value(state, "activ_fraction_zero/layer_001"), 1);
    ck_assert_double_eq(told_value(state, "activ_mean/layer_001"), 0);
    ck_assert_double_eq(told_value(state, "activ_stdev/layer_001"), 0);
    mx_arena_release(&arena);
}
END_TEST

/* Of equal scores the first experts have the best. */
static const struct {
    const char *words;
    double most, dropped;
} chosen[] = {
    {"num_experts_per_tok=1", 4, 0},
    {"num_experts_per_tok=2", 2, 0},
    {"num_experts_per_tok=4", 1, 0},
    {"num_experts_per_tok=2 sparse_matmul=false capacity_factor=1", 2, 0.5},
    {"num_experts_per_tok=2 sparse_matmul=false capacity_factor=3", 2, 0},
    {"num_experts_per_tok=4 sparse_matmul=false capacity_factor=0.25 "
     "gradient_accumulation_steps=2 per_device_batch_size=1",
     1, 0.75},
};

START_TEST(loads_of_experts_are_told) {
    MxArena arena = {.name = "told"};
    const char *words =
        mx_arena_printf(&arena, "log_expert_load=layers max_target_length=8 %s", chosen[_i].words);
    MxTrainState *state = make_empty_step(
        &arena, "base_num_decoder_layers=2 vocab_size=300 decoder_block=mixtral num_experts=4",
        words);
    ck_assert_double_eq(told_value(state, "moe/expert_load_max"), chosen[_i].most);
    ck_assert_double_eq(told_value(state, "moe/expert_load_max_decoder-layers_1"), chosen[_i].most);
    ck_assert_double_eq(told_value(state, "moe/dropped_choices"), chosen[_i].dropped);
    mx_arena_release(&arena);
}
END_TEST

/* Each of two ranks has one expert or two, next to each other; one rank has them all. */
static const struct {
    const char *words;
    int n_ranks;
    double least, most; /* times the load of the expert with most choices */
} shared[] = {
    {"num_experts=2 ici_expert_parallelism=2 ici_fsdp_parallelism=1", 2, 1, 1},
    {"num_experts=4 ici_expert_parallelism=2 ici_fsdp_parallelism=1 log_expert_load=layers", 2, 0.5,
     1},
    {"num_experts=2 ici_fsdp_parallelism=2", 2, 0, 0},
    {"num_experts=2", 1, 0, 0},
};

START_TEST(loads_of_ranks_are_told) {
    MxArena arena = {.name = "told"};
    const char *dir = process_dir(&arena, "ranks"), *ratio = "learning/moe_max_load_ratio";
    const char *words =
        process_tiny(&arena, dir,
                     mx_arena_printf(&arena,
                                     "decoder_block=mixtral num_experts_per_tok=1 steps=1 "
                                     "eval_interval=-1 moe_log_max_load_ratio=true "
                                     "log_required_ragged_buffer_factor=true %s",
                                     shared[_i].words));
    int code = shared[_i].n_ranks > 1 ? process_run_ranks(&arena, dir, shared[_i].n_ranks, words)
                                      : process_run(&arena, dir, words);
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    int n;
    const MetricsLine *line = process_metrics(&arena, dir, ratio, &n);
    ck_assert_int_eq(n, 1);
    double most = process_number(line, ratio), sum = 0, largest = 0;
    double load = process_number(line, "moe/expert_load_max");
    for (int layer = 0; layer < 2; layer++) {
        double factor = process_number(
            line,
            mx_arena_printf(&arena, "moe/required_ragged_buffer_factor_decoder-layers_%d", layer));
        sum += factor;
        if (factor > largest) largest = factor;
    }
    ck_assert_double_eq(most, largest);
    ck_assert_double_eq(process_number(line, "learning/moe_max_load_ratio_mean"), sum / 2);
    ck_assert_double_ge(most, fmax(1, shared[_i].least * load));
    ck_assert_double_le(most, fmax(1, shared[_i].most * load));
    mx_arena_release(&arena);
}
END_TEST

/* Nobody needs log_expert_load for that, nor is it told without being asked for. */
START_TEST(loads_are_told_apart) {
    MxArena arena = {.name = "told"};
    MxTrainState *state = make_empty_step(
        &arena, "base_num_decoder_layers=2 vocab_size=300 decoder_block=mixtral num_experts=4",
        "log_expert_load=none moe_log_max_load_ratio=true max_target_length=8");
    int n;
    const MxTold *told = mx_train_told(state, &n);
    ck_assert_int_eq(n, 2);
    ck_assert_str_eq(told[0].metric, "learning/moe_max_load_ratio");
    ck_assert_double_eq(told_value(state, "learning/moe_max_load_ratio_mean"), 1);
    mx_arena_release(&arena);
}
END_TEST

Suite *told_suite(void) {
    Suite *suite = suite_create("told");
    TCase *tcase = tcase_create("layers");
    tcase_add_loop_test(tcase, layers_are_measured, 0, MX_COUNT(models) * MX_COUNT(ways));
    tcase_add_test(tcase, biases_of_routers_have_norms);
    tcase_add_test(tcase, zeros_are_counted);
    tcase_add_loop_test(tcase, loads_of_experts_are_told, 0, MX_COUNT(chosen));
    tcase_add_loop_test(tcase, loads_of_ranks_are_told, 0, MX_COUNT(shared));
    tcase_add_test(tcase, loads_are_told_apart);
    suite_add_tcase(suite, tcase);
    return suite;
}

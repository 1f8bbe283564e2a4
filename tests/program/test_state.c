/* test_state.c — properties of the train state: nothing is allocated in the steps, equal runs give
 * equal bits, also with another rematerialisation, values do not depend on the number of threads
 * beyond rounding, schedules go where they should. */
#include "program_test.h"

#include <mx/model.h>

#include <check.h>
#include <math.h>

#define SMALL                                                                                      \
    "base_emb_dim=64 base_num_decoder_layers=3 base_num_query_heads=4 base_num_kv_heads=2 "        \
    "head_dim=16 "                                                                                 \
    "base_mlp_dim=128 vocab_size=300 max_target_length=48 per_device_batch_size=4 "                \
    "dataset_type=synthetic "                                                                      \
    "packing=true max_segments_per_seq=3 steps=20 eval_interval=-1 "

static MxArena scratch = {.name = "scratch"};

/* A state after some steps on its own synthetic data. */
typedef struct Trained {
    MxArena arena;
    MxConfig *config;
    MxTrainState *state;
    MxDataset *data;
    MxLoader *loader;
    MxLoss loss;
} Trained;

static void open_trained(Trained *t, const char *more) {
    MxError err = {0};
    *t = (Trained){.arena = {.name = "trained"}};
    t->config = program_config(&t->arena, SMALL, more);
    ck_assert_msg(mx_train_state_open(&t->arena, t->config, &t->state, &err), "%s", err.text.data);
    MxDataConfig data = {.kind = "synthetic",
                         .rows = t->config->global_batch_size_to_load,
                         .length = t->config->max_target_length,
                         .vocab = t->config->vocab_size,
                         .packing = true,
                         .max_segments = t->config->max_segments_per_seq};
    ck_assert_msg(mx_data_open(&t->arena, &data, &t->data, &err), "%s", err.text.data);
    ck_assert_msg(mx_loader_open(&t->arena,
                                 &(MxLoaderConfig){.dataset = t->data, .first_step = 0, .depth = 2},
                                 &t->loader, &err),
                  "%s", err.text.data);
    mx_train_state_init(t->state);
}

static void take_steps(Trained *t, int n) {
    MxError err = {0};
    MxBatch batch;
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(mx_loader_next(t->loader, 1, &batch, &err), MX_DATA_OK);
        t->loss = mx_train_loss_and_grad(t->state, &batch);
        mx_train_update(t->state);
    }
}

static void close_trained(Trained *t) {
    mx_loader_close(t->loader);
    mx_arena_release(&t->arena);
}

START_TEST(steps_allocate_nothing) {
    Trained t;
    open_trained(&t, "");
    take_steps(&t, 2);
    uint64_t before = mx_host_alloc_count();
    take_steps(&t, 5);
    ck_assert_uint_eq(mx_host_alloc_count(), before);
    close_trained(&t);
}
END_TEST

/* Largest difference between the parameters of two states, relative to their size. */
static double parameter_error(const Trained *a, const Trained *b) {
    double worst = 0;
    MxTree *x = mx_train_state_tree(a->state), *y = mx_train_state_tree(b->state);
    for (int i = 0; i < x->n; i++) {
        if (x->leaves[i].kind != MX_KIND_PARAM) continue;
        double e = program_error(mx_leaf_values(x->arena, &x->leaves[i]),
                                 mx_leaf_values(y->arena, &y->leaves[i]),
                                 mx_shape_count(x->leaves[i].shape));
        if (!(e <= worst)) worst = e;
    }
    return worst;
}

#define ADAPTERS        "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 "
#define TIED_AND_CAPPED "logits_via_embedding=true final_logits_soft_cap=4 z_loss_multiplier=0.01"
static const struct {
    const char *a, *b;
    double bound; /* 0 = the same bits */
} pairs[] = {
    {"", "", 0},
    {"dtype=bfloat16", "dtype=bfloat16", 0},
    {"remat_policy=none", "remat_policy=full", 0},
    {"remat_policy=none", "remat_policy=minimal", 0},
    {"dtype=bfloat16 remat_policy=none", "dtype=bfloat16 remat_policy=full", 0},
    {"use_qk_norm=true attention_bias=true",
     "use_qk_norm=true attention_bias=true remat_policy=full", 0},
    {ADAPTERS, ADAPTERS "remat_policy=minimal", 0},
    {ADAPTERS "dtype=bfloat16", ADAPTERS "dtype=bfloat16 remat_policy=minimal", 0},
    {ADAPTERS, ADAPTERS "remat_policy=full", 0},
    {"num_threads=1", "num_threads=2", 1e-5},
    {"matmul_provider=openblas", "matmul_provider=onednn", 1e-5},
    {"matmul_precision=default", "matmul_precision=highest", 0},
    {"matmul_provider=own", "matmul_provider=own matmul_precision=high", 1e-4},
    {"num_vocab_tiling=1", "num_vocab_tiling=4", 1e-5},
    {TIED_AND_CAPPED, TIED_AND_CAPPED " num_vocab_tiling=4", 1e-5},
};

START_TEST(runs_agree) {
    Trained a, b;
    open_trained(&a, pairs[_i].a);
    open_trained(&b, pairs[_i].b);
    take_steps(&a, 6);
    take_steps(&b, 6);
    double error = parameter_error(&a, &b);
    ck_assert_msg(error <= pairs[_i].bound && (pairs[_i].bound > 0 || a.loss.loss == b.loss.loss),
                  "\"%s\" and \"%s\": parameters differ by %.3g, losses %.9g and %.9g", pairs[_i].a,
                  pairs[_i].b, error, a.loss.loss, b.loss.loss);
    close_trained(&a);
    close_trained(&b);
}
END_TEST

/* ---- accumulation: splits of a ragged batch of 8 rows */

static const char *const splits[] = {
    "",
    "dtype=bfloat16",
    "attention_bias=true use_qk_norm=true z_loss_multiplier=0.001",
    "logits_via_embedding=true",
    "mtp_num_layers=2 mtp_loss_scaling_factor=0.7",
};

/* A batch whose rows have 1, 7, 13, … tokens that count. */
static MxBatch ragged_batch(MxArena *arena, const MxConfig *config) {
    MxBatch batch = mx_batch_new(arena, 8, config->max_target_length);
    for (int64_t i = 0; i < batch.rows * batch.length; i++) {
        uint32_t draw[4];
        mx_philox(7, 0, (uint64_t)i, draw);
        int32_t row = (int32_t)(i / batch.length), t = (int32_t)(i % batch.length);
        int32_t counts = t < 1 + 6 * row, *const *field = batch.field;
        field[MX_INPUTS][i] = counts * (int32_t)(draw[0] % 300);
        field[MX_TARGETS][i] = counts * (int32_t)(draw[1] % 300);
        field[MX_INPUTS_POSITION][i] = field[MX_TARGETS_POSITION][i] = counts * t;
        field[MX_INPUTS_SEGMENTATION][i] = field[MX_TARGETS_SEGMENTATION][i] = counts;
    }
    return batch;
}

START_TEST(splits_of_a_batch_agree) {
    Trained whole, split;
    const char *more = splits[_i];
    double bound = strstr(more, "bfloat16") ? 2e-2 : 1e-6;
    open_trained(&whole, mx_arena_printf(&scratch, "per_device_batch_size=8 %s", more));
    MxBatch batch = ragged_batch(&whole.arena, whole.config);
    MxLoss want = mx_train_loss_and_grad(whole.state, &batch);
    for (int n = 2; n <= 8; n *= 2) {
        open_trained(&split, mx_arena_printf(&scratch,
                                             "per_device_batch_size=%d "
                                             "gradient_accumulation_steps=%d %s",
                                             8 / n, n, more));
        for (int repeat = 0; repeat < 2; repeat++) { /* the first micro-batch starts anew */
            MxLoss got = mx_train_loss_and_grad(split.state, &batch);
            ck_assert_double_eq(got.total_weights, want.total_weights);
            ck_assert_double_eq_tol(got.loss, want.loss, bound * want.loss);
        }
        const MxTree *params = mx_model_params(mx_train_state_model(split.state));
        for (int i = 0; i < params->n; i++) {
            double error = program_error(mx_train_gradient(&scratch, split.state, i),
                                         mx_train_gradient(&scratch, whole.state, i),
                                         mx_shape_count(params->leaves[i].shape));
            ck_assert_msg(error <= bound, "%s, %d micro-batches: gradient of %s differs by %.3g",
                          more, n, params->leaves[i].path, error);
        }
        close_trained(&split);
    }
    close_trained(&whole);
    mx_arena_release(&scratch);
}
END_TEST

/* Rows of a batch from `first` on, and those behind them. */
static MxBatch *rows_of(MxArena *arena, const MxBatch *batch, int64_t first, int64_t rows,
                        MxBatch *next) {
    MxBatch *part = mx_new(arena, MxBatch);
    *part = mx_batch_new(arena, rows, batch->length);
    for (int f = 0; f < MX_BATCH_FIELDS; f++)
        memcpy(part->field[f], batch->field[f] + first * batch->length,
               (size_t)(rows * batch->length) * sizeof(int32_t));
    part->next = next;
    return part;
}

START_TEST(a_step_takes_several_batches) {
    Trained grows, whole;
    open_trained(&grows, "enable_rampup_batch_size=true per_device_batch_size=8 "
                         "per_device_batch_size_start=2 per_device_batch_size_increment=2");
    MxBatch all = ragged_batch(&grows.arena, grows.config);
    for (int64_t n = 4; n >= 1; n--) {
        MxBatch *chain = NULL;
        for (int64_t i = n - 1; i >= 0; i--) chain = rows_of(&grows.arena, &all, 2 * i, 2, chain);
        open_trained(&whole, mx_arena_printf(&scratch, "per_device_batch_size=%d", (int)(2 * n)));
        MxLoss got = mx_train_loss_and_grad(grows.state, chain);
        MxLoss want =
            mx_train_loss_and_grad(whole.state, rows_of(&whole.arena, &all, 0, 2 * n, NULL));
        ck_assert_double_eq(got.total_weights, want.total_weights);
        ck_assert_double_eq_tol(got.loss, want.loss, 1e-6 * want.loss);
        const MxTree *params = mx_model_params(mx_train_state_model(grows.state));
        for (int i = 0; i < params->n; i++) {
            double error = program_error(mx_train_gradient(&scratch, grows.state, i),
                                         mx_train_gradient(&scratch, whole.state, i),
                                         mx_shape_count(params->leaves[i].shape));
            ck_assert_msg(error <= 1e-6, "%d batches: gradient of %s differs by %.3g", (int)n,
                          params->leaves[i].path, error);
        }
        close_trained(&whole);
    }
    close_trained(&grows);
    mx_arena_release(&scratch);
}
END_TEST

/* AdamW alone keeps squares, of a parameter whose path ends so. */
static bool has_squares(const Trained *t, const char *tail) {
    const MxTree *tree = mx_train_state_tree(t->state);
    bool has = false;
    for (int i = 0; i < tree->n; i++)
        has |=
            strstr(tree->leaves[i].path, "nu/") && mx_text_has_suffix(tree->leaves[i].path, tail);
    return has;
}

START_TEST(routers_go_by_the_rule_that_is_asked_for) {
    for (int is_in = 0; is_in < 2; is_in++) {
        Trained t;
        open_trained(&t, mx_arena_printf(&scratch,
                                         "opt_type=muon decoder_block=mixtral num_experts=4 "
                                         "num_experts_per_tok=2 muon_include_routers=%s",
                                         is_in ? "true" : "false"));
        ck_assert_int_eq(has_squares(&t, "/gate/kernel"), !is_in);
        ck_assert(!has_squares(&t, "/wi_0") && !has_squares(&t, "/query/kernel"));
        ck_assert(has_squares(&t, "/embedding"));
        take_steps(&t, 2);
        ck_assert(isfinite(t.loss.loss));
        close_trained(&t);
    }
    mx_arena_release(&scratch);
}
END_TEST

START_TEST(runs_with_other_seeds_differ) {
    Trained a, b;
    open_trained(&a, "");
    open_trained(&b, "init_weights_seed=1");
    ck_assert(parameter_error(&a, &b) > 0.1);
    close_trained(&a);
    close_trained(&b);
}
END_TEST

/* Mean squares of a number of columns of [rows, columns]. */
static double mean_square(const float *x, int64_t rows, int64_t columns, int64_t from, int64_t to) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = from; i < to; i++)
            sum += (double)x[r * columns + i] * (double)x[r * columns + i];
    return sum / (double)(rows * (to - from));
}

/* As they do apart: 1/sqrt(head_dim) of what keys and values do, in a family that never scales. */
START_TEST(fused_queries_start_small) {
    Trained t;
    open_trained(&t, "fused_qkv=true base_emb_dim=128 head_dim=16 base_num_query_heads=4 "
                     "base_num_kv_heads=2");
    enum { D = 128, QUERIES = 4 * 16, ALL = 8 * 16, HEAD = 16 };
    MxTree *tree = mx_train_state_tree(t.state);
    int leaf = mx_tree_find(tree, "model/decoder/layers_0/self_attention/qkv_proj/kernel");
    ck_assert(leaf >= 0);
    const float *x = mx_leaf_values(&t.arena, &tree->leaves[leaf]);
    double queries = mean_square(x, D, ALL, 0, QUERIES),
           others = mean_square(x, D, ALL, QUERIES, ALL);
    ck_assert_double_eq_tol(D * others, 1, 0.1);
    ck_assert_double_eq_tol(D * HEAD * queries, 1, 0.1);
    close_trained(&t);
}
END_TEST

START_TEST(full_rematerialisation_needs_less_memory) {
    Trained none, full;
    open_trained(&none, "base_num_decoder_layers=8");
    open_trained(&full, "base_num_decoder_layers=8 remat_policy=full");
    MxTrainBytes a = mx_train_state_bytes(none.state), b = mx_train_state_bytes(full.state);
    ck_assert_msg(2 * b.activations < a.activations, "%zu and %zu bytes", a.activations,
                  b.activations);
    close_trained(&none);
    close_trained(&full);
}
END_TEST

START_TEST(evaluation_is_the_training_loss_and_changes_nothing) {
    MxError err = {0};
    Trained t;
    MxBatch batch;
    open_trained(&t, "");
    ck_assert_int_eq(mx_loader_next(t.loader, 1, &batch, &err), MX_DATA_OK);
    MxLoss train = mx_train_loss_and_grad(t.state, &batch), eval = mx_train_eval(t.state, &batch);
    ck_assert_double_eq_tol(train.loss, eval.loss, 1e-6 * train.loss);
    ck_assert(train.total_weights == eval.total_weights);
    ck_assert_int_eq(mx_train_state_step(t.state), 0);
    close_trained(&t);
}
END_TEST

/* ---- schedules: MaxText's own unit-test values (tests/unit/maxtext_utils_test) */

static const struct {
    const char *words;
    int64_t step;
    double rate;
} rates[] = {
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000", 0, 0},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000", 50, 1e-3},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000", 100, 2e-3},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000", 999, 2e-4},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000", 1000, 0},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000 "
     "lr_schedule_type=wsd",
     500, 2e-3},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000 "
     "lr_schedule_type=wsd",
     899, 2e-3},
    {"learning_rate=2e-3 warmup_steps_fraction=0.1 learning_rate_schedule_steps=1000 "
     "lr_schedule_type=wsd",
     999, 2e-4},
    /* what MaxText 0.2.4's create_learning_rate_schedule gives for decays of one step */
    {"learning_rate=3e-3 warmup_steps_fraction=0.2 learning_rate_schedule_steps=6 "
     "lr_schedule_type=wsd wsd_decay_steps_fraction=0.31 learning_rate_final_fraction=0",
     5, 3e-3},
    {"learning_rate=3e-3 warmup_steps_fraction=0.2 learning_rate_schedule_steps=6 "
     "lr_schedule_type=wsd wsd_decay_steps_fraction=0.31 learning_rate_final_fraction=0 "
     "wsd_decay_style=cosine",
     5, 0},
};

START_TEST(learning_rates) {
    MxArena arena = {0};
    const MxConfig *config = program_config(&arena, rates[_i].words, "steps=1200");
    ck_assert_double_eq_tol(mx_learning_rate(config, rates[_i].step), rates[_i].rate, 1e-12);
    mx_arena_release(&arena);
}
END_TEST

Suite *state_suite(void) {
    Suite *suite = suite_create("train state");
    TCase *tcase = tcase_create("state");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, steps_allocate_nothing);
    tcase_add_loop_test(tcase, runs_agree, 0, MX_COUNT(pairs));
    tcase_add_loop_test(tcase, splits_of_a_batch_agree, 0, MX_COUNT(splits));
    tcase_add_test(tcase, a_step_takes_several_batches);
    tcase_add_test(tcase, routers_go_by_the_rule_that_is_asked_for);
    tcase_add_test(tcase, runs_with_other_seeds_differ);
    tcase_add_test(tcase, fused_queries_start_small);
    tcase_add_test(tcase, full_rematerialisation_needs_less_memory);
    tcase_add_test(tcase, evaluation_is_the_training_loss_and_changes_nothing);
    tcase_add_loop_test(tcase, learning_rates, 0, MX_COUNT(rates));
    suite_add_tcase(suite, tcase);
    return suite;
}

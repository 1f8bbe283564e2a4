/* test_ahead.c — how often a module that looks ahead agrees with the decoder, against counting over
 * whole logits by the definition. Values of the loss are compared with MaxText's in test_post.c and
 * test_golden.c. */
#include "golden.h"
#include "common/vars.h"
#include "train_test.h"

#include <mx/run.h>

#include <check.h>

enum { MAX_MODULES = 3, VOCAB = 5 };

static const char *const words =
    "base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=1 head_dim=8 base_mlp_dim=24 "
    "base_num_decoder_layers=1 vocab_size=5 max_target_length=24 per_device_batch_size=6 "
    "dataset_type=synthetic mtp_num_layers=3 ";

static const struct {
    int module;
    const char *more;
} cases[] = {
    {1, ""}, {2, ""}, {3, ""}, {2, "logits_via_embedding=true"}, {1, "num_vocab_tiling=4"},
};

/* Rows of documents of 1, 2, … tokens with padding behind them. */
static MxBatch packed_batch(MxArena *arena, const MxConfig *c) {
    MxBatch batch = mx_batch_new(arena, c->global_batch_size_to_train_on, c->max_target_length);
    for (int64_t row = 0; row < batch.rows; row++)
        for (int64_t t = 0, left = 0, length = row, segment = 0; t < batch.length; t++, left--) {
            uint32_t draw[4];
            int64_t i = row * batch.length + t;
            mx_philox(3, 1, (uint64_t)i, draw);
            if (!left) {
                left = ++length;
                segment++;
            }
            bool is_padding = t >= batch.length - row;
            batch.field[MX_INPUTS][i] = is_padding ? 0 : (int32_t)(draw[0] % VOCAB);
            batch.field[MX_TARGETS][i] = is_padding ? 0 : (int32_t)(draw[1] % VOCAB);
            batch.field[MX_INPUTS_POSITION][i] = is_padding ? 0 : (int32_t)(length - left);
            batch.field[MX_INPUTS_SEGMENTATION][i] = is_padding ? 0 : (int32_t)segment;
            /* not all that is there counts */
            batch.field[MX_TARGETS_SEGMENTATION][i] =
                is_padding || draw[2] % 5 == 0 ? 0 : (int32_t)segment;
        }
    return batch;
}

/* ---- logits of the decoder and of every module */

typedef struct Program {
    MxVars vars;
    int *param, in[MX_BATCH_FIELDS], logits[MAX_MODULES + 1];
    MxRun *run;
} Program;

static void open_program(MxArena *arena, const MxConfig *c, const MxModel *model, Program *p) {
    const MxTree *tree = mx_model_params(model);
    MxShape ids = MX_SHAPE(c->global_batch_size_to_train_on, c->max_target_length);
    MxValue *params = mx_new_n(arena, MxValue, tree->n), in[MX_BATCH_FIELDS];
    MxTrace t;
    *p = (Program){.vars.arena = arena};
    p->param = mx_new_n(arena, int, tree->n);
    MxGraph *graph = mx_graph_new(arena, "logits", &p->vars);
    mx_trace_begin(&t, graph);
    for (int i = 0; i < tree->n; i++) {
        p->param[i] = mx_vars_add(&p->vars, "param", (MxType){MX_F32, tree->leaves[i].shape});
        params[i] = mx_variable(&t, p->param[i]);
    }
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        p->in[f] = mx_vars_add(&p->vars, "in", (MxType){MX_I32, ids});
        in[f] = mx_variable(&t, p->in[f]);
    }
    MxModelInputs inputs = {.tokens = in[MX_INPUTS],
                            .positions = in[MX_INPUTS_POSITION],
                            .segments = in[MX_INPUTS_SEGMENTATION]};
    MxAhead at = {.stream = mx_model_stream(&t, model, params, inputs),
                  .tokens = in[MX_INPUTS],
                  .targets = in[MX_TARGETS],
                  .weights = in[MX_TARGETS_SEGMENTATION]};
    for (int k = 0; k <= MAX_MODULES; k++) {
        if (k) at = mx_model_ahead(&t, model, params, inputs, k, at);
        MxValue hidden = mx_model_last_norm(&t, model, params, inputs, at.stream);
        MxValue logits = mx_copy(&t, mx_model_logits(&t, model, params, hidden));
        p->logits[k] = mx_vars_add(&p->vars, "logits", mx_trace_type(&t, logits));
        mx_trace_assign(&t, logits, p->logits[k], false);
    }
    MxDevice *device;
    MxError err = {0};
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(arena, device, &p->vars, &graph, 1, MX_REMAT_NONE, &p->run, &err);
    ck_assert_msg(ok, "%s", err.text.data);
}

static void run_program(const Program *p, const MxTree *state, int n_params, const MxBatch *batch) {
    for (int i = 0; i < n_params; i++)
        var_fill(p->run, p->param[i], mx_leaf_values(state->arena, &state->leaves[i]));
    for (int f = 0; f < MX_BATCH_FIELDS; f++) var_fill(p->run, p->in[f], batch->field[f]);
    mx_run_entry(p->run, 0);
}

static int likeliest(const float *logits) {
    int best = 0;
    for (int v = 1; v < VOCAB; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

/* A module's prediction at t is for the place that the decoder predicts at t + k. It counts if that
 * place does, and if no segment ends on the last of the k steps there. */
static void check_counts(const Program *p, const MxBatch *batch, int k, double predicted,
                         double accepted) {
    const float *main = var_values(p->vars.arena, p->run, p->logits[0]);
    const float *own = var_values(p->vars.arena, p->run, p->logits[k]);
    const int32_t *segments = batch->field[MX_INPUTS_SEGMENTATION];
    int n_predicted = 0, n_accepted = 0;
    for (int64_t i = 0; i < batch->rows * batch->length; i++) {
        int64_t to = i + k;
        if (i % batch->length + k >= batch->length) continue;
        if (!batch->field[MX_TARGETS_SEGMENTATION][to]) continue;
        if (!segments[to] || segments[to - 1] != segments[to]) continue;
        n_predicted++;
        n_accepted += likeliest(own + i * VOCAB) == likeliest(main + to * VOCAB);
    }
    ck_assert_int_gt(n_accepted, 0);
    ck_assert_int_lt(n_accepted, n_predicted);
    ck_assert_msg(predicted == n_predicted && accepted == n_accepted,
                  "module %d: %g of %g accepted, not %d of %d", k, accepted, predicted, n_accepted,
                  n_predicted);
}

START_TEST(acceptance_is_counted) {
    MxArena arena = {.name = "ahead"};
    MxError err = {0};
    MxConfig *config;
    MxTrainState *state;
    Program p;
    const char *more =
        mx_arena_printf(&arena, "mtp_eval_target_module=%d %s", cases[_i].module, cases[_i].more);
    bool ok = golden_config(&arena, words, more, &config, &err) &&
              mx_train_state_open(&arena, config, &state, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    mx_train_state_init(state);
    MxBatch batch = packed_batch(&arena, config);
    const MxModel *model = mx_train_state_model(state);
    open_program(&arena, config, model, &p);
    run_program(&p, mx_train_state_tree(state), mx_model_params(model)->n, &batch);
    MxLoss got = mx_train_eval(state, &batch);
    check_counts(&p, &batch, cases[_i].module, *mx_train_sum(state, &got, "predicted"),
                 *mx_train_sum(state, &got, "accepted"));
    mx_arena_release(&arena);
}
END_TEST

/* Modules cost what decoder layers cost; their heads are not counted, as in the original. */
START_TEST(modules_count_as_layers) {
    MxArena arena = {.name = "ahead"};
    MxError err = {0};
    MxConfig *config[2];
    MxModel *model[2];
    bool ok = golden_config(&arena, words, "", &config[0], &err) &&
              golden_config(&arena, words, "mtp_num_layers=0 base_num_decoder_layers=4", &config[1],
                            &err);
    for (int i = 0; i < 2; i++) ok = ok && mx_model_new(&arena, config[i], &model[i], &err);
    ck_assert_msg(ok, "%s", err.text.data);
    MxTflops a = mx_model_tflops(model[0]), b = mx_model_tflops(model[1]);
    ck_assert(a.total == b.total && a.attention == b.attention && a.attention > 0);
    mx_arena_release(&arena);
}
END_TEST

Suite *ahead_suite(void) {
    Suite *suite = suite_create("ahead");
    TCase *tcase = tcase_create("acceptance");
    tcase_add_loop_test(tcase, acceptance_is_counted, 0, MX_COUNT(cases));
    tcase_add_test(tcase, modules_count_as_layers);
    suite_add_tcase(suite, tcase);
    return suite;
}

/* test_figures.c — what losses tell of steps and evaluations. */
#include "program_test.h"

#include <program/internal.h>

#include <math.h>

#define SMALL                                                                                      \
    "base_emb_dim=32 base_num_decoder_layers=1 base_num_query_heads=2 base_num_kv_heads=2 "        \
    "head_dim=16 base_mlp_dim=64 vocab_size=300 max_target_length=16 dataset_type=synthetic "

/* Words that mean every loss. */
#define TEACHER  "teacher_overrides.load_parameters_path=x teacher_overrides.vocab_size=300"
#define REWARDED "use_grpo=true packing=false dataset_type=hf hf_train_files=x hf_eval_files=x"
#define LABELLED "use_kto=true packing=false dataset_type=hf hf_train_files=x hf_eval_files=x"
static const char *const losses[] = {
    "", "mtp_num_layers=1 mtp_eval_target_module=1", "use_dpo=true", TEACHER, REWARDED, LABELLED};

static const struct {
    const char *name;
    const Loss *row;
} rows[] = {
#define MX_LOSS(name) {#name, &loss_##name},
#include <program/losses.def>
#undef MX_LOSS
};

START_TEST(every_loss_is_whole_and_meant) {
    MxArena arena = {.name = "figures"};
    for (int i = 0; i < MX_COUNT(rows); i++) {
        const Loss *loss = rows[i].row;
        bool is_meant = false, is_last = i == MX_COUNT(rows) - 1;
        ck_assert_msg(loss->weights[0] && loss->weigh && loss->trace && loss->outputs &&
                          loss->figures && loss->eval_figures,
                      "%s lacks something", rows[i].name);
        ck_assert_msg(!loss->is_meant == is_last, "%s hides those that follow", rows[i].name);
        for (int k = 0; k < MX_COUNT(losses); k++)
            is_meant = is_meant || program_loss(program_config(&arena, SMALL, losses[k])) == loss;
        ck_assert_msg(is_meant, "%s: no words in the table above mean it", rows[i].name);
    }
    mx_arena_release(&arena);
}
END_TEST

/* The figure of a metric; the list must have it. */
static int find(const MxFigure *figures, const char *metric) {
    int i = 0;
    while (figures[i].metric && strcmp(figures[i].metric, metric)) i++;
    ck_assert_msg(figures[i].metric != NULL, "no %s", metric);
    return i;
}

START_TEST(metrics_are_named_once) {
    MxArena arena = {.name = "figures"};
    const MxConfig *config = program_config(&arena, SMALL, losses[_i]);
    for (int is_eval = 0; is_eval < 2; is_eval++) {
        const MxFigure *figures = mx_train_figures(&arena, config, is_eval);
        ck_assert_ptr_nonnull(figures->metric);
        for (const MxFigure *f = figures; f->metric; f++) {
            bool is_known = mx_text_has_prefix(f->metric, is_eval ? "eval/" : "learning/");
            ck_assert_msg(is_known || mx_text_has_prefix(f->metric, "distill/"), "%s", f->metric);
            ck_assert_msg(f->value || f->label, "%s says nothing", f->metric);
            ck_assert_int_eq(find(figures, f->metric), f - figures);
        }
    }
    mx_arena_release(&arena);
}
END_TEST

static double figure(const MxEvaluation *evaluation, const MxFigure *figures, const char *metric) {
    return mx_evaluation_figure(evaluation, figures, find(figures, metric));
}

/* Batches of 3 examples and of 1: losses are weighed by examples, the z-loss is a mean of batches.
 */
START_TEST(an_evaluation_adds_up) {
    MxArena arena = {.name = "figures"};
    const MxConfig *config = program_config(&arena, SMALL, losses[_i]);
    const MxFigure *figures = mx_train_figures(&arena, config, true);
    const MxLoss batches[] = {{.loss = 2, .total_weights = 3, .sum = {6, 6}},
                              {.loss = 4, .total_weights = 1, .sum = {4, 0}}};
    MxEvaluation sums = {0};
    for (int i = 0; i < MX_COUNT(batches); i++) mx_evaluation_add(&sums, figures, &batches[i]);
    ck_assert_double_eq_tol(sums.total_loss, 10, 1e-6);
    ck_assert_double_eq(sums.sums.total_weights, 4);
    ck_assert_double_eq_tol(sums.sums.loss, 2.5, 1e-6);
    ck_assert_double_eq_tol(figure(&sums, figures, "eval/avg_perplexity"), exp(2.5), 1e-6);
    ck_assert_double_eq_tol(figure(&sums, figures, "eval/avg_z_loss"), 1, 1e-6);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(an_evaluation_of_nothing_is_finite) {
    MxArena arena = {.name = "figures"};
    const MxConfig *config = program_config(&arena, SMALL, losses[_i]);
    const MxFigure *figures = mx_train_figures(&arena, config, true);
    const MxEvaluation none = {0};
    for (int i = 0; figures[i].metric; i++)
        ck_assert(!figures[i].value || isfinite(mx_evaluation_figure(&none, figures, i)));
    mx_arena_release(&arena);
}
END_TEST

/* A state's sums are found by name, in the order of its loss's outputs. */
START_TEST(sums_have_names) {
    MxArena arena = {.name = "figures"};
    MxError err = {0};
    MxTrainState *state;
    const MxConfig *config = program_config(&arena, SMALL, losses[1]);
    ck_assert_msg(mx_train_state_open(&arena, config, &state, &err), "%s", err.text.data);
    const MxLoss loss = {0};
    ck_assert_ptr_eq(mx_train_sum(state, &loss, "xent_sum"), &loss.sum[0]);
    ck_assert_ptr_eq(mx_train_sum(state, &loss, "ahead_loss"), &loss.sum[4]);
    ck_assert_ptr_null(mx_train_sum(state, &loss, "pairs"));
    mx_arena_release(&arena);
}
END_TEST

Suite *figures_suite(void) {
    const int n_token_losses = 2;
    Suite *suite = suite_create("figures");
    TCase *tcase = tcase_create("figures");
    tcase_add_test(tcase, every_loss_is_whole_and_meant);
    tcase_add_loop_test(tcase, metrics_are_named_once, 0, MX_COUNT(losses));
    tcase_add_loop_test(tcase, an_evaluation_adds_up, 0, n_token_losses);
    tcase_add_loop_test(tcase, an_evaluation_of_nothing_is_finite, 0, MX_COUNT(losses));
    tcase_add_test(tcase, sums_have_names);
    suite_add_tcase(suite, tcase);
    return suite;
}

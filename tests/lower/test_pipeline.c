/* test_pipeline.c — tables of pipelines: every unit once, nothing before what it needs, 1F1B's
 * order, its memory and its waiting. */
#include "lower_test.h"

#include <lower/pipeline.h>

static int64_t end_of(const PipelineTable *table, int place, int micro, bool backward) {
    return table->unit[place % table->sizes.stages][pipeline_unit(table, place, micro, backward)]
        .end;
}

/* Every unit starts when all that it needs has ended, and each stage does one at a time. */
static void ck_order(const PipelineTable *table) {
    PipelineSizes z = table->sizes;
    int last = z.stages * z.repeats - 1;
    for (int s = 0; s < z.stages; s++) {
        int64_t before = 0;
        for (int i = 0; i < table->n; i++) {
            const PipelineUnit *u = &table->unit[s][i];
            ck_assert_int_eq(u->place % z.stages, s);
            ck_assert_int_eq(pipeline_unit(table, u->place, u->micro, u->backward), i);
            ck_assert_int_ge(u->start, before);
            before = u->end;
            if (u->backward) ck_assert_int_ge(u->start, end_of(table, u->place, u->micro, false));
            int from = u->backward ? u->place + 1 : u->place - 1;
            if (from >= 0 && from <= last)
                ck_assert_int_ge(u->start, end_of(table, from, u->micro, u->backward));
        }
    }
}

/* The most micro-batches of a stage whose backward pass is still to come. */
static int under_way(const PipelineTable *table, int stage) {
    int now = 0, most = 0;
    for (int i = 0; i < table->n; i++) {
        now += table->unit[stage][i].backward ? -1 : 1;
        most = now > most ? now : most;
    }
    return most;
}

START_TEST(tables_are_in_order) {
    for (int stages = 2; stages <= 8; stages++)
        for (int repeats = 1; repeats <= 4; repeats++)
            for (int micros = 1; micros <= 17; micros++) {
                PipelineTable table =
                    pipeline_table(&arena, (PipelineSizes){stages, repeats, micros});
                ck_assert_int_eq(table.n, 2 * repeats * micros);
                ck_order(&table);
            }
}
END_TEST

/* Stage s of S has at most S - s under way, and stages wait (S - 1) / (M + S - 1) of the time. */
START_TEST(one_forward_one_backward) {
    for (int stages = 2; stages <= 8; stages++)
        for (int micros = stages; micros <= 3 * stages; micros++) {
            PipelineTable table = pipeline_table(&arena, (PipelineSizes){stages, 1, micros});
            for (int s = 0; s < stages; s++) ck_assert_int_eq(under_way(&table, s), stages - s);
            double bubble = (double)(stages - 1) / (micros + stages - 1);
            ck_assert_double_eq_tol(pipeline_bubble(&table), bubble, 1e-12);
        }
}
END_TEST

/* The more often a batch goes round, the less stages wait (Narayanan et al. 2021). */
START_TEST(repeats_shorten_the_waiting) {
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int repeats = 2; repeats <= 4; repeats++) {
            PipelineTable once = pipeline_table(&arena, (PipelineSizes){stages, 1, 2 * stages});
            PipelineTable round =
                pipeline_table(&arena, (PipelineSizes){stages, repeats, 2 * stages});
            ck_assert_double_lt(pipeline_bubble(&round), pipeline_bubble(&once));
        }
}
END_TEST

/* With a table's own times the end is the table's; one micro-batch goes there and back through all;
 * a slow last stage is waited for by each micro-batch. */
START_TEST(times_of_stages) {
    const double one[] = {1, 1, 1, 1}, two[] = {2, 2, 2, 2}, last[] = {1, 1, 1, 5};
    for (int repeats = 1; repeats <= 3; repeats++)
        for (int micros = 1; micros <= 12; micros++) {
            PipelineTable table = pipeline_table(&arena, (PipelineSizes){4, repeats, micros});
            MxStageTimes times = {4, repeats, micros, one, two, 0};
            ck_assert_double_eq(mx_stages_s(&times), (double)table.end);
        }
    MxStageTimes alone = {4, 1, 1, one, two, 0.25};
    ck_assert_double_eq(mx_stages_s(&alone), 4 * (1 + 2) + 6 * 0.25);
    MxStageTimes slow = {4, 1, 8, last, two, 0};
    ck_assert_double_eq(mx_stages_s(&slow), 3 * 1 + 8 * (5 + 2) + 3 * 2);
}
END_TEST

Suite *pipeline_suite(void) {
    Suite *suite = suite_create("pipeline");
    TCase *tcase = add_case(suite, "pipeline");
    tcase_add_test(tcase, tables_are_in_order);
    tcase_add_test(tcase, one_forward_one_backward);
    tcase_add_test(tcase, repeats_shorten_the_waiting);
    tcase_add_test(tcase, times_of_stages);
    return suite;
}

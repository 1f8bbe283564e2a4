/* test_expect.c — a decoder of two layers as text after each pass, compared with the files in
 * tests/expect. A change there is reviewed, not repaired: MX_EXPECT_WRITE=1 writes them anew. */
#include "lower_test.h"

#include <stdlib.h>

static const char *text_of_lowered(const MxLowered *lowered) {
    MxText text;
    mx_text_init(&text, &arena);
    const MxGraph *graph = lowered->graph;
    mx_text_add(&text, "arena %zu bytes\n", lowered->arena_bytes);
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &graph->nodes[lowered->steps[s]];
        mx_text_add(&text, "  %s", node->op->name);
        for (int i = 0; i < node->n_out; i++) {
            int var = graph->values[node->out[i]].var;
            mx_text_add(&text, "%s %%%d ", i ? "," : "", node->out[i]);
            if (var == MX_NONE)
                mx_text_add(&text, "at %zu", lowered->value_offset[node->out[i]]);
            else
                mx_text_add(&text, "in %s", vars.item[var].name);
        }
        if (some_scratch.scratch_bytes(NULL, graph, node))
            mx_text_add(&text, "  scratch at %zu", lowered->scratch_offset[s]);
        mx_text_add(&text, "\n");
    }
    return text.data;
}

static void ck_expected(const char *name, const char *got) {
    const char *path = mx_arena_printf(&arena, "tests/expect/%s.txt", name);
    const char *write = getenv("MX_EXPECT_WRITE");
    if (write && *write) {
        bool ok = mx_file_write(path, got, strlen(got), &err);
        ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
        return;
    }
    MxBytes want = {0};
    bool ok = mx_file_read(&arena, path, 1 << 20, &want, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    int line = 1;
    size_t i = 0, start = 0;
    for (; got[i] && got[i] == (char)want.data[i]; i++)
        if (got[i] == '\n') {
            line++;
            start = i + 1;
        }
    ck_assert_msg(got[i] == (char)want.data[i],
                  "%s:%d: is now \"%.*s\"; review, then write it with MX_EXPECT_WRITE=1", path,
                  line, (int)strcspn(got + start, "\n"), got + start);
}

static void trace(bool with_gradient) {
    MxValue params[MODEL_PARAMS], loss = model_forward(MX_BF16, params);
    if (with_gradient) differentiate(loss, params, MODEL_PARAMS);
}

START_TEST(traced) {
    trace(false);
    ck_expected("trace", printed(t.graph));
}
END_TEST

START_TEST(differentiated) {
    trace(true);
    ck_expected("grad", printed(t.graph));
}
END_TEST

static const struct {
    const char *name;
    MxRemat policy;
} remats[] = {{"remat_minimal", MX_REMAT_MINIMAL}, {"remat_full", MX_REMAT_FULL}};

START_TEST(rematerialised) {
    trace(true);
    mx_pass_remat(t.graph, remats[_i].policy);
    ck_expected(remats[_i].name, printed(t.graph));
}
END_TEST

START_TEST(fused_and_scheduled) {
    trace(true);
    mx_pass_fuse(t.graph);
    ck_expected("fuse", printed(t.graph));
    mx_pass_schedule(t.graph);
    ck_expected("schedule", printed(t.graph));
    MxLowered lowered = mx_pass_memory(t.graph, &some_scratch);
    ck_expected("memory", text_of_lowered(&lowered));
}
END_TEST

/* What mx_lower does is the passes one after the other. */
START_TEST(what_runs) {
    trace(true);
    MxLowered lowered = mx_lower(t.graph, &some_scratch);
    ck_expected("schedule", printed(t.graph));
    ck_expected("memory", text_of_lowered(&lowered));
}
END_TEST

Suite *expect_suite(void) {
    Suite *suite = suite_create("lower/expect");
    TCase *tcase = add_case(suite, "expect");
    tcase_add_test(tcase, traced);
    tcase_add_test(tcase, differentiated);
    tcase_add_loop_test(tcase, rematerialised, 0, MX_COUNT(remats));
    tcase_add_test(tcase, fused_and_scheduled);
    tcase_add_test(tcase, what_runs);
    return suite;
}

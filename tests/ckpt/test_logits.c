/* test_logits.c — logits of two files compared: figures by hand, and files that do not fit. */
#include "ckpt_test.h"

#include <math.h>

/* A file with prompts of `ids` and their logits, one prompt of n tokens after another. */
static const char *write_file(const char *name, int n_prompts, int n, const int32_t *ids,
                              int64_t vocab, const float *logits) {
    MxH5 *file;
    const char *path = in_folder(name);
    bool ok = mx_h5_create(&arena, path, &file, &err);
    for (int i = 0; i < n_prompts; i++) {
        const char *prompt = mx_arena_printf(&arena, "prompts/%06d", i);
        ok = ok &&
             mx_h5_write(file, mx_path_join(&arena, prompt, "ids"), MX_I32, MX_SHAPE(n),
                         ids + i * n, &err) &&
             mx_h5_write(file, mx_path_join(&arena, prompt, "logits"), MX_F32, MX_SHAPE(n, vocab),
                         logits + i * n * vocab, &err);
    }
    ck_ok(ok && mx_h5_close(file, &err));
    return path;
}

static const int32_t ids[] = {7, 8};

START_TEST(figures_are_those_of_the_definitions) {
    /* Probabilities, as logits with a constant that must not count. */
    const double pa[] = {0.5, 0.25, 0.125, 0.125, 0.4, 0.3, 0.2, 0.1};
    const double pb[] = {0.25, 0.5, 0.125, 0.125, 0.4, 0.3, 0.2, 0.1};
    float a[8], b[8];
    MxLogitsReport r;
    for (int i = 0; i < 8; i++) {
        a[i] = (float)log(pa[i]) + 2;
        b[i] = (float)log(pb[i]) - 1;
    }
    const char *file_a = write_file("a", 2, 1, ids, 4, a),
               *file_b = write_file("b", 2, 1, ids, 4, b);
    ck_ok(mx_logits_compare(file_a, file_b, &(MxLogitsHow){.top_k = 1}, &r, &err));
    double kl = 0.5 * log(2) - 0.25 * log(2);
    ck_assert_int_eq(r.n_prompts, 2);
    ck_assert_int_eq(r.n_tokens, 2);
    ck_assert_double_eq_tol(r.largest_kl, kl, 1e-6);
    ck_assert_double_eq_tol(r.mean_kl, kl / 2, 1e-6);
    ck_assert_double_eq(r.same_top, 0.5);
    ck_assert_double_eq(r.shared_top, 0.5);
    ck_assert_double_eq_tol(r.largest, 3 + log(2), 1e-6);
    ck_ok(mx_logits_compare(file_a, file_b, &(MxLogitsHow){.top_k = 2}, &r, &err));
    ck_assert_double_eq(r.shared_top, 1);
    a[3] = NAN;
    ck_ok(mx_logits_compare(write_file("n", 2, 1, ids, 4, a), file_b, &(MxLogitsHow){.top_k = 9},
                            &r, &err));
    ck_assert(isinf(r.largest_kl) && isinf(r.largest));
}
END_TEST

START_TEST(rows_of_one_length_are_prompts_too) {
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 9};
    MxH5 *file;
    MxLogitsReport r;
    const char *rows = in_folder("rows"), *fewer = in_folder("fewer logits");
    const char *prompts = write_file("prompts", 2, 1, ids, 4, x);
    ck_ok(mx_h5_create(&arena, rows, &file, &err) &&
          mx_h5_write(file, "input_ids", MX_I32, MX_SHAPE(2, 1), ids, &err) &&
          mx_h5_write(file, "logits", MX_F32, MX_SHAPE(2, 1, 4), x, &err) &&
          mx_h5_close(file, &err));
    ck_ok(mx_logits_compare(rows, prompts, &(MxLogitsHow){.top_k = 3}, &r, &err));
    ck_assert_int_eq(r.n_prompts, 2);
    ck_assert_double_eq(r.largest, 0);
    ck_assert_double_eq(r.shared_top, 1);
    ck_ok(mx_h5_create(&arena, fewer, &file, &err) &&
          mx_h5_write(file, "input_ids", MX_I32, MX_SHAPE(2, 1), ids, &err) &&
          mx_h5_write(file, "logits", MX_F32, MX_SHAPE(1, 1, 4), x, &err) &&
          mx_h5_close(file, &err));
    ck_failed(mx_logits_compare(fewer, prompts, &(MxLogitsHow){.top_k = 3}, &r, &err),
              "logits: there are not as many as in input_ids");
}
END_TEST

START_TEST(files_that_do_not_fit_are_told) {
    const float x[16] = {0};
    const int32_t others[] = {7, 9};
    const char *a = write_file("a", 2, 1, ids, 4, x);
    const struct {
        const char *path, *message;
    } wrong[] = {
        {write_file("ids", 2, 1, others, 4, x), "prompt 1: token 0 is 8, and 9 in the second file"},
        {write_file("vocab", 2, 1, ids, 5, x), "prompt 0: logits [1, 4], and [1, 5]"},
        {write_file("longer", 1, 2, ids, 4, x), "prompt 0: logits [1, 4], and [2, 4]"},
        {write_file("fewer", 1, 1, ids, 4, x), "has a prompt 1"},
        {write_file("none", 0, 1, ids, 4, x), "input_ids"},
        {in_folder("missing"), "missing"},
    };
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        MxLogitsReport r;
        ck_failed(mx_logits_compare(a, wrong[i].path, &(MxLogitsHow){.top_k = 1}, &r, &err),
                  wrong[i].message);
    }
}
END_TEST

Suite *logits_suite(void) {
    Suite *suite = suite_create("logits");
    TCase *tcase = add_case(suite, "logits");
    tcase_add_test(tcase, figures_are_those_of_the_definitions);
    tcase_add_test(tcase, rows_of_one_length_are_prompts_too);
    tcase_add_test(tcase, files_that_do_not_fit_are_told);
    return suite;
}

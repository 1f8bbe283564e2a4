/* test_paces.c — which rank is slow, of seconds that ranks may have told: who it is, how much
 * slower than the median, and when a warning comes. */
#include "train_test.h"

#include <math.h>
#include <train/paces.h>

enum { MOST_RANKS = 5 };

static MxArena arena;
static Paces paces;

/* Alone, so that nothing is exchanged; then as if there were n ranks. */
static void open_paces(int n) {
    MxError err = {0};
    MxComm *comm;
    arena = (MxArena){.name = "paces"};
    ck_assert(mx_comm_open(&arena, &comm, &err));
    paces_open(&arena, comm, &paces);
    ck_assert(isnan(paces.slowdown) && paces.n == 1);
    paces.n = n;
    paces.words = mx_new_n(&arena, PaceWord, MOST_RANKS);
    paces.sorted = mx_new_n(&arena, double, MOST_RANKS);
    paces.hosts = mx_arena_alloc(&arena, (size_t)MOST_RANKS * PACE_HOST_BYTES);
}

static bool judge(const double *seconds) {
    for (int r = 0; r < paces.n; r++) paces.words[r].alone_s = seconds[r];
    return paces_judge(&paces);
}

/* How many of n equal steps warn. */
static int count_warnings(int n, const double *seconds) {
    int n_told = 0;
    for (int i = 0; i < n; i++) n_told += judge(seconds);
    return n_told;
}

START_TEST(the_slowest_is_measured_by_the_median) {
    static const struct {
        int n, slowest;
        double seconds[MOST_RANKS], slowdown;
    } cases[] = {
        {5, 1, {1, 3, 2, 1, 2}, 1.5},
        {4, 3, {1, 2, 3, 6}, 3},
        {2, 0, {3, 2}, 1.5},
        {3, 0, {2, 2, 2}, 1},
    };
    for (int i = 0; i < MX_COUNT(cases); i++) {
        open_paces(cases[i].n);
        judge(cases[i].seconds);
        ck_assert_int_eq(paces.slowest, cases[i].slowest);
        ck_assert_double_eq(paces.slowdown, cases[i].slowdown);
        mx_arena_release(&arena);
    }
}
END_TEST

START_TEST(a_warning_takes_ten_steps_and_a_second) {
    static const double slow[] = {1, 1, 1.6}, other[] = {1.6, 1, 1}, fine[] = {1, 1, 1.4},
                        brief[] = {0.001, 0.001, 0.006};
    open_paces(3);
    ck_assert_int_eq(count_warnings(9, slow), 0);
    ck_assert_int_eq(count_warnings(1, slow), 1);
    ck_assert_int_eq(count_warnings(989, slow), 0); /* told once, and again after a thousand */
    ck_assert_int_eq(count_warnings(1, slow), 1);
    ck_assert_int_eq(count_warnings(9, other), 0);
    ck_assert_int_eq(count_warnings(1, fine), 0);
    ck_assert_int_eq(count_warnings(9, other), 0); /* from the start again */
    ck_assert_int_eq(count_warnings(1, other), 1);
    ck_assert_int_eq(count_warnings(199, brief), 0); /* 5 ms each */
    ck_assert_int_eq(count_warnings(2, brief), 1);
    mx_arena_release(&arena);
}
END_TEST

/* Rank 0 has responses rewarded for all, and was called slow for that. */
START_TEST(rewards_are_left_out) {
    open_paces(1);
    paces_begin(&paces);
    paces_leave_out(&paces, 1000);
    paces_end(&paces);
    ck_assert_double_lt(paces.alone_s, -900);
    mx_arena_release(&arena);
}
END_TEST

Suite *paces_suite(void) {
    Suite *suite = suite_create("train/paces");
    TCase *tests = tcase_create("paces");
    tcase_add_test(tests, the_slowest_is_measured_by_the_median);
    tcase_add_test(tests, a_warning_takes_ten_steps_and_a_second);
    tcase_add_test(tests, rewards_are_left_out);
    suite_add_tcase(suite, tests);
    return suite;
}

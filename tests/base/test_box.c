/* test_box.c — boxes of arrays, element by element against what they mean. */
#include "base_test.h"

static int64_t below(uint64_t *state, int64_t n) {
    return (int64_t)(draw(state) % (uint64_t)n);
}

/* A box inside another, by chance. */
static MxBox inside(const MxBox *outer, uint64_t *state) {
    MxBox box = {.rank = outer->rank};
    for (int d = 0; d < box.rank; d++) {
        int64_t skipped = below(state, outer->count[d]);
        box.start[d] = outer->start[d] + skipped;
        box.count[d] = 1 + below(state, outer->count[d] - skipped);
    }
    return box;
}

static int64_t index_in(const MxBox *outer, const int64_t *place) {
    int64_t at = 0;
    for (int d = 0; d < outer->rank; d++) at = at * outer->count[d] + place[d] - outer->start[d];
    return at;
}

/* Moves `place` on within a box; false after the last. */
static bool next_place(const MxBox *box, int64_t *place) {
    for (int d = box->rank - 1; d >= 0; d--) {
        if (++place[d] < box->start[d] + box->count[d]) return true;
        place[d] = box->start[d];
    }
    return false;
}

START_TEST(copies_its_elements) {
    MxShape shape = {.rank = _i % (MX_MAX_RANK + 1), .dim = {4, 3, 5, 2, 3, 4}};
    uint64_t state = (uint64_t)_i;
    MxBox all = mx_box_of(shape), a = inside(&all, &state), b, box;
    for (int d = 0; _i % 2 && d < shape.rank; d++) { /* both hold some dims whole */
        a.start[d] = 0;
        a.count[d] = shape.dim[d];
    }
    box = inside(&a, &state);
    b = box;
    for (int d = 0; d < shape.rank && _i % 3; d++) { /* b goes from 0 to the box's end */
        b.count[d] += b.start[d];
        b.start[d] = 0;
    }
    int32_t from[1440], to[1440], want[1440];
    for (int i = 0; i < 1440; i++) from[i] = i, to[i] = want[i] = -1;
    int64_t place[MX_MAX_RANK];
    memcpy(place, box.start, sizeof place);
    do want[index_in(&b, place)] = from[index_in(&a, place)];
    while (next_place(&box, place));
    mx_box_copy(&box, &a, from, &b, to, sizeof(int32_t));
    ck_assert_mem_eq(to, want, sizeof want);
    MxBoxRuns runs = mx_box_runs(&box, &a, &b);
    ck_assert_int_eq(runs.n * runs.length, mx_box_count(&box));
}
END_TEST

START_TEST(runs_are_as_long_as_they_can_be) {
    MxBox all = mx_box_of(MX_SHAPE(4, 6, 8)), rows = all, some = all;
    rows.start[0] = 1;
    rows.count[0] = 2;
    MxBoxRuns runs = mx_box_runs(&rows, &all, &rows);
    ck_assert(runs.n == 1 && runs.length == 2 * 6 * 8);
    some.start[1] = 2;
    some.count[1] = 3;
    runs = mx_box_runs(&some, &all, &some);
    ck_assert(runs.n == 4 && runs.length == 3 * 8);
}
END_TEST

START_TEST(meets_and_inserts) {
    MxBox a = {2, {1, 0}, {4, 6}}, b = {2, {3, 4}, {9, 1}}, c = {2, {5, 0}, {1, 1}};
    MxBox both = mx_box_meet(&a, &b), none = mx_box_meet(&a, &c);
    ck_assert(mx_box_equal(&both, &(MxBox){2, {3, 4}, {2, 1}}));
    ck_assert_int_eq(mx_box_count(&none), 0);
    ck_assert(!mx_box_equal(&a, &b) && mx_box_equal(&a, &a));
    MxBox deeper = mx_box_insert(a, 1, 7, 2), last = mx_box_insert(a, 2, 0, 5);
    ck_assert(mx_box_equal(&deeper, &(MxBox){3, {1, 7, 0}, {4, 2, 6}}));
    ck_assert(mx_box_equal(&last, &(MxBox){3, {1, 0, 0}, {4, 6, 5}}));
}
END_TEST

Suite *box_suite(void) {
    Suite *suite = suite_create("box");
    TCase *tcase = add_case(suite, "box");
    tcase_add_loop_test(tcase, copies_its_elements, 0, 420);
    tcase_add_test(tcase, runs_are_as_long_as_they_can_be);
    tcase_add_test(tcase, meets_and_inserts);
    return suite;
}

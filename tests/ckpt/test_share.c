/* test_share.c — a state that ranks divide: who writes what, the files of all of them, and every
 * rank's part read back under another division. The ranks are played one after the other. */
#include "ckpt_test.h"

#include <stdio.h>

enum { RANKS = 4 };

/* How a tree is divided: every array along dim 0 or 1, over all ranks or over pairs of them, or not
 * at all; arrays of one shape alike, and `salt` changes it. */
static const MxDivision *division_of(MxShape shape, int rank, int salt) {
    MxDivision *division = mx_new(&arena, MxDivision);
    MxBox *box = mx_new_n(&arena, MxBox, RANKS);
    int *first = mx_new_n(&arena, int, RANKS);
    int kind = ((int)mx_shape_count(shape) + shape.rank + salt) % 3, parts = kind ? 2 * kind : 1;
    int dim = shape.rank > 1 ? (salt + shape.rank) % 2 : 0;
    if (!shape.rank) parts = 1;
    for (int r = 0; r < RANKS; r++) {
        int part = r / (RANKS / parts);
        box[r] = mx_box_of(shape);
        first[r] = part * (RANKS / parts);
        if (parts == 1) continue;
        int64_t start = shape.dim[dim] * part / parts, end = shape.dim[dim] * (part + 1) / parts;
        box[r].start[dim] = start;
        box[r].count[dim] = end - start;
    }
    *division = (MxDivision){.rank = rank, .n_ranks = RANKS, .box = box, .first = first};
    return division;
}

/* The tree as a rank has it: its boxes of the whole arrays, or of zeros. */
static MxTree *divide(const MxTree *whole, int rank, int salt, bool has_data) {
    MxTree *tree = mx_new(&arena, MxTree);
    mx_tree_init(tree, &arena);
    for (int i = 0; i < whole->n; i++) {
        MxLeaf leaf = whole->leaves[i];
        size_t each = mx_dtype_bytes(leaf.dtype);
        leaf.division = division_of(leaf.shape, rank, salt);
        MxBox all = mx_box_of(leaf.shape), own = leaf.division->box[rank];
        leaf.data = mx_arena_alloc(&arena, (size_t)mx_box_count(&own) * each + 1);
        if (has_data) mx_box_copy(&own, &all, whole->leaves[i].data, &own, leaf.data, each);
        mx_tree_add(tree, leaf);
    }
    return tree;
}

/* Every element of every array is written by one rank, and none has much more than the others. */
START_TEST(ranks_share_the_work) {
    MxForm form = forms[_i];
    MxTree state = small_state(1);
    int64_t bytes[RANKS] = {0}, largest = 0, total = 0, written = 0;
    int *times = mx_new_n(&arena, int, state.n);
    for (int r = 0; r < RANKS; r++) {
        MxTree *tree = divide(&state, r, 1, true), *share = mx_ckpt_share(&arena, form, tree);
        for (int i = 0; i < tree->n; i++) {
            const MxLeaf *leaf = &share->leaves[i];
            int64_t each = (int64_t)mx_dtype_bytes(leaf->dtype);
            int64_t n = mx_box_count(&leaf->division->box[r]) * each;
            if (leaf->data) bytes[r] += n;
            if (leaf->data) times[i] += (int)(n / each);
            int64_t array = form.is_scanned && leaf->stack.count ? n * leaf->stack.count : n;
            if (array > largest) largest = array;
        }
        written += bytes[r];
    }
    for (int i = 0; i < state.n; i++) {
        const MxLeaf *leaf = &state.leaves[i];
        bool is_left_out = !mx_ckpt_place(&arena, form, leaf).path;
        int64_t n = is_left_out ? 0 : mx_shape_count(leaf->shape);
        ck_assert_msg(times[i] == n, "%s: %d of %d elements are written", leaf->path, times[i],
                      (int)n);
        total += n * (int64_t)mx_dtype_bytes(leaf->dtype);
    }
    ck_assert_int_eq(written, total);
    int64_t most = mx_ckpt_share_bytes(form, divide(&state, 0, 1, false));
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_le(bytes[r], total / RANKS + largest);
        ck_assert_int_le(bytes[r], most);
    }
    ck_assert_int_eq(mx_ckpt_share_bytes(form, &state), total); /* undivided */
}
END_TEST

/* A checkpoint that four ranks write, one after the other. */
static const char *save_divided(const MxTree *state, MxForm form, int salt) {
    static const char *reports[RANKS];
    MxCkptSave *saves[RANKS];
    MxTree *trees[RANKS];
    MxSaving how = {.form = form, .config = "", .run = "x"};
    const char *temp = NULL;
    for (int r = 0; r < RANKS; r++) {
        trees[r] = divide(state, r, salt, true);
        ck_ok(mx_ckpt_save_begin(&arena, in_folder("7"), temp, &how, trees[r], &saves[r], &err));
        temp = mx_ckpt_save_temp(saves[0]);
    }
    for (int r = RANKS - 1; r >= 0; r--) {
        ck_ok(mx_ckpt_save_write(saves[r], mx_ckpt_share(&arena, form, trees[r]), &err));
        reports[r] = mx_ckpt_save_report(saves[r]);
    }
    ck_assert(!mx_dir_exists(in_folder("7")));
    ck_ok(mx_ckpt_save_commit(saves[0], reports, RANKS, &err));
    return in_folder("7");
}

START_TEST(divided_states_come_back) {
    MxForm form = forms[_i % n_forms];
    int salt = _i / n_forms;
    MxTree state = small_state(9), whole = small_state(0);
    const char *dir = save_divided(&state, form, salt);
    ck_ok(mx_store_verify(&arena, dir, NULL, NULL, &err));
    ck_ok(mx_ckpt_load(dir, form.scan_axis, &whole, &err));
    ck_same(&state, &whole, "", form_text(form));
    for (int r = 0; r < RANKS; r++) { /* under the next division */
        MxTree *want = divide(&state, r, salt + 1, true), *got = divide(&state, r, salt + 1, false);
        ck_ok(mx_ckpt_load(dir, form.scan_axis, got, &err));
        for (int i = 0; i < want->n; i++) {
            const MxLeaf *a = &want->leaves[i], *b = &got->leaves[i];
            size_t bytes = (size_t)mx_box_count(&a->division->box[r]) * mx_dtype_bytes(a->dtype);
            ck_assert_msg(!memcmp(a->data, b->data, bytes), "rank %d: %s of %s", r, a->path,
                          form_text(form));
        }
    }
}
END_TEST

START_TEST(equal_divided_states_give_equal_bytes) {
    MxTree state = small_state(3);
    char **a, **b;
    int n, m;
    const char *dir = save_divided(&state, forms[0], 1), *kept = in_folder("kept");
    ck_assert_int_eq(rename(dir, kept), 0);
    save_divided(&state, forms[0], 1);
    ck_ok(mx_dir_list(&arena, kept, &a, &n, &err));
    ck_ok(mx_dir_list(&arena, dir, &b, &m, &err));
    ck_assert_int_eq(n, RANKS + 2);
    ck_assert_int_eq(m, n);
    for (int i = 0; i < n; i++) {
        MxBytes x, y;
        ck_assert_str_eq(a[i], b[i]);
        ck_ok(mx_file_read(&arena, mx_path_join(&arena, kept, a[i]), 1 << 24, &x, &err));
        ck_ok(mx_file_read(&arena, mx_path_join(&arena, dir, b[i]), 1 << 24, &y, &err));
        ck_assert_msg(x.size == y.size && !memcmp(x.data, y.data, x.size), "%s", a[i]);
    }
}
END_TEST

Suite *share_suite(void) {
    Suite *suite = suite_create("ckpt/share");
    TCase *tcase = add_case(suite, "share");
    tcase_add_loop_test(tcase, ranks_share_the_work, 0, n_forms);
    tcase_add_loop_test(tcase, divided_states_come_back, 0, 3 * n_forms);
    tcase_add_test(tcase, equal_divided_states_give_equal_bytes);
    return suite;
}

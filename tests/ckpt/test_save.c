/* test_save.c — checkpoint folders: saving, finding the newest that is whole, loading all or only
 * the parameters, and what damage does. */
#include "common/saving.h"
#include "base/child.h"
#include "ckpt_test.h"

static const MxForm nnx = {.is_scanned = true, .scan_axis = 1};

static const char *run_folder(void) {
    return in_folder("run/checkpoints");
}

static const char *step_folder(int step) {
    return mx_arena_printf(&arena, "%s/%d", run_folder(), step);
}

static void save(int step, uint64_t seed) {
    MxTree state = small_state(seed);
    ck_ok(mx_dir_make(run_folder(), &err));
    ck_ok(save_whole(step_folder(step), &(MxSaving){.form = nnx, .config = "steps: 3\n"}, &state,
                     &err));
}

/* Flips one bit in the middle of a file. */
static void damage(const char *path) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, path, 1 << 24, &bytes, &err));
    bytes.data[bytes.size / 2] ^= 4;
    ck_ok(mx_file_write(path, bytes.data, bytes.size, &err));
}

static void damage_step(int step) {
    damage(mx_path_join(&arena, step_folder(step), "state.h5"));
}

START_TEST(saves_and_loads) {
    MxForm form = forms[_i];
    MxTree state = small_state(4), back = small_state(0);
    const char *dir = in_folder("150");
    ck_ok(save_whole(dir, &(MxSaving){.form = form, .config = "run_name: \"x\"\n"}, &state, &err));
    ck_ok(mx_ckpt_load(dir, form.scan_axis, &back, &err));
    ck_same(&state, &back, "", form_text(form));
    MxJson *manifest;
    ck_ok(mx_store_verify(&arena, dir, NULL, &manifest, &err));
    bool is_scanned = !form.is_scanned;
    int64_t axis = -1;
    ck_assert_str_eq(mx_json_string(mx_json_get(manifest, "style")),
                     form.is_linen ? "linen" : "nnx");
    ck_assert(mx_json_bool(mx_json_get(manifest, "scan_layers"), &is_scanned));
    ck_assert_int_eq(is_scanned, form.is_scanned);
    ck_assert(mx_json_int(mx_json_get(manifest, "param_scan_axis"), &axis));
    ck_assert_int_eq(axis, form.scan_axis);
    ck_assert_str_eq(mx_json_string(mx_json_get(manifest, "config")), "run_name: \"x\"\n");
}
END_TEST

/* Arrays that are written in several pieces: three layers of 6 MB, stacked at axis _i. */
START_TEST(large_stacks_come_back) {
    enum { LAYERS = 3, ROWS = 1501, COLUMNS = 1003 };
    MxTree state, back;
    mx_tree_init(&state, &arena);
    mx_tree_init(&back, &arena);
    for (int i = 0; i < LAYERS; i++) {
        MxLeaf leaf = {.path = mx_arena_printf(&arena, "model/decoder/layers_%d/kernel", i),
                       .dtype = MX_F32,
                       .shape = MX_SHAPE(ROWS, COLUMNS),
                       .stack = {.path = "model/decoder/layers/kernel",
                                 .axis = "layers",
                                 .index = i,
                                 .count = LAYERS}};
        int32_t *data = mx_new_n(&arena, int32_t, ROWS * COLUMNS);
        for (int k = 0; k < ROWS * COLUMNS; k++) data[k] = k * LAYERS + i;
        leaf.data = data;
        mx_tree_add(&state, leaf);
        leaf.data = mx_new_n(&arena, int32_t, ROWS * COLUMNS);
        mx_tree_add(&back, leaf);
    }
    MxSaving how = {.form = {.is_scanned = true, .scan_axis = _i}, .config = ""};
    ck_ok(save_whole(in_folder("1"), &how, &state, &err));
    ck_ok(mx_ckpt_load(in_folder("1"), _i, &back, &err));
    ck_same(&state, &back, "", "a large stack");
}
END_TEST

/* A stack of arrays without elements once was a division by zero. */
START_TEST(empty_stacks_come_back) {
    MxTree state;
    mx_tree_init(&state, &arena);
    for (int i = 0; i < 2; i++)
        mx_tree_add(
            &state,
            (MxLeaf){.path = mx_arena_printf(&arena, "model/layers_%d/x", i),
                     .dtype = MX_F32,
                     .shape = MX_SHAPE(3, 0, 2),
                     .stack = {.path = "model/layers/x", .axis = "layers", .index = i, .count = 2},
                     .data = folder});
    MxSaving how = {.form = {.is_scanned = true, .scan_axis = _i}, .config = ""};
    ck_ok(save_whole(in_folder("1"), &how, &state, &err));
    ck_ok(mx_ckpt_load(in_folder("1"), _i, &state, &err));
}
END_TEST

START_TEST(a_full_disk_is_told_with_bytes) {
    MxTree state = small_state(1);
    MxLeaf huge = {.path = "model/huge", .dtype = MX_F32, .shape = MX_SHAPE(1 << 24, 1 << 24)};
    mx_tree_add(&state, huge); /* a petabyte, refused before it is looked at */
    bool ok = save_whole(in_folder("1"), &(MxSaving){.form = nnx, .config = ""}, &state, &err);
    ck_assert(!ok && err.exit == MX_EXIT_IO);
    ck_assert_msg(strstr(err.text.data, "needs 11258999068") != NULL, "%s", err.text.data);
    ck_assert_msg(strstr(err.text.data, " free") != NULL, "%s", err.text.data);
    ck_assert(!mx_dir_exists(in_folder("1")));
}
END_TEST

static MxBytes state_bytes(const char *name, MxForm form, uint64_t seed) {
    MxTree state = small_state(seed);
    MxBytes bytes;
    ck_ok(save_whole(in_folder(name), &(MxSaving){.form = form, .config = name}, &state, &err));
    ck_ok(mx_file_read(&arena, mx_path_join(&arena, in_folder(name), "state.h5"), 1 << 24, &bytes,
                       &err));
    return bytes;
}

START_TEST(equal_states_give_equal_bytes) {
    MxBytes a = state_bytes("1", forms[_i], 5), b = state_bytes("2", forms[_i], 5);
    MxBytes other = state_bytes("3", forms[_i], 6);
    ck_assert_uint_eq(a.size, b.size);
    ck_assert_msg(!memcmp(a.data, b.data, a.size), "%s", form_text(forms[_i]));
    ck_assert(other.size != a.size || memcmp(a.data, other.data, a.size) != 0);
}
END_TEST

START_TEST(an_old_checkpoint_is_never_replaced) {
    save(3, 7);
    MxTree other = small_state(8), back = small_state(0), first = small_state(7);
    bool ok = save_whole(step_folder(3), &(MxSaving){.form = nnx, .config = ""}, &other, &err);
    ck_assert(!ok);
    const char *want =
        mx_arena_printf(&arena, "could not save checkpoint \"%s\": ", step_folder(3));
    ck_assert_msg(mx_text_has_prefix(err.text.data, want), "%s", err.text.data);
    mx_error_release(&err);
    ck_ok(mx_ckpt_load(step_folder(3), 1, &back, &err));
    ck_same(&first, &back, "", "kept");
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, run_folder(), &names, &n, &err));
    ck_assert_int_eq(n, 1); /* nothing temporary stays */
}
END_TEST

START_TEST(a_missing_parent_is_an_error) {
    MxTree state = small_state(1);
    ck_ok(mx_file_write(in_folder("file"), "x", 1, &err));
    bool ok = save_whole(in_folder("file/3"), &(MxSaving){.form = nnx, .config = ""}, &state, &err);
    ck_assert(!ok);
    ck_assert_msg(strstr(err.text.data, "could not save checkpoint"), "%s", err.text.data);
}
END_TEST

/* ---- the newest */

typedef struct Newest {
    bool ok;
    const char *dir;
    int64_t step;
} Newest;

static Newest newest(void) {
    Newest found = {.step = -1, .dir = "unset"};
    found.ok =
        mx_ckpt_newest(&arena, run_folder(), &(MxCkptSearch){0}, &found.dir, &found.step, &err);
    return found;
}

START_TEST(no_checkpoint_is_no_error) {
    Newest found = newest(); /* not even a folder */
    ck_ok(found.ok);
    ck_assert_ptr_null(found.dir);
    ck_ok(mx_dir_make(mx_path_join(&arena, run_folder(), ".tmp.9.123"), &err));
    ck_ok(mx_dir_make(mx_path_join(&arena, run_folder(), "09"), &err));
    ck_ok(mx_dir_make(mx_path_join(&arena, run_folder(), "best"), &err));
    found = newest();
    ck_ok(found.ok);
    ck_assert_ptr_null(found.dir);
}
END_TEST

START_TEST(the_newest_is_the_largest_number) {
    save(9, 1);
    save(100, 2);
    save(20, 3);
    Newest found = newest();
    ck_ok(found.ok);
    ck_assert_int_eq(found.step, 100);
    ck_assert_str_eq(found.dir, step_folder(100));
}
END_TEST

/* Ways in which a checkpoint can be damaged, by its folder. */
static void flip_a_bit(const char *dir) {
    damage(mx_path_join(&arena, dir, "state.h5"));
}
static void cut_short(const char *dir) {
    const char *path = mx_path_join(&arena, dir, "state.h5");
    ck_assert_int_eq(truncate(path, 100), 0);
}
static void lose_the_state(const char *dir) {
    ck_assert_int_eq(unlink(mx_path_join(&arena, dir, "state.h5")), 0);
}
static void lose_the_manifest(const char *dir) {
    ck_assert_int_eq(unlink(mx_path_join(&arena, dir, "MANIFEST.json")), 0);
}
static void change_the_manifest(const char *dir) {
    damage(mx_path_join(&arena, dir, "MANIFEST.json"));
}
static void (*const damages[])(const char *dir) = {flip_a_bit, cut_short, lose_the_state,
                                                   lose_the_manifest, change_the_manifest};

static void find_newest(const void *unused) {
    (void)unused;
    Newest found = newest();
    mx_log("%d %lld %s", found.ok, (long long)found.step, found.dir ? found.dir : "none");
    if (err.count) mx_log("exit %d: %s", err.exit, err.text.data);
}

START_TEST(damaged_ones_are_skipped_with_a_warning) {
    save(1, 1);
    save(2, 2);
    save(3, 3);
    damages[_i](step_folder(3));
    Child child = run_child(&arena, find_newest, NULL);
    ck_assert_str_eq(child.out, mx_arena_printf(&arena, "1 2 %s\n", step_folder(2)));
    const char *want = mx_arena_printf(
        &arena, "warning: skipped checkpoint \"%s\", which does not verify: ", step_folder(3));
    ck_assert_msg(mx_text_has_prefix(child.err, want), "damage %d: %s", _i, child.err);
}
END_TEST

START_TEST(if_all_are_damaged_the_run_stops) {
    save(1, 1);
    save(2, 2);
    damage_step(1);
    damages[_i](step_folder(2));
    Child child = run_child(&arena, find_newest, NULL);
    const char *want = mx_arena_printf(&arena,
                                       "0 -1 none\nexit 65: %s: none of 2 checkpoints verifies; "
                                       "restore one of them or choose another run_name\n",
                                       run_folder());
    ck_assert_str_eq(child.out, want);
    const char *second =
        mx_arena_printf(&arena, "\nwarning: skipped checkpoint \"%s\"", step_folder(1));
    ck_assert_msg(strstr(child.err, second) != NULL, "%s", child.err);
}
END_TEST

/* ---- a reference model */

/* A state with a reference model, its data of `seed`. */
static MxTree state_with_reference(uint64_t seed) {
    MxTree state = small_state(seed);
    int n = state.n;
    for (int i = 0; i < n; i++) {
        MxLeaf leaf = state.leaves[i];
        if (!mx_text_has_prefix(leaf.path, "model/")) continue;
        leaf.path = mx_arena_printf(&arena, "reference_%s", leaf.path);
        if (leaf.stack.path)
            leaf.stack.path = mx_arena_printf(&arena, "reference_%s", leaf.stack.path);
        leaf.kind = MX_KIND_REFERENCE;
        leaf.data = memcpy(mx_arena_alloc(&arena, leaf_bytes(&leaf)), leaf.data, leaf_bytes(&leaf));
        mx_tree_add(&state, leaf);
    }
    return state;
}

START_TEST(linen_checkpoints_leave_the_reference_out) {
    MxTree state = state_with_reference(1), back = state_with_reference(0);
    MxTree untouched = state_with_reference(0), plain = small_state(1);
    const char *dir = in_folder("7");
    bool has_reference;
    ck_ok(save_whole(dir, &(MxSaving){.form = forms[_i], .config = ""}, &state, &err));
    ck_ok(mx_ckpt_has_reference(dir, &state, &has_reference, &err));
    ck_assert_int_eq(has_reference, !forms[_i].is_linen);
    ck_ok(mx_ckpt_has_reference(dir, &plain, &has_reference, &err));
    ck_assert(has_reference); /* of what has none there is all */
    ck_ok(mx_ckpt_load(dir, forms[_i].scan_axis, &back, &err));
    ck_same(&state, &back, "model/", form_text(forms[_i]));
    ck_same(&state, &back, "optimizer/", form_text(forms[_i]));
    ck_same(forms[_i].is_linen ? &untouched : &state, &back, "reference_model/",
            form_text(forms[_i]));
}
END_TEST

/* ---- only the parameters */

/* References to the same parameters; %s is the scratch folder. */
static const char *const references[] = {"%s/run/checkpoints/20", "%s/run", "%s/run/checkpoints",
                                         "%s/run/checkpoints/20/state.h5",
                                         "%s/run/checkpoints/20/state.h5:model"};

START_TEST(parameters_are_found_by_reference) {
    save(9, 1);
    save(20, 2);
    MxTree want = small_state(2), state = small_state(0), untouched = small_state(0);
    char *reference = mx_arena_printf(&arena, "%s%s", folder, references[_i] + 2);
    ck_ok(mx_ckpt_load_params(reference, NULL, 1, &state, &err));
    ck_same(&want, &state, "model/", reference);
    ck_same(&untouched, &state, "optimizer/", reference);
}
END_TEST

static const struct {
    const char *reference, *words;
} wrong[] = {
    {"/nowhere.h5", "nowhere.h5"},
    {"/run/checkpoints/9", "state.h5"}, /* damaged */
    {"/run/checkpoints/20/state.h5:params", "params"},
    {"/empty", "MANIFEST.json"},
};

START_TEST(wrong_references_are_told) {
    save(9, 1);
    save(20, 2);
    damage_step(9);
    ck_ok(mx_dir_make(in_folder("empty"), &err));
    MxTree state = small_state(0), untouched = small_state(0);
    char *reference = mx_arena_printf(&arena, "%s%s", folder, wrong[_i].reference);
    bool ok = mx_ckpt_load_params(reference, NULL, 1, &state, &err);
    ck_failed(ok, wrong[_i].words);
    ck_same(&untouched, &state, "", reference);
}
END_TEST

/* tests/ckpt/fixtures/crash.h5 is a file of damaged bytes on which libhdf5 1.10.8 crashes. */
START_TEST(a_crash_of_the_library_is_an_error) {
    static const char crash[] = "tests/ckpt/fixtures/crash.h5";
    ck_failed(mx_ckpt_try(crash, &err), crash);
    save(3, 7); /* what has a manifest is not tried, what is not there is found missing later */
    ck_ok(mx_ckpt_try(step_folder(3), &err));
    ck_ok(mx_ckpt_try(in_folder("nothing.h5"), &err));
    ck_ok(mx_file_write(in_folder("text.h5"), "text", 4, &err));
    ck_ok(mx_ckpt_try(in_folder("text.h5"), &err));
    MxBytes bytes;
    const char *file = mx_path_join(&arena, step_folder(3), "state.h5");
    ck_ok(mx_file_read(&arena, file, 1 << 24, &bytes, &err));
    ck_ok(mx_file_write(in_folder("alone.h5"), bytes.data, bytes.size, &err));
    ck_ok(mx_ckpt_try(in_folder("alone.h5"), &err));
}
END_TEST

Suite *save_suite(void) {
    Suite *suite = suite_create("ckpt/save");
    TCase *tcase = add_case(suite, "save");
    tcase_add_loop_test(tcase, saves_and_loads, 0, n_forms);
    tcase_add_loop_test(tcase, large_stacks_come_back, 0, 3);
    tcase_add_loop_test(tcase, empty_stacks_come_back, 0, 4);
    tcase_add_test(tcase, a_full_disk_is_told_with_bytes);
    tcase_add_loop_test(tcase, equal_states_give_equal_bytes, 0, n_forms);
    tcase_add_test(tcase, an_old_checkpoint_is_never_replaced);
    tcase_add_test(tcase, a_missing_parent_is_an_error);
    tcase_add_loop_test(tcase, linen_checkpoints_leave_the_reference_out, 0, n_forms);
    tcase = add_case(suite, "newest");
    tcase_add_test(tcase, no_checkpoint_is_no_error);
    tcase_add_test(tcase, the_newest_is_the_largest_number);
    tcase_add_loop_test(tcase, damaged_ones_are_skipped_with_a_warning, 0, MX_COUNT(damages));
    tcase_add_loop_test(tcase, if_all_are_damaged_the_run_stops, 0, MX_COUNT(damages));
    tcase = add_case(suite, "parameters");
    tcase_add_loop_test(tcase, parameters_are_found_by_reference, 0, MX_COUNT(references));
    tcase_add_loop_test(tcase, wrong_references_are_told, 0, MX_COUNT(wrong));
    tcase_add_test(tcase, a_crash_of_the_library_is_an_error);
    return suite;
}

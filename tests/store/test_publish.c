/* test_publish.c — folders that appear whole: commit, abort, every kind of damage, leftovers. */
#include "store_test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *dir, const char *name, const char *text) {
    ck_ok(mx_file_write(mx_path_join(&arena, dir, name), text, strlen(text), &err));
}

static MxPublish *begin(const char *name) {
    MxPublish *publish;
    ck_ok(mx_store_publish_begin(&arena, in_folder(name), &publish, &err));
    return publish;
}

/* A published folder "5" with two files, one of them deeper. */
static char *publish_one(void) {
    MxPublish *publish = begin("5");
    const char *dir = mx_store_publish_dir(publish);
    put(dir, "state.h5", "some state");
    ck_ok(mx_dir_make(mx_path_join(&arena, dir, "sub/deep"), &err));
    put(dir, "sub/deep/rank_0.h5", "");
    mx_json_set_int(mx_store_publish_manifest(publish), "step", 5);
    ck_assert(!mx_dir_exists(in_folder("5")));
    ck_ok(mx_store_publish_commit(publish, &err));
    return in_folder("5");
}

static int count_names(void) {
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    return n;
}

START_TEST(commits) {
    char *dir = publish_one();
    ck_assert_int_eq(count_names(), 1);
    MxJson *manifest;
    ck_ok(mx_store_verify(&arena, dir, NULL, &manifest, &err));
    int64_t value = 0;
    ck_assert(mx_json_int(mx_json_get(manifest, "step"), &value) && value == 5);
    MxJson *files = mx_json_get(manifest, "files");
    ck_assert_uint_eq(mx_json_length(files), 2);
    MxJson *state = mx_json_get(files, "state.h5");
    ck_assert(mx_json_int(mx_json_get(state, "bytes"), &value) && value == 10);
    ck_assert_ptr_nonnull(mx_json_get(files, "sub/deep/rank_0.h5"));
    MxPublish *again;
    ck_failed(mx_store_publish_begin(&arena, dir, &again, &err), "exists already");
}
END_TEST

START_TEST(aborts) {
    MxPublish *publish = begin("7");
    put(mx_store_publish_dir(publish), "x", "x");
    mx_store_publish_abort(publish);
    ck_assert_int_eq(count_names(), 0);
    MxArena brief = {.name = "brief"};
    ck_ok(mx_store_publish_begin(&brief, in_folder("new/8/"), &publish, &err));
    char *dir = mx_arena_strdup(&arena, mx_store_publish_dir(publish));
    put(dir, "x", "x");
    ck_assert(!strncmp(strrchr(dir, '/'), "/.tmp.8.", 8));
    mx_arena_release(&brief); /* dropped without a commit */
    ck_assert(!mx_dir_exists(dir));
}
END_TEST

/* Somebody else took the name between begin and commit: theirs stays, ours goes. */
START_TEST(never_replaces) {
    MxPublish *publish = begin("5");
    put(mx_store_publish_dir(publish), "x", "ours");
    ck_ok(mx_dir_make(in_folder("5"), &err));
    ck_failed(mx_store_publish_commit(publish, &err), "exists already");
    ck_assert_int_eq(count_names(), 1);
    ck_assert(!mx_file_exists(in_folder("5/x")));
}
END_TEST

START_TEST(refuses_links) {
    MxPublish *publish = begin("5");
    char *path = mx_path_join(&arena, mx_store_publish_dir(publish), "link");
    ck_assert_int_eq(symlink("/etc/hostname", path), 0);
    ck_failed(mx_store_publish_commit(publish, &err), "link");
    ck_assert_int_eq(count_names(), 0);
}
END_TEST

/* Every single bit of every file, the manifest included. */
START_TEST(finds_every_flipped_bit) {
    static const char *const names[] = {"state.h5", "MANIFEST.json"};
    char *dir = publish_one();
    for (int f = 0; f < MX_COUNT(names); f++) {
        char *path = mx_path_join(&arena, dir, names[f]);
        MxBytes bytes;
        ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
        for (size_t bit = 0; bit < bytes.size * 8; bit++) {
            FILE *file = fopen(path, "r+b");
            ck_assert_ptr_nonnull(file);
            fseek(file, (long)(bit / 8), SEEK_SET);
            fputc(bytes.data[bit / 8] ^ (1 << bit % 8), file);
            fclose(file);
            MxArena brief = {.name = "brief"};
            ck_failed(mx_store_verify(&brief, dir, NULL, NULL, &err), names[f]);
            mx_arena_release(&brief);
            file = fopen(path, "r+b");
            fseek(file, (long)(bit / 8), SEEK_SET);
            fputc(bytes.data[bit / 8], file);
            fclose(file);
        }
    }
    ck_ok(mx_store_verify(&arena, dir, NULL, NULL, &err));
}
END_TEST

static int count_steps(void) {
    int64_t *steps;
    int n;
    ck_ok(mx_store_steps(&arena, folder, &steps, &n, &err));
    return n;
}

/* Where folders are not renamed one is filled in its place, with a mark until it is complete. */
START_TEST(a_marked_folder_counts_by_its_manifest) {
    static const char mark[] = ".tmp.unfinished";
    ck_ok(mx_dir_make(in_folder("7"), &err));
    put(in_folder("7"), "state.h5", "half a state");
    put(in_folder("7"), mark, "");
    char *dir = publish_one();
    put(dir, mark, "");
    ck_assert_int_eq(count_steps(), 1);
    ck_ok(mx_store_only_listed(dir, &err));
    ck_ok(mx_store_sweep(folder, &err));
    ck_assert(!mx_dir_exists(in_folder("7")));
    ck_assert(!mx_file_exists(mx_path_join(&arena, dir, mark)));
    ck_ok(mx_store_verify(&arena, dir, NULL, NULL, &err));
    put(dir, "MANIFEST.json", "half a manif");
    ck_assert_int_eq(count_steps(), 1); /* without a mark it is damage, which is told */
    put(dir, mark, "");
    ck_assert_int_eq(count_steps(), 0);
}
END_TEST

/* A killed process of which only the final place is known, such as a run's reference, kept every
 * later one from that place. */
START_TEST(an_unfinished_folder_gives_way) {
    static const char mark[] = ".tmp.unfinished";
    bool is_unfinished;
    ck_ok(mx_dir_make(in_folder("5"), &err));
    put(in_folder("5"), "state.h5", "half a state");
    put(in_folder("5"), mark, "");
    ck_ok(mx_store_is_unfinished(in_folder("5"), &is_unfinished, &err));
    ck_assert(is_unfinished);
    char *dir = publish_one();
    put(dir, mark, "");
    ck_ok(mx_store_is_unfinished(dir, &is_unfinished, &err));
    ck_assert(!is_unfinished);
    MxPublish *again;
    ck_failed(mx_store_publish_begin(&arena, dir, &again, &err), "exists already");
    ck_ok(mx_store_verify(&arena, dir, NULL, NULL, &err));
}
END_TEST

START_TEST(a_manifest_without_files_vouches_for_nothing) {
    MxPublish *empty;
    ck_ok(mx_store_publish_begin(&arena, in_folder("5"), &empty, &err));
    ck_ok(mx_store_publish_commit(empty, &err));
    ck_failed(mx_store_verify(&arena, in_folder("5"), NULL, NULL, &err), "lists no files");
}
END_TEST

START_TEST(finds_missing_and_cut_files) {
    char *dir = publish_one(), *state = in_folder("5/state.h5");
    for (int bytes = 0; bytes < 10; bytes++) {
        ck_assert_int_eq(truncate(state, bytes), 0);
        ck_failed(mx_store_verify(&arena, dir, NULL, NULL, &err), "bytes, wanted 10");
    }
    unlink(state);
    unlink(in_folder("5/sub/deep/rank_0.h5"));
    ck_assert(!mx_store_verify(&arena, dir, NULL, NULL, &err)); /* both are told */
    ck_assert_int_eq(err.count, 2);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    mx_error_release(&err);
    for (int bytes = 200; bytes >= 0; bytes -= 10) {
        ck_assert_int_eq(truncate(in_folder("5/MANIFEST.json"), bytes), 0);
        ck_failed(mx_store_verify(&arena, dir, NULL, NULL, &err), "is damaged");
    }
    unlink(in_folder("5/MANIFEST.json"));
    ck_failed(mx_store_verify(&arena, dir, NULL, NULL, &err), "was not completed");
}
END_TEST

START_TEST(sweeps) {
    ck_ok(mx_dir_make(in_folder(".tmp.5.123/sub"), &err));
    ck_ok(mx_dir_make(in_folder("5"), &err));
    ck_ok(mx_dir_make(in_folder("precious/inside"), &err));
    ck_assert_int_eq(symlink("precious", in_folder(".tmp.link")), 0);
    ck_ok(mx_store_sweep(folder, &err));
    ck_assert(!mx_dir_exists(in_folder(".tmp.5.123")) && mx_dir_exists(in_folder("5")));
    ck_assert(mx_dir_exists(in_folder("precious/inside")));
    ck_ok(mx_store_sweep(in_folder("none"), &err));
}
END_TEST

START_TEST(lists_steps) {
    static const char *const names[] = {"10", "9", "0", "007", "5x", "-1", ".tmp.3.1", "1000"};
    for (int i = 0; i < MX_COUNT(names); i++) ck_ok(mx_dir_make(in_folder(names[i]), &err));
    put(folder, "77", "a file");
    int64_t *steps;
    int n;
    ck_ok(mx_store_steps(&arena, folder, &steps, &n, &err));
    ck_assert_int_eq(n, 4);
    ck_assert(steps[0] == 0 && steps[1] == 9 && steps[2] == 10 && steps[3] == 1000);
    ck_ok(mx_store_steps(&arena, in_folder("none"), &steps, &n, &err));
    ck_assert_int_eq(n, 0);
}
END_TEST

Suite *publish_suite(void) {
    Suite *suite = suite_create("store: publication");
    TCase *tests = tcase_create("publish");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, commits);
    tcase_add_test(tests, a_marked_folder_counts_by_its_manifest);
    tcase_add_test(tests, an_unfinished_folder_gives_way);
    tcase_add_test(tests, aborts);
    tcase_add_test(tests, never_replaces);
    tcase_add_test(tests, refuses_links);
    tcase_add_test(tests, finds_every_flipped_bit);
    tcase_add_test(tests, a_manifest_without_files_vouches_for_nothing);
    tcase_add_test(tests, finds_missing_and_cut_files);
    tcase_add_test(tests, sweeps);
    tcase_add_test(tests, lists_steps);
    suite_add_tcase(suite, tests);
    return suite;
}

/* test_file.c — files read and replaced as a whole, also while others read them, and folders. */
#include "base_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 1 << 20 };

static char *read_text(const char *path) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, path, LIMIT, &bytes, &err));
    ck_assert_int_eq(bytes.data[bytes.size], 0);
    return (char *)bytes.data;
}

static int count_names(const char *path) {
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, path, &names, &n, &err));
    return n;
}

/* ---- whole files */

START_TEST(writes_and_reads) {
    const char *path = in_folder("a");
    static const char data[] = "one\0two\xff\n";
    MxBytes bytes;
    ck_ok(mx_file_write(path, data, sizeof data, &err));
    ck_ok(mx_file_read(&arena, path, LIMIT, &bytes, &err));
    ck_assert_uint_eq(bytes.size, sizeof data);
    ck_assert_mem_eq(bytes.data, data, sizeof data);
    ck_ok(mx_file_write(path, "short", 5, &err));
    ck_assert_str_eq(read_text(path), "short");
    ck_ok(mx_file_write(path, NULL, 0, &err));
    ck_assert_str_eq(read_text(path), "");
    ck_assert_int_eq(count_names(folder), 1); /* no temporary file stays */
}
END_TEST

START_TEST(honours_the_umask) {
    umask(027);
    ck_ok(mx_file_write(in_folder("a"), "x", 1, &err));
    ck_ok(mx_dir_make(in_folder("d/e"), &err));
    struct stat st;
    ck_assert_int_eq(stat(in_folder("a"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0640);
    ck_assert_int_eq(stat(in_folder("d/e"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0750);
}
END_TEST

START_TEST(limits_what_it_reads) {
    MxBytes bytes;
    ck_ok(mx_file_write(in_folder("a"), "12345", 5, &err));
    ck_ok(mx_file_read(&arena, in_folder("a"), 5, &bytes, &err));
    ck_failed(mx_file_read(&arena, in_folder("a"), 4, &bytes, &err), MX_EXIT_BAD_INPUT,
              "/a\" has 5 bytes; the limit is 4");
}
END_TEST

static const struct {
    const char *path;
    MxExit exit;
    const char *words;
} unreadable[] = {
    {"missing", MX_EXIT_BAD_INPUT, "no such file: \""},
    {"file/below", MX_EXIT_BAD_INPUT, "no such file: \""},
    {"dir", MX_EXIT_BAD_INPUT, "/dir\" is not a regular file"},
    {"loop", MX_EXIT_IO, "could not open \""},
    {"pipe", MX_EXIT_BAD_INPUT, "/pipe\" is not a regular file"},
};

static void furnish(void) {
    ck_ok(mx_file_write(in_folder("file"), "x", 1, &err));
    ck_ok(mx_dir_make(in_folder("dir"), &err));
    ck_assert_int_eq(symlink("loop", in_folder("loop")), 0);
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
}

START_TEST(names_what_it_cannot_read) {
    furnish();
    MxBytes bytes;
    const char *path = in_folder(unreadable[_i].path);
    ck_failed(mx_file_read(&arena, path, LIMIT, &bytes, &err), unreadable[_i].exit,
              unreadable[_i].words);
}
END_TEST

static const struct {
    const char *path;
    MxExit exit;
    const char *words;
} unwritable[] = {
    {"missing/a", MX_EXIT_CANNOT_CREATE, "could not create \""},
    {"file/a", MX_EXIT_CANNOT_CREATE, "could not create \""},
    {"dir", MX_EXIT_CANNOT_CREATE, "could not open \""},
    {"loop", MX_EXIT_IO, "could not open \""},
};

START_TEST(a_failed_write_leaves_nothing) {
    furnish();
    int before = count_names(folder);
    ck_failed(mx_file_write(in_folder(unwritable[_i].path), "new", 3, &err), unwritable[_i].exit,
              unwritable[_i].words);
    ck_assert_int_eq(count_names(folder), before);
    ck_assert_str_eq(read_text(in_folder("file")), "x");
}
END_TEST

START_TEST(a_full_disk_leaves_the_old_file) {
    const char *path = in_folder("a");
    ck_ok(mx_file_write(path, "old", 3, &err));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    static char large[5000];
    ck_failed(mx_file_write(path, large, sizeof large, &err), MX_EXIT_IO, "could not write \"");
    ck_assert_str_eq(read_text(path), "old");
    ck_assert_int_eq(count_names(folder), 1);
}
END_TEST

START_TEST(links_stay) {
    struct stat st;
    ck_ok(mx_dir_make(in_folder("d"), &err));
    ck_ok(mx_file_write(in_folder("d/file"), "old", 3, &err));
    ck_assert_int_eq(symlink("d/file", in_folder("link")), 0);
    ck_assert_int_eq(symlink(in_folder("link"), in_folder("far")), 0);
    ck_assert_int_eq(symlink("not_yet", in_folder("d/open")), 0);
    ck_ok(mx_file_write(in_folder("far"), "new", 3, &err));
    ck_ok(mx_file_write(in_folder("d/open"), "first", 5, &err));
    ck_assert_str_eq(read_text(in_folder("d/file")), "new");
    ck_assert_str_eq(read_text(in_folder("d/not_yet")), "first");
    static const char *const links[] = {"link", "far", "d/open"};
    for (int i = 0; i < MX_COUNT(links); i++) {
        ck_assert_int_eq(lstat(in_folder(links[i]), &st), 0);
        ck_assert_msg(S_ISLNK(st.st_mode), "%s", links[i]);
    }
    ck_assert_int_eq(count_names(folder), 3);
}
END_TEST

START_TEST(pipes_and_devices_are_written_to) {
    struct stat st;
    const char *pipe = in_folder("pipe");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    ck_ok(mx_file_write(pipe, "text", 4, &err));
    char text[8] = "";
    ck_assert_int_eq(read(reader, text, sizeof text), 4);
    close(reader);
    ck_assert_str_eq(text, "text");
    ck_assert(!lstat(pipe, &st) && S_ISFIFO(st.st_mode));
    ck_assert_int_eq(count_names(folder), 1);
    const char *null = in_folder("null"), *full = in_folder("full"); /* never the system's own */
    if (mknod(null, S_IFCHR | 0600, makedev(1, 3)) || mknod(full, S_IFCHR | 0600, makedev(1, 7)))
        return; /* only root may */
    int before = open(null, O_WRONLY);
    close(before);
    if (before < 0) return; /* a file system without devices */
    ck_ok(mx_file_write(null, "text", 4, &err));
    ck_failed(mx_file_write(full, "text", 4, &err), MX_EXIT_IO, "could not write \"");
    ck_assert(!lstat(null, &st) && S_ISCHR(st.st_mode) && !lstat(full, &st) && S_ISCHR(st.st_mode));
}
END_TEST

static void write_for_ever(const char *path, char *data, size_t size) {
    for (int i = 0;; i++) {
        memset(data, 'a' + i % 26, size);
        if (!mx_file_write(path, data, size, &err)) _exit(1);
    }
}

/* A reader sees one writer's file or the next one's, never a mixture or a part. */
START_TEST(a_reader_never_sees_a_part) {
    enum { BYTES = 300000, READS = 200 };
    const char *path = in_folder("a");
    char *data = mx_arena_alloc(&arena, BYTES);
    memset(data, 'a', BYTES);
    ck_ok(mx_file_write(path, data, BYTES, &err));
    pid_t writer = fork();
    ck_assert_int_ge(writer, 0);
    if (!writer) write_for_ever(path, data, BYTES);
    int n_changes = 0;
    char last = 'a';
    for (int i = 0; i < READS || !n_changes; i++) {
        MxArena scratch = {.name = "read"};
        MxBytes bytes;
        ck_ok(mx_file_read(&scratch, path, LIMIT, &bytes, &err));
        ck_assert_uint_eq(bytes.size, BYTES);
        for (int k = 0; k < BYTES; k++)
            if (bytes.data[k] != bytes.data[0]) ck_abort_msg("read %d: byte %d differs", i, k);
        n_changes += bytes.data[0] != last;
        last = (char)bytes.data[0];
        mx_arena_release(&scratch);
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
}
END_TEST

START_TEST(files_and_folders_are_told_apart) {
    furnish();
    ck_assert(mx_file_exists(in_folder("file")));
    ck_assert(!mx_file_exists(in_folder("dir")));
    ck_assert(!mx_file_exists(in_folder("missing")));
    ck_assert(mx_dir_exists(in_folder("dir")));
    ck_assert(!mx_dir_exists(in_folder("file")));
    ck_assert(!mx_dir_exists(in_folder("missing")));
}
END_TEST

/* ---- folders */

static const char *const makeable[] = {"a", "b/c/d", "e/", "f//g", "dir", "dir/h", "./i/../j"};

START_TEST(makes_folders) {
    furnish();
    const char *path = in_folder(makeable[_i]);
    ck_ok(mx_dir_make(path, &err));
    ck_assert_msg(mx_dir_exists(path), "%s", path);
    ck_ok(mx_dir_make(path, &err)); /* again is fine */
}
END_TEST

START_TEST(makes_relative_folders) {
    ck_assert_int_eq(chdir(folder), 0);
    ck_ok(mx_dir_make("x/y", &err));
    ck_assert(mx_dir_exists("x/y"));
    ck_failed(mx_dir_make("", &err), MX_EXIT_CANNOT_CREATE, "could not create folder \"\"");
}
END_TEST

static const char *const unmakeable[] = {"file", "file/a", "file/a/b", "loop/a"};

START_TEST(does_not_make_folders_of_files) {
    furnish();
    bool ok = mx_dir_make(in_folder(unmakeable[_i]), &err);
    ck_assert_msg(!ok, "%s", unmakeable[_i]);
    ck_assert_msg(mx_text_has_prefix(err.text.data, "could not create folder \""), "%s",
                  err.text.data);
}
END_TEST

START_TEST(lists_sorted_bytewise) {
    static const char *const want[] = {".hidden", "A", "Z", "a", "a.b", "a_b", "b", "\xc3\xa4"};
    for (int i = MX_COUNT(want) - 1; i >= 0; i--)
        ck_ok(mx_file_write(in_folder(want[i]), "", 0, &err));
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    ck_assert_int_eq(n, MX_COUNT(want));
    for (int i = 0; i < n; i++) ck_assert_str_eq(names[i], want[i]);
    for (int i = 0; i < 100; i++) {
        char *name = mx_arena_printf(&arena, "dir/%03d", i);
        ck_ok(mx_dir_make(in_folder(name), &err));
    }
    ck_ok(mx_dir_list(&arena, in_folder("dir"), &names, &n, &err));
    ck_assert_int_eq(n, 100);
    for (int i = 0; i < n; i++) ck_assert_int_eq(strtol(names[i], NULL, 10), i);
    ck_failed(mx_dir_list(&arena, in_folder("no"), &names, &n, &err), MX_EXIT_CANNOT_CREATE,
              "could not list folder \"");
}
END_TEST

START_TEST(removes_what_is_below_but_not_beyond) {
    furnish();
    ck_ok(mx_dir_make(in_folder("gone/a/b"), &err));
    ck_ok(mx_file_write(in_folder("gone/a/file"), "x", 1, &err));
    ck_ok(mx_file_write(in_folder("dir/kept"), "x", 1, &err));
    ck_assert_int_eq(symlink("../dir", in_folder("gone/link")), 0);
    ck_assert_int_eq(symlink("nowhere", in_folder("gone/dangling")), 0);
    ck_assert_int_eq(symlink("dir", in_folder("to_dir")), 0);
    ck_ok(mx_dir_remove(in_folder("gone"), &err));
    ck_assert(!mx_dir_exists(in_folder("gone")));
    ck_assert(mx_file_exists(in_folder("dir/kept")));
    ck_failed(mx_dir_remove(in_folder("to_dir"), &err), MX_EXIT_IO, "is not a folder");
    ck_assert(mx_file_exists(in_folder("dir/kept")));
    ck_failed(mx_dir_remove(in_folder("file"), &err), MX_EXIT_IO, "is not a folder");
    ck_failed(mx_dir_remove(in_folder("gone"), &err), MX_EXIT_CANNOT_CREATE, "could not look at");
}
END_TEST

START_TEST(syncs_files_and_folders) {
    furnish();
    ck_ok(mx_path_sync(in_folder("file"), &err));
    ck_ok(mx_path_sync(in_folder("dir"), &err));
    ck_failed(mx_path_sync(in_folder("no"), &err), MX_EXIT_CANNOT_CREATE, "could not open \"");
}
END_TEST

static const struct {
    const char *dir, *name, *joined;
} joins[] = {
    {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"},
    {"/", "b", "/b"},  {"a", "/b", "/b"},  {"a", "", "a/"},
};

START_TEST(joins_paths) {
    ck_assert_str_eq(mx_path_join(&arena, joins[_i].dir, joins[_i].name), joins[_i].joined);
}
END_TEST

static const struct {
    const char *path, *dir;
} dirs[] = {{"a", "."}, {"a/b", "a"}, {"/a", "/"}, {"/a/b", "/a"}, {"a/b/", "a/b"}, {"", "."}};

START_TEST(takes_the_folder_of_a_path) {
    ck_assert_str_eq(mx_path_dir(&arena, dirs[_i].path), dirs[_i].dir);
}
END_TEST

Suite *file_suite(void) {
    Suite *suite = suite_create("base/file");
    TCase *tcase = add_case(suite, "file");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, writes_and_reads);
    tcase_add_test(tcase, honours_the_umask);
    tcase_add_test(tcase, limits_what_it_reads);
    tcase_add_loop_test(tcase, names_what_it_cannot_read, 0, MX_COUNT(unreadable));
    tcase_add_loop_test(tcase, a_failed_write_leaves_nothing, 0, MX_COUNT(unwritable));
    tcase_add_test(tcase, a_full_disk_leaves_the_old_file);
    tcase_add_test(tcase, links_stay);
    tcase_add_test(tcase, pipes_and_devices_are_written_to);
    tcase_add_test(tcase, a_reader_never_sees_a_part);
    tcase_add_test(tcase, files_and_folders_are_told_apart);
    tcase = add_case(suite, "folder");
    tcase_add_loop_test(tcase, makes_folders, 0, MX_COUNT(makeable));
    tcase_add_test(tcase, makes_relative_folders);
    tcase_add_loop_test(tcase, does_not_make_folders_of_files, 0, MX_COUNT(unmakeable));
    tcase_add_test(tcase, lists_sorted_bytewise);
    tcase_add_test(tcase, removes_what_is_below_but_not_beyond);
    tcase_add_test(tcase, syncs_files_and_folders);
    tcase = add_case(suite, "path");
    tcase_add_loop_test(tcase, joins_paths, 0, MX_COUNT(joins));
    tcase_add_loop_test(tcase, takes_the_folder_of_a_path, 0, MX_COUNT(dirs));
    return suite;
}

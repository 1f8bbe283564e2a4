/* scratch.c — what every test of the room starts from. */
#include "store_test.h"

#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;
char *folder;

static int n_open_before;

/* Files that this process has open; a handle that HDF5 still holds keeps its file open. */
static int count_open(void) {
    MxArena scratch = {.name = "scratch"};
    char **names;
    int n = 0;
    ck_assert(mx_dir_list(&scratch, "/proc/self/fd", &names, &n, &err));
    mx_arena_release(&scratch);
    return n;
}

void set_up(void) {
    n_open_before = count_open();
    folder = scratch_make(&arena);
}

void tear_down(void) {
    scratch_remove(folder);
    mx_error_release(&err);
    mx_arena_release(&arena);
    ck_assert_int_eq(count_open(), n_open_before);
}

char *in_folder(const char *name) {
    return mx_path_join(&arena, folder, name);
}

void ck_failed(bool ok, const char *words) {
    ck_assert_msg(!ok, "no error, wanted \"%s\"", words);
    ck_assert_msg(strstr(err.text.data, words) != NULL, "\"%s\" lacks \"%s\"", err.text.data,
                  words);
    mx_error_release(&err);
}

void ck_ok(bool ok) {
    ck_assert_msg(ok, "%s", err.count ? err.text.data : "failed without a message");
}

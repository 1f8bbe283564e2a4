/* test_environment.c — the trainer in surroundings that it did not choose: variables of the
 * environment that its libraries read while they are loaded, closed descriptors. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- variables */

/* What /proc says of a process; NUL ends each of its strings. */
static const char *proc_file(MxArena *arena, pid_t pid, const char *name, size_t *n) {
    enum { ROOM = 1 << 16 };
    char *bytes = mx_arena_alloc(arena, ROOM);
    FILE *file = fopen(mx_arena_printf(arena, "/proc/%ld/%s", (long)pid, name), "r");
    ck_assert_ptr_nonnull(file);
    *n = fread(bytes, 1, ROOM - 1, file);
    fclose(file);
    return bytes;
}

/* The value of a variable as the process was started with it; NULL = it is not there. */
static const char *variable_of(MxArena *arena, pid_t pid, const char *name) {
    size_t n;
    const char *at = proc_file(arena, pid, "environ", &n), *end = at + n;
    const char *head = mx_arena_printf(arena, "%s=", name);
    for (; at < end; at += strlen(at) + 1)
        if (mx_text_has_prefix(at, head)) return at + strlen(head);
    return NULL;
}

static const struct {
    const char *name, *value; /* of the user's */
    const char *spins;        /* GOMP_SPINCOUNT in the run, NULL = not there; "" = some number */
} users[] = {
    {"MX_NOTHING", "1", ""},
    {"GOMP_SPINCOUNT", "7", "7"},
    {"OMP_WAIT_POLICY", "active", NULL},
};

START_TEST(threads_spin_briefly_unless_the_user_says_otherwise) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "spins");
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    setenv(users[_i].name, users[_i].value, true);
    pid_t pid =
        process_start(&arena, dir, process_tiny(&arena, dir, "steps=100000 eval_interval=-1"));
    process_wait_for(&arena, dir, "completed step: 0,");
    size_t n;
    const char *spins = variable_of(&arena, pid, "GOMP_SPINCOUNT");
    const char *name = proc_file(&arena, pid, "comm", &n);
    ck_assert(!kill(pid, SIGTERM));
    ck_assert_int_eq(process_wait(pid), MX_EXIT_SIGTERM);
    ck_assert_str_eq(name, "mxtrain\n");
    if (users[_i].spins && !*users[_i].spins)
        ck_assert_msg(spins && strtol(spins, NULL, 10) > 0, "%s", spins ? spins : "not set");
    else
        ck_assert_pstr_eq(spins, users[_i].spins);
    mx_arena_release(&arena);
}
END_TEST

/* ---- descriptors */

static const char *const closed[] = {">&-", ">&- <&-", "<&- >&- 2>&-"};

START_TEST(closed_descriptors_are_not_those_of_files) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "closed");
    const char *words = process_tiny(&arena, dir, "steps=3 eval_interval=-1");
    int status = system(mx_arena_printf(&arena, "%s %s %s", process_binary(), words, closed[_i]));
    ck_assert_int_eq(status, 0);
    int n;
    process_metrics(&arena, dir, "step", &n); /* every line is one of metrics */
    ck_assert_int_eq(n, 3);
    size_t size;
    const char *lock = process_file(&arena, dir, "x/LOCK", &size);
    ck_assert_msg(!strstr(lock, "completed step"), "%s", lock);
    mx_arena_release(&arena);
}
END_TEST

/* ---- files of others */

static const struct {
    const char *text;
    int code;
    const char *told;
} taken[] = {
    {"notes, not metrics\n", 2, "is no file of metrics; it is not replaced"},
    {"{\"a\": 1}\n", 2, "is no file of metrics; it is not replaced"},
    {"{\"step\": 0.0, \"run_name\": \"y\"}\nrest", 2, "has the metrics of run \"y\""},
    {"{\"step\": 0.0, \"run_name\": \"x\"}\n", 0, NULL},
    {"{\"step\": 0.0, \"run", 0, NULL}, /* a run that was killed */
    {"", 0, NULL},
};

START_TEST(metrics_replace_no_file_of_others) {
    MxArena arena = {0};
    MxError err = {0};
    const char *dir = process_dir(&arena, "taken"), *text = taken[_i].text;
    const char *path = mx_path_join(&arena, dir, "m.jsonl");
    ck_assert(mx_file_write(path, text, strlen(text), &err));
    const char *words = process_tiny(&arena, dir, "steps=1 eval_interval=-1");
    ck_assert_int_eq(process_run(&arena, dir, words), taken[_i].code);
    const char *now = process_file(&arena, dir, "m.jsonl", NULL);
    if (taken[_i].told) {
        const char *log = process_file(&arena, dir, "log", NULL);
        ck_assert_msg(strstr(log, taken[_i].told) != NULL, "%s", log);
        ck_assert_str_eq(now, text);
        ck_assert(!mx_dir_exists(mx_path_join(&arena, dir, "x")));
    } else {
        ck_assert(strstr(now, "learning/loss"));
    }
    mx_arena_release(&arena);
}
END_TEST

Suite *environment_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("environment");
    TCase *tcase = tcase_create("trainer");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_loop_test(tcase, threads_spin_briefly_unless_the_user_says_otherwise, 0,
                        MX_COUNT(users));
    tcase_add_loop_test(tcase, closed_descriptors_are_not_those_of_files, 0, MX_COUNT(closed));
    tcase_add_loop_test(tcase, metrics_replace_no_file_of_others, 0, MX_COUNT(taken));
    suite_add_tcase(suite, tcase);
    return suite;
}

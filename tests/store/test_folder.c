/* test_folder.c — the lock on a folder, removal and publication that a crash cannot spoil, and the
 * brake. */
#include "store_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Another process that looks for a lock all the time keeps nobody from taking it. */
START_TEST(a_look_is_no_lock) {
    ck_ok(mx_dir_make(in_folder("run"), &err));
    pid_t pid = fork();
    for (int i = 0; !pid && i < 50000; i++) {
        MxArena own = {.name = "child"};
        const char *holder;
        mx_store_is_locked(&own, in_folder("run"), &holder);
        mx_arena_release(&own);
        usleep(200);
    }
    if (!pid) _exit(0);
    for (int i = 0; i < 3000; i++) {
        MxArena brief = {.name = "brief"};
        ck_ok(mx_store_lock(&brief, in_folder("run"), &err));
        mx_arena_release(&brief);
    }
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

/* What another process gets: the exit code of trying to take the lock, its message in "told". */
static int lock_elsewhere(void) {
    pid_t pid = fork();
    if (!pid) {
        MxArena own = {.name = "child"};
        MxError why = {0};
        bool ok = mx_store_lock(&own, in_folder("run"), &why);
        MxError ignored = {0};
        if (!ok) mx_file_write(in_folder("told"), why.text.data, why.text.len, &ignored);
        _exit(ok ? 0 : (int)why.exit);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

START_TEST(one_process_has_the_lock) {
    MxArena brief = {.name = "brief"};
    MxBytes told;
    const char *holder;
    ck_assert(!mx_store_is_locked(&arena, in_folder("run"), &holder));
    ck_ok(mx_store_lock(&brief, in_folder("run"), &err));
    ck_assert(mx_store_is_locked(&arena, in_folder("run"), &holder));
    ck_assert_msg(strstr(holder, mx_arena_printf(&arena, "process %ld on ", (long)getpid())) !=
                      NULL,
                  "%s", holder);
    ck_assert_int_eq(lock_elsewhere(), MX_EXIT_LOCKED);
    ck_ok(mx_file_read(&arena, in_folder("told"), 1 << 16, &told, &err));
    const char *pid =
        mx_arena_printf(&arena, "/run\" is in use by process %ld on ", (long)getpid());
    ck_assert_msg(strstr((char *)told.data, pid) != NULL, "%s", (char *)told.data);
    mx_arena_release(&brief);
    ck_assert(!mx_store_is_locked(&arena, in_folder("run"), &holder));
    ck_assert_str_eq(holder, "");
    ck_assert_int_eq(lock_elsewhere(), 0); /* which took it over, and died with it */
    ck_ok(mx_store_lock(&arena, in_folder("run"), &err));
}
END_TEST

static void publish(const char *name) {
    MxPublish *folder_made;
    MxArena brief = {.name = "brief"};
    ck_ok(mx_store_publish_begin(&brief, in_folder(name), &folder_made, &err));
    const char *file = mx_path_join(&brief, mx_store_publish_dir(folder_made), "state.h5");
    ck_ok(mx_file_write(file, "some state", 10, &err));
    ck_ok(mx_store_publish_commit(folder_made, &err));
    mx_arena_release(&brief);
}

/* Runs `act` in a process that a failpoint kills. */
static void killed_at(const char *point, void (*act)(void)) {
    pid_t pid = fork();
    if (!pid) {
        setenv("MX_FAILPOINT", point, 1);
        act();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s was not reached", point);
}

static void remove_it(void) {
    mx_store_remove(in_folder("5"), &err);
}

static void publish_it(void) {
    publish("5");
}

/* Before, a folder is whole; after, a sweep leaves nothing of it. */
START_TEST(removal_is_all_or_nothing) {
    publish("5");
    killed_at("remove.before", remove_it);
    ck_ok(mx_store_verify(&arena, in_folder("5"), NULL, NULL, &err));
    killed_at("remove.renamed", remove_it);
    ck_assert(!mx_dir_exists(in_folder("5")));
    ck_ok(mx_store_sweep(folder, &err));
    publish("5");
    ck_ok(mx_store_remove(in_folder("5"), &err));
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    ck_assert_int_eq(n, 0);
    ck_failed(mx_store_remove(in_folder("5"), &err), "could not rename");
}
END_TEST

static const char *const points[] = {"save.folder_made",
                                     "save.before_sync",
                                     "save.before_manifest",
                                     "save.after_manifest",
                                     "save.before_rename",
                                     "save.after_rename",
                                     "save.done"};

/* A folder is there, whole, or not at all, wherever the process ends. */
START_TEST(publication_is_all_or_nothing) {
    killed_at(points[_i], publish_it);
    bool is_there = mx_dir_exists(in_folder("5"));
    ck_assert_int_eq(is_there, _i >= 5);
    if (is_there) ck_ok(mx_store_verify(&arena, in_folder("5"), NULL, NULL, &err));
    ck_ok(mx_store_sweep(folder, &err));
    if (!is_there) publish("5");
    ck_ok(mx_store_verify(&arena, in_folder("5"), NULL, NULL, &err));
}
END_TEST

START_TEST(a_failpoint_waits_its_turn) {
    killed_at("save.before_sync:1", publish_it);
    pid_t pid = fork();
    if (!pid) {
        setenv("MX_FAILPOINT", "save.before_sync:2", 1); /* there is one file only */
        publish("6");
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
}
END_TEST

/* ---- the brake */

static double cpu_s(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

/* 20 ms of work at a tenth of a core take about 200 ms; in a hurry, no more than the work, which
 * at a share of a ten-thousandth would be minutes. */
START_TEST(a_brake_holds_and_lets_go) {
    MxPace pace = {.share = 0.1};
    double start = mx_clock_s(), work = cpu_s();
    mx_pace_start(&pace);
    while (cpu_s() - work < 0.02) continue;
    mx_pace(&pace);
    ck_assert_double_ge(mx_clock_s() - start, 0.15);
    atomic_store(&pace.is_hurried, true);
    pace.share = 1e-4;
    work = cpu_s();
    while (cpu_s() - work < 0.05) continue;
    start = mx_clock_s();
    mx_pace(&pace);
    ck_assert_double_le(mx_clock_s() - start, 60);
    mx_pace(NULL);
}
END_TEST

Suite *folder_suite(void) {
    Suite *suite = suite_create("store: folders");
    TCase *tests = tcase_create("folder");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, one_process_has_the_lock);
    tcase_add_test(tests, a_look_is_no_lock);
    tcase_add_test(tests, removal_is_all_or_nothing);
    tcase_add_loop_test(tests, publication_is_all_or_nothing, 0, MX_COUNT(points));
    tcase_add_test(tests, a_failpoint_waits_its_turn);
    tcase_add_test(tests, a_brake_holds_and_lets_go);
    suite_add_tcase(suite, tests);
    return suite;
}

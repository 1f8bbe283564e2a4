/* process.c — starting the trainer and reading what it leaves. */
#include "process.h"

#include <check.h>
#include <math.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_WORDS = 256 };

const char *process_binary(void) {
    const char *binary = getenv("MX_BIN");
    return binary && *binary ? binary : "build/mxtrain";
}

/* Appends the words of a text to argv[n], split at blanks. */
static int append(MxArena *arena, char **argv, int n, const char *words) {
    char *save = NULL;
    for (char *w = strtok_r(mx_arena_strdup(arena, words), " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(n, MAX_WORDS - 1);
        argv[n++] = w;
    }
    return n;
}

/* launcher  words before the trainer's */
static pid_t start(MxArena *arena, const char *dir, const char *launcher, const char *words) {
    char *argv[MAX_WORDS];
    int n = append(arena, argv, 0, launcher);
    argv[n++] = mx_arena_strdup(arena, process_binary());
    argv[append(arena, argv, n, words)] = NULL;
    posix_spawn_file_actions_t actions;
    const char *log = mx_path_join(arena, dir, "log");
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    ck_assert_msg(!posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ), "cannot start %s",
                  argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

pid_t process_start(MxArena *arena, const char *dir, const char *words) {
    return start(arena, dir, "", words);
}

int process_wait(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void process_wait_for(MxArena *arena, const char *dir, const char *text) {
    enum { TRIES = 60000, PAUSE_US = 10000 }; /* the test's limit of time ends it earlier */
    for (int i = 0; i < TRIES; i++) {
        if (mx_file_exists(mx_path_join(arena, dir, "log")) &&
            strstr(process_file(arena, dir, "log", NULL), text))
            return;
        usleep(PAUSE_US);
    }
    ck_abort_msg("never printed: %s", text);
}

int process_run(MxArena *arena, const char *dir, const char *words) {
    return process_wait(process_start(arena, dir, words));
}

int process_run_ranks(MxArena *arena, const char *dir, int n_ranks, const char *words) {
    const char *launcher = mx_arena_printf(
        arena,
        "mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "
        "-x OMP_NUM_THREADS=1 -x ASAN_OPTIONS=detect_leaks=0 -n %d",
        n_ranks);
    return process_wait(start(arena, dir, launcher, words));
}

const char *process_tiny(MxArena *arena, const char *dir, const char *more) {
    return mx_arena_printf(
        arena,
        "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 "
        "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 "
        "max_target_length=32 per_device_batch_size=4 eval_interval=10 eval_steps=2 "
        "checkpoint_period=5 learning_rate_schedule_steps=40 log_config=false run_name=x "
        "base_output_directory=%s metrics_file=%s/m.jsonl %s",
        dir, dir, more);
}

static void remove_dir(void *dir) {
    MxError err = {0};
    mx_dir_remove(dir, &err);
    mx_error_release(&err);
}

const char *process_dir(MxArena *arena, const char *name) {
    MxError err = {0};
    char *dir = mx_arena_printf(arena, "build/tests/%s.%ld", name, (long)getpid());
    if (mx_dir_exists(dir)) ck_assert_msg(mx_dir_remove(dir, &err), "%s", err.text.data);
    ck_assert_msg(mx_dir_make(dir, &err), "%s", err.text.data);
    mx_arena_on_release(arena, remove_dir, dir);
    return dir;
}

const char *process_file(MxArena *arena, const char *dir, const char *name, size_t *size) {
    enum { MAX_BYTES = 1 << 28 };
    MxBytes bytes;
    MxError err = {0};
    bool ok = mx_file_read(arena, mx_path_join(arena, dir, name), MAX_BYTES, &bytes, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    if (size) *size = bytes.size;
    return (const char *)bytes.data;
}

MetricsLine *process_metrics(MxArena *arena, const char *dir, const char *with, int *n) {
    enum { MAX_LINES = 4096 };
    MetricsLine *lines = mx_new_n(arena, MetricsLine, MAX_LINES);
    MxError err = {0};
    char *save = NULL, *text = mx_arena_strdup(arena, process_file(arena, dir, "m.jsonl", NULL));
    *n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        MxJson *json = mx_json_parse(arena, line, strlen(line), "m.jsonl", &err);
        ck_assert_msg(json != NULL, "%s", err.text.data);
        if (!mx_json_get(json, with)) continue;
        ck_assert_int_lt(*n, MAX_LINES);
        lines[*n].json = json;
        ck_assert(mx_json_number(mx_json_get(json, "step"), &lines[(*n)++].step));
    }
    return lines;
}

double process_number(const MetricsLine *line, const char *name) {
    double x = NAN;
    ck_assert_msg(mx_json_number(mx_json_get(line->json, name), &x), "no %s", name);
    return x;
}

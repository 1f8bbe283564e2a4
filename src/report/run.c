/* run.c — the status of a run, from its folder: the lock shows whether it runs, the last lines of
 * its log and metrics show its progress and how it ended, config.yml its target. The log is written
 * line by line, metrics less often. */
#include <mx/config.h>
#include <mx/report.h>
#include <mx/store.h>

#include "internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const state_names[] = {
    [MX_RUN_EMPTY] = "empty",     [MX_RUN_RUNNING] = "running", [MX_RUN_FINISHED] = "finished",
    [MX_RUN_STOPPED] = "stopped", [MX_RUN_FAILED] = "failed",   [MX_RUN_BROKEN] = "broken off",
};

const char *mx_run_state_name(MxRunState state) {
    return state_names[state];
}

/* Beyond that a number is no step. */
#define MOST_STEPS ((int64_t)1 << 50)

/* ---- ends of files */

char *report_last_lines(MxArena *arena, const char *path) {
    enum { MOST_BYTES = 1 << 18 };
    char *text = mx_arena_alloc(arena, MOST_BYTES + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st = {0};
    bool is_file = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    off_t from = st.st_size > MOST_BYTES ? st.st_size - MOST_BYTES : 0;
    ssize_t n = is_file ? pread(fd, text, MOST_BYTES, from) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (!from) return text;
    char *line = strchr(text, '\n'); /* the first is not whole */
    return line ? line + 1 : text + strlen(text);
}

char *report_next_line(char **text) {
    char *line = *text, *end = strchr(line, '\n');
    if (!end) return NULL;
    *end = '\0';
    *text = end + 1;
    return line;
}

static void take_number(const MxJson *row, const char *name, double *out) {
    double value;
    if (mx_json_number(mx_json_get(row, name), &value)) *out = value;
}

static void read_metrics(MxArena *arena, MxRunFacts *run) {
    char *text = report_last_lines(arena, mx_path_join(arena, run->folder, "metrics.jsonl"));
    for (char *line; (line = report_next_line(&text));) {
        MxError ignored = {0};
        double step = -1;
        const MxJson *row = mx_json_parse(arena, line, strlen(line), "metrics", &ignored);
        mx_error_release(&ignored);
        take_number(row, "eval/avg_loss", &run->eval_loss);
        take_number(row, "step", &step);
        if (!mx_json_get(row, "learning/loss") || !(step >= 0 && step < (double)MOST_STEPS))
            continue;
        run->step = (int64_t)step;
        run->loss = NAN;
        take_number(row, "learning/loss", &run->loss);
    }
}

/* ---- the log */

/* What follows a text in a line; NULL = it is not there. */
static const char *behind(const char *line, const char *text) {
    const char *at = strstr(line, text);
    return at ? at + strlen(text) : NULL;
}

static void read_step(MxRunFacts *run, const char *line, const char *rest) {
    const char *loss = behind(line, ", loss: ");
    int64_t step = strtoll(rest, NULL, 10);
    if (step < 0 || step >= MOST_STEPS) return;
    run->loss = loss ? strtod(loss, NULL) : NAN;
    run->step = step;
}

/* What the log says of the run's last start; how it ended, if it ended. */
static void read_log(MxArena *arena, MxRunFacts *run) {
    char *text = report_last_lines(arena, mx_path_join(arena, run->folder, "run.log"));
    int64_t step = run->step; /* as the metrics say, */
    double loss = run->loss;  /* which have more digits */
    run->state = run->step >= 0 ? MX_RUN_BROKEN : MX_RUN_EMPTY;
    for (char *line; (line = report_next_line(&text));) {
        const char *message = behind(line, "Z "), *rest;
        if (!message) continue;
        if ((rest = behind(message, "completed step: ")) == message + strlen("completed step: ")) {
            read_step(run, message, rest);
            run->state = MX_RUN_BROKEN;
            run->how = "";
        } else if (mx_text_has_prefix(message, "Training stopped: ")) {
            run->state = MX_RUN_STOPPED;
            run->how = mx_arena_strdup(arena, message + strlen("Training stopped: "));
        } else if (mx_text_has_prefix(message, "results are in ")) {
            run->state = MX_RUN_FINISHED;
        } else if ((rest = behind(message, "mxtrain: error: "))) {
            run->state = MX_RUN_FAILED;
            run->how = mx_arena_strdup(arena, rest);
        }
    }
    if (run->step == step) run->loss = loss;
}

/* ---- the rest of the folder */

/* Bytes on disk of all below a folder; links are not followed. */
static int64_t disk_bytes(MxArena *scratch, const char *folder, int depth) {
    enum { DEEPEST = 16, BLOCK_BYTES = 512 };
    DIR *dir = depth < DEEPEST ? opendir(folder) : NULL;
    int64_t sum = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        const char *path = mx_path_join(scratch, folder, entry->d_name);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || lstat(path, &st))
            continue;
        sum += (int64_t)st.st_blocks * BLOCK_BYTES;
        if (S_ISDIR(st.st_mode)) sum += disk_bytes(scratch, path, depth + 1);
    }
    if (dir) closedir(dir);
    return sum;
}

static const char *const traces[] = {"run.log", "metrics.jsonl", "checkpoints", "config.yml"};

static int64_t last_change(MxArena *arena, const char *folder) {
    int64_t last = 0;
    for (int i = 0; i < MX_COUNT(traces); i++) {
        struct stat st;
        if (stat(mx_path_join(arena, folder, traces[i]), &st)) continue;
        if ((int64_t)st.st_mtime > last) last = (int64_t)st.st_mtime;
    }
    return last;
}

const char *report_config_text(MxArena *arena, const char *folder) {
    enum { MOST_BYTES = 1 << 20 };
    MxBytes bytes;
    MxError ignored = {0};
    const char *path = mx_path_join(arena, folder, "config.yml");
    bool ok = mx_file_exists(path) && mx_file_read(arena, path, MOST_BYTES, &bytes, &ignored);
    mx_error_release(&ignored);
    return ok && !memchr(bytes.data, 0, bytes.size) ? (const char *)bytes.data : NULL;
}

bool mx_report_is_run(const char *folder) {
    MxArena arena = {.name = "run"};
    struct stat st;
    bool has_config = !stat(mx_path_join(&arena, folder, "config.yml"), &st), has_more = false;
    for (int i = 0; i < MX_COUNT(traces) - 1; i++)
        has_more |= !stat(mx_path_join(&arena, folder, traces[i]), &st);
    mx_arena_release(&arena);
    return has_config && has_more;
}

/* "a/b/" is b; "." has the name of the folder that it is. */
static const char *name_of(MxArena *arena, const char *folder) {
    char real[PATH_MAX];
    char *path = mx_arena_strdup(arena, realpath(folder, real) ? real : folder);
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void read_checkpoints(MxArena *arena, MxRunFacts *run) {
    MxError ignored = {0};
    const char *dir = mx_path_join(arena, run->folder, "checkpoints");
    if (!mx_store_steps(arena, dir, &run->checkpoints, &run->n_checkpoints, &ignored))
        run->n_checkpoints = 0;
    mx_error_release(&ignored);
}

bool mx_report_run(MxArena *arena, const char *folder, MxRunFacts *out, MxError *err) {
    const char *holder;
    if (!mx_report_is_run(folder))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s\" is no folder of a run: wanted one with config.yml and run.log, "
                       "metrics.jsonl or checkpoints",
                       folder);
    MxArena scratch = {.name = "run"};
    *out = (MxRunFacts){.name = name_of(arena, folder), .folder = mx_arena_strdup(arena, folder)};
    out->how = "";
    out->step = out->steps = -1;
    out->loss = out->eval_loss = NAN;
    read_metrics(arena, out);
    read_log(arena, out);
    const char *steps =
        mx_config_said(&scratch, report_config_text(&scratch, folder), MX_KEY_steps);
    if (*steps) out->steps = strtoll(steps, NULL, 10);
    bool is_through = out->steps > 0 && out->step + 1 >= out->steps;
    if (is_through && out->state == MX_RUN_BROKEN) out->state = MX_RUN_FINISHED;
    if (mx_store_is_locked(arena, folder, &holder)) {
        out->state = MX_RUN_RUNNING;
        out->how = holder;
    }
    read_checkpoints(arena, out);
    out->bytes = disk_bytes(&scratch, folder, 0);
    out->changed_s = last_change(&scratch, folder);
    mx_arena_release(&scratch);
    return true;
}

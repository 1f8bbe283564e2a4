/* mxtrain.c — the trainer's command line: options, a config, then a plan or mx_train_run. Contains
 * no logic of either. */
#include "mxtrain.h"

#include <mx/plan.h>
#include <mx/report.h>
#include <mx/train.h>

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static MxExit help_config(const char *topic, MxArena *arena, MxError *err) {
    MxText text;
    mx_text_init(&text, arena);
    if (!mx_config_help(&text, topic, err)) return err->exit;
    fputs(text.data, stdout);
    return MX_EXIT_OK;
}

bool mxtrain_put(const char *path, const char *text, MxError *err) {
    if (strcmp(path, "-")) return mx_file_write(path, text, strlen(text), err);
    if (fputs(text, stdout) >= 0 && !fflush(stdout)) return true;
    return mx_fail_errno(err, "could not write to stdout");
}

/* For people; what put_text writes is for programs and escapes by its own rules. */
static bool show(const char *text, MxError *err) {
    mx_print("%s", text);
    return (!fflush(stdout) && !ferror(stdout)) || mx_fail_errno(err, "could not write to stdout");
}

static bool list_runs(const CommandLine *line, MxArena *arena, MxError *err) {
    const char *folder = line->runs_dir ? line->runs_dir : "maxtext_output";
    MxRunFacts *runs;
    MxText text;
    int n;
    mx_text_init(&text, arena);
    if (line->rest[0])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--runs takes a folder and no config");
    if (!mx_report_runs(arena, folder, &runs, &n, err)) return false;
    if (line->json_path)
        return mxtrain_put(line->json_path, mx_report_runs_json(arena, folder, runs, n), err);
    mx_report_runs_print(folder, runs, n, &text);
    return show(text.data, err);
}

static bool report(const CommandLine *line, MxArena *arena, MxError *err) {
    int n = 0;
    while (line->rest[n]) n++;
    if (!n || !line->page_path)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--report wants folders of runs and -o FILE, as in: --report "
                       "maxtext_output/mine -o report.html");
    const char *page = mx_report_page(arena, line->rest, n, err);
    return page && mxtrain_put(line->page_path, page, err);
}

/* Of a run that ended, well or not. */
static bool write_report(const MxConfig *config, MxArena *arena, MxComm *comm, MxError *err) {
    const char *path = mx_path_join(arena, config->run_dir, "report.html");
    if (!config->report || mx_comm_rank(comm) || !mx_dir_exists(config->run_dir)) return true;
    const char *page = mx_report_page(arena, (const char *[]){config->run_dir, NULL}, 1, err);
    if (!page || !mx_file_write(path, page, strlen(page), err)) return false;
    mx_print("report is in %s\n", path);
    return true;
}

/* ---- plans */

/* Else it is all about the mesh. */
static bool plans_run(const CommandLine *line) {
    return line->wants_plan || line->json_path || line->html_path;
}

/* A plan of a run that would be refused is none. */
static bool check_start(const CommandLine *line, const MxConfig *config, MxComm *comm,
                        MxError *err) {
    return mx_train_inputs(config, line->only_evaluates, err) && mx_train_origin(config, comm, err);
}

static bool tell_plan(const CommandLine *line, const char *text, const char *json, MxError *err) {
    bool is_quiet = line->json_path && !strcmp(line->json_path, "-");
    if (line->wants_plan && !is_quiet && !show(text, err)) return false;
    return !line->json_path || mxtrain_put(line->json_path, json, err);
}

static bool search(const CommandLine *line, MxArena *arena, const MxPlanDevice *device,
                   MxError *err) {
    MxPlanSearch found;
    MxText text;
    mx_text_init(&text, arena);
    if (!mx_plan_search(arena, &line->request, device, &found, err)) return false;
    mx_plan_search_print(&found, &text);
    return tell_plan(line, text.data, mx_plan_search_json(arena, &found), err);
}

static bool plan_run(const CommandLine *line, MxArena *arena, const MxConfig *config,
                     MxError *err) {
    MxPlan *plan;
    MxPlanDevice device;
    MxText text;
    mx_text_init(&text, arena);
    if (line->device && !mx_plan_device(arena, line->device, line->links, line->gib, &device, err))
        return false;
    if (line->searches) return search(line, arena, &device, err);
    if (!mx_plan_new(arena, config, line->device ? &device : NULL, &plan, err)) return false;
    mx_plan_print(plan, &text);
    const char *page = line->html_path ? mx_report_plan(arena, plan, err) : NULL;
    if (line->html_path && (!page || !mxtrain_put(line->html_path, page, err))) return false;
    return tell_plan(line, text.data, mx_plan_json(arena, plan), err);
}

static bool plan(const CommandLine *line, MxArena *arena, const MxConfig *config, MxError *err) {
    MxText text;
    mx_text_init(&text, arena);
    if (plans_run(line) && !plan_run(line, arena, config, err)) return false;
    if (line->sharding_path && (!mx_plan_dump_sharding(arena, config, &text, err) ||
                                !mxtrain_put(line->sharding_path, text.data, err)))
        return false;
    mx_text_clear(&text);
    if (line->explained &&
        (!mx_plan_explain(arena, config, line->explained, &text, err) || !show(text.data, err)))
        return false;
    mx_text_clear(&text);
    return !line->graph ||
           (mx_plan_dump_graph(arena, config, line->graph, &text, err) && show(text.data, err));
}

static bool wants_plan(const CommandLine *line) {
    return plans_run(line) || line->sharding_path || line->explained || line->graph;
}

static MxExit train(const CommandLine *line, MxArena *arena, MxComm *comm, MxError *err) {
    CommandLine asked = *line;
    asked.request.n_ranks = mx_comm_size(comm);
    MxConfig *config;
    if (!mxtrain_config(&asked, arena, &config, err)) return err->exit;
    for (int i = 0; i < config->warnings.n; i++) mx_warn("%s", config->warnings.item[i]);
    if (asked.dump_path)
        return mx_config_write(config, asked.dump_path, err) ? MX_EXIT_OK : err->exit;
    if (asked.start)
        return mx_comm_rank(comm) || mxtrain_init(&asked, arena, config, err) ? MX_EXIT_OK
                                                                              : err->exit;
    if (asked.tokenizer_dir)
        return mx_comm_rank(comm) || mx_train_tokenizer(config, asked.tokenizer_dir, err)
                   ? MX_EXIT_OK
                   : err->exit;
    if (wants_plan(&asked))
        return (!plans_run(&asked) || check_start(&asked, config, comm, err)) &&
                       plan(&asked, arena, config, err)
                   ? MX_EXIT_OK
                   : err->exit;
    if (!mx_config_runnable(config, err) || !mx_plan_check(config, err) ||
        !mx_train_inputs(config, asked.only_evaluates, err))
        return err->exit;
    if (asked.checks)
        return mx_train_check(config, comm, asked.n_shown_rows, err) ? MX_EXIT_OK : err->exit;
    asked.wants_plan = config->debug_sharding;
    if (wants_plan(&asked) && !plan(&asked, arena, config, err)) return err->exit;
    if (!mx_plan_fits(config, asked.only_evaluates, comm, err)) return err->exit;
    if (asked.only_evaluates) return mx_train_evaluate(config, comm, err);
    if (asked.tests_checkpoints)
        return mx_train_checkpoint_test(config, comm, err) ? MX_EXIT_OK : err->exit;
    MxExit code = mx_train_run(config, comm, err);
    return write_report(config, arena, comm, err) ? code : err->exit;
}

/* Ends the other ranks too, some of which may be waiting for this one. What all ranks fail at, such
 * as a config, the first tells; the others give it the time to do so, and to end them. */
static void end_ranks(MxComm *comm, MxError *err) {
    const struct timespec time_for_the_first = {.tv_sec = 2};
    int rank = mx_comm_rank(comm);
    if (rank) mx_context(err, "rank %d", rank);
    if (!rank || !nanosleep(&time_for_the_first, NULL)) /* a signal cuts it short: all is over */
        mx_error_tell(err);
    mx_comm_abort(comm, err->exit);
}

/* What a process was started for, which must be the same on all ranks: else those that train wait
 * for one that does not. */
enum {
    HELP,
    CONFIG_HELP,
    RUNS,
    REPORT,
    DUMP,
    INIT,
    TOKENIZER,
    PLAN,
    CHECK,
    EVALUATE,
    CHECKPOINT_TEST,
    TRAIN
};

static const char *const tasks[] = {[HELP] = "--help or the like",
                                    [CONFIG_HELP] = "--help-config",
                                    [RUNS] = "--runs",
                                    [REPORT] = "--report",
                                    [DUMP] = "--dump-config",
                                    [INIT] = "--init",
                                    [TOKENIZER] = "--train-tokenizer",
                                    [PLAN] = "a plan",
                                    [CHECK] = "--check or --show-data",
                                    [EVALUATE] = "--eval",
                                    [CHECKPOINT_TEST] = "--checkpoint-test",
                                    [TRAIN] = "training"};

/* is_over  help was all that was asked */
static int task_of(const CommandLine *line, bool is_over) {
    return is_over                   ? HELP
           : line->wants_config_help ? CONFIG_HELP
           : line->lists_runs        ? RUNS
           : line->reports           ? REPORT
           : line->dump_path         ? DUMP
           : line->start             ? INIT
           : line->tokenizer_dir     ? TOKENIZER
           : wants_plan(line)        ? PLAN
           : line->checks            ? CHECK
           : line->only_evaluates    ? EVALUATE
           : line->tests_checkpoints ? CHECKPOINT_TEST
                                     : TRAIN;
}

static bool agree_on_task(MxArena *arena, MxComm *comm, int task, MxError *err) {
    int n = mx_comm_size(comm), own = task, other = 0;
    int64_t *counts = mx_new_n(arena, int64_t, n);
    int *all = mx_new_n(arena, int, n);
    if (n == 1) return true;
    for (int r = 0; r < n; r++) counts[r] = sizeof own;
    mx_comm_gather(comm, &own, all, counts);
    for (int r = 0; r < n && !mx_comm_rank(comm) && !other; r++)
        if (all[r] != own) other = r;
    if (!mx_comm_max(comm, other)) return true;
    if (mx_comm_rank(comm))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "not all ranks were started for the same");
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "rank %d was started for %s, rank 0 for %s",
                   other, tasks[all[other]], tasks[all[0]]);
}

static MxExit act(const CommandLine *line, int task, MxArena *arena, MxComm *comm, MxError *err) {
    if (task == HELP) return MX_EXIT_OK;
    if (task == RUNS) return list_runs(line, arena, err) ? MX_EXIT_OK : err->exit;
    if (task == REPORT) return report(line, arena, err) ? MX_EXIT_OK : err->exit;
    return task == CONFIG_HELP ? help_config(line->topic, arena, err)
                               : train(line, arena, comm, err);
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line;
    MxComm *comm;
    if (!mx_comm_open(arena, &comm, err)) return err->exit;
    if (mx_comm_rank(comm)) mx_log_silence(mx_comm_rank(comm));
    bool goes_on = mxtrain_options(argc, argv, arena, &line, err);
    int task = task_of(&line, !goes_on);
    MxExit code = err->count || !agree_on_task(arena, comm, task, err)
                      ? err->exit
                      : act(&line, task, arena, comm, err);
    if (err->count && mx_comm_size(comm) > 1) end_ranks(comm, err);
    return code;
}

/* OpenBLAS takes a buffer while it is loaded, and asks for it without end where it gets none. So
 * limits below what the libraries take are told before any of them starts: the loader runs this
 * function of the program first, when little more than system calls can be made. */
__attribute__((no_sanitize("address", "undefined", "thread"))) static void check_limits(void) {
    static const struct {
        __rlimit_resource_t resource;
        rlim_t least_bytes;
        const char *message;
    } least[] = {
        {RLIMIT_AS, (rlim_t)400 << 20,
         "mxtrain: error: needs more addresses than ulimit -v has: 400 MiB\n"},
        {RLIMIT_DATA, (rlim_t)300 << 20,
         "mxtrain: error: needs more data than ulimit -d has: 300 MiB\n"},
    };
    for (int i = 0; i < MX_COUNT(least); i++) {
        struct rlimit limit;
        if (getrlimit(least[i].resource, &limit) || limit.rlim_cur >= least[i].least_bytes)
            continue;
        ssize_t ignored = write(STDERR_FILENO, least[i].message, strlen(least[i].message));
        (void)ignored;
        _exit(MX_EXIT_NO_MEMORY);
    }
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(void) = check_limits;

int main(int argc, char **argv) {
    mx_device_prepare(argv);
    return mx_tool_main(run, argc, argv);
}

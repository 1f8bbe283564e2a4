/* mxtrain_options.c — the trainer's options, and the texts of its manual. */
#include "mxtrain.h"

#include <mx/plan.h>

#include <math.h>

extern char **environ;

static const MxManual manual = {
    .program = "mxtrain",
    .does = "train language models",
    .synopsis = "[OPTION]... [FILE.yml]... [KEY=VALUE]...",
    .intro =
        "Trains a language model as MaxText does, with MaxText's YAML configs, on CPUs or GPUs. "
        "Without a file it reads configs/base.yml, which trains a small model on text in about a "
        "minute.",
    .arguments =
        (const MxManualRow[]){
            {"FILE.yml", "a config file; later files override earlier ones, and all of them "
                         "override those of --config"},
            {"model=DIR", "starts from a Hugging Face folder; family, sizes, tokenizer and "
                          "learning rate are derived from it and printed"},
            {"data=FILE",
             "trains on a file, folder or glob of text or records (JSON Lines, TFRecord, "
             "ArrayRecord); their purpose and the length of rows are derived from it and printed"},
            {"KEY=VALUE",
             "sets a key and overrides the files; dotted for sections (lora.lora_rank=8)"},
            {0}},
    .notes =
        (const MxManualRow[]){
            {"Environment", "M_<KEY> sets a key too. OMP_NUM_THREADS limits the threads, "
                            "OMP_WAIT_POLICY or GOMP_SPINCOUNT set how they wait."},
            {"Exit codes",
             "0 done, 1 stopped by NaN or Inf, 2 command line or config, 65 bad input file, 71 not "
             "enough memory (detected before any is allocated), 73/74/77 could not create, read or "
             "write, 75 locked. SIGINT, SIGTERM and SIGHUP save and exit with 130, 143 and 129, "
             "before the first step without saving; SIGUSR1 saves and continues."},
            {0}},
    .examples =
        (const MxManualRow[]){
            {"mxtrain dtype=bfloat16 steps=200", "trains the default model"},
            {"mxtrain --plan configs/recipes/lora.yml", "plans that recipe"},
            {"mpirun -n 4 mxtrain my.yml ici_fsdp_parallelism=4", "trains on four processes"},
            {0}},
    .details = "print the line of every step on a terminal too",
    .complete = mx_config_complete,
};

enum { MOST_OPTIONS = 32 };

/* What a run needs, and what is done instead. Returns how many. */
static int run_options(CommandLine *line, const char **files, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--config",
         .value = files,
         .count = &line->request.n_files,
         .takes = "FILE",
         .doc = "a config file; later files override earlier ones, and FILE.yml overrides all"},
        {.name = "--help-config",
         .is_main = true,
         .flag = &line->wants_config_help,
         .value = &line->topic,
         .takes = "GROUP|KEY",
         .doc = "explain the keys: the groups, a group, or one key"},
        {.name = "--dump-config",
         .value = &line->dump_path,
         .takes = "FILE",
         .doc = "write the effective config (- = stdout) and exit"},
        {.name = "--init",
         .is_main = true,
         .value = &line->init_kind,
         .takes = START_KINDS,
         .doc = "write a config to start from, with an explanation of each key, for model=DIR and "
                "data=FILE or the bundled data, to stdout or -o FILE, and exit"},
        {.name = "--check",
         .is_main = true,
         .flag = &line->checks,
         .doc = "check config and files as a run does, show a batch of the data, and exit"},
        {.name = "--show-data",
         .is_main = true,
         .value = &line->shown_rows,
         .takes = "N",
         .doc = "the same, with N training rows: text, ids, which tokens count, segments; in "
                "colour on a terminal (--color)"},
        {.name = "--eval",
         .is_main = true,
         .flag = &line->only_evaluates,
         .doc = "evaluate the run's newest checkpoint, or load_parameters_path, also with "
                "eval_tasks if they are set, and exit"},
        {.name = "--checkpoint-test",
         .flag = &line->tests_checkpoints,
         .doc = "without training, save and restore a state of the config's size where a run with "
                "its steps would save, compare, print seconds and GB/s of each, and exit"},
        {.name = "--train-tokenizer",
         .is_main = true,
         .value = &line->tokenizer_dir,
         .takes = "DIR",
         .doc = "train a tokenizer (byte-level BPE) of vocab_size tokens on the texts of the "
                "training data, and exit"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What runs show of themselves. Returns how many. */
static int watch_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--profile",
         .is_main = true,
         .flag = &line->profiles,
         .doc = "train, and then print the seconds of each op and its rate beside the machine's: "
                "profile_ops=true"},
        {.name = "--runs",
         .is_main = true,
         .flag = &line->lists_runs,
         .value = &line->runs_dir,
         .takes = "DIR",
         .doc = "list the runs in a folder (maxtext_output): state, step, loss, size; with --json "
                "FILE as JSON"},
        {.name = "--report",
         .is_main = true,
         .flag = &line->reports,
         .doc = "write an HTML page about the runs whose folders follow: curves, configs, plan, "
                "checkpoints; needs -o"},
        {.name = "-o",
         .is_main = true,
         .value = &line->page_path,
         .takes = "FILE",
         .doc = "output file of --report or --init"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What a plan needs. Returns how many. */
static int plan_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--plan",
         .is_main = true,
         .flag = &line->wants_plan,
         .doc = "describe the run without starting it (mesh, memory, FLOPs, shards, warnings); "
                "num_devices=N plans for other machines"},
        {.name = "--device",
         .value = &line->device,
         .takes = mx_plan_device_names,
         .doc = "with --plan: estimate the time of a step on this device, and check its memory; "
                "cpu is this machine, measured (docs/PLAN.md)"},
        {.name = "--search",
         .flag = &line->searches,
         .doc = "with --device: search meshes, micro-batches and remat policies for this batch, "
                "and print the ten fastest that fit, as keys"},
        {.name = "--devices",
         .value = &line->n_devices,
         .takes = "N",
         .doc = "number of devices to plan for: num_devices=N"},
        {.name = "--device-memory",
         .value = &line->device_gib,
         .takes = "GIB",
         .doc = "memory of a device, instead of the device's own"},
        {.name = "--links",
         .value = &line->links,
         .takes = "GBIT[:US][,GBIT[:US]]",
         .doc = "links inside hosts and between them, in Gbit/s and microseconds, instead of the "
                "device's own"},
        {.name = "--json",
         .value = &line->json_path,
         .takes = "FILE",
         .doc = "write the plan as JSON"},
        {.name = "--html",
         .value = &line->html_path,
         .takes = "FILE",
         .doc = "write the plan as a page, with pictures of memory, mesh and shards"},
        {.name = "--dump-sharding",
         .value = &line->sharding_path,
         .takes = "FILE",
         .doc = "write how every parameter is sharded, as a table"},
        {.name = "--explain-sharding",
         .value = &line->explained,
         .takes = "WHAT",
         .doc =
             "explain the sharding of a parameter (its path) or of logical axes (\"embed,mlp\"). "
             "This option and the three before also plan without --plan; - is stdout"},
        {.name = "--dump-graph",
         .value = &line->graph,
         .takes = "ENTRY[:PASS]",
         .doc = "print an entry of the program (grad, update, ...) as it runs, or after a pass "
                "(trace, fuse, ...)"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What the plan is for; --devices is one more override, the last. */
static bool read_device(CommandLine *line, MxArena *arena, const char **overrides, MxError *err) {
    int64_t n = 0;
    if (!mx_option_int("--devices", line->n_devices, 1, INT32_MAX, &n, err) ||
        !mx_option_number("--device-memory", line->device_gib, 0, INFINITY, &line->gib, err))
        return false;
    if (line->device_gib && !(line->gib > 0 && line->gib < 1e6))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--device-memory wants GiB above 0, found \"%s\"", line->device_gib);
    if (!line->device && (line->device_gib || line->links || line->searches))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with --device",
                       line->searches ? "--search"
                       : line->links  ? "--links"
                                      : "--device-memory");
    if ((line->device || n) && !line->wants_plan && !line->json_path && !line->html_path)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with --plan, --json and --html",
                       line->device ? "--device" : "--devices");
    if (line->searches && line->html_path)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--search finds words, not one plan: use --html with one of its results");
    if (!n) return true;
    overrides[line->request.n_overrides++] =
        mx_arena_printf(arena, "num_devices=%lld", (long long)n);
    return true;
}

bool mxtrain_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err) {
    MxConfigRequest *request = &line->request;
    const char **files = mx_new_n(arena, const char *, argc);
    const char **rest = mx_new_n(arena, const char *, argc + 3);
    *line = (CommandLine){.request = {.files = files, .overrides = rest, .environ = environ},
                          .rest = mx_new_n(arena, const char *, argc + 1)};
    MxOption options[MOST_OPTIONS];
    int n = run_options(line, files, options);
    n += watch_options(line, options + n);
    n += plan_options(line, options + n);
    MX_ASSERT(n <= MOST_OPTIONS);
    const MxOptions table = {.rows = options, .n = n, .passes_pairs = true, .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    if (!mx_option_int("--show-data", line->shown_rows, 1, INT32_MAX, &line->n_shown_rows, err))
        return false;
    line->checks = line->checks || line->n_shown_rows;
    for (int i = 0; rest[i]; i++) line->rest[i] = rest[i];
    if (line->page_path && !line->reports && !line->init_kind)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "-o goes with --report and --init");
    if (line->init_kind && !mxtrain_start(line->init_kind, &line->start, err)) return false;
    for (int i = 0; rest[i]; i++)
        if (mx_config_is_file(rest[i]))
            files[request->n_files++] = rest[i];
        else
            rest[request->n_overrides++] = rest[i];
    if (line->profiles) rest[request->n_overrides++] = "profile_ops=true";
    return read_device(line, arena, rest, err);
}

/* mxtrain_options.c — the trainer's options, and what its manual tells. */
#include "mxtrain.h"

#include <mx/plan.h>

extern char **environ;

static const MxManual manual = {
    .program = "mxtrain",
    .does = "train language models",
    .synopsis = "[OPTION]... [FILE.yml]... [KEY=VALUE]...",
    .intro =
        "Trains a language model on the CPU as MaxText does, driven by its YAML configs. Without a "
        "file it reads configs/base.yml: a small model on text, about a minute.",
    .arguments =
        (const MxManualRow[]){
            {"FILE.yml",
             "a config file, over those of --config; later ones merge over earlier ones"},
            {"model=DIR", "starts from a folder of Hugging Face's: family, sizes, tokenizer and "
                          "learning rate are found there, and told"},
            {"data=FILE", "trains on a file, folder or glob of text or records (JSON Lines, "
                          "TFRecord, ArrayRecord): what they are for and how long rows must be is "
                          "found there, and told"},
            {"KEY=VALUE", "sets a key, over the files; dotted for sections (lora.lora_rank=8)"},
            {0}},
    .notes =
        (const MxManualRow[]){
            {"Environment", "M_<KEY> sets a key too. OMP_NUM_THREADS bounds the threads, "
                            "OMP_WAIT_POLICY or GOMP_SPINCOUNT set how they wait."},
            {"Exit codes",
             "0 done, 1 stopped by NaN or Inf, 2 command line or config, 65 bad input file, 71 not "
             "enough memory, told before any is taken, 73/74/77 could not create, read or write, "
             "75 "
             "locked. SIGINT, SIGTERM and SIGHUP save and leave with 130, 143 and 129, before the "
             "first step without a save; SIGUSR1 saves and goes on."},
            {0}},
    .examples =
        (const MxManualRow[]){
            {"mxtrain dtype=bfloat16 steps=200", "trains the default model"},
            {"mxtrain --plan configs/recipes/lora.yml", "what that recipe would take"},
            {"mpirun -n 4 mxtrain my.yml ici_fsdp_parallelism=4", "on four processes"},
            {0}},
    .details = "the line of every step on a terminal too",
    .complete = mx_config_complete,
};

static bool is_yaml_file(const char *arg) {
    return !strchr(arg, '=') &&
           (mx_text_has_suffix(arg, ".yml") || mx_text_has_suffix(arg, ".yaml"));
}

enum { MOST_OPTIONS = 32 };

/* What a run, and what is told of runs, needs. Returns how many. */
static int run_options(CommandLine *line, const char **files, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--config",
         .value = files,
         .count = &line->request.n_files,
         .takes = "FILE",
         .doc = "a config file; later ones merge over earlier ones, FILE.yml over all"},
        {.name = "--help-config",
         .flag = &line->wants_config_help,
         .value = &line->topic,
         .takes = "GROUP|KEY",
         .doc = "what the keys mean"},
        {.name = "--dump-config",
         .value = &line->dump_path,
         .takes = "FILE",
         .doc = "write the effective config (- = stdout) and exit"},
        {.name = "--init",
         .value = &line->init_kind,
         .takes = START_KINDS,
         .doc = "write a config to start from, with what each key does, for model=DIR and "
                "data=FILE or the bundled data, to stdout or -o FILE, and exit"},
        {.name = "--check",
         .flag = &line->checks,
         .doc = "check config and files as a run does, and show a batch of the data"},
        {.name = "--show-data",
         .value = &line->shown_rows,
         .takes = "N",
         .doc = "the same, with N rows of the data as they are trained on: text, ids, which tokens "
                "count, segments; in colour on a terminal (--color)"},
        {.name = "--eval",
         .flag = &line->only_evaluates,
         .doc = "evaluate what the run has saved, or load_parameters_path, with eval_tasks if they "
                "are named, and exit"},
        {.name = "--checkpoint-test",
         .flag = &line->tests_checkpoints,
         .doc = "without training, save and restore a state of the config's size where a run of "
                "its steps would save one, compare, tell seconds and GB/s of each, and exit"},
        {.name = "--train-tokenizer",
         .value = &line->tokenizer_dir,
         .takes = "DIR",
         .doc = "make a tokenizer (byte-level BPE) of vocab_size tokens from the texts of the "
                "training data, and exit"},
        {.name = "--runs",
         .flag = &line->lists_runs,
         .value = &line->runs_dir,
         .takes = "DIR",
         .doc = "list the runs of a folder (maxtext_output): state, step, loss, size; with --json "
                "FILE as JSON"},
        {.name = "--report",
         .flag = &line->reports,
         .doc = "a page (HTML) about the runs whose folders follow: curves, configs, plan, "
                "checkpoints; wants -o"},
        {.name = "-o",
         .value = &line->page_path,
         .takes = "FILE",
         .doc = "where the page, or the config of --init, goes"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What is told instead of running. Returns how many. */
static int plan_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--plan",
         .flag = &line->wants_plan,
         .doc =
             "tell what the run would be (mesh, memory, FLOPs, shards, warnings) without running "
             "it; num_devices=N plans for machines elsewhere"},
        {.name = "--device",
         .value = &line->device,
         .takes = mx_plan_device_names,
         .doc = "what it takes on such a device: seconds of a step, its memory; cpu is this "
                "machine, measured (docs/PLAN.md)"},
        {.name = "--search",
         .flag = &line->searches,
         .doc = "with --device: meshes, micro-batches and remat policies for this batch, the ten "
                "fastest that fit, as keys"},
        {.name = "--devices",
         .value = &line->n_devices,
         .takes = "N",
         .doc = "plan for so many of them: num_devices=N"},
        {.name = "--device-memory",
         .value = &line->device_gib,
         .takes = "GIB",
         .doc = "memory of one, if it is not the device's own"},
        {.name = "--links",
         .value = &line->links,
         .takes = "GBIT[:US][,GBIT[:US]]",
         .doc = "links inside hosts and between them, Gbit/s and microseconds, if they are not the "
                "device's own"},
        {.name = "--json", .value = &line->json_path, .takes = "FILE", .doc = "the plan as JSON"},
        {.name = "--dump-sharding",
         .value = &line->sharding_path,
         .takes = "FILE",
         .doc = "how every parameter is cut, as a table"},
        {.name = "--explain-sharding",
         .value = &line->explained,
         .takes = "WHAT",
         .doc = "why a parameter (its path) or logical axes (\"embed,mlp\") are cut as they are; "
                "these three plan too, and - is stdout"},
        {.name = "--dump-graph",
         .value = &line->graph,
         .takes = "ENTRY[:PASS]",
         .doc = "an entry of the program (grad, update, ...) as it runs, or after a pass (trace, "
                "fuse, ...)"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What the plan is for; --devices is one more override, the last. */
static bool read_device(CommandLine *line, MxArena *arena, const char **overrides, MxError *err) {
    int64_t n = 0;
    if (!mx_option_int("--devices", line->n_devices, 1, INT32_MAX, &n, err) ||
        !mx_option_number("--device-memory", line->device_gib, &line->gib, err))
        return false;
    if (line->device_gib && !(line->gib > 0 && line->gib < 1e6))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--device-memory wants GiB above 0, found \"%s\"", line->device_gib);
    if (!line->device && (line->device_gib || line->links || line->searches))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with --device",
                       line->searches ? "--search"
                       : line->links  ? "--links"
                                      : "--device-memory");
    if ((line->device || n) && !line->wants_plan && !line->json_path)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s goes with --plan and --json",
                       line->device ? "--device" : "--devices");
    if (!n) return true;
    overrides[line->request.n_overrides++] =
        mx_arena_printf(arena, "num_devices=%lld", (long long)n);
    return true;
}

bool mxtrain_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err) {
    MxConfigRequest *request = &line->request;
    const char **files = mx_new_n(arena, const char *, argc);
    const char **rest = mx_new_n(arena, const char *, argc + 2);
    *line = (CommandLine){.request = {.files = files, .overrides = rest, .environ = environ},
                          .rest = mx_new_n(arena, const char *, argc + 1)};
    MxOption options[MOST_OPTIONS];
    int n = run_options(line, files, options);
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
        if (is_yaml_file(rest[i]))
            files[request->n_files++] = rest[i];
        else
            rest[request->n_overrides++] = rest[i];
    return read_device(line, arena, rest, err);
}

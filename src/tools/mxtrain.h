/* mxtrain.h — what the files of the trainer's command line share. */
#ifndef TOOLS_MXTRAIN_H
#define TOOLS_MXTRAIN_H

#include <mx/config.h>

/* What the process was started for. */
typedef struct CommandLine {
    MxConfigRequest request;
    const char *dump_path, *json_path, *sharding_path, *explained, *graph, *topic, *runs_dir,
        *page_path, *shown_rows, *tokenizer_dir;
    int64_t n_shown_rows; /* 0 = as --check shows */
    const char **rest;    /* what is no option, NULL after the last */
    bool wants_config_help, lists_runs, reports, wants_plan, checks, only_evaluates;
} CommandLine;

/* mxtrain_options — reads it. False after --help and the like, too, without an error. */
bool mxtrain_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err);

/* mxtrain_config — the config of the command line, after what model=DIR and data=FILE tell of
 * themselves, which is told. Errors: as mx_config_load; what these two name cannot be read. */
bool mxtrain_config(CommandLine *line, MxArena *arena, MxConfig **out, MxError *err);

#endif

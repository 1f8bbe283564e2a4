/* mxtrain.h — shared by the files of the trainer's command line. */
#ifndef TOOLS_MXTRAIN_H
#define TOOLS_MXTRAIN_H

#include <mx/config.h>

enum { START_WORDS = 3 };

/* A config to start from (--init): one row a kind. */
typedef struct Start {
    const char *kind, *does;
    const char *data;  /* what it trains on where nobody says; NULL = the default of base.yml */
    const char *usual; /* lines of YAML, weaker than what model and data tell */
    const char *is[START_WORDS]; /* what makes it this kind, as words of the command line */
    const char *keys;            /* that are written although they have their defaults */
} Start;
#define START_KINDS "pretrain|sft|lora|dpo"

/* What the process was started for. */
typedef struct CommandLine {
    MxConfigRequest request;
    const char *dump_path, *json_path, *html_path, *sharding_path, *explained, *graph, *topic,
        *runs_dir, *page_path, *shown_rows, *tokenizer_dir, *init_kind, *device, *n_devices,
        *device_gib, *links;
    const Start *start;   /* of init_kind; NULL = none */
    int64_t n_shown_rows; /* 0 = as --check shows */
    double gib;           /* of device_gib; 0 = the device's own */
    const char **rest;    /* what is no option, NULL after the last */
    bool wants_config_help, lists_runs, reports, wants_plan, searches, checks, only_evaluates,
        tests_checkpoints, profiles;
} CommandLine;

/* mxtrain_options — reads it. False after --help and the like, too, without an error. */
bool mxtrain_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err);

/* mxtrain_config — the config of the command line, after what model=DIR and data=FILE tell of
 * themselves, which is told. Errors: as mx_config_load; what these two name cannot be read. */
bool mxtrain_config(CommandLine *line, MxArena *arena, MxConfig **out, MxError *err);

/* mxtrain_start — the row of a kind. Errors: there is no such kind.
 * mxtrain_init — writes the config that one makes into line->page_path, NULL = stdout.
 * Errors: the file is there already, or cannot be written. */
bool mxtrain_start(const char *kind, const Start **out, MxError *err);
bool mxtrain_init(const CommandLine *line, MxArena *arena, const MxConfig *config, MxError *err);

/* mxtrain_put — text into a file, "-" = stdout. */
bool mxtrain_put(const char *path, const char *text, MxError *err);

#endif

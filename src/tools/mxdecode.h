/* mxdecode.h — shared by the files of mxdecode: the command line and its modes. */
#ifndef TOOLS_MXDECODE_H
#define TOOLS_MXDECODE_H

#include <mx/serve.h>

typedef struct CommandLine CommandLine;
typedef bool LineMode(MxArena *arena, const CommandLine *line, const MxTokenizer *tokenizer,
                      const MxJson *json, MxWhere where, MxError *err);

/* What the program does: one of these a call. */
typedef struct Mode {
    const char *option, *takes, *doc; /* option NULL = what is done without any */
    bool (*run)(MxArena *arena, CommandLine *line, MxError *err);
    LineMode *each_line; /* what becomes of a line of stdin, a value of JSON */
    bool has_chat;       /* by a chat template */
    int64_t max_tokens;  /* of a reply, where nothing is said */
} Mode;

struct CommandLine {
    const char *dir; /* NULL = the config names the weights */
    MxConfigRequest request;
    MxConfig *config; /* of --config; NULL = that of dir */
    const char *chat_template;
    const Mode *mode;
    const char *mode_value; /* of a mode that takes one */
    int64_t queue, timeout_s;
    bool special, skip_special;
    const MxChat *chat; /* of --render-chat */
    MxSpeak speak;
    MxTasks tasks; /* of --evaluate */
};

/* decode_read_command_line — Errors (exit 2).
 *   modes  [n] the last one is what is done without any of their options */
bool decode_read_command_line(int argc, char **argv, MxArena *arena, const Mode *modes, int n,
                              CommandLine *line, MxError *err);

/* decode_find_words — files and overrides of a config, or a folder, among the words that are no
 * options. Errors (exit 2): both, several folders, none.
 *   words  NULL after the last
 * decode_load_config — the config of the request, if there is one, and what its keys say where the
 * options that say the same were not given. Errors: as in mx_config_load; keys that do not fit.
 *   options  [n] whose variables are set */
bool decode_find_words(const char **words, CommandLine *line, MxError *err);
bool decode_load_config(MxArena *arena, CommandLine *line, const MxOption *options, int n,
                        MxError *err);
/* decode_is_said — whether an option was given. */
bool decode_is_said(const MxOption *option);

#endif

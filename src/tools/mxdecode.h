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
} Mode;

struct CommandLine {
    const char *dir, *chat_template;
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

#endif

/* jsonl.h — private to the room: the lines of a JSON Lines file. */
#ifndef DATA_JSONL_H
#define DATA_JSONL_H

#include <mx/base.h>

#include <stdio.h>

/* A file that is being read; closed with its arena. */
typedef struct JsonLines {
    MxArena *arena;
    FILE *file;
    const char *path;
    int line; /* of the text given last, from 1 */
    char *bytes;
    size_t start, end, cap; /* bytes [start, end) were read and not given yet */
    bool is_at_end;
    MxHash *hash; /* of the bytes read */
    int64_t n_read;
} JsonLines;

bool jsonl_open(MxArena *arena, const char *path, JsonLines *out, MxError *err);
/* jsonl_next — the next line that is not blank, without its end and without a byte order mark;
 * valid until the next call. false: at the end, or with a failure in err (which must start without
 * one): could not read, a line of more than 256 MiB. */
bool jsonl_next(JsonLines *lines, const char **text, size_t *n, MxError *err);

#endif

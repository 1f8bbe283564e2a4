/* formats.h — private to the room: file formats, detected by their first bytes, and record files by
 * format. */
#ifndef DATA_FORMATS_H
#define DATA_FORMATS_H

#include "fields.h"
#include "stream.h"

typedef struct RecordFormat RecordFormat;

/* A file of records that is being read; closed with its stream's arena. */
typedef struct RecordFile {
    DataStream stream;
    const RecordFormat *format;
    int line, col;  /* where the record given last begins, from 1; col 0 = the line is the record */
    int64_t number; /* of that record, from 1 */
    void *state;    /* the format's own */
} RecordFile;

struct RecordFormat {
    const char *name;
    const char *hint; /* what reads it, for who wanted another format */
    bool is_binary;   /* records have numbers instead of lines */
    /* Whether a file that begins so is of this format; NULL = any may be. */
    bool (*test)(const uint8_t *head, size_t n);
    bool (*open)(RecordFile *file, MxError *err); /* NULL = nothing to do */
    /* The next record, valid until the next call; false at the end, or with a failure in err, which
     * must start without one. */
    bool (*next)(RecordFile *file, const char **bytes, size_t *n, MxError *err);
    /* A record's columns. bytes[n] is 0. Errors: told with `where`; *goes_on false: no other can be
     * better. */
    bool (*parse)(MxArena *arena, const char *bytes, size_t n, MxWhere where, Fields *out,
                  bool *goes_on, MxError *err);
};

extern const RecordFormat format_json_lines, format_json_array, format_text_lines, format_tfrecord,
    format_array_record, format_parquet, format_arrow;

/* What a kind of dataset reads. */
struct FormatChoice {
    const char *wants;                  /* for messages */
    const RecordFormat *const *formats; /* the first is taken where no test tells; NULL = the kind
                                           reads its files itself */
    int n;
    bool takes_packed;
};

/* examples_choice — files of tf.train.Example, whatever the path is. */
const FormatChoice *examples_choice(const MxDataConfig *config, const char *path);

/* formats_choose — the format of a file among those of a choice; *out NULL where that has none.
 * Errors: another format, with what to do. */
bool formats_choose(DataStream *stream, const FormatChoice *choice, const RecordFormat **out,
                    MxError *err);
/* formats_check — that a file can be opened and is of such a format. */
bool formats_check(const char *path, const FormatChoice *choice, MxError *err);

/* record_file_open — chooses the format too. record_file_where — the record given last, for
 * messages; its text is the arena's. */
bool record_file_open(MxArena *arena, const char *path, const FormatChoice *choice, RecordFile *out,
                      MxError *err);
MxWhere record_file_where(MxArena *arena, const RecordFile *file);

/* lines_next — the next line that is not blank, without its end and without a byte order mark. */
bool lines_next(RecordFile *file, const char **text, size_t *n, MxError *err);

#endif

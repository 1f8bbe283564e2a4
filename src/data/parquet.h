/* parquet.h — private to the room: Parquet files, column by column. Source: apache/parquet-format
 * 2.10, parquet.thrift, Encodings.md, LogicalTypes.md; nested columns after Melnik et al., Dremel,
 * VLDB 2010. */
#ifndef DATA_PARQUET_H
#define DATA_PARQUET_H

#include "stream.h"
#include "table.h"
#include "thrift.h"

enum {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED,
    PARQUET_TYPES
};

/* A column, or a group of columns. */
typedef struct ParquetNode ParquetNode;
struct ParquetNode {
    const char *name, *path; /* path: of the table, "messages.list.element.role" */
    ParquetNode *child;      /* [n_children] */
    int n_children;
    bool is_optional, repeats;
    bool is_list;              /* its only child repeats: that is how lists are written */
    int def, rep;              /* levels at which a value of it is there, and is one more */
    int first_leaf, n_leaves;  /* that it has, itself if it has no children */
    int type, length;          /* of a leaf; length: of PARQUET_FIXED */
    bool is_text, is_unsigned; /* is_text: it is said to be; else bytes of any kind */
};

/* The values of a column in a group of rows. */
typedef struct ParquetChunk {
    int64_t at, bytes, n_values;
    int codec;
} ParquetChunk;

/* Small numbers, as runs of one or packed bit by bit. */
typedef struct ParquetRuns {
    const uint8_t *at, *end;
    unsigned width; /* bits */
    uint64_t n_left;
    bool is_packed;
    uint32_t value;        /* of a run */
    const uint8_t *packed; /* [packed_bytes] of packed ones */
    size_t packed_bytes;
    uint64_t bit;
} ParquetRuns;

enum { PARQUET_MOST_ROOM = 1 << 30 };

typedef struct ParquetRoom {
    uint8_t *bytes;
    size_t cap;
} ParquetRoom;

/* How the values of a page are written. */
typedef enum ParquetWay {
    PARQUET_PLAIN,
    PARQUET_DICTIONARY,
    PARQUET_RUNS,
    PARQUET_UNREAD
} ParquetWay;

/* A column that is being read: it stands at a value, or at where one is missing. */
typedef struct ParquetColumn {
    MxArena *arena;
    const DataStream *stream;
    const ParquetNode *node;
    size_t *room_left; /* bytes that columns may still take */
    ParquetChunk chunk;
    int64_t at, end;                 /* of the chunk, what was not read yet */
    int64_t n_left;                  /* values of the chunk that no page had yet */
    int64_t page_at;                 /* where the present page begins, for messages */
    int64_t n_page;                  /* values that are left in it behind the present one */
    bool has;                        /* there is a present value … */
    int def, rep;                    /* … and its levels */
    ParquetRuns defs, reps, numbers; /* numbers: in the dictionary, or truths */
    ParquetWay way;
    const char *unread;                 /* why values are not read */
    const uint8_t *values, *values_end; /* plain ones */
    unsigned bit;                       /* of plain truths */
    MxBytes *dictionary;                /* [n_dictionary] */
    size_t n_dictionary;
    ParquetRoom packed, page, dictionary_page, dictionary_room;
    ParquetRoom plain, deltas[2]; /* of values that are not written plainly */
} ParquetColumn;

/* parquet_column_open — at the first value of a chunk. parquet_column_step — at the next one;
 * column->has false behind the last. Errors: what is damaged, with the page's place; what is not
 * built. parquet_column_write — the present value, which is there (def is that of its node), as
 * JSON; once. */
bool parquet_column_open(ParquetColumn *column, ParquetChunk chunk, MxError *err);
bool parquet_column_step(ParquetColumn *column, MxError *err);
bool parquet_column_write(ParquetColumn *column, MxText *row, MxError *err);

/* parquet_next_page — goes on to a page that has values. parquet_check_codec — that pages can be
 * unpacked. */
bool parquet_next_page(ParquetColumn *column, MxError *err);
bool parquet_check_codec(const ParquetColumn *column, MxError *err);
/* parquet_runs_next — the next small number; parquet_plain_next — the next plain value but a truth,
 * which moves `at` on; false = there is none. */
bool parquet_runs_next(ParquetRuns *runs, uint32_t *out);
bool parquet_plain_next(const ParquetNode *node, const uint8_t **at, const uint8_t *end,
                        MxBytes *out);

/* parquet_make_room — room for n bytes, out of what all columns together may take. parquet_width —
 * bytes of a plain value of a type that has always as many, else 0. */
bool parquet_make_room(ParquetColumn *column, ParquetRoom *room, size_t n, MxError *err);
size_t parquet_width(const ParquetNode *node);
/* parquet_is_delta — whether parquet_make_plain knows how values of a column are written.
 * parquet_make_plain — the values of the present page, at most n_values, become plain ones. */
bool parquet_is_delta(const ParquetNode *node, int64_t encoding);
bool parquet_make_plain(ParquetColumn *column, int64_t encoding, int64_t n_values, MxError *err);

static inline uint32_t parquet_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* parquet_fail — "FILE: column "…", the page at byte N: …". */
bool parquet_fail(const ParquetColumn *column, MxError *err, const char *fmt, ...) MX_PRINTF(3, 4);

#endif

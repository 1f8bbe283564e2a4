/* arrow.h — private to the room: columns of Arrow messages. Source: apache/arrow 21,
 * format/Schema.fbs, Message.fbs, Columnar.rst. */
#ifndef DATA_ARROW_H
#define DATA_ARROW_H

#include "flat.h"

enum { ARROW_BUFFERS = 3 };

typedef enum ArrowKind {
    ARROW_NULL,
    ARROW_INT,        /* of `width` bytes */
    ARROW_REAL,       /* of 2, 4 or 8 bytes */
    ARROW_TRUTH,      /* a bit */
    ARROW_BYTES,      /* behind offsets of `width` bytes */
    ARROW_VIEW,       /* of 16 bytes, the rest of long ones in buffers of their own */
    ARROW_FIXED,      /* `width` bytes */
    ARROW_LIST,       /* of what the child has, between offsets of `width` bytes */
    ARROW_FIXED_LIST, /* the same, `width` of them each */
    ARROW_STRUCT,
    ARROW_NUMBER, /* of a value in a dictionary, of `width` bytes */
    ARROW_OTHER,  /* what is not read */
} ArrowKind;

typedef struct ArrowField ArrowField;
typedef struct ArrowDictionary ArrowDictionary;
struct ArrowField {
    const char *name, *path;
    ArrowKind kind;
    int width;
    bool is_unsigned;
    const char *other; /* of ARROW_OTHER: what it is */
    int n_buffers;
    ArrowField *child; /* [n_children] */
    int n_children;
    ArrowDictionary *dictionary; /* of ARROW_NUMBER its own; of a root the first of all */
    /* In the present batch. */
    int64_t n, done; /* values; places of the buffer or child that were read */
    MxBytes buffer[ARROW_BUFFERS];
    MxBytes *views; /* [n_views] */
    int64_t n_views;
};

/* Values that columns number, which come before them in batches of their own. */
struct ArrowDictionary {
    int64_t id;
    ArrowField root; /* its only child is the values' column */
    MxText text;     /* all of them as JSON … */
    size_t *end;     /* … [n] and where each ends */
    int64_t n, cap;
    ArrowDictionary *next;
};

/* arrow_schema — the columns of a table that a message describes, as children of *out. Gives NULL,
 * or what is wrong. */
const char *arrow_schema(MxArena *arena, FlatTable schema, ArrowField *out);

/* A row in the making. */
typedef struct ArrowRow {
    const char *file;
    int64_t batch_at, number; /* where its batch begins, for messages; which row of that it is */
    MxText text;
} ArrowRow;

/* arrow_write_row — row `number` of the columns of root, as JSON. Rows are written in their order.
 * Errors: column, batch and row of what is damaged. */
bool arrow_write_row(ArrowRow *row, ArrowField *root, MxError *err);
/* arrow_write_values — the values of a dictionary's batch behind those that it has. */
bool arrow_write_values(ArrowRow *row, ArrowDictionary *dictionary, MxError *err);

static inline uint64_t arrow_get(const uint8_t *at, size_t bytes) {
    uint64_t x = 0;
    for (size_t i = 0; i < bytes; i++) x |= (uint64_t)at[i] << (8 * i);
    return x;
}

#endif

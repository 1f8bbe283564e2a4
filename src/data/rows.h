/* rows.h — private to the room: documents to rows, and which documents share a row. */
#ifndef DATA_ROWS_H
#define DATA_ROWS_H

#include "source.h"

/* A row that is being filled with documents; what lies beyond its length is dropped. */
typedef struct RowFill {
    const DataRow *row;
    int64_t length, n; /* tokens so far */
    int32_t segment, position;
} RowFill;

/* rows_begin — an empty row; rows_document — what follows is the next document of it; rows_add — n
 * more tokens of that document, which count as targets or do not; rows_end — makes the targets: the
 * inputs moved by one, 0 and segment 0 where they do not count. Positions of targets are those of
 * the inputs. Source: MaxText input_pipeline_utils.py, SFTPromptMasking and ShiftData @e591f30c. */
RowFill rows_begin(const DataRow *row, int64_t length);
void rows_document(RowFill *fill);
void rows_add(RowFill *fill, const int32_t *ids, int64_t n, bool counts);
void rows_end(RowFill *fill);

/* Which documents each row holds. */
typedef struct RowPacking {
    int64_t n_rows;
    int64_t *first;    /* [n_rows + 1] into document */
    int64_t *document; /* [n] */
} RowPacking;

/* What rows can hold. */
typedef struct RowLimits {
    int64_t length;       /* tokens a row */
    int64_t bins;         /* rows that are open at a time */
    int64_t together;     /* documents after which all open rows are closed; 0 = none are */
    int64_t max_segments; /* documents a row, <= 0 = any number */
    int sides;            /* 1, or 2 where a document is a pair: one row for each of its sides */
} RowLimits;

/* rows_pack — first fit: each document goes to the first of the open rows that has room for all its
 * sides, and when none has they are closed all together. Order is kept inside a row.
 *   lengths  [n, sides] tokens of each document, 1 … length
 * Source: grain, PackAndBatchOperation, as MaxText hf_data_processing.py @e591f30c uses it with the
 * rows of a batch for bins. */
RowPacking rows_pack(MxArena *arena, const int32_t *lengths, int64_t n, const RowLimits *limits);

#endif

/* rows.h — private to the room: documents into rows, and which documents share one. */
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
typedef struct RowPlan {
    int64_t n_rows;
    int64_t *first;    /* [n_rows + 1] into document */
    int64_t *document; /* [n] */
} RowPlan;

/* rows_pack — first fit: `bins` rows are open at a time, each document goes to the first of them
 * that has room, and when none has they are closed all together. Order is kept inside a row.
 *   lengths       [n] tokens of each document, 1 … length
 *   max_segments  documents a row at most, <= 0 = any number
 * Source: grain, PackAndBatchOperation, as MaxText hf_data_processing.py @e591f30c uses it with the
 * rows of a batch for bins. */
RowPlan rows_pack(MxArena *arena, const int32_t *lengths, int64_t n, int64_t length, int64_t bins,
                  int64_t max_segments);

#endif

/* records.h — private to the room: records of files as tokens, in memory. */
#ifndef DATA_RECORDS_H
#define DATA_RECORDS_H

#include "columns.h"
#include "rows.h"

/* Pieces of a record: prompt, then completion or chosen, then rejected. A text has no prompt. */
enum { PROMPT, ANSWER, REJECTED, PIECES };

typedef struct Record {
    const void *ids; /* of all pieces, one after the other */
    int32_t n[PIECES];
} Record;

/* Records that were left out for one reason. */
typedef struct LeftOut {
    int64_t n;
    MxWhere first;
} LeftOut;

/* What a part of a mixture has, and how many of its records are used. */
typedef struct Share {
    const DataPart *part;
    int64_t first, n, used; /* among the records in the order of reading */
} Share;

typedef struct Records {
    MxArena *arena;
    MxDataset *dataset;
    Columns columns;
    Record *item; /* [n] */
    int64_t n, cap;
    bool is_narrow;                         /* ids are uint16 */
    RowPlan plan;                           /* with packing; n_rows 0 = a row is a record */
    int64_t n_tokens, n_cut_prompts, n_cut; /* cut: answers and rejected, or whole documents */
    Share *share;                           /* [n_shares] of a mixture, else none */
    int n_shares;
    LeftOut empty, mute; /* no text; no token to learn from */
    const char *found;   /* the columns of the first record */
    int n_bad;           /* records that are errors */
} Records;

/* What kinds of records share, as DataKind wants it. */
bool records_open(MxArena *arena, MxDataset *dataset, MxError *err);
bool records_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err);
bool records_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);

/* records_read — adds a file's records, tokenised and cut to what a row holds; what could not teach
 * anything is counted instead. false: reading further makes no sense, perhaps after bad lines. */
bool records_read(Records *records, const char *path, MxError *err);
/* records_teach — whether any token of a record counts. */
bool records_teach(Records *records, const Record *record);

#endif

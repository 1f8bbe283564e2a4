/* records.h — private to the room: records of JSON Lines files as tokens, in memory. */
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

typedef struct Records {
    MxArena *arena;
    MxDataset *dataset;
    Columns columns;
    Record *item; /* [n] */
    int64_t n, cap;
    bool is_narrow;                         /* ids are uint16 */
    RowPlan plan;                           /* with packing; n_rows 0 = a row is a record */
    int64_t n_tokens, n_cut_prompts, n_cut; /* cut: answers and rejected, or whole documents */
    LeftOut empty, mute;                    /* no text; no token to learn from */
    const char *found;                      /* the columns of the first record */
    int n_bad_lines;
} Records;

/* The format of such files, for messages. */
extern const char records_want[];

/* records_read — adds a file's records, tokenised and cut to what a row holds; what could not teach
 * anything is counted instead. false: reading further makes no sense, perhaps after bad lines. */
bool records_read(Records *records, const char *path, MxError *err);
/* records_teach — whether any token of a record counts. */
bool records_teach(Records *records, const Record *record);

#endif

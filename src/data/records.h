/* records.h — private to the room: records of files as tokens, in memory. */
#ifndef DATA_RECORDS_H
#define DATA_RECORDS_H

#include "columns.h"
#include "images.h"
#include "rows.h"

/* Pieces of a record: prompt, then completion or chosen, then rejected. A text has no prompt. */
enum { PROMPT, ANSWER, REJECTED, PIECES };

typedef struct Record {
    const void *ids; /* of all pieces, one after the other */
    int32_t n[PIECES];
    int32_t n_counted; /* tokens that count, of a record that is no pair */
    int32_t n_turns;
    const int32_t *turn; /* [n_turns] tokens of the answer that the assistant says, hears, says …;
                            NULL = it says all of it */
    float reward;        /* with groups … */
    const float *logprobs;    /* … [n[ANSWER]] as recorded; NULL = they are not read */
    const char *text;         /* with asks: all of it, as JSON */
    const Pictures *pictures; /* its images, and … */
    MxWhere where;            /* … who names them; NULL = none */
} Record;

/* What a record is made of before it is kept. */
typedef struct Draft {
    MxTokens piece[PIECES];
    int32_t *turn; /* [n_turns] as a record's */
    int32_t n_turns;
    Pictures pictures;
} Draft;

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

/* What is counted while records are read. */
typedef struct Tally {
    int64_t n_tokens, n_counted, n_cut_prompts,
        n_cut; /* cut: answers and rejected, or whole documents */
    MxDataLongest longest;
    LeftOut empty, mute; /* no text; no token to learn from */
} Tally;

struct Records {
    MxArena *arena;
    MxDataset *dataset;
    Columns columns;
    MxChat *chat;       /* for columns that hold conversations, from when it is first needed */
    Question *question; /* NULL = prompts stay what they are */
    Seer *seer;         /* NULL = no images */
    int32_t mute; /* a token that is no target: of images, or, of ids, the padding; -1 = none */
    Record *item; /* [n] */
    int64_t n, cap;
    bool is_narrow;     /* ids are uint16 */
    RowPacking packing; /* with packing; n_rows 0 = a row is a record */
    Tally tally;
    uint64_t settings; /* by which files are remembered; 0 = they are not */
    int64_t n_split;   /* documents of which several records were made */
    Share *share;      /* [n_shares] of a mixture, else none */
    int n_shares;
    int64_t *begins;      /* [files + 1] the first record of each file, in the order of reading */
    MxWhere group_begins; /* the first record of the present group */
    const char *found;    /* the columns of the first record */
    int n_bad;            /* records that are errors */
};

/* What kinds of records share, as DataKind wants it. */
bool records_open(MxArena *arena, MxDataset *dataset, MxError *err);
bool records_row(MxDataset *dataset, int64_t row, const DataRow *out, MxError *err);
MxDataLongest records_longest(const MxDataset *dataset);
int64_t records_rows(const MxDataset *dataset, const MxDataConfig *as);
/* records_find_seen — the images and sounds of a record that is read, and the places of those of
 * its column in its messages. records_check_seen — that every one has its tokens, before a draft is
 * cut and afterwards; that of a pair in the prompt, which both rows have. records_keep_seen — with
 * the record. */
bool records_find_seen(MxArena *arena, const Records *records, const Fields *fields, Field *column,
                       MxWhere where, Draft *draft, MxError *err);
bool records_check_seen(const Records *records, const Draft *draft, bool is_cut, MxWhere where,
                        MxError *err);
void records_keep_seen(Records *records, const Draft *draft, MxWhere where, Record *record);

bool records_side(MxDataset *dataset, int64_t row, int side, const DataRow *out, MxError *err);
bool records_see(MxDataset *dataset, int64_t row, const int32_t *tokens, const DataSeen *out,
                 MxError *err);
float records_score(const MxDataset *dataset, int64_t row, float *logprobs);
bool records_mixed(MxDataset *dataset, int64_t prompt, int64_t answer, const DataRow *out,
                   MxError *err);
const char *records_text(const MxDataset *dataset, int64_t row);

/* records_id — token i of a record, of all its pieces. records_fill — the documents of a row, or of
 * one of its sides, whose targets are still to be made. */
int32_t records_id(const Records *records, const Record *record, int64_t i);
RowFill records_fill(MxDataset *dataset, int64_t row, int side, const DataRow *out);

/* records_read — adds a file's records, tokenised and cut to what a row holds; what could not teach
 * anything is counted instead. false: reading further makes no sense, perhaps after bad lines. */
bool records_read(Records *records, const char *path, MxError *err);
/* records_cache_open — where tokens are kept, if the config says so. records_read_kept — as
 * records_read, but a file whose content was read before is not read again. */
bool records_cache_open(Records *records, MxError *err);
bool records_read_kept(Records *records, const char *path, MxError *err);
/* records_raise — tells a tally how long a record is, and its prompt and answer by themselves. */
void records_raise(Tally *tally, MxDataLongest more);
/* records_answers — pieces of a record behind its prompt: 2 of a pair, 0 where they are asked for.
 * records_teach — whether any token of a record counts; notes how many. */
int records_answers(const MxDataConfig *config);
bool records_teach(Records *records, Record *record);

/* records_mix — puts records of all parts into one order, by weight, until it is the turn of a part
 * that has no more. Of each part they come in the order of reading, or shuffled. */
void records_mix(Records *records);
/* records_split — makes a record of every piece of a document that fits into a row and teaches
 * something. records_teach_apart — whether any piece of a longer document would. Source: MaxText
 * input_pipeline/grain_tokenizer.py, TokenizeAndChunk @e591f30c. */
void records_split(Records *records);
bool records_teach_apart(Records *records, const Record *whole);

/* scores_read — the reward of a record of a group, the last one, and what it was written with.
 * Errors: columns that are missing or hold something else, with what was found; log-probabilities
 * that are not one for each token; another prompt than that of its group. scores_check — that the
 * last group is whole. */
bool scores_read(Records *records, const Fields *fields, const Draft *draft, MxWhere where,
                 MxError *err);
/* scores_keep — what rewards of responses to a record, the last one, may depend on: all of it.
 * Errors: no answer where one is wanted. */
bool scores_keep(Records *records, const Fields *fields, MxWhere where, MxError *err);
bool scores_check(const Records *records, MxError *err);

/* talk_find — the chat template, if it was not opened yet. talk_open — the same once it is known
 * that records hold conversations: it counts as a file of the dataset. talk_plain — a record's
 * lists of messages as transformers has them. talk_draft — the tokens of one: its messages, or a
 * prompt and what follows it, by the columns' order. Errors: no template; what is no conversation,
 * or none that the template tells. Source: TRL 1.16, trainer/sft_trainer.py and dpo_trainer.py
 * (tokenize). */
bool talk_find(Records *records, MxError *err);
bool talk_open(Records *records, MxError *err);
bool talk_plain(MxArena *arena, Field *column, int n, MxWhere where, MxError *err);
bool talk_draft(MxArena *arena, const Records *records, const Fields *record, const Field *column,
                MxWhere where, Draft *out, MxError *err);
/* talk_prefix — how many tokens two lists begin with alike. */
int64_t talk_prefix(MxTokens a, MxTokens b);

#endif

/* columns.h — private to the room: the columns of records that are read, and their texts. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include "fields.h"
#include "question.h"
#include "source.h"

enum { COLUMNS_MOST = 3 };

/* The columns of a dataset, in the order of their roles: text, or messages; prompt, completion;
 * chosen, rejected; prompt, chosen, rejected. */
typedef struct Columns {
    int n; /* 0 = not chosen yet */
    const char *name[COLUMNS_MOST];
    bool joins;         /* the first two make the prompt, a line each; the second may be missing */
    bool talks;         /* they hold lists of messages */
    bool has_ids;       /* they hold lists of token ids */
    bool has_choices;   /* a completion may be a list of texts, of which the first is it */
    const char *prompt; /* of records without the first column; NULL = these lack it */
    const Question *question; /* makes messages of texts; NULL = these stay what they are */
    int n_texts;              /* that come of them */
} Columns;

/* columns_choose — those that the config names; if it names none, the first known form that the
 * record has. Errors: no form fits, with the columns found and what may be meant. */
bool columns_choose(const MxDataConfig *config, const Fields *record, MxWhere where, Columns *out,
                    MxError *err);

/* columns_ask — from now on texts become messages. NULL = they do not. */
void columns_ask(Columns *columns, const Question *question);

/* columns_guess — the first known form that the record has, whatever it is for; sets purpose and
 * columns of a guess. Errors: as columns_choose. */
bool columns_guess(MxArena *arena, const MxDataConfig *config, const Fields *record, MxWhere where,
                   MxDataGuess *out, MxError *err);

/* columns_read — the texts of one record, or lists of messages or ids, out[columns->n_texts]; a
 * column that is missing or null gives none. Errors: a value is no text, or no list. */
bool columns_read(MxArena *arena, const Columns *columns, const Fields *record, MxWhere where,
                  Field out[COLUMNS_MOST], MxError *err);
/* columns_lacks — whether a column of a record gave nothing. */
bool columns_lacks(const Columns *columns, const Field *field);

/* columns_found — the names of a record's columns, the first dozen, for messages. */
const char *columns_found(MxArena *arena, const Fields *record);

#endif

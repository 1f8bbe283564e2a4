/* ids.h — private to the room: columns that hold token ids. */
#ifndef DATA_IDS_H
#define DATA_IDS_H

#include "fields.h"

#include <mx/text.h>

/* What is said where an element is wrong. */
typedef struct IdsFrom {
    const char *column;
    MxWhere where; /* of the record */
    int64_t vocab; /* ids are in [0, vocab) */
} IdsFrom;

/* ids_are_in — whether a column holds a list that may be ids. ids_are_meant — the same, and its
 * first element is a number. */
bool ids_are_in(const Field *field);
bool ids_are_meant(const Field *field);
/* ids_read — the ids of such a column. Errors: an element is no whole number, or outside the
 * vocabulary, with its index from 0. Test: tests/data/test_ids.c. */
bool ids_read(MxArena *arena, const Field *field, const IdsFrom *from, MxTokens *out, MxError *err);

#endif

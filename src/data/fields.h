/* fields.h — private to the room: a record by the names of its columns, for any file format. */
#ifndef DATA_FIELDS_H
#define DATA_FIELDS_H

#include <mx/base.h>

/* What a column of a record holds; as long as the record lives. */
typedef struct Field {
    const char *kind; /* "a text", "null", "a list", …, for messages as mx_json_kind's */
    const char *text; /* [bytes] where it is a text, else NULL */
    size_t bytes;
    const MxJson *json;     /* the value where the record is JSON, else NULL */
    const int64_t *numbers; /* [n_numbers] where it is a list of whole numbers that is no JSON */
    size_t n_numbers;
} Field;

typedef struct Fields {
    const void *record;
    /* false = the record has no such column */
    bool (*get)(const void *record, const char *column, Field *out);
    /* The name of column i, NULL behind the last. */
    const char *(*name)(const void *record, size_t i);
} Fields;

/* fields_of_json — the members of an object. fields_of_text — a text as the column "text". */
Fields fields_of_json(const MxJson *object);
Fields fields_of_text(MxArena *arena, const char *text, size_t bytes);
/* example_parse — the features of a serialised tf.train.Example, which must live as long. Errors:
 * bytes that are none. *goes_on: true, others may be. */
bool example_parse(MxArena *arena, const char *bytes, size_t n, MxWhere where, Fields *out,
                   bool *goes_on, MxError *err);

#endif

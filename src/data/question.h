/* question.h — private to the room: messages made of questions. */
#ifndef DATA_QUESTION_H
#define DATA_QUESTION_H

#include "fields.h"

#include <mx/data.h>

typedef struct Question Question;

/* question_open — reads the file; *out NULL = the form has none. Errors: what the file lacks, and
 * braces of it that name nothing, with what may be named. */
bool question_open(MxArena *arena, const MxDataForm *form, Question **out, MxError *err);
/* question_hash — of what every message is made with; 0 of NULL. */
uint64_t question_hash(const Question *question);
/* question_ask — a list of one message, of a text. */
Field question_ask(MxArena *arena, const Question *question, const Field *text);

#endif

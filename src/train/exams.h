/* exams.h — evaluating a model on tasks during training (eval_tasks). */
#ifndef TRAIN_EXAMS_H
#define TRAIN_EXAMS_H

#include "metrics.h"

typedef struct Exams Exams;

/* exams_open — reads the files; *out NULL = none are wanted. Errors: see mx_exam_read; no
 * tokenizer; questions longer than a row; two files of one name. */
bool exams_open(MxArena *arena, MxTrainState *state, Exams **out, MxError *err);
/* exams_begin — nothing has been asked yet. exams_ask — the next question, of the present weights;
 * all ranks ask. is_over receives whether there is none. exams NULL = there are none. */
void exams_begin(Exams *exams);
bool exams_ask(Exams *exams, bool *is_over, MxError *err);
/* exams_collect — figures of what was asked, as metrics "eval/<file>/<figure>". exams_tell — to the
 * log, a line a file. */
void exams_collect(const Exams *exams, Metrics *out);
void exams_tell(const Exams *exams, int64_t step);

#endif

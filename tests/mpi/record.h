/* record.h — what one rank makes of a variant: what all ranks' runs are compared with. */
#ifndef RECORD_H
#define RECORD_H

#include "small.h"

enum { MOST_TOLD = 32 };

/* Arrays by parameter; NULL = it has no such one. */
typedef struct RecordList {
    const float **values;
    const double *squares; /* of an array, summed */
} RecordList;

/* All is as float32, and lies in a file that is gone when the program ends. */
typedef struct Record {
    MxLoss loss[STEPS], eval;
    MxUpdate update[STEPS];
    double told[STEPS][MOST_TOLD]; /* metrics of the program's parts, 0 behind them */
    RecordList init, gradient[STEPS], last;
} Record;

/* record_of — that of a variant. The first call makes those of all: each rank a share, alone, and
 * others read it. */
const Record *record_of(const Variant *variants, int n_variants, int variant);

/* record_begin — first values of a state. record_open — a state of all ranks at its start. */
void record_begin(MxTrainState *s);
MxTrainState *record_open(MxArena *arena, const MxConfig *config);

/* record_has_eval — whether a config's runs end with an evaluation. record_loss — the loss and the
 * gradient of a batch, with all that its kind of training wants to be given. record_teach — a
 * teacher's parameters, and what a student takes of them: numbers that depend on the place in the
 * array alone. record_told —
 * [MOST_TOLD] what parts of the program measured in the last step. */
bool record_has_eval(const MxConfig *config);
void record_told(const MxTrainState *s, double *out);
MxLoss record_loss(MxTrainState *s, int step, const MxBatch *batch);
void record_teach(MxTrainState *s);
/* record_floats — a variable's values, codes of few bits too. */
const float *record_floats(MxArena *arena, const MxTrainState *s, int var);
/* record_index — where element `at` of a part is in the whole array. */
int64_t record_index(const MxBox *box, MxShape shape, int64_t at);

/* record_distance — how far this rank's part of a variable is from a whole array that is divided
 * like it, at most; NaN is far. */
double record_distance(MxArena *arena, const MxTrainState *s, int var, const float *whole);

#endif

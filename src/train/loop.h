/* loop.h — shared by the files of a run: loop.c makes steps, start.c sets up what they need,
 * figures.c computes their metrics. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "checkpoint.h"
#include "console.h"
#include "data.h"
#include "exams.h"
#include "internal.h"
#include "paces.h"
#include "rollouts.h"
#include "samples.h"
#include "trace.h"

typedef struct Loop {
    MxArena arena;
    const MxConfig *config;
    MxComm *comm;
    bool only_evaluates;
    int stop_signal;    /* that some rank got and all have agreed on, 0 = none */
    bool save_is_asked; /* the same, of a save */
    Paces paces;
    MxTrainState *state;
    TrainData data;
    MxBatchPart train_part, eval_part; /* what this rank needs of every batch */
    MxBatch eval_batch;
    MxLoader *loader;
    Console console;
    Tracer tracer;
    Metrics told; /* of the present step or evaluation */
    MetricsFile *metrics;
    Checkpoints *checkpoints;
    Samples *samples;        /* NULL = none are wanted */
    Exams *exams;            /* the same */
    Answers answers;         /* of the present evaluation, where it judges them */
    Rollouts *rollouts;      /* NULL = responses are in the data */
    int64_t start, step;     /* first and current step */
    const char *stop_reason; /* NULL = go on */
    MxExit exit;
} Loop;

/* loop_is_first — the first rank writes for all. */
bool loop_is_first(const Loop *loop);

/* loop_prepare — all that steps need, from files to the loader, unless there is none to make. */
bool loop_prepare(Loop *loop, MxError *err);
/* loop_prepare_evaluation — all that an evaluation without training needs. */
bool loop_prepare_evaluation(Loop *loop, MxError *err);

/* loop_metrics — room for the metrics of a step and of an evaluation. loop_collect — a step's,
 * under MaxText's names and in its order; loop_collect_eval — an evaluation's. */
Metrics loop_metrics(MxArena *arena, const Loop *loop);
void loop_collect(const Loop *loop, Metrics *out, MxLoss loss, MxUpdate update, double seconds);
void loop_collect_eval(const Loop *loop, Metrics *out, const MxEvaluation *sums, double seconds);

#endif

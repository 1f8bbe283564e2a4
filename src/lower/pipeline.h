/* pipeline.h — the order in which the stages of a pipeline work off micro-batches, as a table. A
 * virtual stage is some neighbouring layers; stage s of S has the virtual stages s, s + S, s + 2S,
 * … so that a micro-batch goes round the stages as often as each has virtual stages. */
#ifndef LOWER_PIPELINE_H
#define LOWER_PIPELINE_H

#include <mx/lower.h>

typedef struct PipelineSizes {
    int stages, repeats, micros; /* virtual stages of a stage; micro-batches */
} PipelineSizes;

/* The forward or the backward pass of one micro-batch through one virtual stage. Times are of a
 * simulation in which a forward pass takes 1, a backward pass PIPELINE_BACKWARD and a message
 * nothing. */
enum { PIPELINE_BACKWARD = 2 };
typedef struct PipelineUnit {
    int place, micro; /* place: the virtual stage */
    bool backward;
    int64_t start, end;
} PipelineUnit;

typedef struct PipelineTable {
    PipelineSizes sizes;
    int n;                     /* units of each stage: 2 · repeats · micros */
    const PipelineUnit **unit; /* [stages][n] in the order in which they run */
    int64_t end;               /* of the last unit */
} PipelineTable;

/* pipeline_table — one forward, one backward: once a stage has as many micro-batches under way as
 * lie between it and the last one, it does a backward pass before the next forward pass (Narayanan
 * et al. 2019; with repeats, interleaved, Narayanan et al. 2021). Test:
 * tests/lower/test_pipeline.c.
 */
PipelineTable pipeline_table(MxArena *arena, PipelineSizes sizes);
/* pipeline_unit — where in its stage's list a unit stands. */
int pipeline_unit(const PipelineTable *table, int place, int micro, bool backward);
/* pipeline_s — seconds that its units take, each as soon as its turn in its stage has come and what
 * it needs is there. */
double pipeline_s(MxArena *arena, const PipelineTable *table, const MxStageTimes *times);
/* pipeline_bubble — the part of the stages' time in which they wait. */
double pipeline_bubble(const PipelineTable *table);

#endif

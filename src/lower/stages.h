/* stages.h — what the files of the pass that cuts stages share. */
#ifndef LOWER_STAGES_H
#define LOWER_STAGES_H

#include <mx/lower.h>

#include "partition.h"
#include "pipeline.h"

enum { ANYWHERE = -1 };

/* A value that another stage needs. */
typedef struct Crossing {
    MxValue value; /* of the whole graph */
    int to;        /* stage */
    bool *takes;   /* [2][places] units that use it */
    int next;      /* of the same value */
} Crossing;

/* A message that its sender still has to wait for. */
typedef struct Letter {
    MxValue value, token; /* of the stage's graph */
    MxPeerAttr attr;
    int64_t taken; /* when the unit begins that takes it */
    bool backward;
} Letter;

typedef struct Cut {
    const MxStages *s;
    MxArena arena;
    const MxGraph *whole;
    MxTrace t; /* of the stage's graph */
    PipelineTable table;
    int n_stages, n_places, stage, n_regions;
    int *place;       /* [node] virtual stage */
    bool *varies;     /* [node] every micro-batch has its own */
    bool *is_told;    /* [variable] one stage makes it, all have it */
    MxValue **made;   /* [micro-batch][whole value] */
    bool *is_written; /* [variable] by this stage */
    int *crossing;    /* [whole value] the first, -1 = none */
    Crossing *crossings;
    int n_crossings, cap_crossings;
    Letter *letters;
    int n_letters, cap_letters;
} Cut;

/* ---- stage_places.c */

/* stages_find_places — fills place, varies and is_told; stages_find_crossings — crossings. */
void stages_find_places(Cut *c);
void stages_find_crossings(Cut *c);
/* stages_crossing — of a value to a stage; NULL = it does not go there. stages_taken — when the
 * first unit begins that takes it. */
const Crossing *stages_crossing(const Cut *c, MxValue value, int to);
int64_t stages_taken(const Cut *c, const Crossing *crossing, int micro);
/* stages_is_spread — whether a node adds up arrays that stages have: each adds up its own, and all
 * get the sum, even if there is but one array. */
bool stages_is_spread(const Cut *c, const MxNode *node);

static inline const MxNode *stages_maker(const Cut *c, MxValue value) {
    return mx_graph_producer(c->whole, value);
}
static inline int stages_place(const Cut *c, MxValue value) {
    return c->place[c->whole->values[value].node];
}
static inline int stages_var(const MxNode *source) {
    return ((const MxVariableAttr *)source->attr)->var;
}

#endif

/* search.h — shared by the files of the search. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "internal.h"

/* Mesh axes that are tried, in the order in which sizes are handed out. */
typedef enum SearchAxis { DATA, FSDP, TENSOR, CONTEXT, EXPERT, STAGE, SEARCH_AXES } SearchAxis;

/* A way to run the config's batch on its devices. */
typedef struct Candidate {
    int64_t size[SEARCH_AXES];
    int64_t accumulations, micros, stage_layers; /* the last two of a pipeline; 1 and 0 = none */
    int remat;
    double guess_s; /* seconds of a step, about; far more if memory is likely to be short */
} Candidate;

enum { SEARCH_REMATS = 3 };
extern const char *const search_remats[SEARCH_REMATS]; /* the fastest first */

typedef struct Search {
    const MxConfigRequest *request;
    const MxPlanDevice *device;
    const MxPlan *base; /* the config as it is: sizes, parameters, FLOPs */
    Candidate *items;
    int n, cap;
    MxArena *arena;
} Search;

/* search_guess — fills guess_s by closed forms: only the order in which candidates are planned
 * depends on it. */
double search_guess(const Search *search, const Candidate *candidate);

#endif

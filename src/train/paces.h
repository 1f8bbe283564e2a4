/* paces.h — what ranks tell each other at the end of a step, in one small exchange: what signals
 * asked of each, and how long it computed. From the latter comes which rank is slow. Nothing of it
 * goes into what is trained. */
#ifndef TRAIN_PACES_H
#define TRAIN_PACES_H

#include <mx/device.h>

/* What a rank tells the others. */
typedef struct PaceWord {
    int64_t wish;   /* of signals_wish */
    double alone_s; /* of its last step: seconds without waits for other ranks or a reward */
} PaceWord;

typedef struct Paces {
    MxComm *comm;
    int n;             /* ranks */
    PaceWord *words;   /* [n] as last heard */
    double *sorted;    /* [n] their seconds */
    const char *hosts; /* [n][PACE_HOST_BYTES] their names */
    double began_s, waited_s, alone_s;
    int slowest;     /* rank */
    double slowdown; /* its seconds over the median of all ranks, NaN before the first exchange */
    int suspect;     /* rank that has been slow for so many steps in a row, -1 = none */
    int64_t n_slow;
    double lost_s; /* in these, beyond the median */
} Paces;

enum { PACE_HOST_BYTES = 64 };

/* paces_open — for the ranks of a run, all of which call it. */
void paces_open(MxArena *arena, MxComm *comm, Paces *out);
/* paces_begin, paces_end — around what a rank does for a step. */
void paces_begin(Paces *paces);
void paces_end(Paces *paces);
/* paces_leave_out — seconds in between that a rank spent, though not because it is slow. */
void paces_leave_out(Paces *paces, double seconds);
/* paces_share — tells and hears; all ranks call it. Returns the largest of all wishes. */
int64_t paces_share(Paces *paces, int64_t wish);
/* paces_judge — once a step, of what was heard last: sets slowest and slowdown, and warns of a rank
 * that was slow for several steps in a row. Whether it did. */
bool paces_judge(Paces *paces);

#endif

/* internal.h — private to the room: what the ops of a run cost. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H

#include <mx/run.h>

/* All calls of an op. */
typedef struct RunCost {
    const char *name;
    double seconds, bytes; /* of arguments and results */
    double flops[2];       /* of float32, of bfloat16 */
    uint64_t calls;
} RunCost;

double run_type_bytes(MxType type);
/* run_put_profile — a table of n ops, the most expensive first (costs are sorted), beside the rates
 * of the machine. */
void run_put_profile(RunCost *costs, int n, const MxRunRates *rates, MxText *out);

#endif

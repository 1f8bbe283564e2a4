/* trace.h — the trace of some steps (key profiler), as a file for Perfetto. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include "internal.h"

/* What a run traces; {0} at first. */
typedef struct Tracer {
    const MxConfig *config;
    MxComm *comm;
    int64_t start; /* the run's first step */
    int64_t first; /* of the steps that are traced now, with is_on */
    bool is_on;
} Tracer;

/* All ranks call these. tracer_before_step — begins a trace if one begins with this step.
 * tracer_after_step — writes it if it ends with this one, and so if the run does: traces/steps_
 * <first>_<last>.json in the run's folder, by rank 0, with a process for each rank. Errors: it
 * cannot be written. */
void tracer_before_step(Tracer *tracer, int64_t step);
bool tracer_after_step(Tracer *tracer, int64_t step, bool is_last, MxError *err);
/* tracer_span — what the trainer's thread did since start_s. */
void tracer_span(const char *kind, const char *name, int64_t number, double start_s);

#endif

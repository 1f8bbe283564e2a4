/* step.h — the graphs of a training step, traced from a config through the public headers, so that
 * the benchmark of the kernels sees the very ops and shapes that training runs. */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include <mx/config.h>
#include <mx/lower.h>

enum { STEP_GRAD, STEP_UPDATE, STEP_INIT, STEP_ENTRIES };
extern const char *const step_names[STEP_ENTRIES];

typedef struct Step {
    MxVars vars;
    MxLowered lowered[STEP_ENTRIES];
} Step;

/* step_open — traces and lowers loss with gradient, AdamW update and initialisation, without
 * rematerialisation. Errors: what the model refuses. */
bool step_open(MxArena *arena, const MxConfig *config, const MxMachine *machine, Step **out,
               MxError *err);

#endif

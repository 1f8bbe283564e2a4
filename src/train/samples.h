/* samples.h — sample replies of a model during training (sample_prompts). */
#ifndef TRAIN_SAMPLES_H
#define TRAIN_SAMPLES_H

#include "metrics.h"

typedef struct Samples Samples;

/* samples_open — reads the prompts; *out NULL = none are wanted. Errors: see mx_prompts_read; one
 * that is too long with its reply. */
bool samples_open(MxArena *arena, MxTrainState *state, Samples **out, MxError *err);
/* samples_take — replies of the present weights, to the log and as texts of metrics. */
bool samples_take(const Samples *samples, int64_t step, MetricsFile *metrics, MxError *err);

#endif

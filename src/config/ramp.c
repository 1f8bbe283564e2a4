/* ramp.c — which batches of data a step learns from: as a rule its own one, with a ramp of the
 * batch size more and more. Source: MaxText utils/rampup_batch.py @e591f30c, which takes the rows
 * of a step out of batches of the full size. */
#include <mx/config.h>

/* A stage ends with the step that fills its share of the rows. */
static int64_t steps_of_stage(const MxConfig *c, int64_t size) {
    int64_t rows = size * c->rows_at_once * c->ramp.stages;
    return (c->global_rampup_samples - 1) / rows + 1;
}

/* A number of steps that take `size` batches each, from batch `first` on. */
typedef struct Stage {
    int64_t size, first, steps;
} Stage;

/* The stage that a step is in, or the one that a batch is in; *step is counted from its begin. */
static Stage stage_of(const MxConfig *c, int64_t *step, int64_t batch) {
    Stage stage = {.size = c->ramp.start};
    for (int64_t i = 0; i < c->ramp.stages; i++) {
        stage.steps = steps_of_stage(c, stage.size);
        if (*step < stage.steps || batch < stage.first + stage.steps * stage.size) return stage;
        *step -= stage.steps;
        stage.first += stage.steps * stage.size;
        stage.size += c->ramp.increment;
    }
    return stage;
}

MxTake mx_config_take(const MxConfig *c, int64_t step) {
    if (!c->ramp.stages) return (MxTake){step / mx_config_iterations(c), 1};
    Stage stage = stage_of(c, &step, INT64_MAX);
    return (MxTake){stage.first + step * stage.size, stage.size};
}

double mx_config_share(const MxConfig *c, int64_t step) {
    return c->ramp.stages ? (double)mx_config_take(c, step).n / (double)c->accumulations : 1;
}

int64_t mx_config_steps_of(const MxConfig *c, int64_t batches) {
    if (batches < 0) return -1;
    if (!c->ramp.stages) return batches * mx_config_iterations(c);
    int64_t behind = INT64_MAX;
    Stage stage = stage_of(c, &behind, batches);
    return INT64_MAX - behind + (batches - stage.first) / stage.size;
}

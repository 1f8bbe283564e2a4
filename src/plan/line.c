/* line.c — extrapolates the needs of deep models from two shallow ones. Layers repeat with a period
 * (mx/family.h), so every period of layers adds the same amount, and models whose depths differ by
 * whole periods are on a straight line. First layers of another kind are in both models. */
#include "internal.h"

#include <mx/model.h>

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

PlanLine plan_line(const MxConfig *config, int64_t few, int64_t more) {
    MxLayers layers = mx_model_layers(config);
    int64_t n_first = layers.n_first < layers.n ? layers.n_first : 0; /* where others follow */
    PlanLine line = {.layers = config->num_decoder_layers, .period = layers.period};
    int64_t rest = (line.layers - n_first) % line.period;
    line.few = n_first + round_up(few - rest, line.period) + rest;
    line.more = line.few + round_up(more - few, line.period);
    return line;
}

double plan_seconds_on_line(const PlanLine *line, double few, double more) {
    double more_periods = (double)((line->more - line->few) / line->period);
    double left = (double)((line->layers - line->more) / line->period);
    return more + (more - few) / more_periods * left;
}

int64_t plan_on_line(const PlanLine *line, int64_t few, int64_t more) {
    int64_t each = (more - few) / ((line->more - line->few) / line->period);
    return more + each * ((line->layers - line->more) / line->period);
}

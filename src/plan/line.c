/* line.c — what deep models need, from two shallow ones. Layers take turns with a period
 * (mx/family.h), so every period of layers adds as much as the one before, and models whose depths
 * differ by whole periods are on a straight line. */
#include "internal.h"

#include <mx/family.h>

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

PlanLine plan_line(const MxConfig *config, int64_t few, int64_t more) {
    PlanLine line = {.layers = config->num_decoder_layers};
    line.period = mx_family_find(config->decoder_block)->period;
    int64_t rest = line.layers % line.period;
    line.few = round_up(few - rest, line.period) + rest;
    line.more = line.few + round_up(more - few, line.period);
    return line;
}

int64_t plan_on_line(const PlanLine *line, int64_t few, int64_t more) {
    int64_t each = (more - few) / ((line->more - line->few) / line->period);
    return more + each * ((line->layers - line->more) / line->period);
}

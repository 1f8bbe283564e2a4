/* spikes.c — skips updates if the loss or the gradient norm is far above its values in the last
 * steps. The norm is the clipped one, as in MaxText: if every gradient is clipped, all norms are
 * equal, and only the loss decides. Source: MaxText optimizers/optimizers.py skip_step_on_spikes
 * @e591f30c. */
#include "internal.h"

#include <math.h>

struct MxOptimSpikes {
    int32_t *count; /* steps seen */
    uint8_t *is_skipped;
    float *losses, *norms; /* [interval] rings */
};

struct MxOptimSpikes *optim_spikes_new(MxOptim *o, const char *folder) {
    MxArena *arena = o->numbers.arena;
    struct MxOptimSpikes *spikes = mx_new(arena, struct MxOptimSpikes);
    MxShape window = MX_SHAPE(o->config->skip_step_interval);
    const char *count = mx_arena_printf(arena, "%scount", folder);
    const char *skipped = mx_arena_printf(arena, "%sis_skipped", folder);
    const char *losses = mx_arena_printf(arena, "%slosses", folder);
    const char *norms = mx_arena_printf(arena, "%sgrad_norms", folder);
    *spikes = (struct MxOptimSpikes){.count = optim_add_number(o, count, MX_I32, MX_SCALAR),
                                     .is_skipped = optim_add_number(o, skipped, MX_U8, MX_SCALAR),
                                     .losses = optim_add_number(o, losses, MX_F32, window),
                                     .norms = optim_add_number(o, norms, MX_F32, window)};
    return spikes;
}

/* Mean and deviation, by n - 1, of what a window holds. */
static void look_back(const float *window, int64_t n, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)window[i];
    *mean = n ? sum / (double)n : 0;
    for (int64_t i = 0; i < n; i++) squares += pow((double)window[i] - *mean, 2);
    *deviation = sqrt(squares / (double)(n > 1 ? n - 1 : 1));
}

bool mx_optim_leaves_out(const MxOptim *o) {
    return o->spikes != NULL;
}

void mx_optim_limit(const MxOptim *o, double loss, float limit[2]) {
    const struct MxOptimSpikes *spikes = o->spikes;
    int64_t interval = o->config->skip_step_interval, seen = *spikes->count;
    int64_t n = seen < interval ? seen : interval, enough = interval / 2 > 2 ? interval / 2 : 2;
    double factor = o->config->skip_step_scaling_factor, mean, deviation;
    limit[0] = 0;
    limit[1] = INFINITY;
    if (seen + 1 < enough) return;
    look_back(spikes->losses, n, &mean, &deviation);
    if (!(loss - mean <= factor * deviation)) {
        limit[1] = -INFINITY;
        return;
    }
    look_back(spikes->norms, n, &mean, &deviation);
    limit[0] = (float)mean;
    limit[1] = (float)(factor * deviation);
}

void mx_optim_stepped(MxOptim *o, double loss, double norm, bool was_left_out) {
    struct MxOptimSpikes *spikes = o->spikes;
    if (!was_left_out) optim_updated(o);
    if (!spikes) return;
    int64_t at = *spikes->count % o->config->skip_step_interval;
    spikes->losses[at] = (float)loss;
    spikes->norms[at] = (float)norm;
    *spikes->is_skipped = was_left_out;
    ++*spikes->count;
}

/* activations.c — the part of a program that measures what each layer gives
 * (record_internal_nn_metrics): the share of zeros, the mean and the standard deviation, over all
 * tokens of a step's batch. Sums are what ranks and micro-batches add up; the rest is computed of
 * them here. Source: MaxText common/metric_logger.py (record_activation_metrics) @e591f30c, which
 * adds up the values of micro-batches, and numbers layers of stacks by the names of their leaves.
 */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

typedef struct Activations {
    MxValue *moments; /* [layer] of the pass that is being traced */
    int *vars;        /* [layer] f32 [MX_MOMENTS] */
    int metric;       /* of the first figure and layer; layers first */
} Activations;

static bool is_wanted(const MxConfig *config) {
    return config->record_internal_nn_metrics != 0;
}

static int n_layers(const MxTrainState *s) {
    return (int)s->config->num_decoder_layers;
}

static double fraction_zero(const float *sum) {
    return (double)sum[MX_MOMENT_ZEROS] / (double)sum[MX_MOMENT_COUNT];
}

static double mean(const float *sum) {
    return (double)sum[MX_MOMENT_SUM] / (double)sum[MX_MOMENT_COUNT];
}

static double deviation(const float *sum) {
    double square = (double)sum[MX_MOMENT_SQUARES] / (double)sum[MX_MOMENT_COUNT];
    return sqrt(fmax(0, square - mean(sum) * mean(sum)));
}

static const struct {
    const char *name;
    double (*of)(const float *sum);
} figures[] = {
    {.name = "activ_fraction_zero", .of = fraction_zero},
    {.name = "activ_mean", .of = mean},
    {.name = "activ_stdev", .of = deviation},
};

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Activations *own = program_part(s, PART_activations);
    own->moments = mx_new_n(s->arena, MxValue, n_layers(s));
    own->vars = mx_new_n(s->arena, int, n_layers(s));
    own->metric = s->n_told;
    for (int f = 0; f < MX_COUNT(figures); f++)
        for (int l = 0; l < n_layers(s); l++)
            program_add_metric(s, mx_arena_printf(s->arena, "%s/layer_%03d", figures[f].name, l),
                               METRIC_MEAN);
    for (int l = 0; l < n_layers(s) && program_is_training(s); l++)
        own->vars[l] = program_add_var(s, "moments", mx_arena_printf(s->arena, "layer_%03d", l),
                                       (MxType){MX_F32, MX_SHAPE(MX_MOMENTS)});
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    (void)t;
    const Activations *own = program_part(s, PART_activations);
    in->moments = own->moments;
}

static void observe(MxTrainState *s, MxTrace *t, bool add) {
    const Activations *own = program_part(s, PART_activations);
    for (int l = 0; l < n_layers(s); l++) mx_trace_assign(t, own->moments[l], own->vars[l], add);
}

static void tell(MxTrainState *s) {
    const Activations *own = program_part(s, PART_activations);
    for (int l = 0; l < n_layers(s); l++) {
        float sum[MX_MOMENTS];
        program_read_all(s, own->vars[l], sum);
        for (int f = 0; f < MX_COUNT(figures); f++)
            program_tell(s, own->metric + f * n_layers(s) + l, figures[f].of(sum));
    }
}

const Part part_activations = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Activations),
    .declare = declare,
    .ask = ask,
    .observe = observe,
    .tell = tell,
};

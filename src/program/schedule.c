/* schedule.c — the learning rate over the steps: linear warm-up, then a row of the table, then
 * zero. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

typedef struct Span {
    double peak, final;
    int64_t n; /* steps after the warm-up, up to the schedule's end */
    const MxConfig *config;
} Span;

static double cosine_between(double from, double to, double fraction) {
    double weight = 0.5 * (cos(3.14159265358979323846 * fraction) + 1);
    return from * weight + to * (1 - weight);
}

double program_between(const char *how, double from, double to, double fraction) {
    if (!strcmp(how, "linear")) return from + (to - from) * fraction;
    if (!strcmp(how, "cosine")) return cosine_between(from, to, fraction);
    MX_ASSERT(!strcmp(how, "constant"));
    return from;
}

/* The final value is reached at the last step exactly. */
static double through(int64_t i, int64_t n) {
    return n > 1 ? (double)i / (double)(n - 1) : 1;
}

/* MaxText's distillation has optax' own schedule, which gets there a step later. */
static double cosine(const Span *s, int64_t i) {
    return cosine_between(s->peak, s->final, through(i, s->n + (mx_config_distils(s->config))));
}

/* A decay of one step has no way to go: optax.linear_schedule stays where it starts. */
static double wsd_linear(const Span *s, int64_t i, int64_t n) {
    if (n <= 1) return s->peak;
    return s->peak + (s->final - s->peak) * through(i, n);
}

static double wsd_cosine(const Span *s, int64_t i, int64_t n) {
    return cosine_between(s->peak, s->final, through(i, n));
}

static const struct {
    const char *name;
    double (*value)(const Span *s, int64_t i, int64_t n);
} decays[] = {
    {"linear", wsd_linear},
    {"cosine", wsd_cosine},
};

/* Warm-up, stable, decay. */
static double wsd(const Span *s, int64_t i) {
    const MxConfig *c = s->config;
    int64_t n_decay =
        (int64_t)((double)c->learning_rate_schedule_steps * c->wsd_decay_steps_fraction);
    int64_t into_decay = i - (s->n - n_decay);
    if (into_decay < 0) return s->peak;
    for (int k = 0; k < MX_COUNT(decays); k++)
        if (!strcmp(decays[k].name, c->wsd_decay_style))
            return decays[k].value(s, into_decay, n_decay);
    MX_BUG("wsd_decay_style is not in the table");
}

static const struct {
    const char *name;
    double (*value)(const Span *s, int64_t i);
} schedules[] = {
    {"cosine", cosine},
    {"wsd", wsd},
};

double mx_learning_rate(const MxConfig *config, int64_t step) {
    int64_t n = config->learning_rate_schedule_steps;
    int64_t n_warmup = (int64_t)((double)n * config->warmup_steps_fraction);
    Span span = {.peak = config->learning_rate,
                 .final = config->learning_rate * config->learning_rate_final_fraction,
                 .n = n - n_warmup,
                 .config = config};
    if (step < n_warmup) return span.peak * (double)step / (double)n_warmup;
    if (step >= n) return 0;
    for (int k = 0; k < MX_COUNT(schedules); k++)
        if (!strcmp(schedules[k].name, config->lr_schedule_type))
            return schedules[k].value(&span, step - n_warmup);
    MX_BUG("lr_schedule_type is not in the table");
}

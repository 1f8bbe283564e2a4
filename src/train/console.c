/* console.c — lines of steps and evaluations, from the metrics by tables of figures; the progress
 * line and its estimate. Times of long ago say nothing about those to come (other programs come and
 * go), so the estimate is made of the last steps alone. */
#include "console.h"

void console_open(MxArena *arena, const MxConfig *config, int64_t n_steps, Console *out) {
    *out = (Console){.config = config, .last = n_steps - 1};
    for (int is_eval = 0; is_eval < 2; is_eval++)
        out->figures[is_eval] = mx_train_figures(arena, config, is_eval);
    mx_text_init(&out->line, arena);
}

/* MaxText's, in its order; figures of the loss follow. */
static const MxFigure step_fields[] = {
    {.label = "seconds", .metric = "perf/step_time_seconds", .decimals = 3},
    {.label = "TFLOP/s/device", .metric = "perf/per_device_tflops_per_sec", .decimals = 3},
    {.label = "Tokens/s/device", .metric = "perf/per_device_tokens_per_sec", .decimals = 3},
    {.label = "total_weights", .metric = "learning/total_weights"},
    {.label = "loss", .metric = "learning/loss", .decimals = 3},
    {0},
};

static const MxFigure more_step_fields[] = {
    {.label = "learning_rate", .metric = "learning/current_learning_rate", .decimals = 3},
    {.label = "raw_grad_norm", .metric = "learning/raw_grad_norm", .decimals = 3},
    {0},
};

static const MxFigure eval_fields[] = {
    {.label = "loss", .metric = "eval/avg_loss", .decimals = 3},
    {0},
};

static const MxFigure more_eval_fields[] = {
    {.label = "seconds", .metric = "perf/eval_time_seconds", .decimals = 3},
    {0},
};

void console_step(Console *c, int64_t step, const Metrics *metrics) {
    mx_text_clear(&c->line);
    metrics_tell(metrics, step_fields, ": ", &c->line);
    metrics_tell(metrics, c->figures[false], ": ", &c->line);
    metrics_tell(metrics, more_step_fields, ": ", &c->line);
    mx_log("completed step: %lld%s", (long long)step, c->line.data);
}

void console_eval(Console *c, int64_t step, const Metrics *metrics) {
    mx_text_clear(&c->line);
    metrics_tell(metrics, eval_fields, "=", &c->line);
    metrics_tell(metrics, c->figures[true], "=", &c->line);
    metrics_tell(metrics, more_eval_fields, "=", &c->line);
    mx_log("Completed eval after train step %lld%s", (long long)step, c->line.data);
}

/* ---- how long it will take */

void console_took_step(Console *c, double seconds) {
    c->recent[c->n_steps++ % CONSOLE_RECENT] = seconds;
}

void console_took_eval(Console *c, double seconds) {
    c->eval_seconds = seconds;
}

static bool is_in_turn(const MxConfig *c, int64_t step) {
    return (step - c->eval_start_step) % c->eval_interval == 0;
}

bool console_eval_is_due(const Console *console, int64_t step) {
    const MxConfig *c = console->config;
    return c->eval_interval > 0 && step >= c->eval_start_step &&
           (is_in_turn(c, step) || step == console->last);
}

/* Of the steps after one. */
static int64_t evals_after(const Console *console, int64_t step) {
    const MxConfig *c = console->config;
    int64_t from = step + 1 - c->eval_start_step, to = console->last - c->eval_start_step;
    if (from < 0) from = 0;
    if (c->eval_interval <= 0 || from > to) return 0;
    int64_t in_turn = to / c->eval_interval - (from + c->eval_interval - 1) / c->eval_interval + 1;
    return in_turn + !is_in_turn(c, console->last);
}

double console_seconds_left(const Console *c, int64_t step) {
    int64_t n = c->n_steps < CONSOLE_RECENT ? c->n_steps : CONSOLE_RECENT;
    double sum = 0;
    if (!n) return -1;
    for (int64_t i = 0; i < n; i++) sum += c->recent[i];
    return sum / (double)n * (double)(c->last - step) +
           c->eval_seconds * (double)evals_after(c, step);
}

void console_progress(const Console *c, int64_t step, int64_t n_batches) {
    long long done = (long long)step + 1, steps = (long long)c->config->steps;
    double fraction = (double)done / (double)steps, left = console_seconds_left(c, step);
    if (n_batches < 0)
        mx_progress(fraction, left, "step %lld of %lld", done, steps);
    else if (c->config->eval_steps > 0)
        mx_progress(fraction, left, "step %lld of %lld, evaluation %lld of %lld", done, steps,
                    (long long)n_batches, (long long)c->config->eval_steps);
    else
        mx_progress(fraction, left, "step %lld of %lld, evaluation, batch %lld", done, steps,
                    (long long)n_batches);
}

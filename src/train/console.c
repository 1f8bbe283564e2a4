/* console.c — lines of steps and evaluations, from the metrics by tables of figures; the status
 * line and its estimate of the remaining time. The estimate uses only the last steps, because
 * earlier times say little about later ones (other programs come and go). */
#include "console.h"

#include <math.h>
#include <sys/resource.h>

void console_open(MxArena *arena, const MxConfig *config, int64_t n_steps, Console *out) {
    *out = (Console){.config = config, .last = n_steps - 1};
    for (int is_eval = 0; is_eval < 2; is_eval++)
        out->figures[is_eval] = mx_train_figures(arena, config, is_eval);
    mx_text_init(&out->line, arena);
    mx_text_init(&out->status, arena);
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

/* Before the step, whose own seconds are without them. */
static const MxFigure rollout_fields[] = {
    {.label = "rollout_seconds", .metric = "perf/rollout_time_seconds", .decimals = 3},
    {0},
};

/* Of log_step_diagnostics. */
static const char *const diagnostics[][2] = {
    {"raw_grad_norm", "learning/raw_grad_norm"},
    {"grad_norm", "learning/grad_norm"},
    {"param_norm", "learning/param_norm"},
    {"max_abs_grad", "diag/max_abs_grad"},
    {"moe_bias_checksum", "diag/moe_bias_checksum"},
    {"moe_bias_update_nonzero", "diag/moe_bias_update_nonzero"},
    {"moe_overflow", "diag/moe_overflow"},
};

static const MxFigure eval_fields[] = {
    {.label = "loss", .metric = "eval/avg_loss", .decimals = 3},
    {0},
};

static const MxFigure more_eval_fields[] = {
    {.label = "seconds", .metric = "perf/eval_time_seconds", .decimals = 3},
    {0},
};

/* Lines that come faster than they are read only hide those that matter; a file takes all. */
static bool step_is_due(Console *c, int64_t step) {
    static const double PAUSE_S = 5;
    int64_t every = c->config->log_every;
    double now = mx_clock_s();
    bool is_due = step == c->last;
    if (every)
        is_due |= step % every == 0;
    else
        is_due |= !mx_log_is_live() || c->told_s <= 0 || now - c->told_s >= PAUSE_S;
    if (is_due) c->told_s = now;
    return is_due;
}

static void tell_diagnostics(const Metrics *metrics, MxText *line) {
    mx_text_add(line, ", diag:");
    for (int i = 0; i < MX_COUNT(diagnostics); i++)
        mx_text_add(line, " %s=%.9e", diagnostics[i][0], metrics_get(metrics, diagnostics[i][1]));
}

void console_step(Console *c, int64_t step, const Metrics *metrics) {
    c->losses[c->n_losses++ % CONSOLE_RECENT] = metrics_get(metrics, "learning/loss");
    mx_text_clear(&c->line);
    metrics_tell(metrics, step_fields, ": ", &c->line);
    metrics_tell(metrics, c->figures[false], ": ", &c->line);
    metrics_tell(metrics, more_step_fields, ": ", &c->line);
    if (mx_config_writes(c->config)) metrics_tell(metrics, rollout_fields, ": ", &c->line);
    if (c->config->log_step_diagnostics) tell_diagnostics(metrics, &c->line);
    (step_is_due(c, step) ? mx_log : mx_detail)("completed step: %lld%s", (long long)step,
                                                c->line.data);
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

/* The first step behind this one that an evaluation follows; -1 = none. */
static int64_t next_eval(const Console *console, int64_t step) {
    const MxConfig *c = console->config;
    int64_t first = c->eval_start_step, next = step + 1;
    if (c->eval_interval <= 0 || next > console->last || first > console->last) return -1;
    if (next <= first) return first;
    next = first + (next - first + c->eval_interval - 1) / c->eval_interval * c->eval_interval;
    return next < console->last ? next : console->last;
}

/* The same for a checkpoint. */
static int64_t next_save(const Console *console, int64_t step) {
    const MxConfig *c = console->config;
    int64_t next = (step / c->checkpoint_period + 1) * c->checkpoint_period;
    if (!c->enable_checkpointing || step >= console->last) return -1;
    if (next <= console->last) return next;
    return c->save_checkpoint_on_completion ? console->last : -1;
}

/* Seconds of a step, < 0 = none was timed. */
static double pace(const Console *c) {
    int64_t n = c->n_steps < CONSOLE_RECENT ? c->n_steps : CONSOLE_RECENT;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c->recent[i];
    return n ? sum / (double)n : -1;
}

double console_seconds_left(const Console *c, int64_t step) {
    double each = pace(c);
    if (each < 0) return -1;
    return each * (double)(c->last - step) + c->eval_seconds * (double)evals_after(c, step);
}

/* ---- the status line */

static double mean(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

static double squares_about(const double *x, int64_t n, double middle) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - middle) * (x[i] - middle);
    return sum;
}

/* Where the loss goes: "falling" or "rising" if the means of the halves of the last losses differ
 * by more than twice the standard error of that difference, else "level"; NULL = too few losses. */
static const char *loss_trend(const Console *c) {
    enum { FEWEST = 8 };
    double x[CONSOLE_RECENT];
    int64_t n = c->n_losses < CONSOLE_RECENT ? c->n_losses : CONSOLE_RECENT, half = n / 2;
    if (n < FEWEST) return NULL;
    for (int64_t i = 0; i < n; i++) x[i] = c->losses[(c->n_losses - n + i) % CONSOLE_RECENT];
    double before = mean(x, half), after = mean(x + half, n - half);
    double spread = squares_about(x, half, before) + squares_about(x + half, n - half, after);
    double error = sqrt(spread / (double)(n - 2) / (double)half * 2);
    if (!isfinite(after - before)) return NULL;
    return fabs(after - before) <= 2 * error ? "level" : after < before ? "falling" : "rising";
}

/* The largest that the process was, of this rank. */
static double memory_gib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / (1 << 20);
}

/* In the order of what people look for; the last ones give way on narrow terminals. */
static void add_parts(Console *c, int64_t step) {
    char figure[MX_FIGURE];
    double each = pace(c);
    if (c->n_losses) {
        const char *trend = loss_trend(c);
        double loss = c->losses[(c->n_losses - 1) % CONSOLE_RECENT];
        mx_text_add(&c->status, "\tloss %s%s%s", mx_figure(figure, loss, 3), trend ? " " : "",
                    trend ? trend : "");
    }
    if (each > 0)
        mx_text_add(&c->status, "\t%.0f tokens/s",
                    mx_config_share(c->config, step) *
                        (double)(c->config->tokens_per_step * mx_train_rows(c->config)) / each);
    mx_text_add(&c->status, "\t%.2f GiB", memory_gib());
    int64_t save = next_save(c, step), eval = next_eval(c, step);
    if (save >= 0) mx_text_add(&c->status, "\tsave at %lld", (long long)save);
    if (eval >= 0) mx_text_add(&c->status, "\tevaluation at %lld", (long long)eval);
}

void console_progress(Console *c, int64_t step, int64_t n_batches) {
    long long done = (long long)step + 1, steps = (long long)c->config->steps;
    mx_text_clear(&c->status);
    mx_text_add(&c->status, "step %lld of %lld", done, steps);
    if (n_batches >= 0 && c->config->eval_steps > 0)
        mx_text_add(&c->status, ", evaluation %lld of %lld", (long long)n_batches,
                    (long long)c->config->eval_steps);
    else if (n_batches >= 0)
        mx_text_add(&c->status, ", evaluation, batch %lld", (long long)n_batches);
    add_parts(c, step);
    mx_progress((double)done / (double)steps, console_seconds_left(c, step), "%s", c->status.data);
}

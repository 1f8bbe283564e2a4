/* trace.c — the traced steps, and the trace file. As in MaxText, profiler_steps steps are traced,
 * beginning skip_first_n_steps_for_profiler after the first step of this start, and again every
 * profile_periodically_period. Source: MaxText src/maxtext/common/profiler.py @e591f30c. */
#include "trace.h"

void tracer_span(const char *kind, const char *name, int64_t number, double start_s) {
    if (!mx_spans_are_kept()) return;
    mx_spans_add((MxTimeSpan){.thread = MX_SPAN_TRAINER,
                              .kind = kind,
                              .name = name,
                              .number = number,
                              .start_s = start_s,
                              .end_s = mx_clock_s()});
}

/* Ranks begin together, so that their times can be compared on machines with other clocks. */
void tracer_before_step(Tracer *t, int64_t step) {
    const MxConfig *c = t->config;
    int64_t behind = step - t->start - c->skip_first_n_steps_for_profiler;
    int64_t period = c->profile_periodically_period;
    if (t->is_on || !*c->profiler || behind < 0 || (period > 0 ? behind % period : behind)) return;
    mx_comm_max(t->comm, 0);
    mx_spans_begin();
    t->is_on = true;
    t->first = step;
}

static bool write_trace(const Tracer *t, MxArena *arena, int64_t step, MxError *err) {
    MxText own, all;
    mx_text_init(&own, arena);
    mx_text_init(&all, arena);
    mx_spans_end(&own, mx_comm_rank(t->comm));
    const char *const *texts = train_gather_texts(arena, t->comm, own.data);
    if (!texts) return true;
    mx_text_add(&all, "{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n");
    for (int r = 0; r < mx_comm_size(t->comm); r++) {
        mx_text_add(&all, "%s", r ? ",\n" : "");
        mx_text_addn(&all, texts[r], strlen(texts[r]));
    }
    mx_text_add(&all, "\n]}\n");
    const char *dir = mx_path_join(arena, t->config->run_dir, "traces");
    const char *path = mx_arena_printf(arena, "%s/steps_%lld_%lld.json", dir, (long long)t->first,
                                       (long long)step);
    if (!mx_dir_make(dir, err) || !mx_file_write(path, all.data, all.len, err)) return false;
    mx_log("trace of steps %lld to %lld is in %s, for ui.perfetto.dev", (long long)t->first,
           (long long)step, path);
    return true;
}

bool tracer_after_step(Tracer *t, int64_t step, bool is_last, MxError *err) {
    if (!t->is_on || (!is_last && step - t->first + 1 < t->config->profiler_steps)) return true;
    MxArena arena = {.name = "trace"};
    bool ok = write_trace(t, &arena, step, err);
    t->is_on = false;
    mx_arena_release(&arena);
    return ok;
}

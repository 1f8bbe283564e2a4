/* pipeline.c — the table of a pipeline, made by a simulation: the stage that can start its next
 * unit first does so, a backward unit before a forward one. A stage takes its forward units in one
 * order and its backward units in another; which kind comes next, and when, follows from what has
 * arrived and from how many units it may have under way. */
#include "pipeline.h"

typedef struct Simulation {
    PipelineTable *table;
    PipelineUnit **unit; /* [stages][n] */
    int64_t *end;        /* [2][places][micros] of what was run, -1 = not yet */
    int *done;           /* [stages][2] units */
    int64_t *free_at;    /* [stages] */
    int extra;           /* that stages may have under way beyond the usual */
} Simulation;

static int n_places(PipelineSizes z) {
    return z.stages * z.repeats;
}

/* Which unit of a kind comes i-th in a stage. Micro-batches go round in groups of as many as there
 * are stages: a group's last one is through when its first one comes back. */
static PipelineUnit unit_at(PipelineSizes z, int stage, bool backward, int i) {
    int group = i / (z.stages * z.repeats) * z.stages, in_group = i % (z.stages * z.repeats);
    int size = z.micros - group < z.stages ? z.micros - group : z.stages;
    int repeat = in_group / size, micro = group + in_group % size;
    if (backward) repeat = z.repeats - 1 - repeat;
    return (PipelineUnit){.place = repeat * z.stages + stage, .micro = micro, .backward = backward};
}

static int64_t *end_of(const Simulation *s, int place, int micro, bool backward) {
    PipelineSizes z = s->table->sizes;
    return &s->end[((int64_t)backward * n_places(z) + place) * z.micros + micro];
}

/* When what a unit needs from elsewhere is there; -1 = nobody has run it yet. */
static int64_t ready(const Simulation *s, const PipelineUnit *u) {
    int last = n_places(s->table->sizes) - 1;
    if (!u->backward) return u->place ? *end_of(s, u->place - 1, u->micro, false) : 0;
    int64_t own = *end_of(s, u->place, u->micro, false);
    int64_t from = u->place == last ? own : *end_of(s, u->place + 1, u->micro, true);
    return own < 0 || from < 0 ? -1 : from > own ? from : own;
}

/* Forward units that a stage may be ahead of its backward units. */
static int most_under_way(const Simulation *s, int stage) {
    PipelineSizes z = s->table->sizes;
    int later = z.stages - 1 - stage;
    return s->extra + 1 + (z.repeats == 1 ? later : 2 * later + (z.repeats - 1) * z.stages);
}

/* When a stage's next unit of a kind could start; -1 = not yet. */
static int64_t start_of(const Simulation *s, int stage, bool backward, PipelineUnit *u) {
    const int *done = &s->done[2 * stage];
    if (done[backward] == s->table->n / 2) return -1;
    if (!backward && done[0] - done[1] >= most_under_way(s, stage)) return -1;
    *u = unit_at(s->table->sizes, stage, backward, done[backward]);
    int64_t from = ready(s, u);
    return from < 0 ? -1 : from > s->free_at[stage] ? from : s->free_at[stage];
}

static void run_unit(Simulation *s, int stage, PipelineUnit u) {
    int *done = &s->done[2 * stage];
    u.end = u.start + (u.backward ? PIPELINE_BACKWARD : 1);
    s->unit[stage][done[0] + done[1]] = u;
    *end_of(s, u.place, u.micro, u.backward) = s->free_at[stage] = u.end;
    if (u.end > s->table->end) s->table->end = u.end;
    done[u.backward]++;
}

/* The next unit of all; false if there is none. */
static bool advance(Simulation *s) {
    PipelineUnit best = {.start = INT64_MAX};
    int at = -1;
    for (int stage = 0; stage < s->table->sizes.stages; stage++)
        for (int backward = 1; backward >= 0; backward--) {
            PipelineUnit u;
            int64_t start = start_of(s, stage, backward, &u);
            if (start < 0 || start >= best.start) continue;
            best = u;
            best.start = start;
            at = stage;
        }
    if (at >= 0) run_unit(s, at, best);
    return at >= 0;
}

static bool simulate(Simulation *s) {
    PipelineSizes z = s->table->sizes;
    int n_run = 0;
    s->table->end = 0;
    for (int64_t i = 0; i < (int64_t)2 * n_places(z) * z.micros; i++) s->end[i] = -1;
    for (int i = 0; i < z.stages; i++) s->free_at[i] = s->done[2 * i] = s->done[2 * i + 1] = 0;
    while (advance(s)) n_run++;
    return n_run == z.stages * s->table->n;
}

PipelineTable pipeline_table(MxArena *arena, PipelineSizes z) {
    PipelineTable table = {.sizes = z, .n = 2 * z.repeats * z.micros};
    Simulation s = {.table = &table,
                    .unit = mx_new_n(arena, PipelineUnit *, z.stages),
                    .end = mx_new_n(arena, int64_t, (int64_t)2 * n_places(z) * z.micros),
                    .done = mx_new_n(arena, int, 2 * z.stages),
                    .free_at = mx_new_n(arena, int64_t, z.stages)};
    for (int i = 0; i < z.stages; i++) s.unit[i] = mx_new_n(arena, PipelineUnit, table.n);
    while (!simulate(&s)) { /* with a short last group a stage may need more under way */
        MX_ASSERT(s.extra < table.n);
        s.extra++;
    }
    table.unit = (const PipelineUnit **)s.unit;
    return table;
}

int pipeline_unit(const PipelineTable *t, int place, int micro, bool backward) {
    const PipelineUnit *unit = t->unit[place % t->sizes.stages];
    int i = 0;
    while (unit[i].place != place || unit[i].micro != micro || unit[i].backward != backward) i++;
    return i;
}

double pipeline_bubble(const PipelineTable *t) {
    double busy = (double)t->n / 2 * (1 + PIPELINE_BACKWARD);
    return t->end ? 1 - busy / (double)t->end : 0;
}

/* ---- with times of a machine */

typedef struct Replay {
    const PipelineTable *table;
    const MxStageTimes *times;
    double *end;     /* [2][places][micros], -1 = not yet */
    double *free_at; /* [stages] */
    int *done;       /* [stages] units */
} Replay;

static double *replayed(const Replay *r, int place, int micro, bool backward) {
    PipelineSizes z = r->table->sizes;
    return &r->end[((int64_t)backward * n_places(z) + place) * z.micros + micro];
}

/* When what a unit needs has come; -1 = it has not been made. */
static double arrival(const Replay *r, const PipelineUnit *u) {
    PipelineSizes z = r->table->sizes;
    int from = u->backward ? u->place + 1 : u->place - 1;
    bool is_first = !u->backward && from < 0;
    if (is_first) return 0;
    if (from == n_places(z)) return *replayed(r, u->place, u->micro, false);
    double end = *replayed(r, from, u->micro, u->backward);
    return end < 0 ? -1 : end + (z.stages > 1 ? r->times->message_s : 0);
}

static bool replay_next(Replay *r, int stage) {
    if (r->done[stage] == r->table->n) return false;
    const PipelineUnit *u = &r->table->unit[stage][r->done[stage]];
    double from = arrival(r, u);
    if (from < 0) return false;
    if (from < r->free_at[stage]) from = r->free_at[stage];
    r->free_at[stage] =
        from + (u->backward ? r->times->backward_s[stage] : r->times->forward_s[stage]);
    *replayed(r, u->place, u->micro, u->backward) = r->free_at[stage];
    r->done[stage]++;
    return true;
}

double pipeline_s(MxArena *arena, const PipelineTable *table, const MxStageTimes *times) {
    PipelineSizes z = table->sizes;
    int64_t n = (int64_t)2 * n_places(z) * z.micros, n_run = 0;
    Replay r = {.table = table,
                .times = times,
                .end = mx_new_n(arena, double, n),
                .free_at = mx_new_n(arena, double, z.stages),
                .done = mx_new_n(arena, int, z.stages)};
    double last = 0;
    for (int64_t i = 0; i < n; i++) r.end[i] = -1;
    for (int64_t before = -1; n_run > before;) {
        before = n_run;
        for (int s = 0; s < z.stages; s++)
            while (replay_next(&r, s)) n_run++;
    }
    MX_ASSERT(n_run == (int64_t)z.stages * table->n);
    for (int s = 0; s < z.stages; s++) last = r.free_at[s] > last ? r.free_at[s] : last;
    return last;
}

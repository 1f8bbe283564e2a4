/* test_trace.c — the trace that profiler=trace writes, as a viewer reads it: JSON in Chrome's
 * format, events in the order of time that lie within each other or apart, every step that was
 * asked for with its entries and all their ops, the threads beside them; of several ranks, all. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

static MxArena arena;
static const char *dir;

typedef struct Event {
    const char *kind, *name;
    double rank, thread, start_us, took_us, number;
    bool has_result;
} Event;

static const MxJson *member(const MxJson *json, const char *name) {
    const MxJson *value = mx_json_get(json, name);
    ck_assert_msg(value != NULL, "no \"%s\" in %s", name, mx_json_dump(&arena, json, false));
    return value;
}

static double number(const MxJson *json, const char *name) {
    double value;
    ck_assert(mx_json_number(member(json, name), &value));
    return value;
}

static Event read_event(const MxJson *json) {
    const MxJson *args = mx_json_get(json, "args");
    Event e = {.kind = mx_json_string(member(json, "cat")),
               .name = mx_json_string(member(json, "name")),
               .rank = number(json, "pid"),
               .thread = number(json, "tid"),
               .start_us = number(json, "ts"),
               .took_us = number(json, "dur"),
               .number = -1,
               .has_result = args && mx_json_get(args, "result")};
    if (args && mx_json_get(args, "number")) e.number = number(args, "number");
    return e;
}

/* The complete events of a file. */
static Event *read_trace(const char *name, int *n) {
    MxError err = {0};
    const char *text = process_file(&arena, dir, name, NULL);
    const MxJson *json = mx_json_parse(&arena, text, strlen(text), name, &err);
    ck_assert_msg(json != NULL, "%s", err.text.data);
    const MxJson *all = member(json, "traceEvents");
    Event *events = mx_new_n(&arena, Event, mx_json_length(all));
    *n = 0;
    for (size_t i = 0; i < mx_json_length(all); i++) {
        const MxJson *event = mx_json_at(all, i);
        const char *phase = mx_json_string(member(event, "ph"));
        if (!strcmp(phase, "X"))
            events[(*n)++] = read_event(event);
        else
            ck_assert_str_eq(phase, "M");
    }
    return events;
}

static bool lies_in(const Event *inner, const Event *outer) {
    enum { NS = 1000 }; /* of a microsecond, in which times are written */
    double end = (inner->start_us + inner->took_us) * NS,
           last = (outer->start_us + outer->took_us) * NS;
    return inner->start_us >= outer->start_us && end < last + 0.5;
}

/* On one thread what begins later ends before, or begins behind the end. */
static void ck_nested(const Event *events, int n, double rank, double thread) {
    enum { DEEPEST = 16 };
    const Event *open[DEEPEST];
    int depth = 0;
    double last = 0;
    for (int i = 0; i < n; i++) {
        const Event *e = &events[i];
        if (e->rank != rank || e->thread != thread) continue;
        ck_assert_msg(e->start_us >= last && e->took_us >= 0, "%s at %.3f, behind %.3f", e->name,
                      e->start_us, last);
        last = e->start_us;
        while (depth && !lies_in(e, open[depth - 1])) {
            const Event *before = open[--depth];
            ck_assert_msg((before->start_us + before->took_us) * 1e3 < e->start_us * 1e3 + 0.5,
                          "%s at %.3f overlaps %s at %.3f for %.3f", e->name, e->start_us,
                          before->name, before->start_us, before->took_us);
        }
        ck_assert_int_lt(depth, DEEPEST);
        open[depth++] = e;
    }
}

/* How many events of a kind lie in one; name NULL = any. */
static int count_in(const Event *events, int n, const Event *outer, const char *kind,
                    const char *name) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        const Event *e = &events[i];
        if (e->rank == outer->rank && e->thread == outer->thread && !strcmp(e->kind, kind) &&
            (!name || !strcmp(e->name, name)) && lies_in(e, outer))
            count++;
    }
    return count;
}

static const Event *find_event(const Event *events, int n, const char *kind, const char *name,
                               double of) {
    for (int i = 0; i < n; i++)
        if (!strcmp(events[i].kind, kind) && !strcmp(events[i].name, name) &&
            (of < 0 || events[i].number == of))
            return &events[i];
    return NULL;
}

static void run(const char *more) {
    dir = process_dir(&arena, "trace");
    int code = process_run(&arena, dir, process_tiny(&arena, dir, more));
    ck_assert_msg(!code, "%s", process_file(&arena, dir, "log", NULL));
}

/* Nodes that an entry runs, from its printed graph: all lines but those of variables and views. */
static int nodes_of(const char *entry, const char *op) {
    int n = 0;
    const char *words =
        process_tiny(&arena, dir, mx_arena_printf(&arena, "--dump-graph %s", entry));
    const char *log = mx_path_join(&arena, dir, "log");
    ck_assert(!unlink(log) && !process_run(&arena, dir, words));
    const char *text = process_file(&arena, dir, "log", NULL);
    const char *mark = mx_arena_printf(&arena, " = %s", op);
    for (const char *at = text; (at = strstr(at, mark)); at += strlen(mark))
        n += at[strlen(mark)] == '(' || at[strlen(mark)] == ' ' || at[strlen(mark)] == '[';
    return n;
}

START_TEST(a_trace_has_every_step_that_was_asked_for) {
    int n;
    run("steps=12 profiler=trace skip_first_n_steps_for_profiler=4 profiler_steps=3");
    Event *events = read_trace("x/traces/steps_4_6.json", &n);
    for (int thread = 0; thread < 3; thread++) ck_nested(events, n, 0, thread);
    int n_steps = 0, n_ops = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(events[i].kind, "step")) continue;
        const Event *step = &events[i];
        ck_assert_int_eq((int)step->number, 4 + n_steps++);
        ck_assert_int_eq(count_in(events, n, step, "data", "wait for batch"), 1);
        ck_assert_int_eq(count_in(events, n, step, "entry", "grad"), 1);
        ck_assert_int_eq(count_in(events, n, step, "entry", "update"), 1);
        ck_assert_int_eq(count_in(events, n, step, "save", "save"), step->number == 5);
        int ops = count_in(events, n, step, "op", NULL);
        ck_assert(!n_ops || ops == n_ops);
        n_ops = ops;
    }
    ck_assert_int_eq(n_steps, 3);
    ck_assert_ptr_nonnull(find_event(events, n, "save", "write checkpoint", -1));
    const Event *batch = find_event(events, n, "data", "batch", -1);
    ck_assert(batch && batch->thread == 1);
    const Event *grad = find_event(events, n, "entry", "grad", -1);
    int dots = count_in(events, n, grad, "op", "dot");
    ck_assert_int_gt(dots, 0);
    ck_assert_int_eq(dots, nodes_of("grad", "dot"));
    for (int i = 0; i < n; i++) ck_assert(strcmp(events[i].kind, "op") || events[i].has_result);
}
END_TEST

START_TEST(traces_come_again_and_end_with_the_run) {
    int n;
    run("steps=9 profiler=trace skip_first_n_steps_for_profiler=2 profiler_steps=2 "
        "profile_periodically_period=3");
    static const char *const names[] = {"x/traces/steps_2_3.json", "x/traces/steps_5_6.json",
                                        "x/traces/steps_8_8.json"};
    for (int i = 0; i < MX_COUNT(names); i++) ck_assert(read_trace(names[i], &n) && n > 0);
}
END_TEST

START_TEST(nothing_is_traced_that_nobody_wants) {
    run("steps=4");
    ck_assert(!mx_dir_exists(mx_path_join(&arena, dir, "x/traces")));
}
END_TEST

static void tear_down(void) {
    mx_arena_release(&arena);
}

Suite *trace_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("trace");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, a_trace_has_every_step_that_was_asked_for);
    tcase_add_test(tcase, traces_come_again_and_end_with_the_run);
    tcase_add_test(tcase, nothing_is_traced_that_nobody_wants);
    suite_add_tcase(suite, tcase);
    return suite;
}

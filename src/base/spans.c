/* spans.c — spans of time of threads, recorded while tracing is on, then written as events of a
 * trace. Few are written at a time, so one lock is enough for all threads. */
#include <mx/base.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the process, as its threads are. */
static struct {
    atomic_bool is_on;
    pthread_mutex_t lock;
    MxArena arena;
    MxTimeSpan *item;
    size_t n, cap;
    double start_s;
} spans = {.lock = PTHREAD_MUTEX_INITIALIZER, .arena = {.name = "spans"}};

void mx_spans_begin(void) {
    pthread_mutex_lock(&spans.lock);
    MX_ASSERT(!atomic_load(&spans.is_on));
    spans.start_s = mx_clock_s();
    pthread_mutex_unlock(&spans.lock);
    atomic_store(&spans.is_on, true);
}

bool mx_spans_are_kept(void) {
    return atomic_load_explicit(&spans.is_on, memory_order_relaxed);
}

void mx_spans_add(MxTimeSpan span) {
    enum { FIRST = 4096 };
    if (!mx_spans_are_kept()) return;
    pthread_mutex_lock(&spans.lock);
    if (spans.n == spans.cap) {
        size_t cap = spans.cap ? 2 * spans.cap : FIRST;
        spans.item = mx_arena_grow(&spans.arena, spans.item, spans.cap, cap, sizeof *spans.item);
        spans.cap = cap;
    }
    span.start_s = fmax(span.start_s, spans.start_s);
    spans.item[spans.n++] = span;
    pthread_mutex_unlock(&spans.lock);
}

static int by_start(const void *a, const void *b) {
    const MxTimeSpan *x = a, *y = b;
    if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
    return x->end_s > y->end_s ? -1 : x->end_s < y->end_s;
}

/* Whole nanoseconds, so that what lies within a span does so in the file. */
static long long since_start_ns(double at_s) {
    return llround((at_s - spans.start_s) * 1e9);
}

static void add_name(MxText *out, const char *what, int rank, int thread, const char *name) {
    mx_text_add(out,
                "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": "
                "\"%s\"}},\n",
                what, rank, thread, name);
}

static void add_event(MxText *out, const MxTimeSpan *span, int rank) {
    enum { NS = 1000 };
    long long start = since_start_ns(span->start_s), took = since_start_ns(span->end_s) - start;
    mx_text_add(out,
                "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, "
                "\"ts\": %lld.%03lld, \"dur\": %lld.%03lld",
                span->kind, span->name, rank, (int)span->thread, start / NS, start % NS, took / NS,
                took % NS);
    if (span->number >= 0)
        mx_text_add(out, ", \"args\": {\"number\": %lld}", (long long)span->number);
    if (span->detail)
        mx_text_add(out, ", \"args\": {\"result\": %s}",
                    mx_json_quote(out->arena, span->detail, strlen(span->detail)));
    mx_text_add(out, "}");
}

void mx_spans_end(MxText *out, int rank) {
    static const char *const threads[] = {
        [MX_SPAN_TRAINER] = "trainer", [MX_SPAN_LOADER] = "loader", [MX_SPAN_SAVER] = "saver"};
    char name[32];
    atomic_store(&spans.is_on, false);
    pthread_mutex_lock(&spans.lock);
    if (spans.n) qsort(spans.item, spans.n, sizeof *spans.item, by_start);
    snprintf(name, sizeof name, "rank %d", rank);
    add_name(out, "process_name", rank, 0, name);
    for (int i = 0; i < MX_COUNT(threads); i++) add_name(out, "thread_name", rank, i, threads[i]);
    for (size_t i = 0; i < spans.n; i++) {
        add_event(out, &spans.item[i], rank);
        if (i + 1 < spans.n) mx_text_add(out, ",\n");
    }
    mx_arena_release(&spans.arena);
    spans.item = NULL;
    spans.n = spans.cap = 0;
    pthread_mutex_unlock(&spans.lock);
}

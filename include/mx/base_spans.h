/* base_spans.h — what the threads of the process do when, for traces; a part of base.h, which
 * includes it. */
#ifndef MX_BASE_SPANS_H
#define MX_BASE_SPANS_H

#include <mx/base.h>

/* Threads of a trace, a line of boxes each. */
typedef enum MxSpanThread { MX_SPAN_TRAINER, MX_SPAN_LOADER, MX_SPAN_SAVER } MxSpanThread;

/* Something that a thread did, from start_s to end_s of mx_clock_s. Texts are kept, not copied. */
typedef struct MxTimeSpan {
    MxSpanThread thread;
    const char *kind, *name;
    const char *detail; /* NULL = none */
    int64_t number;     /* of the step or batch; -1 = none */
    double start_s, end_s;
} MxTimeSpan;

/* mx_spans_begin — from here on spans are kept. mx_spans_are_kept — whether they are; who has no
 * other reason to read the clock asks first. mx_spans_add — keeps one, from any thread; nothing
 * where none are kept. What had begun before counts from the beginning. */
void mx_spans_begin(void);
bool mx_spans_are_kept(void);
void mx_spans_add(MxTimeSpan span);
/* mx_spans_end — keeps no more, and writes what was kept as events of Chrome's trace format, each
 * behind its line's beginning, a comma between two: complete events ("X") in the order of their
 * start, enclosing ones first, and before them the names of process and threads. Times are
 * microseconds since mx_spans_begin. Source: "Trace Event Format", docs of Perfetto and catapult.
 *   rank  the process's number */
void mx_spans_end(MxText *out, int rank);

#endif

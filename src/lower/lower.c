/* lower.c — the passes from an entry as it was traced, or as a rank has it, to what runs. */
#include <mx/lower.h>

static void remat(MxGraph *graph, const MxLowerOptions *options) {
    mx_pass_remat(graph, options->remat);
}

static void fuse(MxGraph *graph, const MxLowerOptions *options) {
    (void)options;
    mx_pass_fuse(graph);
}

static void schedule(MxGraph *graph, const MxLowerOptions *options) {
    (void)options;
    mx_pass_schedule(graph);
}

static void gathers(MxGraph *graph, const MxLowerOptions *options) {
    mx_pass_gathers(graph, options->machine);
}

static void bucket(MxGraph *graph, const MxLowerOptions *options) {
    mx_pass_bucket(graph, options->machine);
}

static void overlap(MxGraph *graph, const MxLowerOptions *options) {
    mx_pass_overlap(graph, options->machine);
}

/* In this order. What is fused may leave dead nodes and another order than the verifier wants, so
 * it verifies from the schedule on. */
static const struct {
    const char *name;
    void (*run)(MxGraph *graph, const MxLowerOptions *options);
    bool leaves_dead;
} passes[] = {
    {.name = "remat", .run = remat},       {.name = "fuse", .run = fuse, .leaves_dead = true},
    {.name = "schedule", .run = schedule}, {.name = "gathers", .run = gathers},
    {.name = "bucket", .run = bucket},     {.name = "overlap", .run = overlap},
};

MxLowered mx_lower(MxGraph *graph, const MxLowerOptions *options) {
    mx_graph_verify(graph);
    for (int i = 0; i < MX_COUNT(passes); i++) {
        passes[i].run(graph, options);
        if (!passes[i].leaves_dead) mx_graph_verify(graph);
        mx_graph_seen(graph, passes[i].name);
    }
    return mx_pass_memory(graph, options);
}

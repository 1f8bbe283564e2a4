/* test_lower.c — runs the suites of the room, and holds what they share. */
#include "lower_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;
MxVars vars;
MxTrace t;

void set_up(void) {
    vars = (MxVars){.arena = &arena};
    mx_trace_begin(&t, mx_graph_new(&arena, "test", &vars));
}

void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

TCase *add_case(Suite *suite, const char *name) {
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
    return tcase;
}

uint64_t draw(uint64_t *state) {
    uint32_t words[4];
    mx_philox(3, 4, (*state)++, words);
    return (uint64_t)words[0] << 32 | words[1];
}

int new_var(const char *name, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&vars, name, (MxType){dtype, shape});
}

MxValue source(const char *name, MxDtype dtype, MxShape shape) {
    return mx_variable(&t, new_var(name, dtype, shape));
}

MxValue scalar(const char *name) {
    return source(name, MX_F32, MX_SCALAR);
}

const char *printed(const MxGraph *graph) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_graph_print(graph, &text);
    return text.data;
}

void ck_graph(const char *want) {
    ck_assert_msg(!t.failure.len, "%s", t.failure.data);
    const char *got = printed(t.graph);
    ck_assert_msg(!strcmp(got, want), "got\n%swanted\n%s", got, want);
}

int count_op(const MxGraph *graph, const MxOp *op) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) n += graph->nodes[i].op == op;
    return n;
}

static size_t none(const void *context, const MxGraph *graph, const MxNode *node) {
    (void)context;
    (void)graph;
    (void)node;
    return 0;
}

static size_t some(const void *context, const MxGraph *graph, const MxNode *node) {
    (void)context;
    (void)graph;
    return (size_t)(mx_hash64(node->op->name, strlen(node->op->name)) % 300);
}

/* Sums of 1024 elements and more are two exchanges; each is finished a phase later. */
static MxCommCost collective_cost(MxCollective collective, MxType in, int ranks) {
    int64_t bytes = (ranks - 1) * mx_shape_count(in.shape) * (int64_t)mx_dtype_bytes(in.dtype);
    bool is_large = collective == MX_ALL_REDUCE && mx_shape_count(in.shape) >= 1024;
    if (ranks == 1 || !collective) return (MxCommCost){0};
    return (MxCommCost){1 + is_large, bytes};
}

static int phases(MxCollective collective, MxType in, int ranks) {
    return 1 + (int)collective_cost(collective, in, ranks).calls;
}

const MxMachine test_machine = {.flops_a_byte = 50,
                                .touched_a_byte = 8,
                                .exchange_bytes = 10000,
                                .collective_cost = collective_cost,
                                .phases = phases,
                                .small_bytes = 128 << 10,
                                .bucket_bytes = 2 << 20,
                                .chunk_tokens = 1024,
                                .chunk_bytes = 64 << 20};

const MxLowerOptions no_scratch = {.machine = &test_machine, .scratch_bytes = none},
                     some_scratch = {.machine = &test_machine, .scratch_bytes = some};

void differentiate(MxValue loss, const MxValue *wrt, int n) {
    MxGradTarget *targets = mx_new_n(&arena, MxGradTarget, n);
    for (int i = 0; i < n; i++) {
        const MxNode *node = mx_graph_producer(t.graph, wrt[i]);
        const char *name = vars.item[((const MxVariableAttr *)node->attr)->var].name;
        MxShape shape = mx_trace_type(&t, wrt[i]).shape;
        int var = new_var(mx_arena_printf(&arena, "d_%s", name), MX_F32, shape);
        targets[i] = (MxGradTarget){.wrt = wrt[i], .var = var};
    }
    mx_grad(&t, loss, targets, n);
    ck_assert_msg(!t.failure.len, "%s", t.failure.data);
}

int main(void) {
    return RUN_SUITES(grad_suite(), hoist_suite(), remat_suite(), fuse_suite(), schedule_suite(),
                      bucket_suite(), overlap_suite(), memory_suite(), moves_suite(),
                      pipeline_suite(), expect_suite());
}

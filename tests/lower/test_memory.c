/* test_memory.c — places in the arena: by brute force over all pairs, that nothing that is needed
 * at the same time overlaps; where buffers are taken over; how much the whole needs; and that they
 * compute what their graphs say. */
#include "lower_test.h"

typedef struct Span {
    size_t from, to;   /* bytes */
    int first, last;   /* steps in which it is needed */
    MxValue value;     /* MX_NONE = scratch */
    MxValue successor; /* that takes the place over in step `last`; MX_NONE = none */
} Span;

typedef struct Layout {
    Span spans[2048];
    int n;
    size_t *live; /* [step] bytes that must be there, scratch included */
} Layout;

static size_t round_up(size_t bytes) {
    return (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN;
}

static size_t bytes_of(const MxGraph *graph, MxValue value) {
    MxType type = graph->values[value].type;
    return round_up((size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype));
}

/* The input whose buffer out 0 of a node may become, or MX_NONE. */
static MxValue may_take_over(const MxGraph *graph, const MxNode *node) {
    bool has_addend = node->op->takes_addend && node->n_in > node->op->arity;
    if (has_addend) return mx_graph_buffer(graph, node->in[node->op->arity]);
    return node->op->inplace ? mx_graph_buffer(graph, node->in[node->op->inplace - 1]) : MX_NONE;
}

static void add_value(Layout *l, const MxLowered *lowered, MxValue value, int step) {
    const MxGraph *graph = lowered->graph;
    Span span = {.from = lowered->value_offset[value],
                 .to = lowered->value_offset[value] + bytes_of(graph, value),
                 .first = step,
                 .last = step,
                 .value = value,
                 .successor = MX_NONE};
    for (int s = step + 1; s < lowered->n_steps; s++) {
        const MxNode *node = &graph->nodes[lowered->steps[s]];
        if (lowered->steps[s] == lowered->steps[step])
            span.last = s; /* a later phase of its maker */
        for (int i = 0; i < node->n_in; i++)
            if (mx_graph_buffer(graph, node->in[i]) == value) span.last = s;
    }
    const MxNode *last = &graph->nodes[lowered->steps[span.last]];
    if (span.last > step && may_take_over(graph, last) == value) span.successor = last->out[0];
    l->spans[l->n++] = span;
}

static Layout lay_out(const MxLowered *lowered, const MxLowerOptions *options) {
    Layout l = {.live = mx_new_n(&arena, size_t, lowered->n_steps + 1)};
    const MxGraph *graph = lowered->graph;
    for (int s = 0; s < lowered->n_steps; s++) {
        const MxNode *node = &graph->nodes[lowered->steps[s]];
        ck_assert_int_lt(l.n + MX_MAX_OUT + 1, MX_COUNT(l.spans));
        if (lowered->phases[s]) continue;
        for (int i = 0; i < node->n_out; i++)
            if (graph->values[node->out[i]].var == MX_NONE && !(node->unused >> i & 1))
                add_value(&l, lowered, node->out[i], s);
        size_t bytes = round_up(options->scratch_bytes(NULL, graph, node));
        size_t from = lowered->scratch_offset[s];
        int last = s;
        for (int k = s + 1; k < lowered->n_steps; k++)
            if (lowered->steps[k] == lowered->steps[s]) last = k;
        l.spans[l.n++] = (Span){from, from + bytes, s, last, MX_NONE, MX_NONE};
    }
    return l;
}

static void ck_pair(const Span *a, const Span *b, uint64_t seed) {
    bool same_time = a->first <= b->last && b->first <= a->last;
    bool same_place = a->from < b->to && b->from < a->to;
    bool takes_over = b->value != MX_NONE && a->successor == b->value && a->last == b->first &&
                      a->from == b->from && a->to == b->to;
    if (same_time && same_place && !takes_over)
        ck_abort_msg("seed %llu: %%%d [%zu, %zu) of steps %d..%d and %%%d [%zu, %zu) of %d..%d\n%s",
                     (unsigned long long)seed, a->value, a->from, a->to, a->first, a->last,
                     b->value, b->from, b->to, b->first, b->last, printed(t.graph));
}

size_t ck_lowered(const MxLowered *lowered, const MxLowerOptions *options, uint64_t seed) {
    Layout l = lay_out(lowered, options);
    size_t end = 0, bound = 0;
    for (int i = 0; i < l.n; i++) {
        const Span *a = &l.spans[i];
        ck_assert_msg(a->from % MX_BUFFER_ALIGN == 0, "%%%d at %zu", a->value, a->from);
        if (a->to > end) end = a->to;
        for (int k = i + 1; k < l.n; k++) ck_pair(a, &l.spans[k], seed); /* a is the earlier */
        bool is_taken_over = false;
        for (int k = 0; k < l.n; k++)
            is_taken_over =
                is_taken_over || (a->successor != MX_NONE && l.spans[k].value == a->successor &&
                                  l.spans[k].from == a->from);
        for (int s = a->first; s <= a->last - is_taken_over; s++) l.live[s] += a->to - a->from;
    }
    for (int s = 0; s < lowered->n_steps; s++)
        if (l.live[s] > bound) bound = l.live[s];
    ck_assert_msg(lowered->arena_bytes == end, "arena of %zu bytes, used up to %zu",
                  lowered->arena_bytes, end);
    return bound;
}

static const MxLowerOptions *const options[] = {&no_scratch, &some_scratch};

START_TEST(nothing_overlaps_in_random_programs) {
    double sum = 0, sum_bound = 0;
    for (int k = 0; k < 10; k++) {
        uint64_t seed = (uint64_t)(10 * _i + k);
        set_up();
        random_program(seed, 5 + (int)seed % 90);
        Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
        mx_pass_schedule(t.graph);
        MxLowered lowered = mx_pass_memory(t.graph, options[k % 2]);
        sum_bound += (double)ck_lowered(&lowered, options[k % 2], seed);
        sum += (double)lowered.arena_bytes;
        if (k % 2) ck_same(want, eval_lowered(&lowered, before), "lowered", seed);
        mx_arena_release(&arena);
    }
    ck_assert_msg(sum <= 1.15 * sum_bound, "%g bytes, of which %g are needed at once", sum,
                  sum_bound);
}
END_TEST

/* All passes, over random graphs with and without a backward pass, under every policy. */
START_TEST(lowered_graphs_compute_the_same) {
    for (int k = 0; k < 6; k++) {
        uint64_t seed = (uint64_t)(6 * _i + k);
        set_up();
        if (k % 2) {
            random_program(seed, 10 + (int)seed % 80);
        } else {
            MxValue params[N_PARAMS], loss = random_forward(seed, 20 + (int)seed % 60, params);
            mx_trace_assign(&t, mx_copy(&t, loss), new_var("loss", MX_F32, MX_SCALAR), false);
            differentiate(loss, params, N_PARAMS);
        }
        Contents before = initial_contents(seed), want = eval_graph(t.graph, before);
        MxLowerOptions all = some_scratch;
        all.remat = (MxRemat)(k / 2);
        MxLowered lowered = mx_lower(t.graph, &all);
        ck_lowered(&lowered, &all, seed);
        ck_same(want, eval_lowered(&lowered, before), "lowered", seed);
        mx_arena_release(&arena);
    }
}
END_TEST

static const struct {
    MxDtype dtype;
    MxRemat remat;
} models[] = {
    {MX_F32, MX_REMAT_NONE},  {MX_F32, MX_REMAT_MINIMAL},  {MX_F32, MX_REMAT_FULL},
    {MX_BF16, MX_REMAT_NONE}, {MX_BF16, MX_REMAT_MINIMAL}, {MX_BF16, MX_REMAT_FULL},
};

START_TEST(a_lowered_decoder_computes_the_same) {
    MxValue params[MODEL_PARAMS];
    differentiate(model_forward(models[_i].dtype, params), params, MODEL_PARAMS);
    Contents before = initial_contents(1), want = eval_graph(t.graph, before);
    MxLowerOptions all = some_scratch;
    all.remat = models[_i].remat;
    MxLowered lowered = mx_lower(t.graph, &all);
    size_t bound = ck_lowered(&lowered, &all, 1);
    ck_same(want, eval_lowered(&lowered, before), "decoder", (uint64_t)_i);
    ck_assert_msg((double)lowered.arena_bytes <= 1.1 * (double)bound,
                  "%zu bytes, of which %zu are "
                  "needed at once",
                  lowered.arena_bytes, bound);
}
END_TEST

/* ---- taking over a buffer */

static size_t offset(const MxLowered *lowered, MxValue value) {
    return lowered->value_offset[mx_graph_buffer(lowered->graph, value)];
}

static MxLowered lowered_of(MxValue result) {
    MxType type = mx_trace_type(&t, result);
    mx_trace_assign(&t, mx_copy(&t, result), new_var("out", type.dtype, type.shape), false);
    return mx_pass_memory(t.graph, &no_scratch);
}

static MxValue matrix(const char *name) { /* 96 bytes: two lines of the arena */
    return source(name, MX_F32, MX_SHAPE(4, 6));
}

START_TEST(a_chain_runs_in_one_buffer) {
    MxValue x = mx_scale(&t, matrix("w"), 2);
    for (int i = 0; i < 20; i++) x = i % 2 ? mx_scale(&t, x, 3) : mx_add(&t, x, matrix("b"));
    ck_assert_uint_eq(lowered_of(x).arena_bytes, 128);
}
END_TEST

START_TEST(a_chain_that_cannot_takes_two) {
    MxValue scale = source("s", MX_F32, MX_SHAPE(6)), x = matrix("w");
    for (int i = 0; i < 20; i++) x = mx_rmsnorm(&t, x, scale, 1e-5);
    ck_assert_uint_eq(lowered_of(x).arena_bytes, 128 + 128 + MX_BUFFER_ALIGN); /* and the rstds */
}
END_TEST

START_TEST(takes_over_what_dies) {
    MxValue x = mx_scale(&t, matrix("w"), 2), y = mx_scale(&t, matrix("u"), 2);
    MxValue flat = mx_reshape(&t, x, MX_SHAPE(24)), z = mx_reshape(&t, flat, MX_SHAPE(4, 6));
    MxValue sum = mx_add(&t, z, y); /* through views, too */
    MxLowered lowered = lowered_of(sum);
    ck_assert_uint_eq(offset(&lowered, sum), offset(&lowered, x));
    ck_assert_uint_eq(lowered.arena_bytes, 256);
}
END_TEST

START_TEST(an_addend_that_dies_is_taken_over) {
    MxValue x = mx_scale(&t, matrix("w"), 2);
    MxValue a = source("a", MX_F32, MX_SHAPE(4, 5)), b = source("b", MX_F32, MX_SHAPE(5, 6));
    MxValue in[] = {a, b, x};
    MxValue y = mx_trace_node(&t, &op_dot, (MxValue[]){a, b}, 2,
                              &(MxDotAttr){.dtype = MX_F32, .n_contract = 1});
    MxNode *node = &t.graph->nodes[t.graph->values[y].node];
    node->in = mx_arena_grow(&arena, in, 3, 3, sizeof *in);
    node->n_in = 3;
    MxLowered lowered = lowered_of(y);
    ck_assert_uint_eq(offset(&lowered, y), offset(&lowered, x));
    ck_assert_uint_eq(lowered.arena_bytes, 128);
}
END_TEST

/* What must not be taken over; each returns the result, and in *x whose buffer it is not. */
static MxValue used_later(MxValue *x) {
    *x = mx_scale(&t, matrix("w"), 2);
    MxValue y = mx_scale(&t, *x, 3);
    mx_trace_assign(&t, mx_copy(&t, *x), new_var("late", MX_F32, MX_SHAPE(4, 6)), false);
    return y;
}
static MxValue used_later_through_a_view(MxValue *x) {
    *x = mx_scale(&t, matrix("w"), 2);
    MxValue flat = mx_reshape(&t, *x, MX_SHAPE(24)), y = mx_scale(&t, *x, 3);
    mx_trace_assign(&t, mx_copy(&t, flat), new_var("late", MX_F32, MX_SHAPE(24)), false);
    return y;
}
static MxValue the_second_input(MxValue *x) {
    *x = mx_scale(&t, matrix("w"), 2);
    return mx_add(&t, matrix("b"), *x);
}
static MxValue both_inputs(MxValue *x) {
    *x = mx_scale(&t, matrix("w"), 2);
    return mx_add(&t, *x, *x);
}
static MxValue both_inputs_through_a_view(MxValue *x) {
    *x = mx_scale(&t, matrix("w"), 2);
    MxValue flat = mx_reshape(&t, *x, MX_SHAPE(24));
    return mx_add(&t, *x, mx_reshape(&t, flat, MX_SHAPE(4, 6)));
}

static MxValue (*const apart[])(MxValue *x) = {used_later, used_later_through_a_view,
                                               the_second_input, both_inputs,
                                               both_inputs_through_a_view};

START_TEST(does_not_take_over_what_is_needed) {
    MxValue x, y = apart[_i](&x);
    MxLowered lowered = lowered_of(y);
    ck_assert_uint_ne(offset(&lowered, y), offset(&lowered, x));
    ck_lowered(&lowered, &no_scratch, 0);
}
END_TEST

START_TEST(variables_are_not_taken_over) {
    MxValue w = matrix("w"), kept = mx_scale(&t, w, 2);
    mx_trace_assign(&t, kept, new_var("kept", MX_F32, MX_SHAPE(4, 6)), false);
    MxValue y = mx_scale(&t, kept, 3);
    mx_trace_assign(&t, mx_copy(&t, y), new_var("y", MX_F32, MX_SHAPE(4, 6)), false);
    MxLowered lowered = mx_pass_memory(t.graph, &some_scratch);
    Contents before = initial_contents(2);
    ck_same(eval_graph(t.graph, before), eval_lowered(&lowered, before), "variables", 2);
    ck_lowered(&lowered, &some_scratch, 2);
}
END_TEST

START_TEST(sources_and_views_run_nothing) {
    MxValue w = matrix("w");
    MxLowered lowered = lowered_of(
        mx_reshape(&t, mx_scale(&t, mx_reshape(&t, w, MX_SHAPE(24)), 2), MX_SHAPE(4, 6)));
    ck_assert_int_eq(lowered.n_steps, 2);
    ck_assert_ptr_eq(t.graph->nodes[lowered.steps[0]].op, &op_scale);
    ck_assert_ptr_eq(t.graph->nodes[lowered.steps[1]].op, &op_copy);
}
END_TEST

Suite *memory_suite(void) {
    Suite *suite = suite_create("lower/memory");
    TCase *tcase = add_case(suite, "random graphs");
    tcase_add_loop_test(tcase, nothing_overlaps_in_random_programs, 0, 100);
    tcase_add_loop_test(tcase, lowered_graphs_compute_the_same, 0, 100);
    tcase_add_loop_test(tcase, a_lowered_decoder_computes_the_same, 0, MX_COUNT(models));
    tcase = add_case(suite, "taking over");
    tcase_add_test(tcase, a_chain_runs_in_one_buffer);
    tcase_add_test(tcase, a_chain_that_cannot_takes_two);
    tcase_add_test(tcase, takes_over_what_dies);
    tcase_add_test(tcase, an_addend_that_dies_is_taken_over);
    tcase_add_loop_test(tcase, does_not_take_over_what_is_needed, 0, MX_COUNT(apart));
    tcase_add_test(tcase, variables_are_not_taken_over);
    tcase_add_test(tcase, sources_and_views_run_nothing);
    return suite;
}

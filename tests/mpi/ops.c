/* ops.c — every op, divided among the ranks in many ways, gives what it gives undivided. Inputs and
 * outputs are variables whose shardings are drawn at random; floats may also lie there as sums that
 * are still to be taken. Every rank makes the whole result by itself and compares its
 * part. An op with a partition rule and without a case fails. */
#include "mpi_test.h"
#include "common/vars.h"

#include <lower/partition.h>
#include <ops/ops_test.h>

#include <math.h>

enum { DRAWS = 8, IDS = 8 };

typedef struct Case {
    const MxOp *op;
    const void *attr;
    const char *in;
    bool adds; /* to what the outputs' variables hold */
} Case;

#define ATTR(type, ...) (&(const type){__VA_ARGS__})

static double frequencies[] = {1.0, 0.3};

// clang-format off
static const Case cases[] = {
    {&op_copy, NULL, "f8,16", false},
    {&op_copy, NULL, "f8,16", true},
    {&op_cast, ATTR(MxCastAttr, MX_BF16), "f8,16", false},
    {&op_cast, ATTR(MxCastAttr, MX_F32), "b8,16", false},
    {&op_reshape, ATTR(MxReshapeAttr, {2, {32, 4}}), "f8,4,4", false},
    {&op_reshape, ATTR(MxReshapeAttr, {3, {8, 8, 2}}), "f8,16", false},
    {&op_add, NULL, "f8,4,8 f8,4,8", false},
    {&op_add, NULL, "b8,4,8 b4,8", false},
    {&op_sum_lead, ATTR(MxSumLeadAttr, .n_lead = 2), "f8,4,8", true},
    {&op_sum_lead, ATTR(MxSumLeadAttr, .n_lead = 2), "f8,8", false},
    {&op_scale, ATTR(MxScaleAttr, -1.5), "f8,16", false},
    {&op_softcap, ATTR(MxSoftcapAttr, 1.5), "f8,16", false},
    {&op_softcap_grad, ATTR(MxSoftcapAttr, 1.5), "f8,16 f8,16", false},
    {&op_ratio, ATTR(MxRatioAttr, 1e-3), "f f", false},
    {&op_glu, ATTR(MxGluAttr, MX_SILU), "f8,4,8 f8,4,8", false},
    {&op_glu_grad, ATTR(MxGluAttr, MX_SILU), "f8,4,8 f8,4,8 f8,4,8", false},
    {&op_dot, ATTR(MxDotAttr, .kind = MX_DOT_NN, .n_contract = 1), "f8,8,16 f16,8,4", false},
    {&op_dot, ATTR(MxDotAttr, .kind = MX_DOT_NN, .n_contract = 2), "f8,8,16 f8,16,8", true},
    {&op_dot, ATTR(MxDotAttr, .kind = MX_DOT_NT, .n_contract = 1), "b8,8,16 b8,16", false},
    {&op_dot, ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 2), "f8,4,16 f8,4,8", true},
    {&op_rmsnorm, ATTR(MxRmsnormAttr, 1e-5), "f8,4,16 f16", false},
    {&op_rmsnorm_grad, ATTR(MxRmsnormAttr, 1e-5), "f8,4,16 f16 f8,4 f8,4,16", true},
    {&op_rope_table, ATTR(MxRopeTableAttr, {2, frequencies, 1.2}), "i8,8", false},
    {&op_rope, ATTR(MxRopeAttr, .interleaved_in = true), "f8,8,8,4 f8,8,2,2", false},
    {&op_attention, ATTR(MxAttentionAttr, .scale = 0.5), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16", false},
    {&op_attention, ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_SLIDING, .window = 3), "b2,16,8,4 b2,16,4,4 b2,16,4,4 i2,16", false},
    {&op_attention_grad, ATTR(MxAttentionAttr, .scale = 0.5), "f8,16,8,4 f8,16,8,4 f8,16,8,4 i8,16 f8,16,8,4 f8,8,16 f8,16,8,4", false},
    {&op_attention_grad, ATTR(MxAttentionAttr, .scale = 0.5, .mask = MX_MASK_CHUNK, .window = 5), "f2,16,8,4 f2,16,4,4 f2,16,4,4 i2,16 f2,16,8,4 f2,8,16 f2,16,8,4", false},
    {&op_embed, ATTR(MxEmbedAttr, .dtype = MX_F32), "f8,16 i8,16", false},
    {&op_embed, ATTR(MxEmbedAttr, .dtype = MX_BF16), "f16,8 i8,4", false},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, .vocab = 8), "i8,16 f8,16,8", true},
    {&op_xent, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01), "f8,8,16 f16,8 i8,8 i8,8", false},
    {&op_xent_grad, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01), "f8,8,16 f16,8 i8,8 i8,8 f", false},
    {&op_xent_grad, ATTR(MxXentAttr, .tied = true, .scale = 0.9), "f8,8,16 f8,16 i8,8 i8,8 f", true},
    {&op_logprob, ATTR(MxXentAttr, .scale = 0.9), "f8,8,16 f16,8 i8,8 i8,8", false},
    {&op_logprob_grad, ATTR(MxXentAttr, .scale = 0.9), "f8,8,16 f16,8 i8,8 i8,8 f8,8 f8,8", true},
    {&op_xent, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .tiles = 3), "f4,8,16 f16,128 i4,8 i4,8", false},
    {&op_xent, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .softcap = 3), "b8,2,16 b128,16 i8,2 i8,2", false},
    {&op_xent_grad, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .softcap = 3), "f8,2,32 f32,512 i8,2 i8,2 f", true},
    {&op_xent_grad, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .z_loss = 0.01, .tiles = 3), "f8,2,32 f512,32 i8,2 i8,2 f", false},
    {&op_xent_grad, ATTR(MxXentAttr, .dtype = MX_BF16, .scale = 0.9), "b8,2,32 b32,512 i8,2 i8,2 f", false},
    {&op_xent_grad, ATTR(MxXentAttr, .scale = 0.9, .z_loss = 0.01, .tiles = 4), "f3,5,32 f32,512 i3,5 i3,5 f", true},
    {&op_logprob, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .softcap = 3, .tiles = 5), "f8,4,16 f128,16 i8,4 i8,4", false},
    {&op_logprob_grad, ATTR(MxXentAttr, .tied = true, .scale = 0.9, .softcap = 3), "f8,4,16 f128,16 i8,4 i8,4 f8,4 f8,4", true},
    {&op_argmax, ATTR(MxXentAttr, .scale = 0.9, .softcap = 3), "f8,4,16 f16,128 i8,4", false},
    {&op_preference, ATTR(MxPreferenceAttr, .beta = 0.1), "f8,8 i8,8 i8,8 f8,8", false},
    {&op_preference_grad, ATTR(MxPreferenceAttr, .beta = 0.1), "f8,8 i8,8 i8,8 f8,8 f", false},
    {&op_shift, ATTR(MxShiftAttr, 1), "i8,16 i8,16", false},
    {&op_concat, NULL, "f8,4,8 f8,4,16", false},
    {&op_split, ATTR(MxSplitAttr, 8), "f8,4,24", false},
    {&op_argmax, ATTR(MxXentAttr, .scale = 0.9), "f8,8,16 f16,8 i8,8", false},
    {&op_count_equal, NULL, "i8,16 i8,16 i8,16", false},
    {&op_count_nonzero, NULL, "i8,16", false},
    {&op_count_segments, NULL, "i8,16", false},
    {&op_sum_squares, NULL, "f8,16 f4,8 b16 f f8,8,8", false},
    {&op_init, ATTR(MxInitAttr, .type = {MX_F32, {2, {16, 24}}}, .fill = MX_FILL_NORMAL, .value = 1, .seed = 3, .stream = 4), "", false},
    {&op_init, ATTR(MxInitAttr, .type = {MX_F32, {3, {8, 8, 24}}}, .fill = MX_FILL_TRUNCATED_NORMAL, .value = 1, .seed = 3, .stream = 4), "", false},
    {&op_clip_factor, ATTR(MxClipFactorAttr, 1.0), "f", false},
    {&op_adamw, ATTR(MxAdamwAttr, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .weight_decay = 0.1), "f8,16 f8,16 f8,16 f8,16 f3 f", false},
    {&op_sgd, NULL, "f8,16 f8,16 f3 f", false},
};
// clang-format on

/* ---- a program of one node, over variables */

enum { MOST_VARS = MX_MAX_CUT_IN + MX_MAX_OUT };

typedef struct Program {
    MxArena arena;
    const Case *c;
    MxVars vars;
    MxGraph *graph;
    MxRun *run;
    int n_in, n_vars;
    int64_t ids; /* integers are below it */
    bool is_joined;
} Program;

static MxDevice *device;

/* Its variables are the inputs, then the outputs. */
static void trace_program(Program *p, const Case *c) {
    MxType types[MOST_TYPES];
    MxTrace tracing;
    MxValue in[MOST_TYPES];
    *p = (Program){.arena = {.name = "program"}, .c = c, .n_in = parse_types(c->in, types)};
    p->vars.arena = &p->arena;
    bool has_logits = c->op->localize == op_xent.localize;
    p->ids = has_logits ? types[1].shape.dim[((const MxXentAttr *)c->attr)->tied ? 0 : 1] : IDS;
    for (int i = 0; i < p->n_in; i++) mx_vars_add(&p->vars, "in", types[i]);
    p->graph = mx_graph_new(&p->arena, "one", &p->vars);
    mx_trace_begin(&tracing, p->graph);
    for (int i = 0; i < p->n_in; i++) in[i] = mx_variable(&tracing, i);
    MxValue out = mx_trace_node(&tracing, c->op, in, p->n_in, c->attr);
    ck_assert_msg(!tracing.failure.len, "%s", tracing.failure.data);
    int n_out = mx_graph_producer(p->graph, out)->n_out;
    for (int i = 0; i < n_out; i++) {
        MxValue value = c->op->flags & MX_OP_VIEW ? mx_copy(&tracing, out + i) : out + i;
        int var = mx_vars_add(&p->vars, "out", mx_trace_type(&tracing, value));
        bool adds = mx_graph_producer(p->graph, value)->op->accumulates >> i & 1;
        mx_trace_assign(&tracing, value, var, c->adds && adds);
    }
    p->n_vars = p->vars.n;
}

static void open_run(Program *p, const MxVars *var, MxGraph *graph) {
    MxError err = {0};
    ck_assert(mx_run_open(&p->arena, device, var, &graph, 1, MX_REMAT_NONE, &p->run, &err));
}

/* ---- contents: element e of variable v, whole */

static float element(const Program *p, int v, int64_t e, MxDtype dtype) {
    uint32_t w[4];
    mx_philox(11, (uint64_t)v, (uint64_t)e, w);
    if (dtype == MX_I32) return (float)(w[0] % (uint32_t)p->ids);
    float x = 2 * mx_uniform(w[0]) - 1;
    x = v == 3 ? fabsf(x) + 0.1f : x; /* second moments, deviations */
    return dtype == MX_BF16 ? mx_bf16_to_f32(mx_f32_to_bf16(x)) : x;
}

static void put(void *data, MxDtype dtype, int64_t at, float x) {
    if (dtype == MX_F32)
        ((float *)data)[at] = x;
    else if (dtype == MX_BF16)
        ((MxBf16 *)data)[at] = mx_f32_to_bf16(x);
    else
        ((int32_t *)data)[at] = (int32_t)x;
}

static float get(const void *data, MxDtype dtype, int64_t at) {
    if (dtype == MX_F32) return ((const float *)data)[at];
    if (dtype == MX_BF16) return mx_bf16_to_f32(((const MxBf16 *)data)[at]);
    return (float)((const int32_t *)data)[at];
}

/* Index in the whole of element `at` of a box. */
static int64_t whole_index(const MxBox *box, MxShape shape, int64_t at) {
    int64_t index = 0, stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        index += (box->start[d] + at % box->count[d]) * stride;
        stride *= shape.dim[d];
        at /= box->count[d];
    }
    return index;
}

static MxBox box_of(MxArena *a, const MxMesh *mesh, MxSharding s, MxShape shape) {
    MxLayout layout = {mesh, mx_sharding_spec(a, mesh, s, shape.rank)};
    return mx_shard_box(layout, shape, mesh->n_ranks > 1 ? mx_comm_rank(comm) : 0);
}

/* Only the first of the ranks that are still to be summed holds anything. */
static bool is_empty(const MxMesh *mesh, MxSharding s) {
    for (int i = 0; i < mesh->n; i++)
        if (s.partial >> i & 1 && mx_mesh_coord(mesh, mx_comm_rank(comm), i)) return true;
    return false;
}

static void fill(Program *p, const MxMesh *mesh, const MxSharding *sharding) {
    for (int v = 0; v < p->n_vars; v++) {
        MxType type = p->vars.item[v].type;
        MxBox box = box_of(&p->arena, mesh, sharding[v], type.shape);
        void *x = var_values(&p->arena, p->run, v);
        for (int64_t e = 0; e < mx_box_count(&box); e++)
            put(x, type.dtype, e,
                is_empty(mesh, sharding[v])
                    ? 0
                    : element(p, v, whole_index(&box, type.shape, e), type.dtype));
        var_fill(p->run, v, x);
    }
}

/* ---- shardings */

static uint32_t draw(uint64_t *state, uint32_t below) {
    uint32_t w[4];
    mx_philox(17, 1, (*state)++, w);
    return w[0] % below;
}

static MxSharding draw_sharding(const MxMesh *mesh, MxType type, uint64_t *state) {
    MxSharding s = {0};
    for (int i = 0; i < mesh->n; i++) {
        uint32_t where = draw(state, (uint32_t)type.shape.rank + 2);
        bool is_real = type.dtype != MX_I32;
        if (where < (uint32_t)type.shape.rank) {
            int64_t parts = mesh->sizes[i];
            for (int j = 0; j < i; j++)
                if (s.dim[where] >> j & 1) parts *= mesh->sizes[j];
            if (type.shape.dim[where] % parts == 0) s.dim[where] |= 1u << i;
        } else if (where == (uint32_t)type.shape.rank && is_real)
            s.partial |= 1u << i;
    }
    return s;
}

/* Whether ranks exchange something within the op. */
static bool is_joined(const Program *p, const MxGraph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const MxNode *node = &graph->nodes[n];
        MxType in[MOST_TYPES];
        MxCommCost cost;
        for (int i = 0; i < node->n_in; i++) in[i] = graph->values[node->in[i]].type;
        if (node->op == p->c->op && node->op->exchange &&
            node->op->exchange(device->backend->machine, node, in, &cost))
            return true;
    }
    return false;
}

/* Takes the sum that an output still is. */
static void sum_up(Program *p, const MxMesh *mesh, uint32_t axes, int v, const MxVars *local) {
    MxType type = local->item[v].type;
    int64_t n = mx_shape_count(type.shape);
    size_t bytes = (size_t)n * mx_dtype_bytes(type.dtype);
    MxGroup group = lower_group(&p->arena, mesh, mx_comm_rank(comm), axes);
    void *own = var_values(&p->arena, p->run, v);
    void *terms = mx_arena_alloc(&p->arena, bytes * (size_t)group.size);
    MxExchange *exchange = mx_comm_exchange(comm, &group);
    memcpy((char *)terms + (size_t)group.index * bytes, own, bytes);
    mx_exchange_all_gather(exchange, "test", own, terms, bytes);
    mx_exchange_finish(exchange);
    for (int64_t e = 0; e < n; e++) {
        float sum = 0;
        for (int r = 0; r < group.size; r++) sum += get(terms, type.dtype, r * n + e);
        put(own, type.dtype, e, sum);
    }
    var_fill(p->run, v, own);
}

/* The program with variables cut as drawn; what the ranks made, to compare later. */
static void run_divided(Program *p, const MxMesh *mesh, const MxSharding *sharding) {
    MxRules rules = mx_rules_new(&p->arena, NULL, 0);
    MxVars *local = mx_new(&p->arena, MxVars);
    local->arena = &p->arena;
    for (int v = 0; v < p->n_vars; v++) {
        MxType type = p->vars.item[v].type;
        type.shape = mx_sharding_shape(mesh, sharding[v], type.shape);
        mx_vars_add(local, p->vars.item[v].name, type);
    }
    MxPartition partition = {.machine = device->backend->machine,
                             .mesh = mesh,
                             .rules = &rules,
                             .rank = mx_comm_rank(comm),
                             .vars = local,
                             .var = sharding,
                             .regathers = true};
    MxGraph *graph;
    MxError err = {0};
    ck_assert(mx_partition(&partition, p->graph, &graph, &err));
    p->is_joined = is_joined(p, graph);
    open_run(p, local, graph);
    fill(p, mesh, sharding);
    mx_run_entry(p->run, 0);
    for (int v = p->n_in; v < p->n_vars; v++)
        if (sharding[v].partial) sum_up(p, mesh, sharding[v].partial, v, local);
}

static const char *sharding_text(MxArena *a, const MxMesh *mesh, const Program *p,
                                 const MxSharding *sharding) {
    MxText text;
    mx_text_init(&text, a);
    for (int v = 0; v < p->n_vars; v++) {
        int rank = p->vars.item[v].type.shape.rank;
        mx_text_add(&text, "%s%s", v == p->n_in ? " -> " : " ",
                    mx_spec_text(a, mx_sharding_spec(a, mesh, sharding[v], rank)));
        if (sharding[v].partial) mx_text_add(&text, "+%x", sharding[v].partial);
    }
    return text.data;
}

static void compare(Program *p, const Program *whole, const MxMesh *mesh,
                    const MxSharding *sharding) {
    bool is_exact = p->c->op == &op_init;
    for (int v = p->n_in; v < p->n_vars; v++) {
        MxType type = p->vars.item[v].type;
        MxBox box = box_of(&p->arena, mesh, sharding[v], type.shape);
        bool is_bf16 = type.dtype == MX_BF16 || strchr(p->c->in, 'b');
        double error = 0, size = 1e-12;
        const void *ours = var_values(&p->arena, p->run, v);
        const void *theirs = var_values(&p->arena, whole->run, v);
        for (int64_t e = 0; e < mx_box_count(&box); e++) {
            double got = (double)get(ours, type.dtype, e);
            double want = (double)get(theirs, type.dtype, whole_index(&box, type.shape, e));
            error += (got - want) * (got - want);
            size += want * want;
        }
        double limit = is_exact ? 0 : is_bf16 ? 1e-2 : 2e-6;
        ck_assert_msg(sqrt(error) <= limit * sqrt(size), "%s(%s) on %s,%s: output %d is off by %g",
                      p->c->op->name, p->c->in, mx_mesh_text(&p->arena, mesh),
                      sharding_text(&p->arena, mesh, p, sharding), v - p->n_in, sqrt(error / size));
    }
}

START_TEST(divided_is_undivided) {
    const Case *c = &cases[_i];
    Program whole, divided[DRAWS];
    const MxSharding none[MOST_VARS] = {0};
    MxSharding sharding[DRAWS][MOST_VARS];
    MxMesh mesh;
    MxArena scratch = {.name = "meshes"};
    uint64_t state = (uint64_t)_i * 1000;
    int n_joined = 0, n_meshes = 0;
    trace_program(&whole, c);
    open_run(&whole, &whole.vars, whole.graph);
    fill(&whole, &(const MxMesh){.n_ranks = 1}, none);
    mx_run_entry(whole.run, 0);
    for (int m = 0; m < n_mesh_cases; m++) {
        if (!mesh_of(&scratch, &mesh_cases[m], &mesh)) continue;
        n_meshes++;
        for (int d = 0; d < DRAWS; d++) {
            trace_program(&divided[d], c);
            for (int v = 0; v < whole.n_vars; v++)
                sharding[d][v] = draw_sharding(&mesh, whole.vars.item[v].type, &state);
            run_divided(&divided[d], &mesh, sharding[d]);
        }
        for (int d = 0; d < DRAWS; d++) {
            n_joined += divided[d].is_joined;
            compare(&divided[d], &whole, &mesh, sharding[d]);
            mx_arena_release(&divided[d].arena);
        }
    }
    ck_assert_msg(!c->op->exchange || whole.ids == IDS || n_joined > 0 || !n_meshes,
                  "%s(%s) was never cut along its vocabulary", c->op->name, c->in);
    mx_arena_release(&whole.arena);
    mx_arena_release(&scratch);
}
END_TEST

START_TEST(every_rule_has_a_case) {
    const MxOp *op = mx_ops[_i];
    bool has_case = !op->partition;
    for (int i = 0; i < MX_COUNT(cases); i++) has_case = has_case || cases[i].op == op;
    ck_assert_msg(has_case, "%s has a partition rule and no case", op->name);
}
END_TEST

static MxArena device_arena = {.name = "device"};

static void open_device(void) {
    MxError err = {0};
    ck_assert(mx_device_open(&device_arena, &(MxDeviceConfig){.n_threads = 1, .comm = comm},
                             &device, &err));
}

static void close_device(void) {
    mx_arena_release(&device_arena);
}

Suite *ops_suite(void) {
    Suite *suite = suite_create("mpi/ops");
    TCase *tcase = tcase_create("ops");
    tcase_add_unchecked_fixture(tcase, open_device, close_device);
    tcase_add_loop_test(tcase, divided_is_undivided, 0, MX_COUNT(cases));
    tcase_add_loop_test(tcase, every_rule_has_a_case, 0, MX_OP_COUNT);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}

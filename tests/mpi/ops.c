/* ops.c — every op, divided among the ranks in many ways, gives what it gives undivided. Inputs and
 * outputs are variables whose shardings are drawn at random; floats may also lie there as sums that
 * are still to be taken. Every rank makes the whole result by itself and compares its
 * part. Cases are those of tests/cases whose sizes meshes divide. */
#include "mpi_test.h"
#include "common/vars.h"
#include "record.h"

#include <cases/cases.h>
#include <lower/partition.h>

#include <math.h>

enum { DRAWS = 8 };

/* ---- a program of one node, over variables */

enum { MOST_VARS = MX_MAX_CUT_IN + MX_MAX_OUT };

typedef struct Program {
    MxArena arena;
    const Shot *shot;
    bool adds; /* to what the outputs' variables hold */
    double *in[SHOT_INPUTS];
    MxVars vars;
    MxGraph *graph;
    MxRun *run;
    int n_in, n_vars;
    bool is_joined, is_swapped, is_ring;
} Program;

static MxDevice *device;
static MxMachine slow; /* the device's, as if every operation took as long as many bytes sent */

/* Its variables are the inputs, then the outputs. */
static void trace_program(Program *p, const Shot *shot, bool adds) {
    MxTrace tracing;
    MxValue in[SHOT_INPUTS];
    *p = (Program){.arena = {.name = "program"}, .shot = shot, .adds = adds, .n_in = shot->n_in};
    p->vars.arena = &p->arena;
    shot_inputs(shot, &p->arena, p->in);
    for (int i = 0; i < p->n_in; i++) mx_vars_add(&p->vars, "in", shot->in[i]);
    p->graph = mx_graph_new(&p->arena, "one", &p->vars);
    mx_trace_begin(&tracing, p->graph);
    for (int i = 0; i < p->n_in; i++) in[i] = mx_variable(&tracing, i);
    MxValue out = mx_trace_node(&tracing, shot->op, in, p->n_in, shot->attr);
    ck_assert_msg(!tracing.failure.len, "%s", tracing.failure.data);
    for (int i = 0; i < shot->n_out; i++) {
        MxValue value = shot->op->flags & MX_OP_VIEW ? mx_copy(&tracing, out + i) : out + i;
        int var = mx_vars_add(&p->vars, "out", mx_trace_type(&tracing, value));
        bool can_add = mx_graph_producer(p->graph, value)->op->accumulates >> i & 1;
        mx_trace_assign(&tracing, value, var, adds && can_add);
    }
    p->n_vars = p->vars.n;
}

static void open_run(Program *p, const MxVars *var, MxGraph *graph) {
    MxError err = {0};
    ck_assert(mx_run_open(&p->arena, device, var, &graph, 1, MX_REMAT_NONE, &p->run, &err));
}

/* ---- contents: element e of variable v, whole */

static double element(const Program *p, int v, int64_t e, MxDtype dtype) {
    if (v < p->n_in) return p->in[v][e];
    float x = (float)case_normal((uint64_t)(v + 100), (uint64_t)e);
    return (double)(dtype == MX_BF16 ? mx_bf16_to_f32(mx_f32_to_bf16(x)) : x);
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
            case_put(x, type.dtype, e,
                     is_empty(mesh, sharding[v])
                         ? 0
                         : element(p, v, record_index(&box, type.shape, e), type.dtype));
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
        bool is_real = mx_dtype_is_float(type.dtype);
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
        MxType in[SHOT_INPUTS];
        MxCommCost cost;
        for (int i = 0; i < node->n_in; i++) in[i] = graph->values[node->in[i]].type;
        if (node->op == p->shot->op && node->op->exchange &&
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
    MxGroup group = mx_lower_group(&p->arena, mesh, mx_comm_rank(comm), axes);
    void *own = var_values(&p->arena, p->run, v);
    void *terms = mx_arena_alloc(&p->arena, bytes * (size_t)group.size);
    MxExchange *exchange = mx_comm_exchange(comm, &group);
    memcpy((char *)terms + (size_t)group.index * bytes, own, bytes);
    mx_exchange_all_gather(exchange, "test", own, terms, bytes);
    mx_exchange_finish(exchange);
    for (int64_t e = 0; e < n; e++) {
        float sum = 0;
        for (int r = 0; r < group.size; r++) sum += (float)case_get(terms, type.dtype, r * n + e);
        case_put(own, type.dtype, e, (double)sum);
    }
    var_fill(p->run, v, own);
}

static bool has_op(const MxGraph *graph, const MxOp *op) {
    bool has = false;
    for (int n = 0; n < graph->n_nodes; n++) has = has || graph->nodes[n].op == op;
    return has;
}

/* The program with variables cut as drawn; what the ranks made, to compare later. */
static void run_divided(Program *p, const MxMachine *machine, bool rings, const MxMesh *mesh,
                        const MxSharding *sharding) {
    MxRules rules = mx_rules_new(&p->arena, NULL, 0);
    MxVars *local = mx_new(&p->arena, MxVars);
    local->arena = &p->arena;
    for (int v = 0; v < p->n_vars; v++) {
        MxType type = p->vars.item[v].type;
        type.shape = mx_sharding_shape(mesh, sharding[v], type.shape);
        mx_vars_add(local, p->vars.item[v].name, type);
    }
    MxPartition partition = {.machine = machine,
                             .mesh = mesh,
                             .rules = &rules,
                             .rank = mx_comm_rank(comm),
                             .vars = local,
                             .var = sharding,
                             .regathers = true,
                             .balances = true,
                             .rings = rings};
    MxGraph *graph;
    MxError err = {0};
    ck_assert_msg(mx_partition(&partition, p->graph, &graph, &err), "%s", err.text.data);
    p->is_joined = is_joined(p, graph);
    p->is_swapped = has_op(graph, &op_swap_halves);
    p->is_ring = has_op(graph, &op_ring_shift);
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
    bool is_exact = p->shot->op == &op_init;
    for (int v = p->n_in; v < p->n_vars; v++) {
        MxType type = p->vars.item[v].type;
        MxBox box = box_of(&p->arena, mesh, sharding[v], type.shape);
        bool is_bf16 = type.dtype == MX_BF16;
        for (int i = 0; i < p->n_in; i++) is_bf16 |= p->shot->in[i].dtype == MX_BF16;
        double error = 0, size = 1e-12;
        const void *ours = var_values(&p->arena, p->run, v);
        const void *theirs = var_values(&p->arena, whole->run, v);
        for (int64_t e = 0; e < mx_box_count(&box); e++) {
            double got = case_get(ours, type.dtype, e);
            double want = case_get(theirs, type.dtype, record_index(&box, type.shape, e));
            error += (got - want) * (got - want);
            size += want * want;
        }
        double limit = is_exact ? 0 : is_bf16 ? 1e-2 : 2e-6;
        ck_assert_msg(sqrt(error) <= limit * sqrt(size), "%s on %s,%s: output %d is off by %g",
                      p->shot->name, mx_mesh_text(&p->arena, mesh),
                      sharding_text(&p->arena, mesh, p, sharding), v - p->n_in, sqrt(error / size));
    }
}

static const Shot *const *shots;
static int n_shots;

/* Twice as many tests as shots: those of odd numbers add to what is there, where an op can. */
START_TEST(divided_is_undivided) {
    const Shot *shot = shots[_i / 2];
    bool adds = _i % 2;
    Program whole, divided[DRAWS];
    const MxSharding none[MOST_VARS] = {0};
    MxSharding sharding[DRAWS][MOST_VARS];
    MxMesh mesh;
    MxArena scratch = {.name = "meshes"};
    uint64_t state =
        mx_hash64(shot->name, strlen(shot->name)) + adds; /* whatever other cases are */
    int n_joined = 0, n_swapped = 0, n_rings = 0, n_meshes = 0;
    if (adds && !shot->op->accumulates) return;
    trace_program(&whole, shot, adds);
    open_run(&whole, &whole.vars, whole.graph);
    fill(&whole, &(const MxMesh){.n_ranks = 1}, none);
    mx_run_entry(whole.run, 0);
    for (int m = 0; m < n_mesh_cases; m++) {
        if (!mesh_of(&scratch, &mesh_cases[m], &mesh)) continue;
        n_meshes++;
        for (int d = 0; d < DRAWS; d++) {
            bool is_slow = d % 2 && shot->c->use & CASE_SWAPPED;
            const MxMachine *machine = is_slow ? &slow : device->backend->machine;
            trace_program(&divided[d], shot, adds);
            for (int v = 0; v < whole.n_vars; v++)
                sharding[d][v] = draw_sharding(&mesh, whole.vars.item[v].type, &state);
            run_divided(&divided[d], machine, d / 2 % 2, &mesh, sharding[d]);
        }
        for (int d = 0; d < DRAWS; d++) {
            n_joined += divided[d].is_joined;
            n_swapped += divided[d].is_swapped;
            n_rings += divided[d].is_ring;
            compare(&divided[d], &whole, &mesh, sharding[d]);
            mx_arena_release(&divided[d].arena);
        }
    }
    ck_assert_msg(!(shot->c->use & CASE_JOINED) || !shot->op->exchange || n_joined > 0 || !n_meshes,
                  "%s: ranks never exchanged anything within it", shot->name);
    ck_assert_msg(!(shot->c->use & CASE_SWAPPED) || n_swapped > 0 || !n_meshes,
                  "%s: ranks never swapped halves", shot->name);
    ck_assert_msg(!(shot->c->use & CASE_SWAPPED) || !shot->op->ring || n_rings > 0 || !n_meshes,
                  "%s: nothing ever went around", shot->name);
    mx_arena_release(&whole.arena);
    mx_arena_release(&scratch);
}
END_TEST

static bool is_shared(const Shot *shot) {
    return shot->c->use & CASE_RANKS;
}

static MxArena device_arena = {.name = "device"};

static void open_device(void) {
    MxError err = {0};
    ck_assert(mx_device_open(&device_arena, &(MxDeviceConfig){.n_threads = 1, .comm = comm},
                             &device, &err));
    slow = *device->backend->machine;
    slow.flops_a_byte = 1e-3;
    slow.exchange_bytes = 0;
}

static void close_device(void) {
    mx_arena_release(&device_arena);
}

Suite *ops_suite(void) {
    Suite *suite = suite_create("mpi/ops");
    TCase *tcase = tcase_create("ops");
    tcase_add_unchecked_fixture(tcase, open_device, close_device);
    shots = op_shots(is_shared, &n_shots);
    tcase_add_loop_test(tcase, divided_is_undivided, 0, 2 * n_shots);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}

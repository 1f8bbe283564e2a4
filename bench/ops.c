/* ops.c — every kernel of a training step by itself: the nodes of the step's graphs, one case for
 * each op with its shapes, run through the device room and held against the machine's own memory
 * bandwidth and matrix peak (a large product by the better library).
 *
 *   ops [--csv FILE] CONFIG.yml [KEY=VALUE ...]
 *
 * Each case is timed twice: over buffers that lie in the caches if they fit ("warm"), and over as
 * many copies of them in turn as exceed the caches several times ("cold"). In a step the truth lies
 * between; rates and shares are of the cold run. A case's bytes are its inputs and outputs, each
 * once: what a kernel moves beyond that lowers its share.
 *
 * Products with a matrix an expert, of rows that chose them evenly by chance, are also held against
 * one dense product of as many FLOPs, by the better library. */
#include "common.h"
#include "dense.h"
#include "step.h"

#include <stdio.h>
#include <stdlib.h>

extern char **environ;

enum { MAX_CASES = 200, COLD_BYTES = 160 << 20 };

typedef struct Case {
    const char *label; /* op, attributes and types: equal labels are one case */
    int entry, calls;  /* calls in one step */
    const MxKernel *kernel;
    MxKernelCall call;
    int alias[MX_MAX_OUT]; /* the input whose buffer an output takes over, -1 = none */
    size_t scratch_bytes;
    unsigned choices; /* inputs that say which experts were chosen */
    double bytes, flops;
    BenchTimes warm, cold;
    double dense_s; /* of the dense product beside experts', 0 = it is none of theirs */
} Case;

typedef struct Bench {
    MxArena arena;
    MxConfig *config;
    MxDevice *device;
    Step *step;
    Case cases[MAX_CASES];
    int n_cases;
    char *pool;
    double bandwidth, f32_peak, bf16_peak; /* bytes and flops a second; 0 = cannot */
} Bench;

/* ---- from nodes to cases */

static size_t type_bytes(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static size_t padded(size_t bytes) {
    return (bytes + MX_BUFFER_ALIGN - 1) / MX_BUFFER_ALIGN * MX_BUFFER_ALIGN;
}

static void print_type(MxText *text, MxType type) {
    const char *dtype = type.dtype == MX_F32    ? "f32"
                        : type.dtype == MX_BF16 ? "bf16"
                                                : mx_dtype_name(type.dtype);
    mx_text_add(text, " %s[", dtype);
    for (int i = 0; i < type.shape.rank; i++)
        mx_text_add(text, "%s%lld", i ? "," : "", (long long)type.shape.dim[i]);
    mx_text_add(text, "]");
}

/* Equal neighbours once, with their number. */
static void print_types(MxText *text, const MxType *types, int n) {
    enum { MOST = 5 };
    int written = 0;
    for (int i = 0, same = 1; i < n && written < MOST; i += same, written++) {
        for (same = 1; i + same < n && types[i + same].dtype == types[i].dtype &&
                       mx_shape_equal(types[i + same].shape, types[i].shape);)
            same++;
        print_type(text, types[i]);
        if (same > 1) mx_text_add(text, "*%d", same);
    }
    if (written == MOST) mx_text_add(text, " ...");
}

static const char *label_of(Bench *b, const MxKernelCall *call) {
    MxText text;
    mx_text_init(&text, &b->arena);
    mx_text_add(&text, "%s", call->op->name);
    if (call->op->print && call->op != &op_init) {
        mx_text_add(&text, " ");
        call->op->print(&text, call->attr);
    }
    print_types(&text, call->in_type, call->n_in);
    mx_text_add(&text, " ->");
    print_types(&text, call->out_type, call->n_out);
    if (call->accumulate) mx_text_add(&text, " added");
    return text.data;
}

/* Whether two values share a buffer: of one variable, or at one place of the run's arena. */
static bool same_place(const MxLowered *lowered, MxValue a, MxValue b) {
    const MxGraph *graph = lowered->graph;
    int var[2];
    const MxValue value[2] = {mx_graph_buffer(graph, a), mx_graph_buffer(graph, b)};
    for (int i = 0; i < 2; i++) {
        const MxNode *node = mx_graph_producer(graph, value[i]);
        bool is_source = node->op->flags & MX_OP_SOURCE;
        var[i] =
            is_source ? ((const MxVariableAttr *)node->attr)->var : graph->values[value[i]].var;
    }
    if (var[0] != MX_NONE || var[1] != MX_NONE) return var[0] == var[1];
    return lowered->value_offset[value[0]] == lowered->value_offset[value[1]];
}

static bool is_wanted(const MxGraph *graph, MxValue value) {
    if (graph->values[value].var != MX_NONE) return true;
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_in; i++)
            if (graph->nodes[n].in[i] == value) return true;
    return false;
}

/* As run.c binds it: an addend is no input to a kernel, out 0 holds it already and is added to. */
static bool has_addend(const MxNode *node) {
    return node->op->takes_addend && node->n_in > node->op->arity;
}

static MxKernelCall call_of(Bench *b, const MxGraph *graph, const MxNode *node) {
    MxType *types = mx_new_n(&b->arena, MxType, node->n_in + node->n_out + 1);
    for (int i = 0; i < node->n_in; i++) types[i] = graph->values[node->in[i]].type;
    for (int i = 0; i < node->n_out; i++) types[node->n_in + i] = graph->values[node->out[i]].type;
    void **pointers = mx_new_n(&b->arena, void *, node->n_in + node->n_out + 1);
    return (MxKernelCall){.op = node->op,
                          .attr = node->attr,
                          .in_type = types,
                          .out_type = types + node->n_in,
                          .in = pointers,
                          .out = pointers + node->n_in,
                          .n_in = node->n_in - has_addend(node),
                          .n_out = node->n_out,
                          .accumulate = node->accumulate | has_addend(node)};
}

/* Bytes that any kernel must move: of the embedding table only the rows that are read. */
static double least_bytes(const MxKernelCall *call) {
    double bytes = 0;
    for (int i = 0; i < call->n_in; i++)
        if (call->op != &op_embed || i > 0) bytes += (double)type_bytes(call->in_type[i]);
    for (int i = 0; i < call->n_out; i++) {
        double out = (double)type_bytes(call->out_type[i]);
        bool is_read = call->accumulate >> i & 1 || call->op == &op_embed;
        bytes += is_read ? 2 * out : out;
    }
    return bytes;
}

/* The inputs that a router made. */
static unsigned choices_of(const MxGraph *graph, const MxNode *node) {
    unsigned mask = 0;
    for (int i = 0; i < node->n_in; i++) {
        const MxOp *op = mx_graph_producer(graph, mx_graph_buffer(graph, node->in[i]))->op;
        bool is_choice = op == &op_top_k || op == &op_to_slots;
        if (is_choice && graph->values[node->in[i]].type.dtype == MX_I32) mask |= 1u << i;
    }
    return mask;
}

static void add_node(Bench *b, int entry, const MxNode *node) {
    const MxLowered *lowered = &b->step->lowered[entry];
    MxKernelCall call = call_of(b, lowered->graph, node);
    const char *label = label_of(b, &call);
    for (int i = 0; i < b->n_cases; i++)
        if (b->cases[i].entry == entry && !strcmp(b->cases[i].label, label)) {
            b->cases[i].calls++;
            return;
        }
    if (b->n_cases == MAX_CASES) bench_fail("more than %d kinds of kernel calls", MAX_CASES);
    Case *c = &b->cases[b->n_cases++];
    *c = (Case){.label = label, .entry = entry, .calls = 1, .call = call};
    c->kernel = mx_device_kernel(b->device, node->op);
    c->scratch_bytes = c->kernel->scratch ? c->kernel->scratch(b->device, &call) : 0;
    c->choices = choices_of(lowered->graph, node);
    c->bytes = least_bytes(&call);
    if (node->op->flops) c->flops = node->op->flops(call.in_type, call.out_type, call.attr);
    for (int i = 0; i < node->n_out; i++) {
        c->alias[i] = -1;
        for (int j = 0; j < call.n_in; j++)
            if (same_place(lowered, node->out[i], node->in[j])) c->alias[i] = j;
        c->call.out[i] =
            is_wanted(lowered->graph, node->out[i]) ? &c->call : NULL; /* placed later */
    }
}

/* ---- buffers */

/* Bytes of one set of a case's buffers. */
static size_t set_bytes(const Case *c) {
    size_t bytes = 0;
    for (int i = 0; i < c->call.n_in; i++) bytes += padded(type_bytes(c->call.in_type[i]));
    for (int i = 0; i < c->call.n_out; i++)
        if (c->call.out[i] && c->alias[i] < 0) bytes += padded(type_bytes(c->call.out_type[i]));
    return bytes;
}

static size_t copies_of(const Case *c) {
    size_t bytes = set_bytes(c) + 1;
    return (COLD_BYTES + bytes - 1) / bytes;
}

static size_t pool_bytes(const Case *c) {
    return padded(c->scratch_bytes) + copies_of(c) * set_bytes(c);
}

static void place(Case *c, char *at) {
    for (int i = 0; i < c->call.n_in; i++) {
        c->call.in[i] = at;
        at += padded(type_bytes(c->call.in_type[i]));
    }
    for (int i = 0; i < c->call.n_out; i++) {
        if (!c->call.out[i]) continue;
        c->call.out[i] = c->alias[i] >= 0 ? c->call.in[c->alias[i]] : at;
        if (c->alias[i] < 0) at += padded(type_bytes(c->call.out_type[i]));
    }
}

/* Floats are small, and positive where the optimizer takes roots of them; integers are tokens,
 * experts, or one and the same segment. */
static void fill(const Bench *b, const Case *c, int input) {
    MxType type = c->call.in_type[input];
    int64_t n = mx_shape_count(type.shape);
    void *to = c->call.in[input];
    bool is_positive = c->call.op == &op_adamw;
    static const MxOp *const by_segment[] = {&op_attention,  &op_attention_grad, &op_delta,
                                             &op_delta_grad, &op_conv,           &op_conv_grad};
    bool is_segment = false;
    for (int i = 0; i < MX_COUNT(by_segment); i++) is_segment |= c->call.op == by_segment[i];
    bool is_choice = c->choices >> input & 1;
    int64_t ids = is_choice ? b->config->num_experts : b->config->vocab_size;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)(i + input + 1) * 2654435761u;
        word = (word ^ word >> 15) * 0x2c1b3c6du;
        float x = mx_uniform(word) * 0.25f;
        if (!is_positive && word & 1) x = -x;
        if (type.dtype == MX_F32)
            ((float *)to)[i] = x;
        else if (type.dtype == MX_BF16)
            ((MxBf16 *)to)[i] = mx_f32_to_bf16(x);
        else
            ((int32_t *)to)[i] = is_segment ? 1 : (int32_t)(word % (uint32_t)ids);
    }
}

/* ---- timing */

typedef struct Rotation {
    const Bench *b;
    Case *c;
    size_t copies, next;
} Rotation;

static void run_case(void *context) {
    Rotation *r = context;
    place(r->c, r->b->pool + padded(r->c->scratch_bytes) + r->next * set_bytes(r->c));
    r->next = (r->next + 1) % r->copies;
    r->c->kernel->run(r->b->device, &r->c->call);
}

static void time_case(Bench *b, Case *c) {
    MxError err = {0};
    c->call.scratch = b->pool;
    if (c->kernel->prepare && !c->kernel->prepare(b->device, &c->call, &err))
        bench_fail("%s", err.text.data);
    Rotation r = {.b = b, .c = c, .copies = copies_of(c)};
    for (size_t i = 0; i < r.copies; i++) {
        place(c, b->pool + padded(c->scratch_bytes) + i * set_bytes(c));
        for (int j = 0; j < c->call.n_in; j++) fill(b, c, j);
    }
    c->cold = c->warm = bench_time(run_case, &r);
    r.copies = 1;
    r.next = 0;
    if (copies_of(c) > 1) c->warm = bench_time(run_case, &r);
}

static double peak(bool is_bf16) {
    enum { SIDE = 2048 };
    Product p = {.m = SIDE, .n = SIDE, .k = SIDE, .is_bf16 = is_bf16 && product_has_bf16()};
    Operands operands = product_operands((size_t)SIDE * SIDE);
    return product_flops(&p) / product_best_s(&p, &operands);
}

/* ---- output */

static double step_seconds(const Case *c) {
    return c->calls * c->cold.median_s;
}

static int dearest_first(const void *a, const void *b) {
    const Case *x = a, *y = b;
    if (x->entry != y->entry) return x->entry - y->entry;
    return step_seconds(x) < step_seconds(y) ? 1 : -1;
}

static double share(const Bench *b, const Case *c) {
    bool is_bf16 = c->call.n_in && c->call.in_type[0].dtype == MX_BF16;
    double limit = c->flops > 0 ? (is_bf16 ? b->bf16_peak : b->f32_peak) : b->bandwidth;
    return (c->flops > 0 ? c->flops : c->bytes) / c->cold.median_s / limit;
}

static void print_table(const Bench *b) {
    for (int entry = 0; entry < STEP_ENTRIES; entry++) {
        double total = 0;
        printf("\n%s\n%9s %6s %9s %9s %8s %9s %6s  %s\n", step_names[entry], "ms a step", "calls",
               "cold ms", "warm ms", "GB/s", "GFLOP/s", "share", "kernel");
        for (int i = 0; i < b->n_cases; i++) {
            const Case *c = &b->cases[i];
            if (c->entry != entry) continue;
            total += step_seconds(c);
            printf("%9.3f %6d %9.4f %9.4f %8.1f %9.1f %5.0f%%  %s\n", 1e3 * step_seconds(c),
                   c->calls, 1e3 * c->cold.median_s, 1e3 * c->warm.median_s,
                   c->bytes / c->cold.median_s * 1e-9, c->flops / c->cold.median_s * 1e-9,
                   100 * share(b, c), c->label);
        }
        printf("%9.3f all\n", 1e3 * total);
    }
}

static void print_experts(const Bench *b) {
    bool is_first = true;
    for (int i = 0; i < b->n_cases; i++) {
        const Case *c = &b->cases[i];
        if (c->dense_s == 0) continue;
        if (is_first) printf("\n%9s %9s %9s  %s\n", "warm ms", "dense ms", "of dense", "experts");
        is_first = false;
        printf("%9.4f %9.4f %9.2f  %s\n", 1e3 * c->warm.median_s, 1e3 * c->dense_s,
               c->warm.median_s / c->dense_s, c->label);
    }
}

static void write_csv(const Bench *b, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) bench_fail("could not write \"%s\"", path);
    fprintf(f, "entry,kernel,calls,runs,min_s,median_s,max_s,warm_s,bytes,flops,share\n");
    fprintf(f, "machine,memory bandwidth GB/s,1,0,%.3f,%.3f,%.3f,0,0,0,1\n", b->bandwidth * 1e-9,
            b->bandwidth * 1e-9, b->bandwidth * 1e-9);
    fprintf(f, "machine,matmul f32 GFLOP/s,1,0,%.3f,%.3f,%.3f,0,0,0,1\n", b->f32_peak * 1e-9,
            b->f32_peak * 1e-9, b->f32_peak * 1e-9);
    fprintf(f, "machine,matmul bf16 GFLOP/s,1,0,%.3f,%.3f,%.3f,0,0,0,1\n", b->bf16_peak * 1e-9,
            b->bf16_peak * 1e-9, b->bf16_peak * 1e-9);
    for (int i = 0; i < b->n_cases; i++) {
        const Case *c = &b->cases[i];
        fprintf(f, "%s,\"%s\",%d,%d,%.9f,%.9f,%.9f,%.9f,%.0f,%.0f,%.4f\n", step_names[c->entry],
                c->label, c->calls, c->cold.runs, c->cold.min_s, c->cold.median_s, c->cold.max_s,
                c->warm.median_s, c->bytes, c->flops, share(b, c));
        if (c->dense_s > 0)
            fprintf(f, "dense,\"in place of %s\",%d,%d,%.9f,%.9f,%.9f,%.9f,0,%.0f,%.4f\n", c->label,
                    c->calls, c->warm.runs, c->dense_s, c->dense_s, c->dense_s, c->dense_s,
                    c->flops, share(b, c) * c->cold.median_s / c->dense_s);
    }
    if (fclose(f)) bench_fail("could not write \"%s\"", path);
}

/* ---- main */

static MxMatmulProvider provider_of(const MxConfig *config) {
    if (!strcmp(config->matmul_provider, "openblas")) return MX_MATMUL_OPENBLAS;
    if (!strcmp(config->matmul_provider, "onednn")) return MX_MATMUL_ONEDNN;
    if (!strcmp(config->matmul_provider, "own")) return MX_MATMUL_OWN;
    return MX_MATMUL_AUTO;
}

static bool open_bench(Bench *b, int argc, char **argv, MxError *err) {
    MxConfigRequest request = {
        .files = (const char *const *)argv, .n_files = 1, .environ = environ};
    request.overrides = (const char *const *)argv + 1;
    request.n_overrides = argc - 1;
    if (!mx_config_load(&b->arena, &request, &b->config, err)) return false;
    MxDeviceConfig device = {.backend = "cpu",
                             .n_threads = (int)b->config->num_threads,
                             .matmul = provider_of(b->config),
                             .may_split = !strcmp(b->config->matmul_precision, "high")};
    if (!mx_device_open(&b->arena, &device, &b->device, err)) return false;
    return step_open(&b->arena, b->config, b->device->backend->machine, &b->step, err);
}

static void collect_cases(Bench *b) {
    for (int entry = 0; entry < STEP_ENTRIES; entry++) {
        const MxLowered *lowered = &b->step->lowered[entry];
        for (int s = 0; s < lowered->n_steps; s++)
            add_node(b, entry, &lowered->graph->nodes[lowered->steps[s]]);
    }
}

static void measure(Bench *b, MxError *err) {
    size_t bytes = 0;
    void *pool;
    bench_threads((int)b->config->num_threads);
    b->bandwidth = bench_bandwidth();
    b->f32_peak = peak(false);
    b->bf16_peak = peak(true);
    for (int i = 0; i < b->n_cases; i++)
        bytes = pool_bytes(&b->cases[i]) > bytes ? pool_bytes(&b->cases[i]) : bytes;
    if (!mx_device_alloc(b->device, bytes, &pool, err)) bench_fail("%s", err->text.data);
    b->pool = pool;
    for (int i = 0; i < b->n_cases; i++) time_case(b, &b->cases[i]);
    for (int i = 0; i < b->n_cases; i++) b->cases[i].dense_s = dense_s(&b->cases[i].call);
    qsort(b->cases, (size_t)b->n_cases, sizeof *b->cases, dearest_first);
}

int main(int argc, char **argv) {
    static Bench b = {.arena = {.name = "bench"}};
    const char *csv = NULL;
    MxError err = {0};
    argc--, argv++;
    if (argc > 1 && !strcmp(argv[0], "--csv")) {
        csv = argv[1];
        argc -= 2, argv += 2;
    }
    if (argc < 1) bench_fail("usage: ops [--csv FILE] CONFIG.yml [KEY=VALUE ...]");
    if (!open_bench(&b, argc, argv, &err)) bench_fail("%s", err.text.data);
    collect_cases(&b);
    measure(&b, &err);
    printf("%s\nmemory bandwidth %.1f GB/s; matmul peak f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n",
           mx_device_describe(b.device), b.bandwidth * 1e-9, b.f32_peak * 1e-9, b.bf16_peak * 1e-9);
    print_table(&b);
    print_experts(&b);
    if (csv) write_csv(&b, csv);
    mx_arena_release(&b.arena);
    return 0;
}

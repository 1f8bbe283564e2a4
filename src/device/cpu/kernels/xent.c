/* xent.c — functions of logits that are not stored: cross-entropy, log-probabilities, their
 * gradients, and the largest logit. Tokens that count are processed a chunk at a time: logits of
 * the chunk by a matrix product into scratch, in the dtype of the hidden states, then row by row. A
 * gradient overwrites a chunk's logits with their cotangents and continues multiplying from there,
 * so that logits are computed once. Tokens that do not count cost only a zero in each result.
 * Totals are in f64, added up token by token.
 *
 * A rank that has only a part of the vocabulary needs results of the others before it knows a row's
 * sum: between the two halves of a row's work, ranks exchange a few numbers for every row of the
 * chunk. That costs far less than recomputing logits once the sums are known. */
#include "xent.h"

static Teacher teacher_of(const MxKernelCall *call) {
    const MxXentAttr *attr = &((const MxDistillAttr *)call->attr)->teacher;
    return (Teacher){.attr = attr,
                     .width = call->in_type[TEACHER_W].shape.dim[attr->tied ? 1 : 0],
                     .dtype = call->in_type[TEACHER_H].dtype};
}

/* What the ops make of logits. */
static const struct {
    const MxOp *op;
    XentKind kind;
} kinds[] = {
    {&op_xent, {.n_sums = 2}},
    {&op_xent_grad, {.n_sums = 2, .is_grad = true}},
    {&op_argmax, {.is_argmax = true, .only_weights = true}},
    {&op_logprob, {.n_sums = 0}},
    {&op_logprob_grad, {.is_grad = true, .knows_sums = true}},
    {&op_distill, {.n_sums = MOST_SUMS, .has_teacher = true, .row = xent_distill_row}},
    {&op_distill_grad,
     {.n_sums = MOST_SUMS, .has_teacher = true, .is_grad = true, .row = xent_distill_row}},
    {&op_top_logits, {.row = xent_top_row, .only_weights = true}},
    {&op_distill_top, {.n_sums = MOST_SUMS, .row = xent_distill_top_row}},
    {&op_distill_top_grad, {.n_sums = MOST_SUMS, .is_grad = true, .row = xent_distill_top_row}},
};

static XentKind kind_of(const MxOp *op) {
    int i = 0;
    while (kinds[i].op != op) i++;
    return kinds[i].kind;
}

static Xent xent_of(const MxKernelCall *call) {
    const MxXentAttr *attr = call->attr;
    MxShape w = call->in_type[W].shape;
    Xent x = {
        .call = call, .attr = attr, .kind = kind_of(call->op), .dtype = call->in_type[H].dtype};
    if (x.kind.has_teacher) x.teacher = teacher_of(call);
    x.tokens = mx_shape_count(call->in_type[TARGETS].shape);
    x.width = w.dim[attr->tied ? 1 : 0];
    x.vocab = w.dim[attr->tied ? 0 : 1];
    x.chunk = mx_xent_chunk(&cpu_machine, x.tokens, x.vocab * (int64_t)mx_dtype_bytes(x.dtype),
                            attr->tiles);
    return x;
}

/* Rows of a product of that size. */
static int64_t size_of(const Xent *x, int size) {
    int64_t rest = x->tokens % x->chunk;
    if (size == REST) return rest ? rest : x->chunk;
    return cpu_pieces(x->chunk * (size + 1), STEPS);
}

/* The smallest size that holds n rows. */
static int size_for(const Xent *x, int64_t n) {
    int best = STEPS - 1;
    for (int i = 0; i < SIZES; i++)
        if (size_of(x, i) >= n && size_of(x, i) < size_of(x, best)) best = i;
    return best;
}

static CpuMatmulSpec logits_spec(const Xent *x, int64_t n) {
    return (CpuMatmulSpec){.m = n,
                           .n = x->vocab,
                           .k = x->width,
                           .trans_b = x->attr->tied,
                           .in = x->dtype,
                           .out = x->dtype};
}

static CpuMatmulSpec teacher_spec(const Xent *x, int64_t n) {
    return (CpuMatmulSpec){.m = n,
                           .n = x->vocab,
                           .k = x->teacher.width,
                           .trans_b = x->teacher.attr->tied,
                           .in = x->teacher.dtype,
                           .out = x->teacher.dtype};
}

static CpuMatmulSpec dh_spec(const Xent *x, int64_t n) {
    return (CpuMatmulSpec){.m = n,
                           .n = x->width,
                           .k = x->vocab,
                           .trans_b = !x->attr->tied,
                           .in = x->dtype,
                           .out = x->dtype};
}

static CpuMatmulSpec dw_spec(const Xent *x, int64_t n, bool accumulate) {
    return (CpuMatmulSpec){.m = x->attr->tied ? x->vocab : x->width,
                           .n = x->attr->tied ? x->width : x->vocab,
                           .k = n,
                           .trans_a = true,
                           .accumulate = accumulate,
                           .in = x->dtype,
                           .out = MX_F32};
}

/* A dw of bf16 is summed up in scratch. */
static bool sums_dw_apart(const Xent *x) {
    bool is_wanted = x->kind.is_grad && !(x->call->unused >> DW & 1);
    return is_wanted && x->call->out_type[DW].dtype != MX_F32;
}

static bool adds_dw(const Xent *x) {
    return x->kind.is_grad && x->call->accumulate >> DW & 1 && !sums_dw_apart(x);
}

static size_t product_bytes(const MxDevice *device, const Xent *x) {
    size_t most = 0;
    for (int i = 0; i < SIZES; i++) {
        int64_t n = size_of(x, i);
        size_t bytes[] = {cpu_matmul_scratch(device, logits_spec(x, n)),
                          x->kind.has_teacher ? cpu_matmul_scratch(device, teacher_spec(x, n)) : 0,
                          x->kind.is_grad ? cpu_matmul_scratch(device, dh_spec(x, n)) : 0,
                          x->kind.is_grad ? cpu_matmul_scratch(device, dw_spec(x, n, true)) : 0};
        for (int j = 0; j < MX_COUNT(bytes); j++) most = bytes[j] > most ? bytes[j] : most;
    }
    return most;
}

static size_t carve(const Xent *x, void *scratch, Work *work) {
    size_t cells = (size_t)(x->chunk * x->vocab), weights = (size_t)(x->width * x->vocab);
    size_t rows = (size_t)(x->chunk * x->width) * mx_dtype_bytes(x->dtype);
    size_t parts = (size_t)x->chunk * mx_xent_part_bytes(x->attr);
    char *start = scratch;
    work->counting = cpu_carve(&scratch, (size_t)x->tokens * sizeof *work->counting);
    work->logits = cpu_carve(&scratch, cells * mx_dtype_bytes(x->dtype));
    work->sums = cpu_carve(&scratch, (size_t)(x->chunk * x->kind.n_sums) * sizeof *work->sums);
    work->parts = cpu_carve(&scratch, parts * (size_t)cpu_max(1, x->attr->group.size));
    work->part = (MxXentPart *)(work->parts + (size_t)x->attr->group.index * parts);
    work->bent = (double *)(work->part + x->chunk);
    work->h = cpu_carve(&scratch, rows);
    work->dh = cpu_carve(&scratch, x->kind.is_grad ? rows : 0);
    size_t each = x->kind.has_teacher ? (size_t)x->chunk * mx_dtype_bytes(x->teacher.dtype) : 0;
    work->teacher_h = cpu_carve(&scratch, each * (size_t)x->teacher.width);
    work->teacher_logits = cpu_carve(&scratch, each * (size_t)x->vocab);
    work->dw = cpu_carve(&scratch, sums_dw_apart(x) ? weights * sizeof(float) : 0);
    work->product = scratch;
    return (size_t)((char *)scratch - start);
}

static size_t bytes_of(const MxDevice *device, const Xent *x) {
    static char origin[1]; /* offsets alone matter */
    Work work;
    return carve(x, origin, &work) + product_bytes(device, x);
}

static bool prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    Xent *x = mx_new(device->arena, Xent);
    *x = xent_of(call);
    call->state = x;
    if (x->attr->group.size > 1 && !x->kind.knows_sums)
        x->exchange = mx_comm_exchange(device->config.comm, &x->attr->group);
    for (int i = 0; i < SIZES; i++) {
        int64_t n = size_of(x, i);
        x->logits[i] = cpu_matmul_prepare(device, logits_spec(x, n), err);
        if (!x->logits[i]) return false;
        if (x->kind.has_teacher)
            x->teacher.logits[i] = cpu_matmul_prepare(device, teacher_spec(x, n), err);
        if (x->kind.has_teacher && !x->teacher.logits[i]) return false;
        if (!x->kind.is_grad) continue;
        x->dh[i] = cpu_matmul_prepare(device, dh_spec(x, n), err);
        x->dw[i] = cpu_matmul_prepare(device, dw_spec(x, n, true), err);
        x->dw_first[i] = cpu_matmul_prepare(device, dw_spec(x, n, adds_dw(x)), err);
        if (!x->dh[i] || !x->dw[i] || !x->dw_first[i]) return false;
    }
    return true;
}

/* ---- rows */

static void logit_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Chunk *c = context;
    const Xent *x = c->x;
    for (int64_t row = begin; row < end; row++) {
        size_t bytes = mx_dtype_bytes(x->dtype);
        char *products = (char *)c->work->logits + (size_t)(row * x->vocab) * bytes;
        if (row >= c->n) memset(products, 0, (size_t)x->vocab * bytes);
        if (row < c->n && c->halves & FIRST_HALF) xent_begin_row(c, row, products);
        if (row < c->n && c->halves & SECOND_HALF) xent_end_row(c, row, products);
    }
}

static void run_rows(const MxDevice *device, const Chunk *chunk, int halves) {
    const Xent *x = chunk->x;
    Chunk c = *chunk;
    c.halves = halves;
    cpu_for(device, x->kind.is_grad ? c.rows : c.n, cpu_max(1, CPU_PIECE / x->vocab), logit_rows,
            &c);
}

/* ---- chunks */

static size_t row_bytes(const Xent *x) {
    return (size_t)x->width * mx_dtype_bytes(x->dtype);
}

/* The chunk's rows of `bytes` each side by side: where they are, or in `to`. */
static const void *gather_rows(const Chunk *c, const void *from, size_t bytes, char *to) {
    const char *h = from;
    if (c->in_place) return h + (size_t)c->token[0] * bytes;
    for (int64_t i = 0; i < c->n; i++)
        memcpy(to + (size_t)i * bytes, h + (size_t)c->token[i] * bytes, bytes);
    memset(to + (size_t)c->n * bytes, 0, (size_t)(c->rows - c->n) * bytes);
    return to;
}

static const void *hidden_rows(const Chunk *c) {
    return gather_rows(c, c->x->call->in[H], row_bytes(c->x), c->work->h);
}

static void make_teacher_logits(const Chunk *c) {
    const Xent *x = c->x;
    size_t bytes = (size_t)x->teacher.width * mx_dtype_bytes(x->teacher.dtype);
    const void *h = gather_rows(c, x->call->in[TEACHER_H], bytes, c->work->teacher_h);
    cpu_matmul(x->teacher.logits[c->size], h, x->call->in[TEACHER_W], c->work->teacher_logits,
               c->work->product);
}

static void make_dh(const Chunk *c, const void *d) {
    const Xent *x = c->x;
    size_t bytes = row_bytes(x);
    char *dh = x->call->out[DH];
    char *to = c->in_place ? dh + (size_t)c->token[0] * bytes : c->work->dh;
    cpu_matmul(x->dh[c->size], d, x->call->in[W], to, c->work->product);
    for (int64_t i = 0; i < c->n && !c->in_place; i++)
        memcpy(dh + (size_t)c->token[i] * bytes, to + (size_t)i * bytes, bytes);
}

static void make_dw(const Chunk *c, const void *d, const void *h) {
    const Xent *x = c->x;
    const CpuMatmul *product = c->first ? x->dw[c->size] : x->dw_first[c->size];
    void *dw = sums_dw_apart(x) ? c->work->dw : x->call->out[DW];
    cpu_matmul(product, x->attr->tied ? d : h, x->attr->tied ? h : d, dw, c->work->product);
}

/* Logits, and what becomes of them row by row. A chunk of no tokens takes part in the exchange. */
static void make_rows(const MxDevice *device, const Chunk *c, const void *h) {
    const Xent *x = c->x;
    const Work *work = c->work;
    if (c->n) cpu_matmul(x->logits[c->size], h, x->call->in[W], work->logits, work->product);
    if (c->n && x->kind.has_teacher) make_teacher_logits(c);
    if (!x->exchange) {
        run_rows(device, c, ALL_OF_IT);
        return;
    }
    run_rows(device, c, FIRST_HALF);
    mx_exchange_all_gather(x->exchange, x->call->op->name, work->part, work->parts,
                           (size_t)x->chunk * mx_xent_part_bytes(x->attr));
    mx_exchange_finish(x->exchange);
    run_rows(device, c, SECOND_HALF);
}

static void run_chunk(const MxDevice *device, const Chunk *c) {
    const Xent *x = c->x;
    const void *h = c->n ? hidden_rows(c) : NULL;
    make_rows(device, c, h);
    if (!x->kind.is_grad || !c->n) return;
    if (x->call->out[DH]) make_dh(c, c->work->logits);
    if (x->call->out[DW]) make_dw(c, c->work->logits, h);
}

/* A group's ranks go through as many chunks whichever tokens count. */
static void run_chunks(const MxDevice *device, const Xent *x, const Work *work, int64_t n_counting,
                       double *sums) {
    Chunk c = {.x = x, .work = work};
    int64_t end = x->exchange ? x->tokens : n_counting;
    for (int64_t at = 0; at < end; at += x->chunk) {
        c.first = cpu_min(at, n_counting);
        c.token = work->counting + c.first;
        c.n = cpu_min(x->chunk, n_counting - c.first);
        c.size = size_for(x, c.n);
        c.rows = c.n ? size_of(x, c.size) : 0;
        c.in_place = c.n && c.rows == c.n && c.token[c.n - 1] - c.token[0] == c.n - 1;
        run_chunk(device, &c);
        for (int64_t i = 0; i < c.n; i++)
            for (int k = 0; k < x->kind.n_sums; k++) sums[k] += work->sums[i * x->kind.n_sums + k];
    }
}

/* ---- calls */

static int64_t list_counting(const Xent *x, int64_t *counting) {
    int64_t n = 0;
    for (int64_t i = 0; i < x->tokens; i++)
        if (x->weights[i]) counting[n++] = i;
    return n;
}

/* What no chunk writes: results of tokens that do not count, and dw if none does. */
static void zero_the_rest(const MxDevice *device, const Xent *x, const Work *work, int64_t n) {
    const MxKernelCall *call = x->call;
    size_t bytes = row_bytes(x), dw_bytes = (size_t)(x->width * x->vocab) * sizeof(float);
    for (int i = 0; i < call->n_out && !x->kind.n_sums && !x->kind.is_grad; i++)
        if (call->out[i])
            cpu_zero(device, call->out[i],
                     (size_t)mx_shape_count(call->out_type[i].shape) * sizeof(float));
    if (!x->kind.is_grad) return;
    for (int64_t i = 0; i < x->tokens && call->out[DH] && n < x->tokens; i++)
        if (!x->weights[i]) memset((char *)call->out[DH] + (size_t)i * bytes, 0, bytes);
    if (n || !call->out[DW]) return;
    if (sums_dw_apart(x))
        cpu_zero(device, work->dw, dw_bytes);
    else if (!adds_dw(x))
        cpu_zero(device, call->out[DW], dw_bytes);
}

typedef struct Rounding {
    const MxKernelCall *call;
    const float *from;
} Rounding;

static void round_dw(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Rounding *r = context;
    MxDtype dtype = r->call->out_type[DW].dtype;
    if (r->call->accumulate >> DW & 1)
        cpu_add_to(r->from + begin, end - begin, r->call->out[DW], dtype, begin);
    else
        cpu_write(r->from + begin, end - begin, r->call->out[DW], dtype, begin);
}

/* The loss, and all others as one array. */
static void write_sums(const Xent *x, const double *sums) {
    float *const *out = (float *const *)(x->call->out + (x->kind.is_grad ? GRAD_SUM : 0));
    if (out[0]) out[0][0] = (float)sums[0];
    for (int k = 1; out[1] && k < x->kind.n_sums; k++) out[1][k - 1] = (float)sums[k];
}

static void run(const MxDevice *device, const MxKernelCall *call) {
    Xent x = *(const Xent *)call->state;
    x.call = call;
    x.attr = call->attr;
    if (x.kind.has_teacher) x.teacher.attr = &((const MxDistillAttr *)call->attr)->teacher;
    x.weights = call->in[x.kind.only_weights ? ONLY_WEIGHTS : WEIGHTS];
    Work work;
    carve(&x, call->scratch, &work);
    int64_t n = list_counting(&x, work.counting);
    zero_the_rest(device, &x, &work, n);
    double sums[MOST_SUMS] = {0};
    run_chunks(device, &x, &work, n, sums);
    if (x.kind.n_sums) write_sums(&x, sums);
    Rounding rounding = {.call = call, .from = work.dw};
    if (sums_dw_apart(&x) && call->out[DW])
        cpu_for(device, x.width * x.vocab, CPU_PIECE, round_dw, &rounding);
}

static size_t scratch(const MxDevice *device, const MxKernelCall *call) {
    Xent x = xent_of(call);
    return bytes_of(device, &x);
}

const MxKernel cpu_xent = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_xent_grad = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_argmax = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_logprob = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_logprob_grad = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_distill = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_distill_grad = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_top_logits = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_distill_top = {.scratch = scratch, .prepare = prepare, .run = run};
const MxKernel cpu_distill_top_grad = {.scratch = scratch, .prepare = prepare, .run = run};

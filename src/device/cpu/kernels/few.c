/* few.c — a provider of matrix products with few rows, C[m, n] = A[m, k] op(B), as a model makes
 * them that generates a token at a time. They cost what reading B costs, so B is read once, in
 * order, and converted on the way; libraries would convert all of it beforehand. */
#include "kernel.h"
#include "vec.h"

enum {
    MOST_ROWS = 8,
    COLUMNS = 512,     /* of B that a piece sums up at a time, as it is … */
    COLUMNS_FEW = 256, /* … where there are less than SOME of them, so that threads share them */
    SOME = 2048,
    ROWS = 4, /* of B at a time */
    DEEP = 512
};

/* A product at work. */
typedef struct Few {
    const CpuMatmulSpec *spec;
    const void *a, *b;
    void *c;
} Few;

bool cpu_is_few(const CpuMatmulSpec *s) {
    return s->m <= MOST_ROWS && !s->trans_a;
}

static void store(const Few *p, int64_t row, int64_t column, int64_t n, const float *from) {
    const CpuMatmulSpec *s = p->spec;
    int64_t at = row * s->ldc + column;
    if (s->accumulate)
        cpu_add_to(from, n, p->c, s->out, at);
    else
        cpu_store(from, n, p->c, s->out, at);
}

/* ---- B as it is: its rows, times an element of A each, add up */

static void add_rows(int64_t n, const float a[ROWS], const float *const b[ROWS], float *sum) {
    const float *w = b[0], *x = b[1], *y = b[2], *z = b[3];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += a[0] * w[j] + a[1] * x[j] + a[2] * y[j] + a[3] * z[j];
}

static void sum_columns(const Few *p, int64_t column, int64_t n) {
    static const float zeros[COLUMNS];
    const CpuMatmulSpec *s = p->spec;
    float sums[MOST_ROWS * COLUMNS], space[ROWS * COLUMNS], few[ROWS], one[1];
    memset(sums, 0, (size_t)(s->m * COLUMNS) * sizeof *sums);
    for (int64_t k = 0; k < s->k; k += ROWS) {
        const float *rows[ROWS] = {zeros, zeros, zeros, zeros};
        int64_t n_rows = cpu_min(ROWS, s->k - k);
        for (int64_t r = 0; r < n_rows; r++)
            rows[r] = cpu_read(p->b, s->in, (k + r) * s->ldb + column, n, space + r * COLUMNS);
        for (int64_t i = 0; i < s->m; i++) {
            for (int64_t r = 0; r < ROWS; r++)
                few[r] = r < n_rows ? *cpu_read(p->a, s->in, i * s->lda + k + r, 1, one) : 0;
            add_rows(n, few, rows, sums + i * COLUMNS);
        }
    }
    for (int64_t i = 0; i < s->m; i++) store(p, i, column, n, sums + i * COLUMNS);
}

static int64_t columns_of(const CpuMatmulSpec *s) {
    return s->n < SOME ? COLUMNS_FEW : COLUMNS;
}

static void sum_pieces(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Few *p = context;
    int64_t wide = columns_of(p->spec);
    for (int64_t i = begin; i < end; i++)
        sum_columns(p, i * wide, cpu_min(wide, p->spec->n - i * wide));
}

/* ---- B turned: each of its rows makes an element of every row of C */

/* Sums over stretches of k, in their order. */
static void multiply_row(const Few *p, int64_t row, float *sums) {
    const CpuMatmulSpec *s = p->spec;
    float b_space[DEEP], a_space[DEEP];
    for (int64_t i = 0; i < s->m; i++) sums[i] = 0;
    for (int64_t k = 0; k < s->k; k += DEEP) {
        int64_t n = cpu_min(DEEP, s->k - k);
        const float *b = cpu_read(p->b, s->in, row * s->ldb + k, n, b_space);
        for (int64_t i = 0; i < s->m; i++)
            sums[i] += vec_dot(n, cpu_read(p->a, s->in, i * s->lda + k, n, a_space), b);
    }
}

static void multiply_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Few *p = context;
    float sums[MOST_ROWS];
    for (int64_t row = begin; row < end; row++) {
        multiply_row(p, row, sums);
        for (int64_t i = 0; i < p->spec->m; i++) store(p, i, row, 1, &sums[i]);
    }
}

/* ---- products of every head with its own part of a kernel, on one thread each where rows are few
 */

typedef struct HeadDot {
    const MxKernelCall *call;
    CpuMatmulSpec spec; /* of one head */
    int64_t heads, x_width, y_width, w_width, first;
} HeadDot;

static HeadDot head_dot_of(const MxKernelCall *call) {
    const MxHeadDotAttr *attr = call->attr;
    MxShape x = call->in_type[0].shape, w = call->in_type[1].shape, y = call->out_type[0].shape;
    HeadDot h = {.call = call,
                 .heads = w.dim[1],
                 .x_width = x.dim[x.rank - 1],
                 .y_width = y.dim[y.rank - 1],
                 .w_width = w.dim[2],
                 .first = attr->first};
    int64_t row = h.heads * h.x_width;
    h.spec = (CpuMatmulSpec){.m = row ? mx_shape_count(x) / row : 0,
                             .n = h.y_width,
                             .k = h.x_width,
                             .lda = row,
                             .ldb = h.heads * h.w_width,
                             .ldc = h.heads * h.y_width,
                             .trans_b = attr->transposed,
                             .in = call->in_type[0].dtype,
                             .out = call->in_type[0].dtype};
    return h;
}

static char *at(void *x, MxDtype dtype, int64_t i) {
    return (char *)x + i * (int64_t)mx_dtype_bytes(dtype);
}

static void head_places(const HeadDot *h, int64_t head, void *abc[3]) {
    const MxKernelCall *call = h->call;
    abc[0] = at(call->in[0], h->spec.in, head * h->x_width);
    abc[1] = at(call->in[1], h->spec.in, head * h->w_width + h->first);
    abc[2] = at(call->out[0], h->spec.in, head * h->y_width);
}

static void multiply_heads(const void *context, int64_t begin, int64_t end, int worker) {
    const HeadDot *h = context;
    for (int64_t head = begin; head < end; head++) {
        void *abc[3];
        head_places(h, head, abc);
        const Few p = {.spec = &h->spec, .a = abc[0], .b = abc[1], .c = abc[2]};
        if (h->spec.trans_b)
            multiply_rows(&p, 0, h->spec.n, worker);
        else
            sum_pieces(&p, 0, cpu_pieces(h->spec.n, columns_of(&h->spec)), worker);
    }
}

static size_t head_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    HeadDot h = head_dot_of(call);
    return cpu_is_few(&h.spec) ? 0 : cpu_own_products.scratch(device, &h.spec);
}

static void head_dot_run(const MxDevice *device, const MxKernelCall *call) {
    HeadDot h = head_dot_of(call);
    if (!call->out[0]) return;
    if (cpu_is_few(&h.spec)) {
        cpu_for(device, h.heads, 1, multiply_heads, &h);
        return;
    }
    const CpuMatmul each = {.device = device, .spec = h.spec, .run = h.spec};
    for (int64_t head = 0; head < h.heads; head++) {
        void *abc[3];
        head_places(&h, head, abc);
        cpu_own_products.run(&each, abc[0], abc[1], abc[2], call->scratch);
    }
}

const MxKernel cpu_head_dot = {.scratch = head_dot_scratch, .run = head_dot_run};

/* ---- provider */

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    (void)scratch;
    const CpuMatmulSpec *s = &matmul->run;
    const Few p = {.spec = s, .a = a, .b = b, .c = c};
    if (s->trans_b)
        cpu_for(matmul->device, s->n, cpu_max(1, CPU_PIECE / cpu_max(1, s->k)), multiply_rows, &p);
    else
        cpu_for(matmul->device, cpu_pieces(s->n, columns_of(s)), 1, sum_pieces, &p);
}

const CpuProvider cpu_few_products = {.name = "our own", .takes_less = true, .run = run};

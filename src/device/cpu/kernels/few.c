/* few.c — a provider of matrix products with few rows, C[m, n] = A[m, k] op(B), as in generating
 * one token at a time. They cost as much as reading B, so B is read once, nearly in order, and
 * converted on the way; libraries would first convert all of it. A is converted to floats at the
 * start.
 *
 * B is prefetched early, a strip of columns at a time, and into the second-level cache: the
 * first-level cache supports too few outstanding misses to keep memory busy (24 on Zen 4; 20 GB/s
 * instead of 31 of the 36 that two of its cores read).
 *
 * The division of columns among threads changes no sum: each is computed along k in one order. */
#include "few.h"
#include "kernel.h"
#include "vec.h"

enum {
    MOST_ROWS = 8,
    SUMS = 8192, /* that a piece makes at a time: they stay in the first cache … */
    LINE = 64,   /* … whole lines of it: bytes */
    ROWS = CPU_ROWS,
    STRIP = 128, /* columns of ROWS rows that are added at a time … */
    AHEAD = 16,  /* … and asked for so many rows before */
    DEEP = 512
};

/* A product at work. */
typedef struct Few {
    const CpuMatmulSpec *spec;
    const float *a; /* rows of floats, a_step apart */
    int64_t a_step;
    const void *b;
    const CpuRows *rows; /* instead of b; NULL = none */
    void *c;
    int64_t columns; /* of a piece: from one row's sums to the next */
} Few;

static FewRows a_rows(const Few *p, int64_t k) {
    return (FewRows){p->a + k, p->a_step, p->spec->m};
}

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

static inline float widened(MxBf16 x) {
    return vec_from_bits((uint32_t)x << 16);
}

static const void *element(const Few *p, int64_t row, int64_t column) {
    return (const char *)p->b +
           (row * p->spec->ldb + column) * (int64_t)mx_dtype_bytes(p->spec->in);
}

/* ---- B as it is: its rows, times an element of A each, add up */

/* Two elements that follow one another; the first has the lower half. */
typedef uint32_t Pair __attribute__((may_alias, aligned(2)));

static inline float first_of(Pair x) {
    return vec_from_bits(x << 16);
}

static inline float second_of(Pair x) {
    return vec_from_bits(x & 0xffff0000u);
}

/* Eight rows of B, `step` elements apart. The sums of the first elements of pairs stand before
 * those of the second ones: so nothing moves between lanes, and one instruction widens a vector of
 * either kind. The last of an odd number stands behind. */
static void add_pairs(int64_t n, const float *a, const MxBf16 *b, int64_t step, float *sum) {
    const Pair *b0 = (const Pair *)b, *b1 = (const Pair *)(b + step),
               *b2 = (const Pair *)(b + 2 * step), *b3 = (const Pair *)(b + 3 * step),
               *b4 = (const Pair *)(b + 4 * step), *b5 = (const Pair *)(b + 5 * step),
               *b6 = (const Pair *)(b + 6 * step), *b7 = (const Pair *)(b + 7 * step);
    const float a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
    const float a4 = a[4], a5 = a[5], a6 = a[6], a7 = a[7];
    float *first = sum, *second = sum + n / 2;
#pragma omp simd
    for (int64_t j = 0; j < n / 2; j++) {
        first[j] = first[j] + a0 * first_of(b0[j]) + a1 * first_of(b1[j]) + a2 * first_of(b2[j]) +
                   a3 * first_of(b3[j]) + a4 * first_of(b4[j]) + a5 * first_of(b5[j]) +
                   a6 * first_of(b6[j]) + a7 * first_of(b7[j]);
        second[j] = second[j] + a0 * second_of(b0[j]) + a1 * second_of(b1[j]) +
                    a2 * second_of(b2[j]) + a3 * second_of(b3[j]) + a4 * second_of(b4[j]) +
                    a5 * second_of(b5[j]) + a6 * second_of(b6[j]) + a7 * second_of(b7[j]);
    }
    for (int64_t r = 0; n % 2 && r < ROWS; r++) sum[n - 1] += a[r] * widened(b[r * step + n - 1]);
}

/* Sums of pairs in the order of columns. */
static void order_pairs(int64_t n, float *sum) {
    float pairs[STRIP];
    memcpy(pairs, sum, (size_t)n * sizeof *sum);
    for (int64_t j = 0; j < n / 2; j++) {
        sum[2 * j] = pairs[j];
        sum[2 * j + 1] = pairs[n / 2 + j];
    }
}

/* Rows of B are far apart, so the processor does not see which come next. */
static void fetch_rows(const Few *p, int64_t row, int64_t column, int64_t n) {
    enum { INTO_SECOND_CACHE = 2 };
    if (row + ROWS > p->spec->k) return;
    if (p->rows) {
        p->rows->fetch(p->rows, row, column, n);
        return;
    }
    const int64_t width = (int64_t)mx_dtype_bytes(p->spec->in), step = p->spec->ldb * width;
    const char *from = element(p, row, column);
    for (int64_t r = 0; r < ROWS; r++, from += step)
        for (int64_t at = 0; at < n * width; at += LINE)
            __builtin_prefetch(from + at, 0, INTO_SECOND_CACHE);
}

/* ROWS rows, a strip of columns. */
static void add_read_rows(const Few *p, int64_t row, int64_t column, int64_t n, float *sums) {
    float space[ROWS * STRIP];
    fetch_rows(p, row + AHEAD, column, n);
    if (p->spec->m == 1 && p->rows->add) {
        p->rows->add(p->rows, row, column, n, p->a + row, sums);
        return;
    }
    for (int64_t r = 0; r < ROWS; r++) p->rows->read(p->rows, row + r, column, n, space + r * n);
    few_add(a_rows(p, row), n, space, n, sums, p->columns, NULL);
}

static void add_float_rows(const Few *p, int64_t row, int64_t column, int64_t n, float *sums) {
    int64_t next = row + AHEAD;
    few_add(a_rows(p, row), n, element(p, row, column), p->spec->ldb, sums, p->columns,
            next + ROWS <= p->spec->k ? element(p, next, column) : NULL);
}

static void add_paired_rows(const Few *p, int64_t row, int64_t column, int64_t n, float *sums) {
    const MxBf16 *b = element(p, row, column);
    fetch_rows(p, row + AHEAD, column, n);
    for (int64_t i = 0; i < p->spec->m; i++)
        add_pairs(n, p->a + i * p->a_step + row, b, p->spec->ldb, sums + i * p->columns);
}

/* Where bf16 serves several rows of A it is converted once. */
static void add_bf16_rows(const Few *p, int64_t row, int64_t column, int64_t n, float *sums) {
    const CpuMatmulSpec *s = p->spec;
    const MxBf16 *b = element(p, row, column);
    float space[ROWS * STRIP];
    fetch_rows(p, row + AHEAD, column, n);
    for (int64_t r = 0; r < ROWS; r++) cpu_widen(b + r * s->ldb, n, space + r * n);
    few_add(a_rows(p, row), n, space, n, sums, p->columns, NULL);
}

/* How ROWS rows are added, and the rows AHEAD of them asked for. */
typedef void AddRows(const Few *p, int64_t row, int64_t column, int64_t n, float *sums);

static bool is_paired(const Few *p) {
    return !p->rows && p->spec->in == MX_BF16 && p->spec->m <= 2;
}

static AddRows *adder_of(const Few *p) {
    if (p->rows) return add_read_rows;
    if (p->spec->in == MX_F32) return add_float_rows;
    return is_paired(p) ? add_paired_rows : add_bf16_rows;
}

/* What add_paired_rows made of n columns. */
static void order_sums(const Few *p, int64_t n, float *sums) {
    for (int64_t i = 0; i < p->spec->m; i++)
        for (int64_t at = 0; at < n; at += STRIP)
            order_pairs(cpu_min(STRIP, n - at), sums + i * p->columns + at);
}

/* One of the rows that are left over. */
static void add_row(const Few *p, int64_t row, int64_t column, int64_t n, float *sums) {
    float space[STRIP];
    const float *b = space;
    if (p->rows)
        p->rows->read(p->rows, row, column, n, space);
    else
        b = cpu_read(p->b, p->spec->in, row * p->spec->ldb + column, n, space);
    for (int64_t i = 0; i < p->spec->m; i++)
        vec_add_times(n, p->a[i * p->a_step + row], b, sums + i * p->columns);
}

static void sum_columns(const Few *p, int64_t column, int64_t n) {
    const CpuMatmulSpec *s = p->spec;
    float sums[SUMS];
    AddRows *add = adder_of(p);
    int64_t k = 0;
    for (int64_t i = 0; i < s->m; i++) memset(sums + i * p->columns, 0, (size_t)n * sizeof *sums);
    for (int64_t r = 0; r < AHEAD; r += ROWS) fetch_rows(p, r, column, n);
    for (; k + ROWS <= s->k; k += ROWS)
        for (int64_t at = 0; at < n; at += STRIP) {
            int64_t some = cpu_min(STRIP, n - at);
            add(p, k, column + at, some, sums + at);
        }
    if (is_paired(p)) order_sums(p, n, sums);
    for (; k < s->k; k++)
        for (int64_t at = 0; at < n; at += STRIP)
            add_row(p, k, column + at, cpu_min(STRIP, n - at), sums + at);
    for (int64_t i = 0; i < s->m; i++) store(p, i, column, n, sums + i * p->columns);
}

/* Whole lines, as many pieces for each thread. */
static int64_t columns_of(const CpuMatmulSpec *s, int n_threads) {
    const int64_t line = LINE / 2, most = SUMS / cpu_max(1, s->m) / line * line;
    int64_t pieces = n_threads * cpu_pieces(s->n, n_threads * most);
    return cpu_min(most, cpu_pieces(cpu_pieces(s->n, pieces), line) * line);
}

static void sum_pieces(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Few *p = context;
    for (int64_t i = begin; i < end; i++)
        sum_columns(p, i * p->columns, cpu_min(p->columns, p->spec->n - i * p->columns));
}

/* ---- B turned: each of its rows makes an element of every row of C */

/* Sums over stretches of k, in their order: FEW_BESIDE rows of B, or, where fewer are left, the
 * last of them again. */
static void multiply_row(const Few *p, int64_t row, float sums[MOST_ROWS][FEW_BESIDE]) {
    const CpuMatmulSpec *s = p->spec;
    int64_t step = row + FEW_BESIDE <= s->n ? s->ldb : 0;
    bool has_next = row + 2 * FEW_BESIDE <= s->n;
    memset(sums, 0, sizeof(float) * MOST_ROWS * FEW_BESIDE);
    for (int64_t k = 0; k < s->k; k += DEEP) {
        int64_t n = cpu_min(DEEP, s->k - k);
        few_dots(a_rows(p, k), n, element(p, row, k), s->in, step, sums, has_next);
    }
}

/* Pieces are FEW_BESIDE rows, or the last ones, one by one. */
static void multiply_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Few *p = context;
    float sums[MOST_ROWS][FEW_BESIDE];
    for (int64_t row = begin * FEW_BESIDE, n; row < cpu_min(p->spec->n, end * FEW_BESIDE);
         row += n) {
        n = row + FEW_BESIDE <= p->spec->n ? FEW_BESIDE : 1;
        multiply_row(p, row, sums);
        for (int64_t i = 0; i < p->spec->m; i++) store(p, i, row, n, sums[i]);
    }
}

/* ---- A as floats */

static size_t a_bytes(const MxDevice *device, const CpuMatmulSpec *s) {
    (void)device;
    return s->in == MX_F32 ? 0 : cpu_padded(sizeof(float) * (size_t)(s->m * s->lda));
}

static const float *as_floats(const CpuMatmulSpec *s, const void *a, void *scratch) {
    if (s->in == MX_F32) return a;
    if (s->m) cpu_widen(a, (s->m - 1) * s->lda + s->k, scratch);
    return scratch;
}

/* ---- products of every head with its own part of a kernel, on one thread each where rows are few
 */

typedef struct HeadDot {
    const MxKernelCall *call;
    CpuMatmulSpec spec; /* of one head */
    const float *x;     /* where rows are few */
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
    const CpuMatmulSpec *s = &h->spec;
    for (int64_t head = begin; head < end; head++) {
        void *abc[3];
        head_places(h, head, abc);
        const Few p = {.spec = s,
                       .a = h->x + head * h->x_width,
                       .a_step = s->lda,
                       .b = abc[1],
                       .c = abc[2],
                       .columns = columns_of(s, 1)};
        if (s->trans_b)
            multiply_rows(&p, 0, cpu_pieces(s->n, FEW_BESIDE), worker);
        else
            sum_pieces(&p, 0, cpu_pieces(s->n, p.columns), worker);
    }
}

static size_t head_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    HeadDot h = head_dot_of(call);
    return (cpu_is_few(&h.spec) ? &cpu_few_products : &cpu_own_products)->scratch(device, &h.spec);
}

static void head_dot_run(const MxDevice *device, const MxKernelCall *call) {
    HeadDot h = head_dot_of(call);
    if (!call->out[0]) return;
    if (cpu_is_few(&h.spec)) {
        CpuMatmulSpec all = h.spec;
        all.k = all.lda; /* of all heads */
        h.x = as_floats(&all, call->in[0], call->scratch);
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
    const CpuMatmulSpec *s = &matmul->run;
    const MxDevice *device = matmul->device;
    const Few p = {.spec = s,
                   .a = as_floats(s, a, scratch),
                   .a_step = s->lda,
                   .b = b,
                   .c = c,
                   .columns = columns_of(s, device->n_threads)};
    if (s->trans_b)
        cpu_for(device, cpu_pieces(s->n, FEW_BESIDE),
                cpu_max(1, CPU_PIECE / cpu_max(1, FEW_BESIDE * s->k)), multiply_rows, &p);
    else
        cpu_for(device, cpu_pieces(s->n, p.columns), 1, sum_pieces, &p);
}

void cpu_multiply_rows(const MxDevice *device, const CpuMatmulSpec *s, const void *a,
                       const CpuRows *b, void *c, void *scratch) {
    const Few p = {.spec = s,
                   .a = as_floats(s, a, scratch),
                   .a_step = s->lda,
                   .rows = b,
                   .c = c,
                   .columns = columns_of(s, device->n_threads)};
    cpu_for(device, cpu_pieces(s->n, p.columns), 1, sum_pieces, &p);
}

const CpuProvider cpu_few_products = {
    .name = "our own", .takes_less = true, .scratch = a_bytes, .run = run};

/* few.c — a provider of matrix products with few rows, C[m, n] = A[m, k] op(B), as a model makes
 * them that generates a token at a time. They cost what reading B costs, so B is read once, in
 * order, and converted on the way; libraries would convert all of it beforehand. */
#include "kernel.h"

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

static float product(int64_t n, const float *x, const float *y) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Sums over stretches of k, in their order. */
static void multiply_row(const Few *p, int64_t row, float *sums) {
    const CpuMatmulSpec *s = p->spec;
    float b_space[DEEP], a_space[DEEP];
    for (int64_t i = 0; i < s->m; i++) sums[i] = 0;
    for (int64_t k = 0; k < s->k; k += DEEP) {
        int64_t n = cpu_min(DEEP, s->k - k);
        const float *b = cpu_read(p->b, s->in, row * s->ldb + k, n, b_space);
        for (int64_t i = 0; i < s->m; i++)
            sums[i] += product(n, cpu_read(p->a, s->in, i * s->lda + k, n, a_space), b);
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

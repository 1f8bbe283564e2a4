/* matmul.c — both libraries and our own kernels on every kind and shape of product, against plain
 * loops and so against each other. */
#include "device/cpu/cpu.h"

#include "probe.h"
#include "suites.h"
#include "tolerance.h"

#include <malloc.h>
#include <math.h>

static const int64_t sizes[][3] = {/* m, n, k */
                                   {1, 1, 1},     {1, 7, 5},      {5, 1, 7},      {7, 5, 1},
                                   {1, 300, 64},  {300, 1, 64},   {64, 300, 1},   {3, 17, 33},
                                   {31, 33, 63},  {64, 64, 64},   {128, 96, 80},  {65, 257, 129},
                                   {2, 2, 1000},  {257, 130, 70}, {40, 290, 16},  {70, 300, 5},
                                   {33, 257, 64}, {16, 18, 5000}, {290, 3, 300},  {65, 280, 130},
                                   {600, 64, 64}, {70, 260, 130}, {1030, 70, 80}, {1024, 87, 65}};
static const MxMatmulProvider providers[] = {MX_MATMUL_AUTO, MX_MATMUL_OPENBLAS, MX_MATMUL_ONEDNN,
                                             MX_MATMUL_OWN};
static const MxDtype dtypes[][2] = {/* operands, result */
                                    {MX_F32, MX_F32},
                                    {MX_BF16, MX_F32},
                                    {MX_BF16, MX_BF16},
                                    {MX_F32, MX_BF16}};

/* What a case runs: one size, dtypes and provider, on every kind, plain and added. */
typedef struct Product {
    int64_t m, n, k;
    MxDotKind kind;
    MxDtype in, out;
    bool add;
    bool is_square; /* of one operand with itself */
} Product;

enum { MOST = 300 * 300 };
static double operands[4][MOST];

static void make_operands(void) {
    for (int which = 1; which < 4; which++)
        for (int64_t i = 0; i < MOST; i++)
            operands[which][i] = (double)mx_bf16_to_f32(
                mx_f32_to_bf16((float)case_normal((uint64_t)which, (uint64_t)i)));
}

/* The exact result, [m, n]: the same for all providers and dtypes. */
static void make_want(const Product *p, double *want) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->add ? operands[3][i * p->n + j] : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += operands[1][p->kind == MX_DOT_TN ? k * p->m + i : i * p->k + k] *
                       operands[p->is_square ? 1 : 2]
                               [p->kind == MX_DOT_NT ? j * p->k + k : k * p->n + j];
            want[i * p->n + j] = sum;
        }
}

static void fill(void *to, MxType type, int which) {
    for (int64_t i = 0; i < mx_shape_count(type.shape); i++)
        if (type.dtype == MX_F32)
            ((float *)to)[i] = (float)operands[which][i];
        else
            ((MxBf16 *)to)[i] = mx_f32_to_bf16((float)operands[which][i]);
}

static void check_product(const Product *p, const double *want, const MxDeviceConfig *config) {
    const MxDotAttr attr = {
        .dtype = p->out, .kind = p->kind, .n_contract = 1, .is_square = p->is_square};
    MxShape a = p->kind == MX_DOT_TN ? MX_SHAPE(p->k, p->m) : MX_SHAPE(p->m, p->k);
    MxShape b = p->kind == MX_DOT_NT ? MX_SHAPE(p->n, p->k) : MX_SHAPE(p->k, p->n);
    const MxType types[] = {{p->in, a}, {p->in, b}};
    Probe *probe = probe_open(config, &(ProbeOp){&op_dot, &attr, types, 2, p->add});
    fill(probe->in[0], types[0], 1);
    fill(probe->in[1], types[1], p->is_square ? 1 : 2);
    if (p->is_square && p->k % 2) probe->in[1] = probe->in[0]; /* else a copy */
    fill(probe->out[0], probe->out_type[0], 3);
    probe_run(probe);
    double error = 0, size = 0;
    double *got = mx_new_n(&probe->arena, double, p->m * p->n);
    probe_load(probe->out[0], probe->out_type[0], got);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    double limit = p->out == MX_BF16 ? tolerance_bf16.norm : tolerance_forward_f32.norm;
    ck_assert_msg(sqrt(error) <= limit * sqrt(size),
                  "kind %d m %lld n %lld k %lld %s to %s add %d provider %d: off by %.3g", p->kind,
                  (long long)p->m, (long long)p->n, (long long)p->k, mx_dtype_name(p->in),
                  mx_dtype_name(p->out), p->add, config->matmul, sqrt(error / size));
    probe_close();
}

/* Every dtype and provider. */
static void check_products(Product p) {
    static double want[MOST];
    make_want(&p, want);
    for (int provider = 0; provider < MX_COUNT(providers); provider++)
        for (int dtype = 0; dtype < MX_COUNT(dtypes); dtype++) {
            p.in = dtypes[dtype][0];
            p.out = dtypes[dtype][1];
            check_product(
                &p, want,
                &(MxDeviceConfig){.backend = "cpu", .n_threads = 2, .matmul = providers[provider]});
        }
}

START_TEST(providers_agree) {
    const int64_t *size = sizes[_i];
    make_operands();
    for (int kind = 0; kind < 6; kind++)
        check_products((Product){.m = size[0],
                                 .n = size[1],
                                 .k = size[2],
                                 .kind = (MxDotKind)(kind % 3),
                                 .add = kind >= 3});
}
END_TEST

static const int64_t squares[][2] = {{1, 5},     {7, 3},     {31, 64},  {33, 65}, {64, 129},
                                     {130, 257}, {257, 130}, {290, 301}}; /* rows, columns */

/* A matrix times its own transpose, which is one array or two that are alike. */
START_TEST(squares_are_right) {
    make_operands();
    for (int kind = MX_DOT_NT; kind <= MX_DOT_TN; kind++)
        check_products((Product){.m = squares[_i][0],
                                 .n = squares[_i][0],
                                 .k = squares[_i][1],
                                 .kind = (MxDotKind)kind,
                                 .is_square = true});
}
END_TEST

/* ---- our own products between rows that lie apart; whole numbers, so that results are exact */

enum { APART = 3, THREADS = 3, FEW = 4, MANY = 4000 };

static const int64_t thin_sizes[][3] = {/* m, n, k */
                                        {100, 48, 16}, {37, 300, 7},   {70, 530, 64},
                                        {64, 33, 600}, {300, 16, 70},  {1, 600, 1},
                                        {3, 9000, 64}, {7000, 40, 70}, {40, 7000, 70}};
/* More than a block of rows, a strip of columns, a strip of the sum. */
static const int64_t large_sizes[][3] = {{300, 130, 70}, {113, 1060, 40}, {5, 1040, 2100}};

/* Numbers up to `most`, of either sign. */
static float whole_at(int64_t i, uint32_t most) {
    return (float)(case_word(9, (uint64_t)i) % (2 * most + 1)) - (float)most;
}

/* [rows, columns] of whole numbers; between the rows, numbers that must be neither used nor
 * changed. */
typedef struct Spaced {
    float *floats;
    MxBf16 *halves; /* the same */
    int64_t step, n;
} Spaced;

static Spaced spaced(MxArena *arena, int64_t rows, int64_t columns, uint32_t most) {
    Spaced x = {.step = columns + APART, .n = rows * (columns + APART)};
    x.floats = mx_new_n(arena, float, x.n);
    x.halves = mx_new_n(arena, MxBf16, x.n);
    for (int64_t i = 0; i < x.n; i++) {
        x.floats[i] = i % x.step < columns ? whole_at(i, most) : NAN;
        x.halves[i] = mx_f32_to_bf16(x.floats[i]);
    }
    return x;
}

static const void *data_of(const Spaced *x, MxDtype dtype) {
    return dtype == MX_F32 ? (const void *)x->floats : x->halves;
}

/* Operands of a product, what C holds before, and the product of A and B, [m, n]. */
typedef struct Exact {
    Spaced a, b, c;
    float *product;
} Exact;

static Exact make_exact(MxArena *arena, const CpuMatmulSpec *s, const uint32_t most[2]) {
    Exact e = {.a = spaced(arena, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, most[0]),
               .b = spaced(arena, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, most[1]),
               .c = spaced(arena, s->m, s->n, FEW),
               .product = mx_new_n(arena, float, s->m * s->n)};
    int64_t b_k = s->trans_b ? 1 : e.b.step, b_n = s->trans_b ? e.b.step : 1;
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t k = 0; k < s->k; k++) {
            float a = e.a.floats[s->trans_a ? k * e.a.step + i : i * e.a.step + k];
            const float *b = e.b.floats + k * b_k;
            float *sums = e.product + i * s->n;
            for (int64_t j = 0; j < s->n; j++) sums[j] += a * b[j * b_n];
        }
    return e;
}

static float float_at(const void *x, MxDtype dtype, int64_t i) {
    return dtype == MX_F32 ? ((const float *)x)[i] : mx_bf16_to_f32(((const MxBf16 *)x)[i]);
}

static void check_exact(const CpuMatmulSpec *s, const Exact *e, const void *got) {
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->ldc; j++) {
            int64_t at = i * s->ldc + j;
            float want = s->accumulate || j >= s->n ? e->c.floats[at] : 0;
            if (j < s->n) want += e->product[i * s->n + j];
            if (s->out == MX_BF16) want = mx_bf16_to_f32(mx_f32_to_bf16(want));
            float is = float_at(got, s->out, at);
            ck_assert_msg(is == want || (j >= s->n && isnan(is)),
                          "m %lld n %lld k %lld, A %d B %d turned, %s to %s, add %d: C[%lld, %lld] "
                          "is %g, not %g",
                          (long long)s->m, (long long)s->n, (long long)s->k, s->trans_a, s->trans_b,
                          mx_dtype_name(s->in), mx_dtype_name(s->out), s->accumulate, (long long)i,
                          (long long)j, (double)is, (double)want);
        }
}

/* Runs a product on so many threads; what it made of C. */
static void *run_spaced(MxArena *arena, CpuMatmulSpec s, const Exact *e, MxDeviceConfig config) {
    MxError err = {0};
    MxDevice *device = NULL;
    size_t bytes = (size_t)e->c.n * mx_dtype_bytes(s.out);
    ck_assert(mx_device_open(arena, &config, &device, &err));
    const CpuKernels *kernels = cpu_of(device)->level->kernels;
    const CpuMatmul *product = kernels->prepare(device, s, &err);
    ck_assert(product && !strcmp(product->provider->name, "our own"));
    void *got = mx_arena_alloc(arena, bytes), *scratch;
    memcpy(got, data_of(&e->c, s.out), bytes);
    ck_assert(mx_device_alloc(device, kernels->scratch(device, s) + 1, &scratch, &err));
    kernels->multiply(product, data_of(&e->a, s.in), data_of(&e->b, s.in), got, scratch);
    return got;
}

/* Runs a product on one thread and on several; both must give the exact result. */
static void check_spaced(CpuMatmulSpec s, MxDeviceConfig config, const Exact *e) {
    MxArena arena = {.name = "spaced"};
    s.lda = e->a.step;
    s.ldb = e->b.step;
    s.ldc = e->c.step;
    config.n_threads = 1;
    const void *one = run_spaced(&arena, s, e, config);
    config.n_threads = THREADS;
    const void *several = run_spaced(&arena, s, e, config);
    check_exact(&s, e, one);
    ck_assert_mem_eq(several, one, (size_t)e->c.n * mx_dtype_bytes(s.out));
    mx_arena_release(&arena);
}

static CpuMatmulSpec spec_of(const int64_t size[3], MxDotKind kind) {
    return (CpuMatmulSpec){.m = size[0],
                           .n = size[1],
                           .k = size[2],
                           .trans_a = kind == MX_DOT_TN,
                           .trans_b = kind == MX_DOT_NT};
}

/* Every dtype that operands may have; plain and added. */
static void check_dtypes(const int64_t size[3], MxDotKind kind, MxMatmulProvider provider) {
    MxArena arena = {.name = "matmul"};
    CpuMatmulSpec s = spec_of(size, kind);
    Exact e = make_exact(&arena, &s, (const uint32_t[]){FEW, FEW});
    for (int i = 0; i < 2 * MX_COUNT(dtypes); i++) {
        s.in = dtypes[i / 2][0];
        s.out = dtypes[i / 2][1];
        s.accumulate = i % 2;
        check_spaced(s, (MxDeviceConfig){.backend = "cpu", .matmul = provider}, &e);
    }
    mx_arena_release(&arena);
}

/* Where the sizes are not thin, the same is made as any product. */
START_TEST(thin_products_are_exact) {
    const int64_t *size = thin_sizes[_i / 3];
    MxDotKind kind = (MxDotKind)(_i % 3);
    bool is_thin = (kind == MX_DOT_TN ? cpu_min(size[0], size[1]) : size[2]) <= 64;
    check_dtypes(size, kind, is_thin ? MX_MATMUL_AUTO : MX_MATMUL_OWN);
}
END_TEST

/* Few rows, as a model makes them a token at a time: strips and groups of rows that are not whole,
 * several pieces of columns. */
static const int64_t few_sizes[][3] = {{1, 1, 65},    {1, 700, 301}, {3, 513, 70},   {8, 67, 600},
                                       {2, 2100, 83}, {5, 1, 1027},  {1, 20011, 70}, {8, 3001, 67}};

START_TEST(products_of_few_rows_are_exact) {
    check_dtypes(few_sizes[_i / 2], _i % 2 ? MX_DOT_NT : MX_DOT_NN, MX_MATMUL_AUTO);
}
END_TEST

START_TEST(large_products_are_exact) {
    check_dtypes(large_sizes[_i / 3], (MxDotKind)(_i % 3), MX_MATMUL_OWN);
}
END_TEST

/* Of all shapes up to 70 x 70 x 70, some. */
START_TEST(small_products_are_exact) {
    enum { MOST_SIZE = 70, SAMPLES = 40 };
    for (uint64_t i = 0; i < SAMPLES; i++) {
        int64_t size[3];
        for (uint64_t dim = 0; dim < 3; dim++)
            size[dim] = 1 + (int64_t)(case_word((uint64_t)_i, 3 * i + dim) % MOST_SIZE);
        check_dtypes(size, (MxDotKind)_i, MX_MATMUL_OWN);
    }
}
END_TEST

/* ---- memory */

/* Bytes that have been allocated and not freed. */
static size_t allocated(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A library works in the memory that it is given, so that plans tell the truth. oneDNN kept sums of
 * its own for products like this one of bf16. */
START_TEST(libraries_work_in_scratch) {
    const CpuMatmulSpec s = {.m = 2048,
                             .n = 768,
                             .k = 4096,
                             .trans_a = true,
                             .in = MX_BF16,
                             .out = _i ? MX_F32 : MX_BF16};
    const MxDeviceConfig config = {.backend = "cpu", .n_threads = 2, .matmul = MX_MATMUL_ONEDNN};
    MxArena arena = {.name = "matmul"};
    MxError err = {0};
    MxDevice *device = NULL;
    void *a, *b, *c, *scratch;
    ck_assert(mx_device_open(&arena, &config, &device, &err));
    const CpuKernels *kernels = cpu_of(device)->level->kernels;
    ck_assert(mx_device_alloc(device, sizeof(MxBf16) * (size_t)(s.m * s.k), &a, &err) &&
              mx_device_alloc(device, sizeof(MxBf16) * (size_t)(s.k * s.n), &b, &err) &&
              mx_device_alloc(device, sizeof(float) * (size_t)(s.m * s.n), &c, &err) &&
              mx_device_alloc(device, kernels->scratch(device, s), &scratch, &err));
    size_t before = allocated();
    kernels->multiply(kernels->prepare(device, s, &err), a, b, c, scratch);
    ck_assert_msg(allocated() < before + (1 << 20), "%zu bytes", allocated() - before);
    mx_arena_release(&arena);
}
END_TEST

/* ---- matmul_precision=high */

static const MxDeviceConfig high = {.backend = "cpu", .matmul = MX_MATMUL_OWN, .may_split = true};

/* Numbers of twelve bits need both parts; those of the other operand have no low part, so that
 * nothing is left out. */
START_TEST(split_products_are_exact) {
    CpuMatmulSpec s = spec_of(large_sizes[_i / 3], (MxDotKind)(_i % 3));
    for (int side = 0; side < 2; side++) {
        MxArena arena = {.name = "matmul"};
        Exact e = make_exact(&arena, &s, (const uint32_t[]){side ? FEW : MANY, side ? MANY : FEW});
        for (int add = 0; add < 2; add++) {
            s.accumulate = add;
            check_spaced(s, high, &e);
        }
        mx_arena_release(&arena);
    }
}
END_TEST

/* The error of a product of floats as a part of the result, by norms. */
static double error_of(MxDeviceConfig config, const float *a, const float *b, float *c) {
    enum { SIZE = 256 };
    MxArena arena = {.name = "matmul"};
    MxError err = {0};
    MxDevice *device = NULL;
    void *scratch;
    const CpuMatmulSpec s = {.m = SIZE, .n = SIZE, .k = SIZE};
    ck_assert(mx_device_open(&arena, &config, &device, &err));
    const CpuKernels *kernels = cpu_of(device)->level->kernels;
    ck_assert(mx_device_alloc(device, kernels->scratch(device, s) + 1, &scratch, &err));
    kernels->multiply(kernels->prepare(device, s, &err), a, b, c, scratch);
    double error = 0, size = 0;
    for (int i = 0; i < SIZE * SIZE; i++) {
        double want = 0;
        for (int k = 0; k < SIZE; k++)
            want += (double)a[i / SIZE * SIZE + k] * (double)b[k * SIZE + i % SIZE];
        error += pow((double)c[i] - want, 2);
        size += want * want;
    }
    mx_arena_release(&arena);
    return sqrt(error / size);
}

/* docs/PROCESSORS.md tells these figures: f32 2.8e-7, high 4.4e-6. What is split shows in the line
 * that describes the device. */
START_TEST(precisions_have_their_errors) {
    static float a[MOST], b[MOST], c[MOST];
    for (int i = 0; i < MOST; i++) {
        a[i] = (float)case_normal(1, (uint64_t)i);
        b[i] = (float)case_normal(2, (uint64_t)i);
    }
    double plain = error_of((MxDeviceConfig){.backend = "cpu", .matmul = MX_MATMUL_OWN}, a, b, c);
    double split = error_of(high, a, b, c);
    MxArena arena = {.name = "matmul"};
    MxError err = {0};
    MxDevice *device = NULL;
    ck_assert(mx_device_open(&arena, &high, &device, &err));
    bool is_split = cpu_of(device)->level->has_bf16;
    const char *line = mx_device_describe(device);
    ck_assert_msg(strstr(line, is_split ? "f32 our own of three bf16 products, bf16"
                                        : "f32 our own (high is f32 here), bf16"),
                  "%s", line);
    ck_assert_msg(plain < 5e-7, "f32 is off by %.3g", plain);
    ck_assert_msg(is_split ? split > 1e-6 && split < 1e-5 : split == plain,
                  "high is off by %.3g, f32 by %.3g", split, plain);
    mx_arena_release(&arena);
}
END_TEST

/* A large float whose nearest bf16 would be infinite stays a number; one that is none stays none.
 */
START_TEST(split_numbers_keep_their_kind) {
    static float a[MOST], b[MOST], c[MOST];
    const float large = 3.4e38F;
    for (int i = 0; i < MOST; i++) b[i] = i / 256 == i % 256;
    for (int i = 0; i < MOST; i++) a[i] = i == 1 ? NAN : i == 256 ? large : 1;
    error_of(high, a, b, c);
    ck_assert_msg(isnan(c[1]) && c[257] == 1, "%g, %g", (double)c[1], (double)c[257]);
    ck_assert_msg(fabsf(c[256] - large) <= 1e-4F * large, "%g", (double)c[256]);
}
END_TEST

Suite *suite_matmul(void) {
    Suite *suite = suite_create("matmul");
    TCase *t = tcase_create("matmul");
    tcase_set_timeout(t, 120);
    tcase_set_tags(t, "tiles");
    tcase_add_loop_test(t, providers_agree, 0, MX_COUNT(sizes));
    tcase_add_loop_test(t, squares_are_right, 0, MX_COUNT(squares));
    tcase_add_loop_test(t, products_of_few_rows_are_exact, 0, 2 * MX_COUNT(few_sizes));
    tcase_add_loop_test(t, thin_products_are_exact, 0, 3 * MX_COUNT(thin_sizes));
    tcase_add_loop_test(t, large_products_are_exact, 0, 3 * MX_COUNT(large_sizes));
    tcase_add_loop_test(t, small_products_are_exact, 0, 3);
    tcase_add_loop_test(t, libraries_work_in_scratch, 0, 2);
    tcase_add_loop_test(t, split_products_are_exact, 0, 3 * MX_COUNT(large_sizes));
    tcase_add_test(t, precisions_have_their_errors);
    tcase_add_test(t, split_numbers_keep_their_kind);
    suite_add_tcase(suite, t);
    return suite;
}

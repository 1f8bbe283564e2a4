/* matmul.c — both libraries on every kind and shape of product, against plain loops and so against
 * each other. */
#include "probe.h"
#include "suites.h"
#include "tolerance.h"

#include <math.h>

static const int64_t sizes[][3] = {/* m, n, k */
                                   {1, 1, 1},    {1, 7, 5},     {5, 1, 7},     {7, 5, 1},
                                   {1, 300, 64}, {300, 1, 64},  {64, 300, 1},  {3, 17, 33},
                                   {31, 33, 63}, {64, 64, 64},  {128, 96, 80}, {65, 257, 129},
                                   {2, 2, 1000}, {257, 130, 70}};
static const MxMatmulProvider providers[] = {MX_MATMUL_AUTO, MX_MATMUL_OPENBLAS, MX_MATMUL_ONEDNN};
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
} Product;

enum { MOST = 300 * 300 };
static double operands[4][MOST];

static void make_operands(void) {
    for (int which = 1; which < 4; which++)
        for (int64_t i = 0; i < MOST; i++)
            operands[which][i] = (double)mx_bf16_to_f32(
                mx_f32_to_bf16((float)probe_normal((uint64_t)which, (uint64_t)i)));
}

static double want_at(const Product *p, int64_t i, int64_t j) {
    double sum = p->add ? operands[3][i * p->n + j] : 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += operands[1][p->kind == MX_DOT_TN ? k * p->m + i : i * p->k + k] *
               operands[2][p->kind == MX_DOT_NT ? j * p->k + k : k * p->n + j];
    return sum;
}

static void fill(void *to, MxType type, int which) {
    for (int64_t i = 0; i < mx_shape_count(type.shape); i++)
        if (type.dtype == MX_F32)
            ((float *)to)[i] = (float)operands[which][i];
        else
            ((MxBf16 *)to)[i] = mx_f32_to_bf16((float)operands[which][i]);
}

static void check_product(const Product *p, const MxDeviceConfig *config) {
    const MxDotAttr attr = {.dtype = p->out, .kind = p->kind, .n_contract = 1};
    MxShape a = p->kind == MX_DOT_TN ? MX_SHAPE(p->k, p->m) : MX_SHAPE(p->m, p->k);
    MxShape b = p->kind == MX_DOT_NT ? MX_SHAPE(p->n, p->k) : MX_SHAPE(p->k, p->n);
    const MxType types[] = {{p->in, a}, {p->in, b}};
    Probe *probe = probe_open(config, &(ProbeOp){&op_dot, &attr, types, 2, p->add});
    fill(probe->in[0], types[0], 1);
    fill(probe->in[1], types[1], 2);
    fill(probe->out[0], probe->out_type[0], 3);
    probe_run(probe);
    double error = 0, size = 0;
    double *got = mx_new_n(&probe->arena, double, p->m * p->n);
    probe_load(probe->out[0], probe->out_type[0], got);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double want = want_at(p, i / p->n, i % p->n);
        error += pow(got[i] - want, 2);
        size += want * want;
    }
    double limit = p->out == MX_BF16 ? tolerance_bf16.norm : tolerance_forward_f32.norm;
    ck_assert_msg(sqrt(error) <= limit * sqrt(size),
                  "kind %d m %lld n %lld k %lld %s to %s add %d provider %d: off by %.3g", p->kind,
                  (long long)p->m, (long long)p->n, (long long)p->k, mx_dtype_name(p->in),
                  mx_dtype_name(p->out), p->add, config->matmul, sqrt(error / size));
    probe_close();
}

START_TEST(providers_agree) {
    const int64_t *size = sizes[_i];
    make_operands();
    for (int provider = 0; provider < MX_COUNT(providers); provider++)
        for (int dtype = 0; dtype < MX_COUNT(dtypes); dtype++)
            for (int kind = 0; kind < 6; kind++)
                check_product(&(Product){.m = size[0],
                                         .n = size[1],
                                         .k = size[2],
                                         .kind = (MxDotKind)(kind % 3),
                                         .in = dtypes[dtype][0],
                                         .out = dtypes[dtype][1],
                                         .add = kind >= 3},
                              &(MxDeviceConfig){.n_threads = 2, .matmul = providers[provider]});
}
END_TEST

Suite *suite_matmul(void) {
    Suite *suite = suite_create("matmul");
    TCase *t = tcase_create("matmul");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, providers_agree, 0, MX_COUNT(sizes));
    suite_add_tcase(suite, t);
    return suite;
}

/* matmul.c — the matrix product: the choice of the provider (a library, product.c or, if one size
 * is small, thin.c), conversion for providers that lack a dtype, a cache of prepared products, and
 * the op `dot`.
 *
 * The choice is a fixed function of the shape, the dtype and the processor; nothing is timed, so
 * two runs make the same choice. */
#include "kernel.h"

typedef struct Choice {
    const CpuProvider *provider;
    bool widen, narrow;
} Choice;

bool cpu_multiplies_bf16(const MxDevice *device) {
    return device->config.matmul != MX_MATMUL_OPENBLAS &&
           (cpu_of(device)->level->has_tiles || cpu_of(device)->has_fast_pairs);
}

/* Three products of bf16 are faster than one of f32 on tiles alone: vectors multiply pairs at no
 * more than twice the rate of floats. Who asks for our own products gets them wherever bf16 can be
 * multiplied. */
bool cpu_splits_f32(const MxDevice *device) {
    return device->config.may_split &&
           ((device->config.matmul == MX_MATMUL_AUTO && cpu_of(device)->level->has_tiles) ||
            (device->config.matmul == MX_MATMUL_OWN && cpu_of(device)->level->has_bf16));
}

/* oneDNN does so four times as fast as floats, with sums in int32 that cannot overflow: it makes
 * one operand unsigned, and 2^16 products of 255 and -128 still fit. */
bool cpu_multiplies_int8(const MxDevice *device, int64_t k) {
    const int64_t most_products = 1 << 16;
    bool may = device->config.matmul == MX_MATMUL_AUTO || device->config.matmul == MX_MATMUL_ONEDNN;
    return may && cpu_of(device)->level->has_int8 && k <= most_products;
}

/* Who is fastest, from bench/results.csv. Few rows: few.c, which gives each row what it gets alone.
 * Floats: the libraries, whose order changes with the size; bf16: oneDNN where the processor is
 * good at it, else product.c, which reads half of what a conversion beforehand would. A matrix
 * times itself: OpenBLAS, which makes half of it. */
static const CpuProvider *auto_provider(const MxDevice *device, const CpuMatmulSpec *spec) {
    const double large_flops = 1e9;
    double flops = 2.0 * (double)spec->m * (double)spec->n * (double)spec->k;
    if (cpu_is_thin(spec)) return &cpu_thin_products;
    if (cpu_is_few(spec)) return &cpu_few_products;
    if (spec->in == MX_BF16) return cpu_multiplies_bf16(device) ? &cpu_onednn : &cpu_own_products;
    if (spec->out == MX_BF16 || cpu_splits_f32(device)) return &cpu_own_products;
    if (spec->is_square) return &cpu_openblas;
    return flops >= large_flops ? &cpu_openblas : &cpu_onednn;
}

static Choice choose(const MxDevice *device, const CpuMatmulSpec *spec) {
    bool is_bf16 = spec->in == MX_BF16, has_bf16 = cpu_of(device)->level->has_bf16;
    if (spec->in == MX_I8) return (Choice){.provider = &cpu_onednn};
    switch (device->config.matmul) {
    case MX_MATMUL_OPENBLAS:
        return (Choice){&cpu_openblas, .widen = is_bf16, .narrow = spec->out == MX_BF16};
    case MX_MATMUL_ONEDNN:
        return (Choice){&cpu_onednn, .widen = is_bf16 && !has_bf16,
                        .narrow = spec->out == MX_BF16 && !(is_bf16 && has_bf16)};
    case MX_MATMUL_OWN:
        return (Choice){.provider = &cpu_own_products};
    default:
        return (Choice){.provider = auto_provider(device, spec)};
    }
}

static CpuMatmulSpec with_strides(CpuMatmulSpec s) {
    if (!s.lda) s.lda = s.trans_a ? s.m : s.k;
    if (!s.ldb) s.ldb = s.trans_b ? s.k : s.n;
    if (!s.ldc) s.ldc = s.n;
    return s;
}

static bool same_spec(const CpuMatmulSpec *x, const CpuMatmulSpec *y) {
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->trans_a == y->trans_a && x->trans_b == y->trans_b &&
           x->accumulate == y->accumulate && x->in == y->in && x->out == y->out &&
           x->is_square == y->is_square;
}

/* Converted operands are copies of what is stored, from the first element to the last. */
static int64_t a_count(const CpuMatmulSpec *s) {
    return s->trans_a ? cpu_max(0, s->k - 1) * s->lda + s->m : cpu_max(0, s->m - 1) * s->lda + s->k;
}
static int64_t b_count(const CpuMatmulSpec *s) {
    return s->trans_b ? cpu_max(0, s->n - 1) * s->ldb + s->k : cpu_max(0, s->k - 1) * s->ldb + s->n;
}

/* What the provider gets to see. */
static CpuMatmulSpec converted(const Choice *choice, CpuMatmulSpec spec) {
    if (choice->widen) spec.in = MX_F32;
    if (choice->narrow) {
        spec.out = MX_F32;
        spec.ldc = spec.n;
        spec.accumulate = false;
    }
    return spec;
}

size_t cpu_matmul_scratch(const MxDevice *device, CpuMatmulSpec spec) {
    spec = with_strides(spec);
    Choice choice = choose(device, &spec);
    CpuMatmulSpec run = converted(&choice, spec);
    size_t bytes = choice.provider->scratch ? choice.provider->scratch(device, &run) : 0;
    if (choice.widen)
        bytes += cpu_padded(4 * (size_t)a_count(&spec)) + cpu_padded(4 * (size_t)b_count(&spec));
    if (choice.narrow) bytes += cpu_padded(4 * (size_t)(spec.m * spec.n));
    return bytes;
}

const CpuMatmul *cpu_matmul_prepare(MxDevice *device, CpuMatmulSpec spec, MxError *err) {
    spec = with_strides(spec);
    for (const CpuMatmul *m = *cpu_of(device)->cache; m; m = m->next)
        if (same_spec(&m->spec, &spec)) return m;
    Choice choice = choose(device, &spec);
    CpuMatmul *matmul = mx_new(device->arena, CpuMatmul);
    *matmul = (CpuMatmul){.device = device,
                          .spec = spec,
                          .run = converted(&choice, spec),
                          .provider = choice.provider,
                          .widen = choice.widen,
                          .narrow = choice.narrow};
    if (choice.provider->prepare && !choice.provider->prepare(device, matmul, err)) return NULL;
    matmul->next = *cpu_of(device)->cache;
    *cpu_of(device)->cache = matmul;
    return matmul;
}

typedef struct Conversion {
    const void *from;
    void *to;
} Conversion;

static void widen_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conversion *c = context;
    cpu_widen((const MxBf16 *)c->from + begin, end - begin, (float *)c->to + begin);
}

static const float *widened(const MxDevice *device, const void *x, int64_t n, void **scratch) {
    Conversion c = {.from = x, .to = cpu_carve(scratch, 4 * (size_t)n)};
    cpu_for(device, n, CPU_PIECE, widen_span, &c);
    return c.to;
}

/* ---- running */

static void store_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const CpuMatmulSpec *s = &((const CpuMatmul *)((const Conversion *)context)[0].from)->spec;
    const Conversion *c = (const Conversion *)context + 1;
    for (int64_t row = begin; row < end; row++) {
        const float *from = (const float *)c->from + row * s->n;
        if (s->accumulate)
            cpu_add_to(from, s->n, c->to, MX_BF16, row * s->ldc);
        else
            cpu_write(from, s->n, c->to, MX_BF16, row * s->ldc);
    }
}

void cpu_matmul(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    const CpuMatmulSpec *s = &matmul->spec;
    const MxDevice *device = matmul->device;
    if (matmul->widen) {
        a = widened(device, a, a_count(s), &scratch);
        b = widened(device, b, b_count(s), &scratch);
    }
    void *to = matmul->narrow ? cpu_carve(&scratch, 4 * (size_t)(s->m * s->n)) : c;
    matmul->provider->run(matmul, a, b, to, scratch);
    if (!matmul->narrow) return;
    const Conversion context[] = {{.from = matmul}, {.from = to, .to = c}};
    cpu_for(device, s->m, cpu_max(1, CPU_PIECE / s->n), store_rows, context);
}

void cpu_matmul_part(const CpuMatmul *matmul, const int64_t m_k[2], const void *a, const void *b,
                     void *c, void *scratch) {
    CpuMatmul part = *matmul;
    if (matmul->provider->takes_less) {
        part.spec.m = part.run.m = m_k[0];
        part.spec.k = part.run.k = m_k[1];
    }
    cpu_matmul(&part, a, b, c, scratch);
}

void cpu_matmul_describe(const MxDevice *device, MxText *text) {
    const CpuMatmulSpec spec = {.m = 1024, .n = 1024, .k = 1024},
                        bf16 = {1024, 1024, 1024, .in = MX_BF16};
    const char *high = cpu_splits_f32(device) ? " of three bf16 products" : " (high is f32 here)";
    mx_text_add(text, "matmul f32 %s%s, bf16 %s%s, int8 %s (OpenBLAS %s, oneDNN %s)",
                choose(device, &spec).provider->name, device->config.may_split ? high : "",
                choose(device, &bf16).provider->name, cpu_multiplies_bf16(device) ? "" : " as f32",
                cpu_multiplies_int8(device, spec.k) ? cpu_onednn.name : "as f32",
                cpu_openblas_core(), cpu_onednn_version(device->arena));
}

/* ---- dot */

static CpuMatmulSpec dot_spec(const MxKernelCall *call) {
    const MxDotAttr *attr = call->attr;
    MxDotSizes sizes = mx_dot_sizes(call->in_type[0].shape, call->in_type[1].shape, attr);
    return (CpuMatmulSpec){.m = sizes.m,
                           .n = sizes.n,
                           .k = sizes.k,
                           .trans_a = attr->kind == MX_DOT_TN,
                           .trans_b = attr->kind == MX_DOT_NT,
                           .accumulate = call->accumulate & 1,
                           .in = call->in_type[0].dtype,
                           .out = call->out_type[0].dtype,
                           .is_square = attr->is_square && sizes.m == sizes.n &&
                                        attr->kind != MX_DOT_NN && !(call->accumulate & 1)};
}

static size_t dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    return cpu_matmul_scratch(device, dot_spec(call));
}

static bool dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const CpuMatmul **state = mx_new(device->arena, const CpuMatmul *);
    call->state = state;
    *state = cpu_matmul_prepare(device, dot_spec(call), err);
    return *state != NULL;
}

/* One product after the other. */
static void dot_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const CpuMatmul *const *state = call->state;
    MxDotSizes s = mx_dot_sizes(call->in_type[0].shape, call->in_type[1].shape, call->attr);
    const int64_t in = (int64_t)mx_dtype_bytes(call->in_type[0].dtype);
    const int64_t out = (int64_t)mx_dtype_bytes(call->out_type[0].dtype);
    const char *x = call->in[0], *y = call->in[1];
    char *to = call->out[0];
    for (int64_t i = 0; i < s.batch && to; i++)
        cpu_matmul(*state, x + i * s.m * s.k * in, y + i * s.k * s.n * in, to + i * s.m * s.n * out,
                   call->scratch);
}

const MxKernel cpu_dot = {
    .scratch = dot_scratch,
    .prepare = dot_prepare,
    .run = dot_run,
};

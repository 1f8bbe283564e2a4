/* product.c — one matrix product by OpenBLAS or oneDNN; the libraries' own calls, nothing between.
 * OpenBLAS is loaded when it is first wanted, after both libraries have been told what the
 * processor is: what distributions carry takes newer ones for ancient ones. */
#include "product.h"

#include <cblas.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const library_names[LIBRARY_COUNT] = {
    [LIBRARY_OPENBLAS] = "OpenBLAS",
    [LIBRARY_ONEDNN] = "oneDNN",
};

/* ---- the libraries */

/* What MX_CPU calls a level of processors, and both libraries; docs/PROCESSORS.md has the same. */
static const struct {
    const char *name, *core, *isa;
} levels[] = {
    {"baseline", "Prescott", "SSE41"},
    {"avx2", "Haswell", "AVX2"},
    {"avx512", "SkylakeX", "AVX512_CORE"},
    {"avx512_vnni", "SkylakeX", "AVX512_CORE_VNNI"},
    {"avx512_bf16", "Cooperlake", "AVX512_CORE_BF16"},
    {"amx", "Cooperlake", "AVX512_CORE_AMX"},
};
enum { LEVELS = (int)(sizeof levels / sizeof *levels) };

static int highest_level(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) return 4;
    if (__builtin_cpu_supports("avx512bw")) return 2;
    if (__builtin_cpu_supports("avx2")) return 1;
#endif
    return 0;
}

static void tell_libraries(void) {
    const char *name = getenv("MX_CPU");
    bool is_capped = name && *name;
    int level = is_capped ? 0 : highest_level();
    while (is_capped && level < LEVELS && strcmp(levels[level].name, name)) level++;
    if (level == LEVELS) bench_fail("MX_CPU: unrecognized level \"%s\"", name);
    setenv("OPENBLAS_CORETYPE", levels[level].core, is_capped);
    if (is_capped) setenv("ONEDNN_MAX_CPU_ISA", levels[level].isa, 1);
}

typedef struct Functions {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_get_config) *get_config;
    __typeof__(openblas_get_corename) *get_corename;
} Functions;

static void find(void *library, const char *name, void *function) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) bench_fail("could not load OpenBLAS: %s", dlerror());
    memcpy(function, &found, sizeof found);
}

static const Functions *blas_functions(void) {
    static Functions functions;
    if (functions.sgemm) return &functions;
    tell_libraries();
    void *library = dlopen(MX_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
    find(library, "openblas_get_config", &functions.get_config);
    find(library, "openblas_get_corename", &functions.get_corename);
    find(library, "cblas_sgemm", &functions.sgemm);
    return &functions;
}

void product_versions(char *text, size_t bytes) {
    const Functions *blas = blas_functions();
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, bytes, "%s; core %s; oneDNN %d.%d.%d; compiler %s", blas->get_config(),
             blas->get_corename(), v->major, v->minor, v->patch, __VERSION__);
}

Operands product_operands(size_t cells) {
    size_t bytes = cells * sizeof(float);
    Operands o = {
        .a = bench_map(bytes, true), .b = bench_map(bytes, true), .c = bench_map(bytes, true)};
    bench_fill(o.a, bytes, 1);
    bench_fill(o.b, bytes, 2);
    bench_fill(o.c, bytes, 3); /* touched, so that no page is made while timing */
    return o;
}

bool product_can(const Product *product, Library library) {
    return library == LIBRARY_ONEDNN || !product->is_bf16;
}

double product_flops(const Product *p) {
    return 2.0 * p->m * p->n * p->k;
}

/* ---- OpenBLAS */

typedef struct Blas {
    const Product *product;
    const Operands *operands;
} Blas;

static void run_blas(void *context) {
    const Blas *blas = context;
    const Product *p = blas->product;
    blas_functions()->sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                            p->trans_b ? CblasTrans : CblasNoTrans, p->m, p->n, p->k, 1.0f,
                            blas->operands->a, p->trans_a ? p->m : p->k, blas->operands->b,
                            p->trans_b ? p->k : p->n, 0.0f, blas->operands->c, p->n);
}

/* ---- oneDNN */

typedef struct Primitive {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
} Primitive;

static bool is_ok(dnnl_status_t status) {
    return status == dnnl_success;
}

/* Versions 2 and 3 of oneDNN call these differently: a description is a struct or an object. */
#if DNNL_VERSION_MAJOR < 3
#define DESCRIBE          dnnl_memory_desc_init_by_tag
#define DESCRIPTION(desc) (&(desc))

static bool describe_product(dnnl_primitive_desc_t *out, const Primitive *x,
                             dnnl_memory_desc_t abc[3]) {
    dnnl_matmul_desc_t desc;
    return is_ok(dnnl_matmul_desc_init(&desc, &abc[0], &abc[1], NULL, &abc[2])) &&
           is_ok(dnnl_primitive_desc_create(out, &desc, NULL, x->engine, NULL));
}
#else
#define DESCRIBE          dnnl_memory_desc_create_with_tag
#define DESCRIPTION(desc) (desc)

static bool describe_product(dnnl_primitive_desc_t *out, const Primitive *x,
                             dnnl_memory_desc_t abc[3]) {
    return is_ok(
        dnnl_matmul_primitive_desc_create(out, x->engine, abc[0], abc[1], NULL, abc[2], NULL));
}
#endif

static bool make_primitive(Primitive *x, const Product *p, const Operands *operands) {
    dnnl_memory_desc_t abc[3];
    dnnl_primitive_desc_t desc;
    dnnl_data_type_t in = p->is_bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_data_type_t out = p->is_bf16_out ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t a = {p->m, p->k}, b = {p->k, p->n}, c = {p->m, p->n};
    blas_functions(); /* oneDNN reads its variable when it is first used */
    if (!is_ok(dnnl_engine_create(&x->engine, dnnl_cpu, 0)) ||
        !is_ok(dnnl_stream_create(&x->stream, x->engine, dnnl_stream_default_flags)) ||
        !is_ok(DESCRIBE(&abc[0], 2, a, in, p->trans_a ? dnnl_ba : dnnl_ab)) ||
        !is_ok(DESCRIBE(&abc[1], 2, b, in, p->trans_b ? dnnl_ba : dnnl_ab)) ||
        !is_ok(DESCRIBE(&abc[2], 2, c, out, dnnl_ab)) || !describe_product(&desc, x, abc) ||
        !is_ok(dnnl_primitive_create(&x->primitive, desc)))
        return false;
    dnnl_primitive_desc_destroy(desc);
    return is_ok(dnnl_memory_create(&x->a, DESCRIPTION(abc[0]), x->engine, operands->a)) &&
           is_ok(dnnl_memory_create(&x->b, DESCRIPTION(abc[1]), x->engine, operands->b)) &&
           is_ok(dnnl_memory_create(&x->c, DESCRIPTION(abc[2]), x->engine, operands->c));
}

static void open_primitive(Primitive *x, const Product *p, const Operands *operands) {
    if (!make_primitive(x, p, operands))
        bench_fail("oneDNN has no product %s [%d, %d] x [%d, %d] here",
                   p->is_bf16 ? "bfloat16" : "float32", p->m, p->k, p->k, p->n);
}

static void close_primitive(Primitive *x) {
    dnnl_memory_destroy(x->a);
    dnnl_memory_destroy(x->b);
    dnnl_memory_destroy(x->c);
    dnnl_primitive_destroy(x->primitive);
    dnnl_stream_destroy(x->stream);
    dnnl_engine_destroy(x->engine);
}

static void run_primitive(void *context) {
    const Primitive *x = context;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, x->a}, {DNNL_ARG_WEIGHTS, x->b}, {DNNL_ARG_DST, x->c}};
    if (dnnl_primitive_execute(x->primitive, x->stream, 3, args) != dnnl_success ||
        dnnl_stream_wait(x->stream) != dnnl_success)
        bench_fail("oneDNN could not run a product");
}

bool product_has_bf16(void) {
    enum { SIDE = 64 };
    Primitive x;
    Operands operands = product_operands((size_t)SIDE * SIDE);
    const Product p = {.m = SIDE, .n = SIDE, .k = SIDE, .is_bf16 = true};
    if (!make_primitive(&x, &p, &operands)) return false;
    close_primitive(&x);
    return true;
}

BenchTimes product_time(const Product *product, Library library, const Operands *operands) {
    if (library == LIBRARY_OPENBLAS) {
        Blas blas = {.product = product, .operands = operands};
        return bench_time(run_blas, &blas);
    }
    Primitive x;
    open_primitive(&x, product, operands);
    BenchTimes times = bench_time(run_primitive, &x);
    close_primitive(&x);
    return times;
}

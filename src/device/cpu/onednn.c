/* onednn.c — oneDNN as a provider of f32 and bf16 products; the one file that includes its header.
 * A primitive and its three memory objects are made once a shape; running sets their pointers. */
#include "cpu.h"

#include <dnnl.h>

typedef struct Engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} Engine;

typedef struct Product {
    const Engine *engine;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
} Product;

static void close_engine(void *data) {
    Engine *e = data;
    if (e->stream) dnnl_stream_destroy(e->stream);
    if (e->engine) dnnl_engine_destroy(e->engine);
}

bool cpu_onednn_open(MxDevice *device, MxError *err) {
    Engine *e = mx_new(device->arena, Engine);
    mx_arena_on_release(device->arena, close_engine, e);
    device->onednn = e;
    if (dnnl_engine_create(&e->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags) == dnnl_success)
        return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "oneDNN has no CPU engine on this machine");
}

const char *cpu_onednn_version(MxArena *arena) {
    const dnnl_version_t *v = dnnl_version();
    return mx_arena_printf(arena, "%d.%d.%d", v->major, v->minor, v->patch);
}

static void close_product(void *data) {
    Product *p = data;
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->a) dnnl_memory_destroy(p->a);
    if (p->b) dnnl_memory_destroy(p->b);
    if (p->c) dnnl_memory_destroy(p->c);
}

/* A [rows, cols] operand, stored the other way round if transposed. */
static bool describe(dnnl_memory_desc_t *desc, const int64_t rows_cols_ld[3], bool transposed,
                     MxDtype dtype) {
    dnnl_dims_t dims = {rows_cols_ld[0], rows_cols_ld[1]};
    dnnl_dims_t strides = {transposed ? 1 : rows_cols_ld[2], transposed ? rows_cols_ld[2] : 1};
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, dtype == MX_BF16 ? dnnl_bf16 : dnnl_f32,
                                            strides) == dnnl_success;
}

static bool make_primitive(Product *p, const dnnl_memory_desc_t abc[3], bool accumulate) {
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post_ops = NULL;
    dnnl_primitive_desc_t primitive_desc = NULL;
    bool ok = dnnl_matmul_desc_init(&desc, &abc[0], &abc[1], NULL, &abc[2]) == dnnl_success &&
              dnnl_primitive_attr_create(&attr) == dnnl_success &&
              dnnl_post_ops_create(&post_ops) == dnnl_success;
    if (ok && accumulate) ok = dnnl_post_ops_append_sum(post_ops, 1.0f) == dnnl_success;
    ok = ok && dnnl_primitive_attr_set_post_ops(attr, post_ops) == dnnl_success &&
         dnnl_primitive_desc_create(&primitive_desc, &desc, attr, p->engine->engine, NULL) ==
             dnnl_success &&
         dnnl_primitive_create(&p->primitive, primitive_desc) == dnnl_success;
    if (primitive_desc) dnnl_primitive_desc_destroy(primitive_desc);
    if (post_ops) dnnl_post_ops_destroy(post_ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return ok;
}

static bool prepare(MxDevice *device, CpuMatmul *matmul, MxError *err) {
    const CpuMatmulSpec *s = &matmul->run;
    Product *p = mx_new(device->arena, Product);
    p->engine = device->onednn;
    mx_arena_on_release(device->arena, close_product, p);
    matmul->state = p;
    dnnl_memory_desc_t abc[3];
    const dnnl_engine_t engine = p->engine->engine;
    bool ok = describe(&abc[0], (int64_t[]){s->m, s->k, s->lda}, s->trans_a, s->in) &&
              describe(&abc[1], (int64_t[]){s->k, s->n, s->ldb}, s->trans_b, s->in) &&
              describe(&abc[2], (int64_t[]){s->m, s->n, s->ldc}, false, s->out) &&
              make_primitive(p, abc, s->accumulate) &&
              dnnl_memory_create(&p->a, &abc[0], engine, DNNL_MEMORY_NONE) == dnnl_success &&
              dnnl_memory_create(&p->b, &abc[1], engine, DNNL_MEMORY_NONE) == dnnl_success &&
              dnnl_memory_create(&p->c, &abc[2], engine, DNNL_MEMORY_NONE) == dnnl_success;
    if (ok) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "oneDNN has no matrix product %s [%lld, %lld] x [%lld, %lld]",
                   mx_dtype_name(s->in), (long long)s->m, (long long)s->k, (long long)s->k,
                   (long long)s->n);
}

/* oneDNN's handles are not const, but operands are only read. */
static void *unconst(const void *p) {
    void *q;
    memcpy(&q, &p, sizeof q);
    return q;
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    (void)scratch;
    const Product *p = matmul->state;
    bool ok = dnnl_memory_set_data_handle(p->a, unconst(a)) == dnnl_success &&
              dnnl_memory_set_data_handle(p->b, unconst(b)) == dnnl_success &&
              dnnl_memory_set_data_handle(p->c, c) == dnnl_success;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    ok = ok &&
         dnnl_primitive_execute(p->primitive, p->engine->stream, MX_COUNT(args), args) ==
             dnnl_success &&
         dnnl_stream_wait(p->engine->stream) == dnnl_success;
    MX_ASSERT(ok);
}

const CpuProvider cpu_onednn = {
    .name = "oneDNN",
    .prepare = prepare,
    .run = run,
};

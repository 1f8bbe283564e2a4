/* onednn.c — oneDNN, version 2 or 3, as a provider of products of f32, bf16 and int8; the only file
 * that includes its header. A primitive and its memory objects are created once per shape; each run
 * only sets their pointers. */
#include "cpu.h"

#include <dnnl.h>

/* What a product works in, once it was asked for: the search that oneDNN makes for the way to
 * multiply takes a third of a plan's time, and layers ask for the same products. */
typedef struct Known {
    CpuMatmulSpec spec;
    size_t scratch;
    struct Known *next;
} Known;

typedef struct Engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Known *known;
} Engine;

static void close_engine(void *data) {
    Engine *e = data;
    if (e->stream) dnnl_stream_destroy(e->stream);
    if (e->engine) dnnl_engine_destroy(e->engine);
}

bool cpu_onednn_open(Cpu *cpu, MxError *err) {
    Engine *e = mx_new(cpu->device.arena, Engine);
    mx_arena_on_release(cpu->device.arena, close_engine, e);
    cpu->onednn = e;
    if (dnnl_engine_create(&e->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags) == dnnl_success)
        return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "oneDNN has no CPU engine on this machine");
}

const char *cpu_onednn_version(MxArena *arena) {
    const dnnl_version_t *v = dnnl_version();
    return mx_arena_printf(arena, "%d.%d.%d", v->major, v->minor, v->patch);
}

/* oneDNN's handles are not const, but operands are only read. */
static void *unconst(const void *p) {
    void *q;
    memcpy(&q, &p, sizeof q);
    return q;
}

/* Whether a description is of an implementation whose name begins so. */
static bool is_way(dnnl_primitive_desc_t desc, const char *how) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, how, strlen(how)) == 0;
}

/* ---- what versions 2 and 3 call differently: a description is a struct in one and an object in
 * the other; here it is a pointer in both */

#if DNNL_VERSION_MAJOR < 3

typedef const dnnl_memory_desc_t *Layout;

/* strides: NULL = whatever a product asks for. */
static bool layout_open(MxArena *arena, Layout *layout, const dnnl_dims_t dims,
                        const dnnl_dim_t *strides, dnnl_data_type_t type) {
    dnnl_memory_desc_t *desc = mx_new(arena, dnnl_memory_desc_t);
    *layout = desc;
    return (strides ? dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides)
                    : dnnl_memory_desc_init_by_tag(desc, 2, dims, type, dnnl_format_tag_any)) ==
           dnnl_success;
}

static void layout_close(Layout layout) {
    (void)layout;
}

static bool describe_product(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, const Layout abc[3],
                             dnnl_primitive_attr_t attr, const char *how) {
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_iterator_t ways = NULL;
    if (dnnl_matmul_desc_init(&matmul, abc[0], abc[1], NULL, abc[2]) != dnnl_success ||
        dnnl_primitive_desc_iterator_create(&ways, &matmul, attr, engine, NULL) != dnnl_success)
        return false;
    do {
        if (*desc) dnnl_primitive_desc_destroy(*desc);
        *desc = dnnl_primitive_desc_iterator_fetch(ways);
    } while (!is_way(*desc, how) && dnnl_primitive_desc_iterator_next(ways) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(ways);
    return is_way(*desc, how);
}

static bool append_sum(dnnl_post_ops_t post_ops) {
    return dnnl_post_ops_append_sum(post_ops, 1.0f) == dnnl_success;
}

#else

typedef const_dnnl_memory_desc_t Layout;

static bool layout_open(MxArena *arena, Layout *layout, const dnnl_dims_t dims,
                        const dnnl_dim_t *strides, dnnl_data_type_t type) {
    (void)arena;
    dnnl_memory_desc_t desc = NULL;
    bool ok = (strides ? dnnl_memory_desc_create_with_strides(&desc, 2, dims, type, strides)
                       : dnnl_memory_desc_create_with_tag(&desc, 2, dims, type,
                                                          dnnl_format_tag_any)) == dnnl_success;
    *layout = desc;
    return ok;
}

static void layout_close(Layout layout) {
    if (layout) dnnl_memory_desc_destroy(unconst(layout));
}

static bool describe_product(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, const Layout abc[3],
                             dnnl_primitive_attr_t attr, const char *how) {
    if (*desc) dnnl_primitive_desc_destroy(*desc);
    if (dnnl_matmul_primitive_desc_create(desc, engine, abc[0], abc[1], NULL, abc[2], attr) !=
        dnnl_success)
        return false;
    while (!is_way(*desc, how))
        if (dnnl_primitive_desc_next_impl(*desc) != dnnl_success) return false;
    return true;
}

static bool append_sum(dnnl_post_ops_t post_ops) {
    return dnnl_post_ops_append_sum(post_ops, 1.0f, 0, dnnl_data_type_undef) == dnnl_success;
}

#endif

/* ---- a product */

/* What a product is made of, as long as it is made. */
typedef struct Design {
    const CpuMatmulSpec *spec;
    dnnl_engine_t engine;
    Layout a, b, c;                       /* as they are stored */
    dnnl_primitive_desc_t multiply, pack; /* pack: NULL = B stays as it is */
} Design;

typedef struct Product {
    const Engine *engine;
    dnnl_primitive_t multiply, pack; /* pack: B into the layout that oneDNN wants, or NULL */
    dnnl_memory_t a, b, c, packed, scratch;
    size_t packed_bytes;
} Product;

static void close_product(void *data) {
    Product *p = data;
    const dnnl_primitive_t primitives[] = {p->multiply, p->pack};
    const dnnl_memory_t memories[] = {p->a, p->b, p->c, p->packed, p->scratch};
    for (int i = 0; i < MX_COUNT(primitives); i++)
        if (primitives[i]) dnnl_primitive_destroy(primitives[i]);
    for (int i = 0; i < MX_COUNT(memories); i++)
        if (memories[i]) dnnl_memory_destroy(memories[i]);
}

/* Where bf16 is multiplied better by oneDNN's general product, which copies parts of both operands,
 * than by its first choice: that reads an A stored the other way round at two thirds of its speed,
 * and, on AMX, all of k for every block of C. */
static bool is_general(const MxDevice *device, const CpuMatmulSpec *s) {
    const int64_t long_sum = 2048;
    return s->in == MX_BF16 &&
           (s->trans_a || (cpu_of(device)->level->has_tiles && s->k >= long_sum));
}

/* Given B in rows, the first choice rearranges it for AMX a part at a time, once for every block of
 * rows of A. Many rows pay for doing so once and for all, as long as the caches hold B. */
static bool packs(const MxDevice *device, const CpuMatmulSpec *s) {
    const int64_t many_rows = 1024, most_elements = 1 << 22;
    return cpu_of(device)->level->has_tiles && s->in == MX_BF16 && !is_general(device, s) &&
           !s->trans_b && s->m >= many_rows && s->k * s->n <= most_elements;
}

/* A [rows, cols] operand, stored the other way round if transposed; ld 0 = as the product asks. */
static bool describe(MxArena *arena, Layout *layout, const int64_t rows_cols_ld[3], bool transposed,
                     MxDtype dtype) {
    int64_t ld = rows_cols_ld[2];
    const dnnl_dims_t dims = {rows_cols_ld[0], rows_cols_ld[1]};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    dnnl_data_type_t type = dtype == MX_I8 ? dnnl_s8 : dtype == MX_BF16 ? dnnl_bf16 : dnnl_f32;
    return layout_open(arena, layout, dims, ld ? strides : NULL, type);
}

/* Working memory is ours, so that the plan of a run counts it. What the general product allocates
 * besides, while it runs, is a copy of at most 1024 rows of B and some blocks of A. */
static bool design_multiply(const MxDevice *device, Design *d, const Layout abc[3]) {
    const char *how = is_general(device, d->spec) ? "gemm" : "";
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post_ops = NULL;
    /* The general product has a name of its own; where it cannot be had, any does. */
    bool ok =
        dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_post_ops_create(&post_ops) == dnnl_success &&
        (!d->spec->accumulate || append_sum(post_ops)) &&
        dnnl_primitive_attr_set_post_ops(attr, post_ops) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        (describe_product(&d->multiply, d->engine, abc, attr, how) ||
         describe_product(&d->multiply, d->engine, abc, attr, ""));
    if (post_ops) dnnl_post_ops_destroy(post_ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return ok;
}

static Layout packed_layout(const Design *d) {
    return dnnl_primitive_desc_query_md(d->multiply, dnnl_query_weights_md, 0);
}

static Layout scratch_layout(const Design *d) {
    return dnnl_primitive_desc_query_md(d->multiply, dnnl_query_scratchpad_md, 0);
}

static bool design(const MxDevice *device, MxArena *arena, const CpuMatmulSpec *s, Design *d) {
    const Engine *e = cpu_of(device)->onednn;
    *d = (Design){.spec = s, .engine = e->engine};
    const int64_t a[] = {s->m, s->k, s->lda}, b[] = {s->k, s->n, s->ldb};
    const int64_t c[] = {s->m, s->n, s->ldc}, as_asked[] = {s->k, s->n, 0};
    Layout any = NULL;
    bool ok = describe(arena, &d->a, a, s->trans_a, s->in) &&
              describe(arena, &d->b, b, s->trans_b, s->in) &&
              describe(arena, &d->c, c, false, s->out) &&
              describe(arena, &any, as_asked, false, s->in) &&
              design_multiply(device, d, (Layout[]){d->a, packs(device, s) ? any : d->b, d->c});
    layout_close(any);
    return ok && (!packs(device, s) ||
                  dnnl_reorder_primitive_desc_create(&d->pack, d->b, d->engine, packed_layout(d),
                                                     d->engine, NULL) == dnnl_success);
}

static void design_close(Design *d) {
    if (d->multiply) dnnl_primitive_desc_destroy(d->multiply);
    if (d->pack) dnnl_primitive_desc_destroy(d->pack);
    layout_close(d->a);
    layout_close(d->b);
    layout_close(d->c);
}

static size_t packed_bytes(const Design *d) {
    return d->pack ? cpu_padded(dnnl_memory_desc_get_size(packed_layout(d))) : 0;
}

/* A packed B, and behind it what oneDNN works in. What cannot be made is told by prepare. */
static size_t find_scratch(const MxDevice *device, const CpuMatmulSpec *s) {
    MxArena arena = {.name = "oneDNN"};
    Design d;
    bool ok = design(device, &arena, s, &d);
    size_t bytes =
        ok ? packed_bytes(&d) + cpu_padded(dnnl_memory_desc_get_size(scratch_layout(&d))) : 0;
    design_close(&d);
    mx_arena_release(&arena);
    return bytes;
}

static bool are_equal(const CpuMatmulSpec *x, const CpuMatmulSpec *y) {
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->trans_a == y->trans_a && x->trans_b == y->trans_b &&
           x->accumulate == y->accumulate && x->in == y->in && x->out == y->out &&
           x->is_square == y->is_square;
}

static size_t scratch_bytes(const MxDevice *device, const CpuMatmulSpec *s) {
    Engine *e = cpu_of(device)->onednn;
    for (const Known *known = e->known; known; known = known->next)
        if (are_equal(&known->spec, s)) return known->scratch;
    Known *known = mx_new(device->arena, Known);
    *known = (Known){*s, find_scratch(device, s), e->known};
    e->known = known;
    return known->scratch;
}

static bool make_memory(const Design *d, dnnl_memory_t *memory, Layout layout) {
    return dnnl_memory_create(memory, layout, d->engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool make_product(const Design *d, Product *p) {
    p->packed_bytes = packed_bytes(d);
    return dnnl_primitive_create(&p->multiply, d->multiply) == dnnl_success &&
           make_memory(d, &p->a, d->a) && make_memory(d, &p->b, d->b) &&
           make_memory(d, &p->c, d->c) && make_memory(d, &p->scratch, scratch_layout(d)) &&
           (!d->pack || (dnnl_primitive_create(&p->pack, d->pack) == dnnl_success &&
                         make_memory(d, &p->packed, packed_layout(d))));
}

static bool prepare(MxDevice *device, CpuMatmul *matmul, MxError *err) {
    const CpuMatmulSpec *s = &matmul->run;
    Product *p = mx_new(device->arena, Product);
    p->engine = cpu_of(device)->onednn;
    mx_arena_on_release(device->arena, close_product, p);
    matmul->state = p;
    MxArena arena = {.name = "oneDNN"};
    Design d;
    bool ok = design(device, &arena, s, &d) && make_product(&d, p);
    design_close(&d);
    mx_arena_release(&arena);
    if (ok) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "oneDNN has no matrix product %s [%lld, %lld] x [%lld, %lld]",
                   mx_dtype_name(s->in), (long long)s->m, (long long)s->k, (long long)s->k,
                   (long long)s->n);
}

static void execute(const Product *p, dnnl_primitive_t primitive, int n,
                    const dnnl_exec_arg_t *args) {
    bool ok = dnnl_primitive_execute(primitive, p->engine->stream, n, args) == dnnl_success &&
              dnnl_stream_wait(p->engine->stream) == dnnl_success;
    MX_ASSERT(ok);
}

static void point(dnnl_memory_t memory, const void *data) {
    bool ok = dnnl_memory_set_data_handle(memory, unconst(data)) == dnnl_success;
    MX_ASSERT(ok);
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    const Product *p = matmul->state;
    point(p->a, a);
    point(p->b, b);
    point(p->c, c);
    point(p->scratch, (char *)scratch + p->packed_bytes);
    if (p->pack) {
        point(p->packed, scratch);
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->b}, {DNNL_ARG_TO, p->packed}};
        execute(p, p->pack, MX_COUNT(args), args);
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                                    {DNNL_ARG_WEIGHTS, p->pack ? p->packed : p->b},
                                    {DNNL_ARG_DST, p->c},
                                    {DNNL_ARG_SCRATCHPAD, p->scratch}};
    execute(p, p->multiply, MX_COUNT(args), args);
}

const CpuProvider cpu_onednn = {
    .name = "oneDNN",
    .scratch = scratch_bytes,
    .prepare = prepare,
    .run = run,
};

/* slabs.cuh — products of matrices of which an operand, or the result, is made in scratch: for some
 * columns of the result at a time, so that it takes bounded memory and stays in the second cache.
 */
#ifndef GPU_SLABS_CUH
#define GPU_SLABS_CUH

#include "device/cuda/gpu.cuh"

static constexpr int64_t SLAB_ELEMENTS = 1 << 24, SLAB_COLUMNS = 256 /* its columns' divisor */;

typedef struct Slabs {
    GpuProductSpec spec; /* of all columns; a leading dim of 0 is that of a slab */
    int64_t columns;
    size_t bytes;                     /* of a slab, padded */
    const GpuProduct *product, *last; /* of whole slabs, and of what is left; NULL = none */
} Slabs;

/* slabs_of — each with `height` elements a column. */
static inline Slabs slabs_of(const GpuProductSpec &spec, int64_t height, MxDtype dtype) {
    Slabs s = {};
    s.spec = spec;
    s.columns = SLAB_ELEMENTS / gpu_max(1, height) / SLAB_COLUMNS * SLAB_COLUMNS;
    s.columns = gpu_min(gpu_max(s.columns, SLAB_COLUMNS), spec.n);
    s.bytes = gpu_padded((size_t)(s.columns * height) * mx_dtype_bytes(dtype));
    return s;
}

static inline bool slabs_are_empty(const Slabs *s) {
    return !s->spec.m || !s->spec.n || !s->spec.k;
}

static inline GpuProductSpec slabs_product(const Slabs *s, int64_t n) {
    GpuProductSpec spec = s->spec;
    spec.n = n;
    return spec;
}

static inline int64_t slabs_rest(const Slabs *s) {
    return s->columns ? s->spec.n % s->columns : 0;
}

/* slabs_scratch — bytes of a product's own, behind the slab. */
static inline size_t slabs_scratch(const MxDevice *device, const Slabs *s) {
    if (slabs_are_empty(s)) return 0;
    GpuProductSpec whole = slabs_product(s, s->columns), last = slabs_product(s, slabs_rest(s));
    size_t most = gpu_product_bytes(device, &whole);
    size_t other = last.n ? gpu_product_bytes(device, &last) : 0;
    return most > other ? most : other;
}

static inline bool slabs_prepare(MxDevice *device, Slabs *s, MxError *err) {
    if (slabs_are_empty(s)) return true;
    GpuProductSpec whole = slabs_product(s, s->columns), last = slabs_product(s, slabs_rest(s));
    s->product = gpu_product_prepare(device, &whole, err);
    if (s->product && last.n) s->last = gpu_product_prepare(device, &last, err);
    return s->product && (s->last || !last.n);
}

/* slabs_multiply — n columns. */
static inline void slabs_multiply(const MxDevice *device, const Slabs *s, int64_t n, const void *a,
                                  const void *b, void *c, void *scratch) {
    gpu_product_run(device, n == s->columns ? s->product : s->last, a, b, c, scratch);
}

#endif

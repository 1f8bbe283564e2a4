/* coded.cu — operands rounded to few numbers, and products of such operands. The library multiplies
 * floats, which represent all codes exactly: int8 becomes bf16 before. Scales are applied to the
 * result. */
#include "slabs.cuh"

namespace gpu_coded {

/* ---- rounding: x as a matrix, whose rows or whose columns share a scale */

typedef struct Rounding {
    GpuArray x, codes;
    const float *factor;        /* of columns, or where scales are, of rows; NULL = 1 */
    float *scales, *magnitudes; /* one a row, or a column */
    void *parts;                /* of columns: [parts][columns] of what is measured */
    int64_t rows, columns, n_parts;
    bool by_columns;
    MxGridRow grid;
    MxCalibration calibration;
} Rounding;

static constexpr int64_t PART_ROWS = 128; /* that a thread measures */

static Rounding rounding_of(const MxKernelCall *call) {
    const MxEncodeAttr *attr = (const MxEncodeAttr *)call->attr;
    MxShape x = call->in_type[0].shape;
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    Rounding r = {};
    r.by_columns = attr->leads;
    r.grid = mx_grids[attr->coding.grid];
    r.calibration = attr->coding.calibration;
    r.rows = r.columns = 1;
    for (int d = 0; d < x.rank; d++) (d < split ? r.rows : r.columns) *= x.dim[d];
    r.n_parts = (r.rows + PART_ROWS - 1) / PART_ROWS;
    return r;
}

__device__ static float factored(const Rounding &r, int64_t row, int64_t column) {
    float x = gpu_get(r.x, row * r.columns + column);
    return r.factor ? __fmul_rn(x, r.factor[r.by_columns ? row : column]) : x;
}

/* What is measured of elements, by one thread and by a block. */
template <MxMeasure M> struct Measure;
/* Magnitudes are ordered as their bits are; a NaN is the largest. */
template <> struct Measure<MX_ABSMAX> {
    typedef uint32_t T;
    __device__ static T join(T a, T b) { return b > a ? b : a; }
    __device__ static T add(T a, float x) { return join(a, __float_as_uint(fabsf(x))); }
    __device__ static T of_block(T x) { return gpu_block_max(x); }
    __device__ static float magnitude(T found, int64_t, float by) {
        return __fmul_rn(__uint_as_float(found), by);
    }
    __device__ static float scale(float most, float bound) { return __fmul_rn(most, 1 / bound); }
};
template <> struct Measure<MX_RMS> {
    typedef double T;
    __device__ static T join(T a, T b) { return a + b; }
    __device__ static T add(T a, float x) { return a + (double)x * (double)x; }
    __device__ static T of_block(T x) { return gpu_block_sum(x); }
    __device__ static float magnitude(T found, int64_t n, float by) {
        return __fmul_rn(sqrtf((float)found / (float)n), by);
    }
    __device__ static float scale(float most, float bound) { return __fmul_rn(most, 1 / bound); }
};
/* Nothing but a NaN is looked for. */
template <> struct Measure<MX_FIXED> : Measure<MX_ABSMAX> {
    __device__ static float magnitude(T found, int64_t, float by) {
        float most = __uint_as_float(found);
        return most != most ? most : by;
    }
    __device__ static float scale(float most, float bound) { return most / bound; }
};

template <MxMeasure M> __device__ static float scale_of(const Rounding &r, float magnitude) {
    float scale = Measure<M>::scale(magnitude, r.grid.bound);
    return scale < MX_LEAST_SCALE ? 1.0f : scale;
}

/* The nearest number of the grid: a number much larger than x is added and taken away again, one
 * whose last bit counts as much as numbers of the grid near x are apart. */
__device__ static float on_grid(const MxGridRow &g, float x) {
    constexpr int MANTISSA = 23, BIAS = 127;
    const uint32_t least = (uint32_t)(g.exponent + BIAS) << MANTISSA;
    uint32_t word = __float_as_uint(x) & 0xffu << MANTISSA;
    word = (word > least ? word : least) + ((uint32_t)(MANTISSA - g.bits) << MANTISSA);
    float large = __uint_as_float(word | 1u << (MANTISSA - 1));
    float y = (x + large) - large;
    y = y < g.least ? g.least : y;
    return y > g.most ? g.most : y;
}

__device__ static void put_code(const Rounding &r, int64_t row, int64_t column, float scale) {
    float code = on_grid(r.grid, __fmul_rn(factored(r, row, column), 1.0f / scale));
    int64_t at = row * r.columns + column;
    if (r.codes.dtype == MX_I8)
        ((int8_t *)r.codes.data)[at] = code != code ? 0 : (int8_t)code;
    else
        gpu_put(r.codes, at, code);
}

/* A block has a row. */
template <MxMeasure M> __global__ void __launch_bounds__(GPU_BLOCK) code_rows_kernel(Rounding r) {
    typedef Measure<M> Of;
    int64_t row = blockIdx.x;
    typename Of::T found = 0;
    for (int64_t i = threadIdx.x; i < r.columns; i += GPU_BLOCK)
        found = Of::add(found, factored(r, row, i));
    float magnitude = Of::magnitude(Of::of_block(found), r.columns, r.calibration.by);
    float scale = scale_of<M>(r, magnitude);
    if (r.magnitudes && threadIdx.x == 0) r.magnitudes[row] = magnitude;
    if (r.scales && threadIdx.x == 0) r.scales[row] = scale;
    for (int64_t i = threadIdx.x; i < r.columns && r.codes.data; i += GPU_BLOCK)
        put_code(r, row, i, scale);
}

template <MxMeasure M>
__global__ void __launch_bounds__(GPU_BLOCK) measure_columns_kernel(Rounding r) {
    typedef Measure<M> Of;
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    for (int64_t part = blockIdx.y; part < r.n_parts; part += gridDim.y) {
        typename Of::T found = 0;
        int64_t end = gpu_min(r.rows, (part + 1) * PART_ROWS);
        for (int64_t row = part * PART_ROWS; row < end; row++)
            found = Of::add(found, factored(r, row, column));
        ((typename Of::T *)r.parts)[part * r.columns + column] = found;
    }
}

/* The scale of a column, when it is known, where its first part was. */
template <class T> __device__ static float *scale_at(void *parts, int64_t column) {
    return (float *)((T *)parts + column);
}

template <MxMeasure M>
__global__ void __launch_bounds__(GPU_BLOCK) scale_columns_kernel(Rounding r) {
    typedef Measure<M> Of;
    typename Of::T found = 0, *parts = (typename Of::T *)r.parts;
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    for (int64_t part = 0; part < r.n_parts; part++)
        found = Of::join(found, parts[part * r.columns + column]);
    float magnitude = Of::magnitude(found, r.rows, r.calibration.by),
          scale = scale_of<M>(r, magnitude);
    *scale_at<typename Of::T>(parts, column) = scale;
    if (r.magnitudes) r.magnitudes[column] = magnitude;
    if (r.scales) r.scales[column] = scale;
}

template <MxMeasure M>
__global__ void __launch_bounds__(GPU_BLOCK) code_columns_kernel(Rounding r) {
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    float scale = *scale_at<typename Measure<M>::T>(r.parts, column);
    for (int64_t part = blockIdx.y; part < r.n_parts; part += gridDim.y) {
        int64_t end = gpu_min(r.rows, (part + 1) * PART_ROWS);
        for (int64_t row = part * PART_ROWS; row < end; row++) put_code(r, row, column, scale);
    }
}

/* Parts of ranks exchange magnitudes, on the host. */
static bool is_joined(const MxKernelCall *call) {
    return ((const MxEncodeAttr *)call->attr)->group.size > 1;
}

static size_t encode_scratch(const MxDevice *, const MxKernelCall *call) {
    Rounding r = rounding_of(call);
    if (is_joined(call) || !r.by_columns) return 0;
    return gpu_padded((size_t)(gpu_max(1, r.n_parts) * r.columns) * sizeof(double));
}

static bool encode_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    return !is_joined(call) || gpu_host_prepare(device, call, err);
}

typedef void Coder(const MxDevice *device, const Rounding &r);

template <MxMeasure M> static void code_rows(const MxDevice *device, const Rounding &r) {
    gpu_launch(device, code_rows_kernel<M>, (unsigned)r.rows, GPU_BLOCK, 0, r);
}

template <MxMeasure M> static void code_columns(const MxDevice *device, const Rounding &r) {
    constexpr int64_t MOST_BLOCKS = 65535;
    unsigned blocks = gpu_blocks(r.columns);
    dim3 grid(blocks, (unsigned)gpu_min(gpu_max(1, r.n_parts), MOST_BLOCKS));
    gpu_launch(device, measure_columns_kernel<M>, grid, GPU_BLOCK, 0, r);
    gpu_launch(device, scale_columns_kernel<M>, blocks, GPU_BLOCK, 0, r);
    if (r.codes.data) gpu_launch(device, code_columns_kernel<M>, grid, GPU_BLOCK, 0, r);
}

/* In the order of MxMeasure: of rows, and of columns. */
static Coder *const coders[MX_MEASURE_COUNT][2] = {
    {code_rows<MX_ABSMAX>, code_columns<MX_ABSMAX>},
    {code_rows<MX_RMS>, code_columns<MX_RMS>},
    {code_rows<MX_FIXED>, code_columns<MX_FIXED>},
};

static void encode_run(const MxDevice *device, const MxKernelCall *call) {
    if (is_joined(call)) {
        gpu_host_run(device, call);
        return;
    }
    Rounding r = rounding_of(call);
    r.x = gpu_in(call, 0);
    r.factor = call->n_in > 1 ? (const float *)call->in[1] : nullptr;
    r.codes = gpu_out(call, 0);
    r.scales = (float *)call->out[1];
    r.magnitudes = (float *)call->out[2];
    r.parts = call->scratch;
    coders[r.calibration.measure][r.by_columns](device, r);
}
GPU_KERNEL(encode, .scratch = encode_scratch, .prepare = encode_prepare, .run = encode_run);

/* ---- within */

typedef struct Within {
    GpuArray y, x, out;
    const float *most; /* one a row, or a column */
    int64_t n, columns;
    bool by_columns;
} Within;

__global__ void __launch_bounds__(GPU_BLOCK) within_kernel(Within w) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= w.n) return;
    float most = w.most[w.by_columns ? i % w.columns : i / w.columns];
    gpu_put(w.out, i, fabsf(gpu_get(w.x, i)) <= most ? gpu_get(w.y, i) : 0.0f);
}

static void within_run(const MxDevice *device, const MxKernelCall *call) {
    const MxEncodeAttr *attr = (const MxEncodeAttr *)call->attr;
    MxShape x = call->in_type[1].shape;
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    Within w = {};
    w.y = gpu_in(call, 0), w.x = gpu_in(call, 1), w.out = gpu_out(call, 0);
    w.most = (const float *)call->in[2];
    w.n = mx_shape_count(x);
    w.columns = 1;
    for (int d = split; d < x.rank; d++) w.columns *= x.dim[d];
    w.by_columns = attr->leads;
    if (w.n && call->out[0]) gpu_launch(device, within_kernel, gpu_blocks(w.n), GPU_BLOCK, 0, w);
}
GPU_KERNEL(within, .run = within_run);

/* ---- prune: an element is kept if few enough of its row are larger */

typedef struct Prune {
    GpuArray y, x, out;
    int64_t n, width, kept;
} Prune;

__global__ void __launch_bounds__(GPU_BLOCK) prune_kernel(Prune p) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, larger = 0;
    if (i >= p.n) return;
    int64_t first = i - i % p.width;
    float own = fabsf(gpu_get(p.x, i));
    for (int64_t j = first; j < first + p.width; j++) {
        float other = fabsf(gpu_get(p.x, j));
        larger += other > own || (other == own && j < i);
    }
    gpu_put(p.out, i, larger < p.kept ? gpu_get(p.y, i) : 0.0f);
}

static void prune_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape shape = call->in_type[1].shape;
    Prune p = {};
    p.y = gpu_in(call, 0), p.x = gpu_in(call, 1), p.out = gpu_out(call, 0);
    p.n = mx_shape_count(shape), p.width = shape.dim[shape.rank - 1];
    p.kept = ((const MxPruneAttr *)call->attr)->n;
    if (p.n && call->out[0]) gpu_launch(device, prune_kernel, gpu_blocks(p.n), GPU_BLOCK, 0, p);
}
GPU_KERNEL(prune, .run = prune_run);

/* ---- products */

typedef struct CodedDot {
    Slabs slabs;
    bool in_place; /* the result has room for what is not scaled yet: all columns are one slab */
    size_t widened[2]; /* bytes of operands that are not multiplied as they are */
} CodedDot;

__global__ void __launch_bounds__(GPU_BLOCK)
    widen_kernel(const int8_t *codes, MxBf16 *to, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i < n) to[i] = gpu_narrow((float)codes[i]);
}

/* An operand as the library takes it; takes its room off the scratch. */
static const void *widened(const MxDevice *device, const MxKernelCall *call, int operand,
                           size_t bytes, void **scratch) {
    if (!bytes) return call->in[operand];
    int64_t n = mx_shape_count(call->in_type[operand].shape);
    void *to = gpu_carve(scratch, bytes);
    gpu_launch(device, widen_kernel, gpu_blocks(n), GPU_BLOCK, 0, (const int8_t *)call->in[operand],
               (MxBf16 *)to, n);
    return to;
}

static CodedDot coded_dot_of(const MxKernelCall *call) {
    const MxCodedDotAttr *attr = (const MxCodedDotAttr *)call->attr;
    MxDotSizes size = mx_dot_sizes(call->in_type[0].shape, call->in_type[1].shape, &attr->dot);
    GpuProductSpec spec = {};
    spec.m = size.m, spec.n = size.n, spec.k = size.k;
    spec.ldb = attr->dot.kind == MX_DOT_NT ? size.k : size.n;
    spec.batch = 1;
    spec.trans_a = attr->dot.kind == MX_DOT_TN;
    spec.trans_b = attr->dot.kind == MX_DOT_NT;
    spec.in = call->in_type[0].dtype, spec.out = MX_F32;
    CodedDot d = {};
    if (spec.in == MX_I8) {
        spec.in = MX_BF16;
        d.widened[0] = gpu_padded((size_t)(size.m * size.k) * sizeof(MxBf16));
        d.widened[1] = gpu_padded((size_t)(size.k * size.n) * sizeof(MxBf16));
    }
    d.slabs = slabs_of(spec, size.m, MX_F32);
    d.in_place = call->out_type[0].dtype == MX_F32 && !(call->accumulate & 1);
    if (d.in_place) {
        d.slabs.columns = size.n;
        d.slabs.bytes = 0;
    }
    return d;
}

static size_t coded_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    CodedDot d = coded_dot_of(call);
    return d.slabs.bytes + d.widened[0] + d.widened[1] + slabs_scratch(device, &d.slabs);
}

static bool coded_dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    CodedDot *d = mx_new(device->arena, CodedDot);
    *d = coded_dot_of(call);
    call->state = d;
    return slabs_prepare(device, &d->slabs, err);
}

/* A slab on its way to the result, or the result in place. */
typedef struct Scaling {
    const float *slab, *rows, *columns; /* scales; NULL = 1 */
    GpuArray to;
    int64_t m, n, at, width; /* the slab's columns are n from `at` on, of so many */
    bool adds;
} Scaling;

__global__ void __launch_bounds__(GPU_BLOCK) scale_kernel(Scaling s) {
    int64_t blocks = (s.n + GPU_BLOCK - 1) / GPU_BLOCK;
    int64_t row = blockIdx.x / blocks, i = blockIdx.x % blocks * GPU_BLOCK + threadIdx.x;
    if (i >= s.n) return;
    float x = s.slab[row * s.n + i];
    if (s.rows) x = __fmul_rn(x, s.rows[row]);
    if (s.columns) x = __fmul_rn(x, s.columns[s.at + i]);
    gpu_give(s.to, row * s.width + s.at + i, x, s.adds);
}

static void scale(const MxDevice *device, const Scaling &s) {
    gpu_launch(device, scale_kernel, (unsigned)(s.m * gpu_blocks(s.n)), GPU_BLOCK, 0, s);
}

static void coded_dot_run(const MxDevice *device, const MxKernelCall *call) {
    const CodedDot *d = (const CodedDot *)call->state;
    const MxCodedDotAttr *attr = (const MxCodedDotAttr *)call->attr;
    const GpuProductSpec *spec = &d->slabs.spec;
    void *scratch = call->scratch, *slab = gpu_carve(&scratch, d->slabs.bytes);
    if (!call->out[0] || !spec->m || !spec->n) return;
    if (!spec->k) {
        size_t bytes = (size_t)(spec->m * spec->n) * mx_dtype_bytes(call->out_type[0].dtype);
        if (!(call->accumulate & 1)) gpu_runtime_zero(gpu_of(device), call->out[0], bytes);
        return;
    }
    const void *a = widened(device, call, 0, d->widened[0], &scratch);
    const void *b = widened(device, call, 1, d->widened[1], &scratch);
    if (d->in_place) slab = call->out[0];
    Scaling s = {};
    s.slab = (const float *)slab;
    s.rows = attr->rows ? (const float *)call->in[2] : nullptr;
    s.columns = attr->columns ? (const float *)call->in[2 + attr->rows] : nullptr;
    s.to = gpu_out(call, 0);
    s.m = spec->m, s.width = spec->n;
    s.adds = call->accumulate & 1;
    for (; s.at < spec->n; s.at += s.n) {
        s.n = gpu_min(d->slabs.columns, spec->n - s.at);
        int64_t from = spec->trans_b ? s.at * spec->k : s.at;
        slabs_multiply(device, &d->slabs, s.n, a,
                       (const char *)b + (size_t)from * mx_dtype_bytes(spec->in), slab, scratch);
        scale(device, s);
    }
}
GPU_KERNEL(coded_dot, .scratch = coded_dot_scratch, .prepare = coded_dot_prepare,
           .run = coded_dot_run);

} // namespace gpu_coded

/* coded.cu — operands rounded to few numbers, and products of such operands. Codes are floats,
 * which represent all of them exactly, so the library multiplies them; scales are applied to the
 * result. */
#include "slabs.cuh"

namespace gpu_coded {

/* ---- rounding: x as a matrix, whose rows or whose columns share a scale */

typedef struct Rounding {
    GpuArray x, codes;
    const float *factor; /* of columns, or where scales are, of rows; NULL = 1 */
    float *scales;       /* one a row, or a column */
    float *parts;        /* of columns: [parts][columns] of largest magnitudes */
    int64_t rows, columns, n_parts;
    bool by_columns;
    MxGridRow grid;
} Rounding;

static constexpr int64_t PART_ROWS = 128; /* whose largest magnitudes a thread looks for */

static Rounding rounding_of(const MxKernelCall *call) {
    const MxEncodeAttr *attr = (const MxEncodeAttr *)call->attr;
    MxShape x = call->in_type[0].shape;
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    Rounding r = {};
    r.by_columns = attr->leads;
    r.grid = mx_grids[attr->grid];
    r.rows = r.columns = 1;
    for (int d = 0; d < x.rank; d++) (d < split ? r.rows : r.columns) *= x.dim[d];
    r.n_parts = (r.rows + PART_ROWS - 1) / PART_ROWS;
    return r;
}

__device__ static float factored(const Rounding &r, int64_t row, int64_t column) {
    float x = gpu_get(r.x, row * r.columns + column);
    return r.factor ? __fmul_rn(x, r.factor[r.by_columns ? row : column]) : x;
}

__device__ static float scale_of(const Rounding &r, float largest) {
    const float smallest = 1.0842021724855044e-19f; /* its square is the smallest normal number */
    float scale = largest * (1 / r.grid.bound);
    return scale < smallest ? 1.0f : scale;
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

__device__ static float code_of(const Rounding &r, int64_t row, int64_t column, float scale) {
    return on_grid(r.grid, __fmul_rn(factored(r, row, column), 1.0f / scale));
}

/* A block has a row. */
__global__ void __launch_bounds__(GPU_BLOCK) code_rows_kernel(Rounding r) {
    int64_t row = blockIdx.x;
    float most = 0.0f;
    for (int64_t i = threadIdx.x; i < r.columns; i += GPU_BLOCK) {
        float size = fabsf(factored(r, row, i));
        most = size > most ? size : most;
    }
    float scale = scale_of(r, gpu_block_max(most));
    if (r.scales && threadIdx.x == 0) r.scales[row] = scale;
    for (int64_t i = threadIdx.x; i < r.columns && r.codes.data; i += GPU_BLOCK)
        gpu_put(r.codes, row * r.columns + i, code_of(r, row, i, scale));
}

__global__ void __launch_bounds__(GPU_BLOCK) largest_of_columns_kernel(Rounding r) {
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    for (int64_t part = blockIdx.y; part < r.n_parts; part += gridDim.y) {
        float most = 0.0f;
        int64_t end = gpu_min(r.rows, (part + 1) * PART_ROWS);
        for (int64_t row = part * PART_ROWS; row < end; row++) {
            float size = fabsf(factored(r, row, column));
            most = size > most ? size : most;
        }
        r.parts[part * r.columns + column] = most;
    }
}

/* The first of the parts' rows gets the scales. */
__global__ void __launch_bounds__(GPU_BLOCK) scale_columns_kernel(Rounding r) {
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    float most = 0.0f;
    for (int64_t part = 0; part < r.n_parts; part++) {
        float x = r.parts[part * r.columns + column];
        most = x > most ? x : most;
    }
    float scale = scale_of(r, most);
    r.parts[column] = scale;
    if (r.scales) r.scales[column] = scale;
}

__global__ void __launch_bounds__(GPU_BLOCK) code_columns_kernel(Rounding r) {
    int64_t column = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (column >= r.columns) return;
    float scale = r.parts[column];
    for (int64_t part = blockIdx.y; part < r.n_parts; part += gridDim.y) {
        int64_t end = gpu_min(r.rows, (part + 1) * PART_ROWS);
        for (int64_t row = part * PART_ROWS; row < end; row++)
            gpu_put(r.codes, row * r.columns + column, code_of(r, row, column, scale));
    }
}

/* Parts of ranks exchange magnitudes, on the host. */
static bool is_joined(const MxKernelCall *call) {
    return ((const MxEncodeAttr *)call->attr)->group.size > 1;
}

static size_t encode_scratch(const MxDevice *, const MxKernelCall *call) {
    Rounding r = rounding_of(call);
    if (is_joined(call) || !r.by_columns) return 0;
    return gpu_padded((size_t)(gpu_max(1, r.n_parts) * r.columns) * sizeof(float));
}

static bool encode_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    return !is_joined(call) || gpu_host_prepare(device, call, err);
}

static void encode_columns(const MxDevice *device, const Rounding &r) {
    constexpr int64_t MOST_BLOCKS = 65535;
    unsigned blocks = gpu_blocks(r.columns);
    dim3 grid(blocks, (unsigned)gpu_min(gpu_max(1, r.n_parts), MOST_BLOCKS));
    gpu_launch(device, largest_of_columns_kernel, grid, GPU_BLOCK, 0, r);
    gpu_launch(device, scale_columns_kernel, blocks, GPU_BLOCK, 0, r);
    if (r.codes.data) gpu_launch(device, code_columns_kernel, grid, GPU_BLOCK, 0, r);
}

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
    r.parts = (float *)call->scratch;
    if (r.by_columns)
        encode_columns(device, r);
    else
        gpu_launch(device, code_rows_kernel, (unsigned)r.rows, GPU_BLOCK, 0, r);
}
GPU_KERNEL(encode, .scratch = encode_scratch, .prepare = encode_prepare, .run = encode_run);

/* ---- products */

typedef struct CodedDot {
    Slabs slabs;
    bool in_place; /* the result has room for what is not scaled yet: all columns are one slab */
} CodedDot;

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
    return d.slabs.bytes + slabs_scratch(device, &d.slabs);
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
        slabs_multiply(device, &d->slabs, s.n, call->in[0],
                       (const char *)call->in[1] + (size_t)from * mx_dtype_bytes(spec->in), slab,
                       scratch);
        scale(device, s);
    }
}
GPU_KERNEL(coded_dot, .scratch = coded_dot_scratch, .prepare = coded_dot_prepare,
           .run = coded_dot_run);

} // namespace gpu_coded

/* rope.cu — rotary positions: the table of cos and sin, and the rotation of heads in either layout
 * of pairs. */
#include "device/cuda/gpu.cuh"

namespace gpu_rope {

/* ---- table: a thread an angle */

typedef struct Table {
    const double *frequency; /* [n] on the device */
    const uint8_t *kind;     /* [n], NULL = all 0 */
    const int32_t *positions[MX_ROPE_MOST_KINDS];
    float2 *out;
    int64_t angles;
    int n;
    double amplitude, growth, period;
} Table;

__global__ void __launch_bounds__(GPU_BLOCK) table_angles(Table t) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= t.angles) return;
    int64_t row = i / t.n;
    int pair = (int)(i % t.n), kind = t.kind ? t.kind[pair] : 0;
    const int32_t *positions = kind == 0   ? t.positions[0]
                               : kind == 1 ? t.positions[1]
                                           : t.positions[2];
    double amplitude = t.amplitude, cosine, sine;
    if (t.growth > 0) {
        double periods = floor(((double)t.positions[0][row] + 1) / t.period);
        amplitude *= 1 + t.growth * log(1 + periods);
    }
    sincos((double)positions[row] * t.frequency[pair], &sine, &cosine);
    t.out[i] = make_float2((float)(cosine * amplitude), (float)(sine * amplitude));
}

/* The attr's arrays, which are the host's, on the device. */
static bool table_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const MxRopeFreqs *freqs = &((const MxRopeTableAttr *)call->attr)->freqs;
    Table *t = mx_new(device->arena, Table);
    size_t frequencies = sizeof *freqs->frequency * (size_t)freqs->n, kinds = (size_t)freqs->n;
    void *memory;
    if (!gpu_runtime_alloc((Gpu *)device, frequencies + kinds, &memory, err)) return false;
    if (frequencies) gpu_runtime_write(gpu_of(device), memory, freqs->frequency, frequencies);
    t->frequency = (const double *)memory;
    if (freqs->kind) {
        uint8_t *kind = (uint8_t *)memory + frequencies;
        gpu_runtime_write(gpu_of(device), kind, freqs->kind, kinds);
        t->kind = kind;
    }
    t->n = freqs->n;
    t->amplitude = freqs->amplitude;
    t->growth = freqs->growth;
    t->period = freqs->period;
    call->state = t;
    return true;
}

static void table_run(const MxDevice *device, const MxKernelCall *call) {
    Table t = *(const Table *)call->state;
    MX_ASSERT(call->n_in <= MX_ROPE_MOST_KINDS);
    for (int i = 0; i < call->n_in; i++) t.positions[i] = (const int32_t *)call->in[i];
    t.out = (float2 *)call->out[0];
    t.angles = mx_shape_count(call->in_type[0].shape) * t.n;
    if (t.out) gpu_launch(device, table_angles, gpu_blocks(t.angles), GPU_BLOCK, 0, t);
}

GPU_KERNEL(rope_table, .prepare = table_prepare, .run = table_run);

/* ---- rotation: a thread rotates some consecutive pairs of a head, or copies as many elements of
 * those that are not rotated */

typedef struct Rotation {
    const void *x;
    void *y;
    const float *table;
    int64_t heads, all_heads, width; /* of a token; in all; elements of a head */
    int64_t first, pairs;            /* that are rotated, from an element on */
    int64_t parts;                   /* threads of a head */
    bool interleaved_in, interleaved_out, inverse;
} Rotation;

template <MxDtype TYPE, int N>
__device__ static inline void get_some(const void *x, int64_t at, float *to) {
    GpuArray array = {(void *)x, TYPE};
    if constexpr (N % GPU_PACK == 0) {
#pragma unroll
        for (int i = 0; i < N; i += GPU_PACK) gpu_get_pack(array, at + i, to + i);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = gpu_get(array, at + i);
    }
}
template <MxDtype TYPE, int N>
__device__ static inline void put_some(void *x, int64_t at, const float *from) {
    GpuArray array = {x, TYPE};
    if constexpr (N % GPU_PACK == 0) {
#pragma unroll
        for (int i = 0; i < N; i += GPU_PACK) gpu_put_pack(array, at + i, from + i);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) gpu_put(array, at + i, from[i]);
    }
}

/* Pairs from `pair` on: at i and at i + apart if they are in halves, else side by side. */
template <MxDtype TYPE, int N>
__device__ static inline void get_pairs(const void *x, int64_t at, int64_t pair, int64_t apart,
                                        bool interleaved, float a[N], float b[N]) {
    if (!interleaved) {
        get_some<TYPE, N>(x, at + pair, a);
        get_some<TYPE, N>(x, at + apart + pair, b);
        return;
    }
    float both[2 * N];
    get_some<TYPE, 2 * N>(x, at + 2 * pair, both);
#pragma unroll
    for (int i = 0; i < N; i++) a[i] = both[2 * i], b[i] = both[2 * i + 1];
}
template <MxDtype TYPE, int N>
__device__ static inline void put_pairs(void *y, int64_t at, int64_t pair, int64_t apart,
                                        bool interleaved, const float a[N], const float b[N]) {
    if (!interleaved) {
        put_some<TYPE, N>(y, at + pair, a);
        put_some<TYPE, N>(y, at + apart + pair, b);
        return;
    }
    float both[2 * N];
#pragma unroll
    for (int i = 0; i < N; i++) both[2 * i] = a[i], both[2 * i + 1] = b[i];
    put_some<TYPE, 2 * N>(y, at + 2 * pair, both);
}

template <MxDtype TYPE, int N> __global__ void __launch_bounds__(GPU_BLOCK) rotate(Rotation r) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    int64_t head = i / r.parts, at = head * r.width, pair = i % r.parts * N;
    if (head >= r.all_heads) return;
    if (pair >= r.pairs) { /* behind the pairs are those that are copied */
        int64_t element = pair - r.pairs;
        if (element >= r.first) element += 2 * r.pairs;
        float same[N];
        get_some<TYPE, N>(r.x, at + element, same);
        put_some<TYPE, N>(r.y, at + element, same);
        return;
    }
    float a[N], b[N], angle[2 * N];
    get_pairs<TYPE, N>(r.x, at + r.first, pair, r.pairs, r.interleaved_in, a, b);
    get_some<MX_F32, 2 * N>(r.table, 2 * (head / r.heads * r.pairs + pair), angle);
#pragma unroll
    for (int j = 0; j < N; j++) {
        float p = a[j], q = b[j], cosine = angle[2 * j];
        float sine = r.inverse ? -angle[2 * j + 1] : angle[2 * j + 1];
        a[j] = p * cosine - q * sine;
        b[j] = q * cosine + p * sine;
    }
    put_pairs<TYPE, N>(r.y, at + r.first, pair, r.pairs, r.interleaved_out, a, b);
}

template <int N> static void rotate_all(const MxDevice *device, Rotation r, MxDtype dtype) {
    r.parts = (r.width - r.pairs) / N;
    gpu_launch(device, dtype == MX_BF16 ? rotate<MX_BF16, N> : rotate<MX_F32, N>,
               gpu_blocks(r.all_heads * r.parts), GPU_BLOCK, 0, r);
}

static void rope_run(const MxDevice *device, const MxKernelCall *call) {
    const MxRopeAttr *attr = (const MxRopeAttr *)call->attr;
    const int64_t *dim = call->in_type[0].shape.dim;
    if (!call->out[0]) return;
    Rotation r = {};
    r.x = call->in[0];
    r.y = call->out[0];
    r.table = (const float *)call->in[1];
    r.heads = dim[2];
    r.all_heads = dim[0] * dim[1] * dim[2];
    r.width = dim[3];
    r.first = attr->first;
    r.pairs = call->in_type[1].shape.dim[2];
    r.interleaved_in = attr->interleaved_in;
    r.interleaved_out = attr->interleaved_out;
    r.inverse = attr->inverse;
    bool is_packs = r.width % GPU_PACK == 0 && r.first % GPU_PACK == 0 && r.pairs % GPU_PACK == 0;
    if (is_packs)
        rotate_all<GPU_PACK>(device, r, call->in_type[0].dtype);
    else
        rotate_all<1>(device, r, call->in_type[0].dtype);
}

GPU_KERNEL(rope, .run = rope_run);

} // namespace gpu_rope

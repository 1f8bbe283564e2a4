/* shape.cu — moving elements: to their left neighbours, joining and splitting arrays, and parts of
 * arrays. Copies are of rows of bytes, in the largest units that all of them are multiples of. */
#include "device/cuda/gpu.cuh"

#include <initializer_list>

namespace gpu_shape {

__global__ void __launch_bounds__(GPU_BLOCK)
    shift_kernel(const int32_t *x, const int32_t *segments, int64_t n, int64_t length,
                 int64_t offset, int32_t *y) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= n) return;
    int64_t at = i % length + offset;
    const int32_t *segment = segments + i + offset;
    bool goes_on = at + 1 < length && segment[0] && segment[1] == segment[0];
    y[i] = goes_on ? x[i + 1] : 0;
}

static void shift_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t n = mx_shape_count(call->in_type[0].shape);
    if (call->out[0])
        gpu_launch(device, shift_kernel, gpu_blocks(n), GPU_BLOCK, 0, (const int32_t *)call->in[0],
                   (const int32_t *)call->in[1], n, call->in_type[0].shape.dim[1],
                   ((const MxShiftAttr *)call->attr)->offset, (int32_t *)call->out[0]);
}
GPU_KERNEL(shift, .run = shift_run);

/* ---- copies of rows */

/* Of outer x inner rows; strides, like the row, in bytes, then in units. */
typedef struct Rows {
    const void *from;
    void *to;
    int64_t outer, inner, row;
    int64_t from_outer, from_inner, to_outer, to_inner;
} Rows;

static constexpr int UNITS = 4; /* of a thread: enough reads under way to keep memory busy */

template <class I> __device__ static inline I place_of(const Rows &r, I i, I *from) {
    I row = i / (I)r.row, at = i % (I)r.row, o = row / (I)r.inner, k = row % (I)r.inner;
    *from = o * (I)r.from_outer + k * (I)r.from_inner + at;
    return o * (I)r.to_outer + k * (I)r.to_inner + at;
}

template <class T, class I> __global__ void __launch_bounds__(GPU_BLOCK) rows_kernel(Rows r) {
    I n = (I)r.outer * (I)r.inner * (I)r.row, to[UNITS], from;
    I first = (I)blockIdx.x * (UNITS * GPU_BLOCK) + threadIdx.x;
    T unit[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        if (first + u * GPU_BLOCK < n) {
            to[u] = place_of<I>(r, first + u * GPU_BLOCK, &from);
            unit[u] = ((const T *)r.from)[from];
        }
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        if (first + u * GPU_BLOCK < n) ((T *)r.to)[to[u]] = unit[u];
}

template <class T> static void launch_rows(const MxDevice *device, Rows r) {
    int64_t *const lengths[] = {&r.row, &r.from_outer, &r.from_inner, &r.to_outer, &r.to_inner};
    for (int64_t *length : lengths) *length /= (int64_t)sizeof(T);
    int64_t n = r.outer * r.inner * r.row;
    int64_t most = r.outer * gpu_max(r.from_outer, r.to_outer) +
                   r.inner * gpu_max(r.from_inner, r.to_inner) + n;
    auto kernel = most <= INT32_MAX ? rows_kernel<T, uint32_t> : rows_kernel<T, int64_t>;
    gpu_launch(device, kernel, gpu_blocks(n, UNITS * GPU_BLOCK), GPU_BLOCK, 0, r);
}

static void copy_rows(const MxDevice *device, const Rows &r) {
    uint64_t bits = (uintptr_t)r.from | (uintptr_t)r.to;
    for (int64_t length : {r.row, r.from_outer, r.from_inner, r.to_outer, r.to_inner})
        bits |= (uint64_t)length;
    if (!r.outer || !r.inner || !r.row)
        return;
    else if (bits % sizeof(uint4) == 0)
        launch_rows<uint4>(device, r);
    else if (bits % sizeof(uint2) == 0)
        launch_rows<uint2>(device, r);
    else if (bits % sizeof(uint32_t) == 0)
        launch_rows<uint32_t>(device, r);
    else if (bits % sizeof(uint16_t) == 0)
        launch_rows<uint16_t>(device, r);
    else
        launch_rows<uint8_t>(device, r);
}

/* ---- concat, split */

/* Rows of the wide array and of the two that are its halves; of the second half, so many rows of
 * the others share one. */
typedef struct Halves {
    int64_t rows, bytes[2], shared;
} Halves;

static Halves halves_of(const MxType *half) {
    int last = half[0].shape.rank - 1;
    Halves h = {1, {0, 0}, 1};
    for (int i = 0; i < last; i++) h.rows *= half[0].shape.dim[i];
    for (int i = 0; i < 2; i++)
        h.bytes[i] = half[i].shape.dim[last] * (int64_t)mx_dtype_bytes(half[i].dtype);
    if (last) h.shared = half[0].shape.dim[last - 1] / gpu_max(1, half[1].shape.dim[last - 1]);
    h.shared = gpu_max(1, h.shared);
    return h;
}

static void concat_run(const MxDevice *device, const MxKernelCall *call) {
    Halves h = halves_of(call->in_type);
    int64_t wide = h.bytes[0] + h.bytes[1];
    if (!call->out[0]) return;
    Rows first = {call->in[0], call->out[0], h.rows / h.shared, h.shared, h.bytes[0]};
    first.from_outer = h.shared * h.bytes[0], first.from_inner = h.bytes[0];
    first.to_outer = h.shared * wide, first.to_inner = wide;
    Rows second = first;
    second.from = call->in[1], second.to = (char *)call->out[0] + h.bytes[0];
    second.row = second.from_outer = h.bytes[1], second.from_inner = 0;
    copy_rows(device, first);
    copy_rows(device, second);
}
GPU_KERNEL(concat, .run = concat_run);

/* Sums of the second halves of rows that share one; lengths in elements. */
__global__ void __launch_bounds__(GPU_BLOCK)
    sum_halves_kernel(GpuArray wide, GpuArray half, int64_t n, int64_t first, int64_t second,
                      int64_t shared) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, row = i / second * shared;
    if (i >= n) return;
    int64_t at = row * (first + second) + first + i % second;
    float sum = 0;
#pragma unroll 8
    for (int64_t k = 0; k < shared; k++) sum += gpu_get(wide, at + k * (first + second));
    gpu_put(half, i, sum);
}

static void sum_halves(const MxDevice *device, const MxKernelCall *call, const Halves &h) {
    int64_t each = (int64_t)mx_dtype_bytes(call->in_type[0].dtype);
    int64_t n = mx_shape_count(call->out_type[1].shape);
    gpu_launch(device, sum_halves_kernel, gpu_blocks(n), GPU_BLOCK, 0, gpu_in(call, 0),
               gpu_out(call, 1), n, h.bytes[0] / each, h.bytes[1] / each, h.shared);
}

static void split_run(const MxDevice *device, const MxKernelCall *call) {
    Halves h = halves_of(call->out_type);
    int64_t wide = h.bytes[0] + h.bytes[1];
    for (int i = 0; i < 2; i++) {
        Rows r = {(char *)call->in[0] + (i ? h.bytes[0] : 0), call->out[i], h.rows, 1, h.bytes[i]};
        r.from_outer = wide, r.to_outer = h.bytes[i];
        if (r.to && i && h.shared > 1)
            sum_halves(device, call, h);
        else if (r.to)
            copy_rows(device, r);
    }
}
GPU_KERNEL(split, .run = split_run);

/* ---- parts along a dim */

/* An array seen from a dim: [outer, row], in elements. */
typedef struct View {
    int64_t outer, row;
} View;

static View view_of(MxShape shape, int dim) {
    View v = {1, 1};
    for (int d = 0; d < shape.rank; d++) *(d < dim ? &v.outer : &v.row) *= shape.dim[d];
    return v;
}

static void take_part_run(const MxDevice *device, const MxKernelCall *call) {
    const MxCollectiveAttr *attr = (const MxCollectiveAttr *)call->attr;
    View part = view_of(call->out_type[0].shape, attr->cut);
    int64_t row = part.row * (int64_t)mx_dtype_bytes(call->out_type[0].dtype);
    Rows r = {(char *)call->in[0] + row * attr->group.index, call->out[0], part.outer, 1, row};
    r.from_outer = row * attr->group.size, r.to_outer = row;
    if (r.to) copy_rows(device, r);
}
GPU_KERNEL(take_part, .run = take_part_run);

static void pack_run(const MxDevice *device, const MxKernelCall *call) {
    const MxPackAttr *attr = (const MxPackAttr *)call->attr;
    int64_t each = (int64_t)mx_dtype_bytes(call->out_type[0].dtype), at = 0;
    int64_t part_bytes = mx_shape_count(call->out_type[0].shape) * each / attr->n_parts;
    for (int i = 0; i < call->n_in && call->out[0]; i++) {
        View v = view_of(call->in_type[i].shape, attr->dim[i]);
        int64_t row = v.row * each / attr->n_parts;
        Rows r = {call->in[i], (char *)call->out[0] + at, v.outer, attr->n_parts, row};
        r.from_outer = row * attr->n_parts, r.from_inner = row;
        r.to_outer = row, r.to_inner = part_bytes;
        copy_rows(device, r);
        at += v.outer * row;
    }
}
GPU_KERNEL(pack, .run = pack_run);

/* Rows in elements. */
__global__ void __launch_bounds__(GPU_BLOCK) add_rows_kernel(Rows r, MxDtype dtype) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, from;
    if (i >= r.outer * r.inner * r.row) return;
    int64_t to = place_of<int64_t>(r, i, &from);
    gpu_give(GpuArray{r.to, dtype}, to, gpu_get(GpuArray{(void *)r.from, dtype}, from), true);
}

static void unpack_run(const MxDevice *device, const MxKernelCall *call) {
    const MxUnpackAttr *attr = (const MxUnpackAttr *)call->attr;
    MxDtype dtype = call->in_type[0].dtype;
    int64_t n_parts = call->in_type[0].shape.dim[0], stride = call->in_type[0].shape.dim[1];
    int64_t each = (int64_t)mx_dtype_bytes(dtype);
    View v = view_of(call->out_type[0].shape, attr->dim);
    Rows r = {(char *)call->in[0] + attr->at * each, call->out[0], v.outer, n_parts,
              v.row / gpu_max(1, n_parts)};
    r.from_outer = r.row, r.from_inner = stride;
    r.to_outer = r.row * n_parts, r.to_inner = r.row;
    if (r.to && call->accumulate & 1) {
        gpu_launch(device, add_rows_kernel, gpu_blocks(r.outer * r.inner * r.row), GPU_BLOCK, 0, r,
                   dtype);
        return;
    }
    for (int64_t *length : {&r.row, &r.from_outer, &r.from_inner, &r.to_outer, &r.to_inner})
        *length *= each;
    if (r.to) copy_rows(device, r);
}
GPU_KERNEL(unpack, .run = unpack_run);

/* ---- add_part: parts as to_few cuts them */

/* n elements of y, of which `row` lie together in the sum, and the next ones `stride` further. */
__global__ void __launch_bounds__(GPU_BLOCK)
    add_part_kernel(float *sum, const float *y, int64_t n, int64_t row, int64_t stride,
                    float factor) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i < n) sum[i / row * stride + i % row] += factor * y[i];
}

static void add_part_run(const MxDevice *device, const MxKernelCall *call) {
    const MxAddPartAttr *attr = (const MxAddPartAttr *)call->attr;
    MxShape shape = call->in_type[0].shape;
    int64_t part = mx_few_part(shape, attr->n_parts), count = mx_shape_count(shape);
    int64_t row = part, n = gpu_max(0, gpu_min(part, count - attr->index * part));
    float *sum = (float *)call->out[0];
    if (!sum || !count) return;
    if (attr->dim != MX_WHOLE) row = view_of(shape, attr->dim).row / attr->n_parts;
    if (call->in[0] != call->out[0])
        gpu_runtime_copy(gpu_of(device), sum, call->in[0], (size_t)count * sizeof *sum);
    gpu_launch(device, add_part_kernel, gpu_blocks(n), GPU_BLOCK, 0, sum + attr->index * row,
               (const float *)call->in[1], n, row, row * attr->n_parts, (float)attr->factor);
}
GPU_KERNEL(add_part, .run = add_part_run);

} // namespace gpu_shape

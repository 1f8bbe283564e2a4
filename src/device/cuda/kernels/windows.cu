/* windows.cu — the windows of tokens that each token sees: a thread makes a word of bits. */
#include "windows.cuh"

namespace gpu_windows {

__global__ void __launch_bounds__(GPU_BLOCK) segments_kernel(WindowRows r, int32_t *out) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, windows = r.time / r.ratio;
    if (i >= r.rows * windows) return;
    const int32_t *s = r.segments + i / windows * r.time + i % windows * r.ratio;
    int32_t own = s[0] ? s[0] : -1;
    for (int64_t j = 1; j < r.ratio; j++)
        if (s[j] != s[0]) own = -1;
    out[i] = own;
}

__global__ void __launch_bounds__(GPU_BLOCK)
    windows_kernel(WindowRows r, const int32_t *of_windows, uint32_t *out) {
    int64_t windows = r.time / r.ratio, words = (windows + 31) / 32;
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x, token = i / words;
    if (token >= r.rows * r.time) return;
    int64_t first = i % words * 32, over = (token % r.time + 1) / r.ratio;
    const int32_t *of_row = of_windows + token / r.time * windows;
    uint32_t seen = 0;
    for (int64_t w = first; w < gpu_min(first + 32, over); w++)
        if (of_row[w] == r.segments[token]) seen |= 1u << (w - first);
    out[i] = seen;
}

static WindowRows rows_of(const MxKernelCall *call) {
    MxShape s = call->in_type[0].shape;
    const int32_t *segments = call->in ? (const int32_t *)call->in[0] : nullptr;
    return {segments, s.dim[0], s.dim[1], ((const MxWindowsAttr *)call->attr)->ratio};
}

static size_t windows_scratch(const MxDevice *, const MxKernelCall *call) {
    WindowRows r = rows_of(call);
    return gpu_padded((size_t)(r.rows * (r.time / r.ratio)) * sizeof(int32_t));
}

static void windows_run(const MxDevice *device, const MxKernelCall *call) {
    WindowRows r = rows_of(call);
    int32_t *of_windows = (int32_t *)call->scratch;
    if (!call->out[0]) return;
    windows_segments(device, r, of_windows);
    gpu_launch(device, windows_kernel, gpu_blocks(mx_shape_count(call->out_type[0].shape)),
               GPU_BLOCK, 0, r, (const int32_t *)of_windows, (uint32_t *)call->out[0]);
}
GPU_KERNEL(windows, .scratch = windows_scratch, .run = windows_run);

} // namespace gpu_windows

void windows_segments(const MxDevice *device, const WindowRows &r, int32_t *out) {
    gpu_launch(device, gpu_windows::segments_kernel, gpu_blocks(r.rows * (r.time / r.ratio)),
               GPU_BLOCK, 0, r, out);
}

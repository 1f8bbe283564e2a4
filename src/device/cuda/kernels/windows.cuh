/* windows.cuh — which segment windows of tokens belong to, shared by kernels that let tokens see
 * them. */
#ifndef GPU_WINDOWS_CUH
#define GPU_WINDOWS_CUH

#include "device/cuda/gpu.cuh"

/* Segments [rows, time] in windows of `ratio` tokens. */
typedef struct WindowRows {
    const int32_t *segments;
    int64_t rows, time, ratio;
} WindowRows;

/* windows_segments — of each window the segment that all its tokens are of; -1, which no token has,
 * if they are of several or padding. out i32 [rows, time / ratio]. */
void windows_segments(const MxDevice *device, const WindowRows &r, int32_t *out);

#endif

/* convert.c — bf16 to float and back, sums into a buffer, zeros: the streams that every kernel
 * needs. */
#include "cpu.h"

CPU_LEVELS void cpu_widen(const MxBf16 *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = mx_bf16_to_f32(x[i]);
}

CPU_LEVELS void cpu_narrow(const float *x, int64_t n, MxBf16 *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = mx_f32_to_bf16(x[i]);
}

CPU_LEVELS static void add_f32(const float *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

CPU_LEVELS static void add_bf16(const float *x, int64_t n, MxBf16 *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = mx_f32_to_bf16(mx_bf16_to_f32(y[i]) + x[i]);
}

void cpu_add_to(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at) {
    if (dtype == MX_F32)
        add_f32(from, n, (float *)y + at);
    else
        add_bf16(from, n, (MxBf16 *)y + at);
}

static void zero_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    memset(*(char *const *)context + begin, 0, (size_t)(end - begin));
}

void cpu_zero(const MxDevice *device, void *y, size_t bytes) {
    enum { PIECE_BYTES = 1 << 18 };
    cpu_for(device, (int64_t)bytes, PIECE_BYTES, zero_span, &y);
}

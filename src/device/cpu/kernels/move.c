/* move.c — moving elements: rows to their left neighbours, joining and splitting arrays. */
#include "kernel.h"

static void shift_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t length = call->in_type[0].shape.dim[1];
    int64_t offset = ((const MxShiftAttr *)call->attr)->offset;
    for (int64_t row = begin; row < end; row++) {
        const int32_t *x = (const int32_t *)call->in[0] + row * length;
        const int32_t *segments = (const int32_t *)call->in[1] + row * length;
        int32_t *y = (int32_t *)call->out[0] + row * length;
        for (int64_t i = 0; i < length; i++) {
            int64_t at = i + offset;
            bool goes_on = at + 1 < length && segments[at] && segments[at + 1] == segments[at];
            y[i] = goes_on ? x[i + 1] : 0;
        }
    }
}

static void shift_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape shape = call->in_type[0].shape;
    if (call->out[0])
        cpu_for(device, shape.dim[0], cpu_max(1, CPU_PIECE / cpu_max(1, shape.dim[1])), shift_rows,
                call);
}

const MxKernel cpu_shift = {.run = shift_run};

/* Rows of the wide array and of the two that are its halves; of the second half, so many rows of
 * the others share one. */
typedef struct Halves {
    char *wide, *half[2];
    size_t bytes[2]; /* of a row of each */
    int64_t shared;
    MxDtype dtype;
    bool splits;
} Halves;

static char *second_half(const Halves *h, int64_t row) {
    return h->wide + (size_t)row * (h->bytes[0] + h->bytes[1]) + h->bytes[0];
}

/* Sums of the second halves of rows that share one. */
static void sum_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    enum { FEW = 64 };
    const Halves *h = context;
    int64_t width = (int64_t)(h->bytes[1] / mx_dtype_bytes(h->dtype));
    for (int64_t i = begin; i < end; i++)
        for (int64_t at = 0, n; at < width; at += n) {
            float sum[FEW] = {0}, space[FEW];
            n = cpu_min(FEW, width - at);
            for (int64_t row = i * h->shared; row < (i + 1) * h->shared; row++) {
                const float *x = cpu_read(second_half(h, row), h->dtype, at, n, space);
                for (int64_t j = 0; j < n; j++) sum[j] += x[j];
            }
            cpu_store(sum, n, h->half[1], h->dtype, i * width + at);
        }
}

static void copy_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Halves *h = context;
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < 2; i++) {
            bool is_summed = h->splits && i && h->shared > 1;
            char *wide = second_half(h, row) - (i ? 0 : h->bytes[0]);
            char *half = h->half[i];
            if (half) half += (size_t)(i ? row / h->shared : row) * h->bytes[i];
            if (half && !is_summed)
                memcpy(h->splits ? half : wide, h->splits ? wide : half, h->bytes[i]);
        }
}

static void copy(const MxDevice *device, Halves h, const MxType *halves) {
    int64_t rows = 1, last = halves[0].shape.rank - 1;
    for (int i = 0; i < last; i++) rows *= halves[0].shape.dim[i];
    for (int i = 0; i < 2; i++)
        h.bytes[i] = (size_t)halves[i].shape.dim[last] * mx_dtype_bytes(halves[i].dtype);
    h.dtype = halves[0].dtype;
    h.shared = last ? halves[0].shape.dim[last - 1] / cpu_max(1, halves[1].shape.dim[last - 1]) : 1;
    int64_t row_bytes = (int64_t)(h.bytes[0] + h.bytes[1]);
    cpu_for(device, rows, cpu_max(1, CPU_PIECE / cpu_max(1, row_bytes)), copy_rows, &h);
    if (h.splits && h.half[1] && h.shared > 1)
        cpu_for(device, rows / h.shared, cpu_max(1, CPU_PIECE / cpu_max(1, row_bytes * h.shared)),
                sum_rows, &h);
}

static void concat_run(const MxDevice *device, const MxKernelCall *call) {
    Halves h = {.wide = call->out[0], .half = {call->in[0], call->in[1]}};
    if (h.wide) copy(device, h, call->in_type);
}

static void split_run(const MxDevice *device, const MxKernelCall *call) {
    Halves h = {.wide = call->in[0], .half = {call->out[0], call->out[1]}, .splits = true};
    copy(device, h, call->out_type);
}

const MxKernel cpu_concat = {.run = concat_run};
const MxKernel cpu_split = {.run = split_run};

static void every_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape, y = call->out_type[0].shape;
    int64_t n = ((const MxEveryAttr *)call->attr)->n;
    const int32_t *from = call->in[0];
    int32_t *to = call->out[0];
    (void)device;
    for (int64_t i = 0; to && i < y.dim[0] * y.dim[1]; i++)
        to[i] = from[i / y.dim[1] * x.dim[1] + i % y.dim[1] * n];
}

const MxKernel cpu_every = {.run = every_run};

static void first_bits_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t n = ((const MxFirstBitsAttr *)call->attr)->n, words = call->out_type[0].shape.dim[2];
    const int32_t *last = call->in[0];
    uint32_t *to = call->out[0];
    (void)device;
    for (int64_t i = 0; to && i < mx_shape_count(call->in_type[0].shape); i++)
        for (int64_t w = 0; w < words; w++) {
            int64_t bits = cpu_min(n, (int64_t)last[i] + 1) - w * 32;
            *to++ = bits <= 0 ? 0 : bits >= 32 ? UINT32_MAX : (1u << bits) - 1;
        }
}

const MxKernel cpu_first_bits = {.run = first_bits_run};

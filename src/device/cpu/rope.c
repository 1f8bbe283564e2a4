/* rope.c — rotary positions: the table of cos and sin, and the rotation of heads in either layout
 * of pairs. */
#include "cpu.h"

#include <math.h>

/* ---- table */

static void table_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxRopeFreqs *freqs = &((const MxRopeTableAttr *)call->attr)->freqs;
    const int32_t *position = call->in[0];
    float *out = call->out[0];
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < freqs->n; i++) {
            double angle = (double)position[row] * freqs->frequency[i];
            float *cos_sin = out + 2 * (row * freqs->n + i);
            cos_sin[0] = (float)(cos(angle) * freqs->amplitude);
            cos_sin[1] = (float)(sin(angle) * freqs->amplitude);
        }
}

static void rope_table_run(const MxDevice *device, const MxKernelCall *call) {
    enum { PIECE = 1 << 11 }; /* angles; each costs some 50 ns */
    int n = ((const MxRopeTableAttr *)call->attr)->freqs.n;
    if (call->out[0] && n > 0)
        cpu_for(device, mx_shape_count(call->in_type[0].shape), cpu_max(1, PIECE / n), table_rows,
                call);
}

const MxKernel cpu_rope_table = {.run = rope_table_run};

/* ---- rotation */

enum { PAIRS = 128 }; /* pairs of a head that are rotated at a time */

/* One stretch of pairs: the two members of each, cos and sin (negated to rotate back). */
typedef struct Stretch {
    _Alignas(CPU_ALIGN) float a[PAIRS], b[PAIRS], cosine[PAIRS], sine[PAIRS], mixed[2 * PAIRS];
} Stretch;

CPU_LEVELS static void split(int64_t n, const float *mixed, float *a, float *b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        a[i] = mixed[2 * i];
        b[i] = mixed[2 * i + 1];
    }
}

CPU_LEVELS static void merge(int64_t n, const float *a, const float *b, float *mixed) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        mixed[2 * i] = a[i];
        mixed[2 * i + 1] = b[i];
    }
}

CPU_LEVELS static void rotate(int64_t n, const float *const a_b[2], const Stretch *s, float *y_a,
                              float *y_b) {
    const float *a = a_b[0], *b = a_b[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float p = a[i], q = b[i];
        y_a[i] = p * s->cosine[i] - q * s->sine[i];
        y_b[i] = q * s->cosine[i] + p * s->sine[i];
    }
}

/* Rotates n pairs from pair `first` of the head that starts at element `head`. */
static void rotate_head(const MxKernelCall *call, int64_t head, int64_t first, int64_t n,
                        Stretch *s) {
    const MxRopeAttr *attr = call->attr;
    MxDtype dtype = call->in_type[0].dtype;
    int64_t half = call->in_type[0].shape.dim[3] / 2;
    const float *in[2] = {s->a, s->b};
    if (attr->interleaved_in) {
        split(n, cpu_read(call->in[0], dtype, head + 2 * first, 2 * n, s->mixed), s->a, s->b);
    } else {
        in[0] = cpu_read(call->in[0], dtype, head + first, n, s->a);
        in[1] = cpu_read(call->in[0], dtype, head + half + first, n, s->b);
    }
    if (attr->interleaved_out) {
        rotate(n, in, s, s->a, s->b);
        float *y = cpu_place(call->out[0], dtype, head + 2 * first, s->mixed);
        merge(n, s->a, s->b, y);
        cpu_write(y, 2 * n, call->out[0], dtype, head + 2 * first);
    } else {
        float *y_a = cpu_place(call->out[0], dtype, head + first, s->a);
        float *y_b = cpu_place(call->out[0], dtype, head + half + first, s->b);
        rotate(n, in, s, y_a, y_b);
        cpu_write(y_a, n, call->out[0], dtype, head + first);
        cpu_write(y_b, n, call->out[0], dtype, head + half + first);
    }
}

static void rotate_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    bool inverse = ((const MxRopeAttr *)call->attr)->inverse;
    const float *table = call->in[1];
    int64_t heads = call->in_type[0].shape.dim[2], width = call->in_type[0].shape.dim[3];
    int64_t half = width / 2;
    Stretch s;
    for (int64_t row = begin; row < end; row++)
        for (int64_t first = 0, n; first < half; first += n) {
            n = cpu_min(PAIRS, half - first);
            split(n, table + 2 * (row * half + first), s.cosine, s.sine);
            for (int64_t i = 0; inverse && i < n; i++) s.sine[i] = -s.sine[i];
            for (int64_t h = 0; h < heads; h++)
                rotate_head(call, (row * heads + h) * width, first, n, &s);
        }
}

static void rope_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    if (call->out[0])
        cpu_for(device, x.dim[0] * x.dim[1],
                cpu_max(1, CPU_PIECE / cpu_max(1, x.dim[2] * x.dim[3])), rotate_rows, call);
}

const MxKernel cpu_rope = {.run = rope_run};

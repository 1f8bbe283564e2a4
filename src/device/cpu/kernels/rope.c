/* rope.c — rotary positions: the table of cos and sin, and the rotation of heads in either layout
 * of pairs. */
#include "kernel.h"

#include <math.h>

/* ---- table */

static double amplitude_at(const MxRopeFreqs *freqs, int32_t position) {
    if (freqs->growth <= 0) return freqs->amplitude;
    double periods = floor(((double)position + 1) / freqs->period);
    return freqs->amplitude * (1 + freqs->growth * log(1 + periods));
}

static void table_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxRopeFreqs *freqs = &((const MxRopeTableAttr *)call->attr)->freqs;
    float *out = call->out[0];
    for (int64_t row = begin; row < end; row++) {
        double amplitude = amplitude_at(freqs, ((const int32_t *)call->in[0])[row]);
        for (int i = 0; i < freqs->n; i++) {
            const int32_t *position = call->in[freqs->kind ? freqs->kind[i] : 0];
            double angle = (double)position[row] * freqs->frequency[i];
            float *cos_sin = out + 2 * (row * freqs->n + i);
            cos_sin[0] = (float)(cos(angle) * amplitude);
            cos_sin[1] = (float)(sin(angle) * amplitude);
        }
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

/* Heads that lie side by side are converted together. */
typedef struct Rotation {
    const MxKernelCall *call;
    int64_t rows, heads, width; /* elements of a head */
    int64_t first, pairs;       /* that are rotated, from an element on */
    int64_t together;           /* heads that are converted at a time */
    char *scratch;              /* [workers] */
} Rotation;

/* Members of the pairs of a head, cos and sin (negated to rotate back), heads as floats. */
typedef struct Work {
    float *a, *b, *cosine, *sine, *x, *y;
} Work;

static Rotation rotation_of(const MxKernelCall *call) {
    const int64_t *dim = call->in_type[0].shape.dim;
    const MxRopeAttr *attr = call->attr;
    Rotation r = {.call = call, .rows = dim[0] * dim[1], .heads = dim[2], .width = dim[3]};
    r.first = attr->first;
    r.pairs = call->in_type[1].shape.dim[2];
    r.together = cpu_max(1, CPU_BLOCK / cpu_max(1, r.width));
    r.scratch = call->scratch;
    return r;
}

static size_t carve(const Rotation *r, char *from, Work *work) {
    void *scratch = from;
    size_t pairs = (size_t)r->pairs * sizeof(float);
    size_t heads = (size_t)(r->together * r->width) * sizeof(float);
    work->a = cpu_carve(&scratch, pairs);
    work->b = cpu_carve(&scratch, pairs);
    work->cosine = cpu_carve(&scratch, pairs);
    work->sine = cpu_carve(&scratch, pairs);
    work->x = cpu_carve(&scratch, heads);
    work->y = cpu_carve(&scratch, heads);
    return (size_t)((char *)scratch - from);
}

static size_t bytes_of(const Rotation *r) {
    static char origin[1]; /* offsets alone matter */
    Work work;
    return carve(r, origin, &work);
}

static void split(int64_t n, const float *mixed, float *a, float *b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        a[i] = mixed[2 * i];
        b[i] = mixed[2 * i + 1];
    }
}

static void merge(int64_t n, const float *a, const float *b, float *mixed) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        mixed[2 * i] = a[i];
        mixed[2 * i + 1] = b[i];
    }
}

/* y_a, y_b may be a, b. */
static void rotate(int64_t n, const float *a, const float *b, const Work *work, float *y_a,
                   float *y_b) {
    const float *cosine = work->cosine, *sine = work->sine;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float p = a[i], q = b[i];
        y_a[i] = p * cosine[i] - q * sine[i];
        y_b[i] = q * cosine[i] + p * sine[i];
    }
}

/* One head. */
static void rotate_head(const Rotation *r, const float *x, const Work *work, float *y) {
    const MxRopeAttr *attr = r->call->attr;
    int64_t n = r->pairs, end = r->first + 2 * n;
    memcpy(y, x, (size_t)r->first * sizeof *x);
    memcpy(y + end, x + end, (size_t)(r->width - end) * sizeof *x);
    x += r->first;
    y += r->first;
    const float *a = attr->interleaved_in ? work->a : x;
    const float *b = attr->interleaved_in ? work->b : x + n;
    if (attr->interleaved_in) split(n, x, work->a, work->b);
    if (attr->interleaved_out) {
        rotate(n, a, b, work, work->a, work->b);
        merge(n, work->a, work->b, y);
    } else {
        rotate(n, a, b, work, y, y + n);
    }
}

static void rotate_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Rotation *r = context;
    const MxKernelCall *call = r->call;
    const float *table = call->in[1];
    bool inverse = ((const MxRopeAttr *)call->attr)->inverse;
    MxDtype dtype = call->in_type[0].dtype;
    Work work;
    carve(r, r->scratch + (size_t)worker * bytes_of(r), &work);
    for (int64_t row = begin; row < end; row++) {
        split(r->pairs, table + 2 * row * r->pairs, work.cosine, work.sine);
        for (int64_t i = 0; inverse && i < r->pairs; i++) work.sine[i] = -work.sine[i];
        for (int64_t head = 0, n; head < r->heads; head += n) {
            n = cpu_min(r->together, r->heads - head);
            int64_t at = (row * r->heads + head) * r->width;
            const float *x = cpu_read(call->in[0], dtype, at, n * r->width, work.x);
            float *y = cpu_place(call->out[0], dtype, at, work.y);
            for (int64_t i = 0; i < n * r->width; i += r->width)
                rotate_head(r, x + i, &work, y + i);
            cpu_write(y, n * r->width, call->out[0], dtype, at);
        }
    }
}

static size_t rope_scratch(const MxDevice *device, const MxKernelCall *call) {
    Rotation r = rotation_of(call);
    return bytes_of(&r) * (size_t)device->n_threads;
}

static void rope_run(const MxDevice *device, const MxKernelCall *call) {
    Rotation r = rotation_of(call);
    if (call->out[0])
        cpu_for(device, r.rows, cpu_max(1, CPU_PIECE / cpu_max(1, r.heads * r.width)), rotate_rows,
                &r);
}

const MxKernel cpu_rope = {.scratch = rope_scratch, .run = rope_run};

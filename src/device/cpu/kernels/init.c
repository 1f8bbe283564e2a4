/* init.c — constants and random arrays. Element e of a stream uses word e % 4 of Philox at counter
 * e / 4, so that any part of an array can be made independently. The generator processes many
 * counters at a time, as does the arithmetic on its words; test: tests/device/init.c against
 * mx_philox. */
#include "kernel.h"
#include "vec.h"

#include <math.h>

enum { LANES = CPU_PHILOX_LANES, WORDS = CPU_PHILOX_WORDS, ROUNDS = 10 };

void cpu_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t c[WORDS][LANES]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < LANES; i++) {
        c[0][i] = (uint32_t)(counter + (uint64_t)i);
        c[1][i] = (uint32_t)((counter + (uint64_t)i) >> 32);
        c[2][i] = (uint32_t)stream;
        c[3][i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i], p1 = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
            c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
            c[1][i] = (uint32_t)p1;
            c[3][i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Box–Muller: words 0, 1 make elements 0, 1 and words 2, 3 make 2, 3. */
static void normal_lanes(uint32_t c[WORDS][LANES], float deviation, float z[WORDS][LANES]) {
    for (int w = 0; w < WORDS; w += 2)
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            float radius = deviation * sqrtf(-2.0f * vec_log(mx_uniform(c[w][i])));
            float sine, cosine;
            vec_sincos_turns(mx_uniform(c[w + 1][i]), &sine, &cosine);
            z[w][i] = radius * cosine;
            z[w + 1][i] = radius * sine;
        }
}

/* A normal truncated at two deviations, by the inverse of its distribution. The inverse error
 * function is the central polynomial of Giles (GPU Computing Gems 2011); here |y| <= erf(sqrt 2),
 * where it holds. */
static inline float truncated(uint32_t bits) {
    const float erf_sqrt2 = 0.954499736f, sqrt2 = 1.41421356f;
    float y = (2.0f * mx_uniform(bits) - 1.0f) * erf_sqrt2;
    float w = -vec_log((1.0f - y) * (1.0f + y)) - 2.5f;
    float p = 2.81022636e-08f;
    p = p * w + 3.43273939e-07f;
    p = p * w - 3.5233877e-06f;
    p = p * w - 4.39150654e-06f;
    p = p * w + 0.00021858087f;
    p = p * w - 0.00125372503f;
    p = p * w - 0.00417768164f;
    p = p * w + 0.246640727f;
    p = p * w + 1.50140941f;
    float z = sqrt2 * (p * y);
    z = z > 2.0f ? 2.0f : z;
    return z < -2.0f ? -2.0f : z;
}

static void truncated_lanes(uint32_t c[WORDS][LANES], float deviation, float z[WORDS][LANES]) {
    const float of_truncated = 0.879625661f; /* deviation of a standard normal cut at 2 */
    float factor = deviation / of_truncated;
    for (int w = 0; w < WORDS; w++)
#pragma omp simd
        for (int i = 0; i < LANES; i++) z[w][i] = truncated(c[w][i]) * factor;
}

static void uniform_lanes(uint32_t c[WORDS][LANES], float deviation, float z[WORDS][LANES]) {
    const float sqrt3 = 1.73205081f;
    float limit = sqrt3 * deviation;
    for (int w = 0; w < WORDS; w++)
#pragma omp simd
        for (int i = 0; i < LANES; i++) z[w][i] = limit * (2.0f * mx_uniform(c[w][i]) - 1.0f);
}

static void log_uniform_lanes(uint32_t c[WORDS][LANES], float limit, float z[WORDS][LANES]) {
    for (int w = 0; w < WORDS; w++)
#pragma omp simd
        for (int i = 0; i < LANES; i++) z[w][i] = vec_log(limit * mx_uniform(c[w][i]));
}

static void (*const lanes[MX_FILL_COUNT])(uint32_t c[WORDS][LANES], float deviation,
                                          float z[WORDS][LANES]) = {
    [MX_FILL_NORMAL] = normal_lanes,
    [MX_FILL_TRUNCATED_NORMAL] = truncated_lanes,
    [MX_FILL_UNIFORM] = uniform_lanes,
    [MX_FILL_LOG_UNIFORM] = log_uniform_lanes,
};

static void interleave(float z[WORDS][LANES], float out[LANES * WORDS]) {
    for (int i = 0; i < LANES; i++)
        for (int w = 0; w < WORDS; w++) out[WORDS * i + w] = z[w][i];
}

/* n elements of the stream from element `from` on, to elements of the output from `at` on. */
static void random_run(const MxKernelCall *call, int64_t from, int64_t at, int64_t n) {
    const MxInitAttr *attr = call->attr;
    uint32_t words[WORDS][LANES];
    float z[WORDS][LANES], block[LANES * WORDS];
    for (int64_t done = 0, m; done < n; done += m) {
        int64_t skipped = (from + done) % WORDS;
        m = cpu_min(LANES * WORDS - skipped, n - done);
        cpu_philox(attr->seed, attr->stream, (uint64_t)(from + done) / WORDS, words);
        lanes[attr->fill](words, (float)attr->value, z);
        interleave(z, block);
        if (attr->type.dtype == MX_F32)
            memcpy((float *)call->out[0] + at + done, block + skipped, (size_t)m * sizeof(float));
        else
            cpu_narrow(block + skipped, m, (MxBf16 *)call->out[0] + at + done);
    }
}

/* Where element `at` of a part stands in the whole, and how many elements follow each other there
 * as they do in the part. */
static int64_t place_in_whole(const MxInitAttr *attr, int64_t at, int64_t *n) {
    MxShape part = attr->type.shape;
    int64_t place = 0, stride = 1, run = 1;
    bool is_run = true;
    for (int d = part.rank - 1; d >= 0; d--) {
        place += (attr->start[d] + at % part.dim[d]) * stride;
        if (is_run) run *= part.dim[d];
        is_run = is_run && part.dim[d] == attr->whole.dim[d];
        stride *= attr->whole.dim[d];
        at /= part.dim[d];
    }
    *n = run;
    return place;
}

/* Numbers of the whole's elements from `from` on. */
static void cycle_run(const MxKernelCall *call, int64_t from, int64_t at, int64_t n) {
    const MxInitAttr *attr = call->attr;
    int64_t cycle = (int64_t)attr->value;
    for (int64_t i = 0; i < n; i++)
        if (attr->type.dtype == MX_I32)
            ((int32_t *)call->out[0])[at + i] = (int32_t)((from + i) % cycle);
        else
            ((float *)call->out[0])[at + i] = (float)((from + i) % cycle);
}

static void varied_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxInitAttr *attr = call->attr;
    bool is_cycle = attr->fill == MX_FILL_CYCLE;
    void (*make)(const MxKernelCall *, int64_t, int64_t, int64_t) =
        is_cycle ? cycle_run : random_run;
    if (!attr->whole.rank) {
        make(call, begin, begin, end - begin);
        return;
    }
    for (int64_t at = begin, n, run; at < end; at += n) {
        int64_t from = place_in_whole(attr, at, &run);
        n = cpu_min(run - at % run, end - at);
        make(call, from, at, n);
    }
}

static void constant_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    double value = ((const MxInitAttr *)call->attr)->value;
    MxDtype dtype = call->out_type[0].dtype;
    for (int64_t i = begin; i < end; i++)
        if (dtype == MX_F32)
            ((float *)call->out[0])[i] = (float)value;
        else if (dtype == MX_BF16)
            ((MxBf16 *)call->out[0])[i] = mx_f32_to_bf16((float)value);
        else
            ((int32_t *)call->out[0])[i] = (int32_t)value;
}

static void init_run(const MxDevice *device, const MxKernelCall *call) {
    const MxInitAttr *attr = call->attr;
    MxDtype dtype = attr->type.dtype;
    bool is_constant = attr->fill == MX_FILL_CONSTANT;
    bool is_cycle = attr->fill == MX_FILL_CYCLE;
    MX_ASSERT(dtype == MX_F32 || (dtype == MX_BF16 && !is_cycle) ||
              (dtype == MX_I32 && (is_constant || is_cycle)));
    int64_t n = mx_shape_count(attr->type.shape);
    if (!call->out[0]) return;
    if (is_constant && attr->value == 0)
        cpu_zero(device, call->out[0], (size_t)n * mx_dtype_bytes(dtype));
    else
        cpu_for(device, n, CPU_PIECE, is_constant ? constant_span : varied_span, call);
}

const MxKernel cpu_init = {.run = init_run};

/* delta.cuh — a chunk of the gated delta rule, shared by delta.cu and delta_grad.cu. Chunks are all
 * of C tokens, wherever segments begin: a chunk has runs of tokens of one segment. With G the sums
 * of decays from a run's start on, D[t, j] = exp(G[t] - G[j]) for j <= t of one run, S the memory
 * before the chunk, e = exp(G) in the run that S reaches and rest = exp(G[C] - G) in the last one,
 * both 0 elsewhere,
 *
 *     U = beta (V - e K S - lower(K K^T D) U)       row by row
 *     O = e Q S + (Q K^T D) U
 *     S = e[C] S + (rest K)^T U
 *
 * Letters: H width of keys, W of values. */
#ifndef GPU_DELTA_CUH
#define GPU_DELTA_CUH

#include "tiles.cuh"

enum { DELTA_Q, DELTA_K, DELTA_V, DELTA_DECAY, DELTA_BETA, DELTA_SEGMENTS, DELTA_DO };

static constexpr int CHUNK = MX_DELTA_CHUNK, SOLVED = 16 /* rows that are solved at once */;
static constexpr size_t SHARED_MOST = 156 << 10; /* that all GPUs have which this is built for */

typedef struct Delta {
    GpuArray q, k, v, dout;
    const float *decay, *beta;
    const int32_t *segments; /* NULL = all tokens count */
    int64_t batch, time, key_heads, group, width, value_width;
    int64_t H, W; /* in fours; W of the columns of values that a block takes */
    bool carries;
    char *scratch;
    size_t block_bytes; /* of scratch, a block */
} Delta;

static inline Delta delta_of(const MxType *type, void *const *in, bool carries) {
    MxShape q = type[DELTA_Q].shape, v = type[DELTA_V].shape;
    Delta d = {};
    d.batch = q.dim[0], d.time = q.dim[1], d.key_heads = q.dim[2];
    d.group = v.dim[2] / q.dim[2];
    d.width = q.dim[3], d.value_width = v.dim[3];
    d.H = tile_padded(d.width), d.W = tile_padded(d.value_width);
    d.carries = carries;
    if (!in) return d;
    d.q = GpuArray{in[DELTA_Q], type[DELTA_Q].dtype};
    d.k = GpuArray{in[DELTA_K], type[DELTA_K].dtype};
    d.v = GpuArray{in[DELTA_V], type[DELTA_V].dtype};
    d.decay = (const float *)in[DELTA_DECAY];
    d.beta = (const float *)in[DELTA_BETA];
    d.segments = (const int32_t *)in[DELTA_SEGMENTS];
    return d;
}

/* Which tokens: n from t on in row b, of a head of values, whose columns are those from `column`
 * on. */
typedef struct Span {
    int64_t b, t, n, head, column;
} Span;

/* A chunk's numbers, one a token; in shared memory. */
typedef struct Numbers {
    float G[CHUNK], e[CHUNK], rest[CHUNK], beta[CHUNK], decay[CHUNK];
    int run[CHUNK];                             /* the first token of the run */
    bool silent[CHUNK];                         /* tokens of no segment, which change nothing … */
    bool unread[CHUNK];                         /* … and those of them that read nothing either */
    float keep;                                 /* of the memory before the chunk */
    float dG[CHUNK], dbeta[CHUNK], flow[CHUNK]; /* of the gradient */
    float between[CHUNK]; /* … to decays, from pairs that they lie between */
} Numbers;

/* Where the head's number of a token is, in arrays of one number a head. */
__device__ static inline int64_t number_at(const Delta &d, const Span &s, int64_t t) {
    return (s.b * d.time + s.t + t) * d.key_heads * d.group + s.head;
}

__device__ static inline float weight_of_pair(const Numbers *x, int64_t t, int64_t j) {
    return j >= x->run[t] && j <= t ? expf(x->G[t] - x->G[j]) : 0.0f;
}

/* load_numbers — ends with a barrier. */
__device__ static inline void load_numbers(const Delta &d, const Span &s, Numbers *x) {
    int t = (int)threadIdx.x;
    const int32_t *segments = d.segments ? d.segments + s.b * d.time + s.t : nullptr;
    if (t < CHUNK) {
        x->silent[t] = t >= s.n || (segments && !segments[t]);
        x->unread[t] = t >= s.n || (!d.carries && x->silent[t]);
        x->decay[t] = x->silent[t] ? 0.0f : d.decay[number_at(d, s, t)];
        x->beta[t] = x->unread[t] ? 0.0f : d.beta[number_at(d, s, t)];
    }
    __syncthreads();
    if (t < CHUNK) {
        int run = gpu_min(t, s.n - 1);
        while (run > 0 && (d.carries || segments[run] == segments[run - 1])) run--;
        float sum = 0.0f;
        for (int j = run; j <= t; j++) sum += x->decay[j];
        x->run[t] = run;
        x->G[t] = sum;
    }
    __syncthreads();
    if (t < CHUNK) {
        bool is_reached = d.carries || !s.t || segments[0] == segments[-1];
        int last = (int)s.n - 1;
        x->e[t] = is_reached && !x->run[t] ? expf(x->G[t]) : 0.0f;
        x->rest[t] = x->run[t] == x->run[last] ? expf(x->G[last] - x->G[t]) : 0.0f;
        if (t == last) x->keep = x->e[t];
    }
    __syncthreads();
}

/* An array [B, T, heads, width], and a head's columns [column, column + n) of it. */
typedef struct Head {
    GpuArray from;
    int64_t heads, head, width, column, n;
} Head;

__device__ static inline Head head_of_keys(const Delta &d, const Span &s, GpuArray from) {
    return Head{from, d.key_heads, s.head / d.group, d.width, 0, d.H};
}
__device__ static inline Head head_of_values(const Delta &d, const Span &s, GpuArray from) {
    return Head{from, d.key_heads * d.group, s.head, d.value_width, s.column, d.W};
}
__device__ static inline int64_t element_at(const Delta &d, const Span &s, const Head &h, int64_t t,
                                            int64_t column) {
    return ((s.b * d.time + s.t + t) * h.heads + h.head) * h.width + h.column + column;
}

/* load_rows — of the chunk's tokens; zeros for those that are left out, and behind them. */
__device__ static inline void load_rows(const Delta &d, const Span &s, const Head &h,
                                        const bool *left_out, Tile to) {
    for (int64_t i = threadIdx.x; i < CHUNK * h.n; i += GPU_BLOCK) {
        int64_t t = i / h.n, column = i % h.n;
        bool is_there = !left_out[t] && h.column + column < h.width;
        to.x[t * to.step + column] =
            is_there ? gpu_get(h.from, element_at(d, s, h, t, column)) : 0.0f;
    }
}

/* U = beta (U - A U), row by row, where A is lower: blocks of rows on the diagonal, then what they
 * give to the rows behind them. */
__device__ static inline void solve(const Numbers *x, Tile A, Tile U, int64_t W) {
    for (int64_t first = 0; first < CHUNK; first += SOLVED) {
        for (int64_t w = threadIdx.x; w < W; w += GPU_BLOCK) {
            float u[SOLVED];
#pragma unroll
            for (int t = 0; t < SOLVED; t++) {
                float sum = U.x[(first + t) * U.step + w];
#pragma unroll
                for (int j = 0; j < t; j++) sum -= A.x[(first + t) * A.step + first + j] * u[j];
                u[t] = x->beta[first + t] * sum;
                U.x[(first + t) * U.step + w] = u[t];
            }
        }
        __syncthreads();
        int64_t next = first + SOLVED;
        tile_product<false, false>(
            Tile{A.x + next * A.step + first, A.step}, Tile{U.x + first * U.step, U.step},
            CHUNK - next, W, SOLVED, nullptr,
            [&](int64_t t, int64_t w, float sum) { U.x[(next + t) * U.step + w] -= sum; });
        __syncthreads();
    }
}

#endif

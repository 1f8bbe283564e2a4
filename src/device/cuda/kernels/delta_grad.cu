/* delta_grad.cu — the gradient of the gated delta rule. A block takes all heads of values that read
 * one head of keys, so that their gradients add up in one order: it makes the memories before all
 * chunks again, then goes through the chunks from the last one on. d<name> is the gradient of
 * <name>; a chunk gets dO and, in dS, that of the memory behind it, and leaves there that of the
 * memory before it. */
#include "delta.cuh"

namespace gpu_delta_grad {

typedef struct Backward {
    Delta d;
    GpuArray dq, dk, dv; /* data NULL = nobody wants it, like … */
    float *ddecay, *dbeta;
    int64_t n_chunks;
} Backward;

/* A and M are of pairs of tokens, with D; R is V - P, P what the memory says. dq and dk are of one
 * head of values, sum_q and sum_k of all. */
typedef struct Tiles {
    Tile q, k, A, M, U, dR, dA, dM, o, P, R, dq, dk, sum_q, sum_k;
    Tile states; /* [head of the group][chunk][H, W] */
    Tile dS;     /* [head of the group][H, W] */
} Tiles;

__host__ __device__ static Tiles lay_out(const Backward &f, TileRoom *room) {
    const Delta &d = f.d;
    Tiles x;
    x.q = tile_take(room, CHUNK, d.H);
    x.k = tile_take(room, CHUNK, d.H);
    x.A = tile_take(room, CHUNK, CHUNK);
    x.M = tile_take(room, CHUNK, CHUNK);
    x.U = tile_take(room, CHUNK, d.W);
    x.dR = tile_take(room, CHUNK, d.W);
    x.dA = tile_take(room, CHUNK, CHUNK);
    x.dM = tile_take(room, CHUNK, CHUNK);
    x.o = tile_take(room, CHUNK, d.W);
    x.P = tile_take(room, CHUNK, d.W);
    x.R = tile_take(room, CHUNK, d.W);
    x.dq = tile_take(room, CHUNK, d.H);
    x.dk = tile_take(room, CHUNK, d.H);
    x.sum_q = tile_take(room, CHUNK, d.H);
    x.sum_k = tile_take(room, CHUNK, d.H);
    room->shared_most = 0; /* what is large and seldom read */
    x.dS = tile_take(room, d.group * d.H, d.W);
    x.states = tile_take(room, d.group * f.n_chunks * d.H, d.W);
    return x;
}

__device__ static Tile state_of(const Backward &f, const Tiles &x, int64_t g, int64_t chunk) {
    return Tile{x.states.x + (g * f.n_chunks + chunk) * f.d.H * x.states.step, x.states.step};
}

__device__ static Tile state_gradient(const Backward &f, const Tiles &x, int64_t g) {
    return Tile{x.dS.x + g * f.d.H * x.dS.step, x.dS.step};
}

/* ---- the chunk as the forward pass has it */

__device__ static void prepare(const Delta &d, const Span &s, const Tiles &x, const Numbers *y,
                               Tile S) {
    load_rows(d, s, head_of_keys(d, s, d.k), y->silent, x.k);
    load_rows(d, s, head_of_values(d, s, d.v), y->silent, x.R);
    __syncthreads();
    tile_product<false, true>(x.k, x.k, CHUNK, CHUNK, d.H, nullptr,
                              [&](int64_t t, int64_t j, float sum) {
                                  float D = j < t ? weight_of_pair(y, t, j) : 0.0f;
                                  x.A.x[t * x.A.step + j] = sum * D;
                              });
    tile_product<false, false>(x.k, S, CHUNK, d.W, d.H, nullptr,
                               [&](int64_t t, int64_t w, float sum) {
                                   float P = y->e[t] * sum, R = x.R.x[t * x.R.step + w] - P;
                                   x.P.x[t * x.P.step + w] = P;
                                   x.R.x[t * x.R.step + w] = R;
                                   x.U.x[t * x.U.step + w] = R;
                               });
    __syncthreads();
    solve(y, x.A, x.U, d.W);
}

__device__ static void remember(const Delta &d, const Tiles &x, const Numbers *y, Tile before,
                                Tile S) {
    tile_product<true, false>(
        x.k, x.U, d.H, d.W, CHUNK, y->rest, [&](int64_t h, int64_t w, float sum) {
            S.x[h * S.step + w] = y->keep * before.x[h * before.step + w] + sum;
        });
    __syncthreads();
}

__device__ static void clear(const Delta &d, Tile S) {
    for (int64_t i = threadIdx.x; i < d.H * d.W; i += GPU_BLOCK)
        S.x[i / d.W * S.step + i % d.W] = 0.0f;
}

/* The memories before all chunks of a head of values. */
__device__ static void make_states(const Backward &f, Span s, int64_t g, const Tiles &x,
                                   Numbers *y) {
    clear(f.d, state_of(f, x, g, 0));
    clear(f.d, state_gradient(f, x, g));
    __syncthreads();
    for (int64_t chunk = 0; chunk + 1 < f.n_chunks; chunk++) {
        s.t = chunk * CHUNK;
        s.n = CHUNK;
        load_numbers(f.d, s, y);
        prepare(f.d, s, x, y, state_of(f, x, g, chunk));
        remember(f.d, x, y, state_of(f, x, g, chunk), state_of(f, x, g, chunk + 1));
    }
}

/* ---- the way back */

/* dR = (1 + beta A)^-T dR: blocks of rows from the last one on. */
__device__ static void solve_back(const Numbers *x, Tile A, Tile dR, int64_t W) {
    for (int64_t first = CHUNK - SOLVED; first >= 0; first -= SOLVED) {
        for (int64_t w = threadIdx.x; w < W; w += GPU_BLOCK) {
            float r[SOLVED];
#pragma unroll
            for (int t = SOLVED - 1; t >= 0; t--) {
                float sum = dR.x[(first + t) * dR.step + w];
#pragma unroll
                for (int j = SOLVED - 1; j > t; j--)
                    sum -= x->beta[first + j] * A.x[(first + j) * A.step + first + t] * r[j];
                r[t] = sum;
                dR.x[(first + t) * dR.step + w] = sum;
            }
        }
        __syncthreads();
        tile_product<true, false>(
            Tile{A.x + first * A.step, A.step}, Tile{dR.x + first * dR.step, dR.step}, first, W,
            SOLVED, x->beta + first,
            [&](int64_t t, int64_t w, float sum) { dR.x[t * dR.step + w] -= sum; });
        __syncthreads();
    }
}

/* dR from dO and dS; then dM and dA, without D. */
__device__ static void residuals_back(const Delta &d, const Tiles &x, const Numbers *y, Tile dS) {
    tile_product<false, true>(x.q, x.k, CHUNK, CHUNK, d.H, nullptr,
                              [&](int64_t t, int64_t j, float sum) {
                                  x.M.x[t * x.M.step + j] = sum * weight_of_pair(y, t, j);
                              });
    tile_product<false, false>(
        x.k, dS, CHUNK, d.W, d.H, nullptr,
        [&](int64_t t, int64_t w, float sum) { x.dR.x[t * x.dR.step + w] = y->rest[t] * sum; });
    __syncthreads();
    tile_product<true, false>(
        x.M, x.o, CHUNK, d.W, CHUNK, nullptr,
        [&](int64_t t, int64_t w, float sum) { x.dR.x[t * x.dR.step + w] += sum; });
    __syncthreads();
    solve_back(y, x.A, x.dR, d.W);
    tile_product<false, true>(
        x.o, x.U, CHUNK, CHUNK, d.W, nullptr,
        [&](int64_t t, int64_t j, float sum) { x.dM.x[t * x.dM.step + j] = sum; });
    tile_product<false, true>(
        x.dR, x.U, CHUNK, CHUNK, d.W, nullptr,
        [&](int64_t t, int64_t j, float sum) { x.dA.x[t * x.dA.step + j] = sum; });
    __syncthreads();
}

/* Row t of two tiles, by a warp. */
__device__ static float dot_rows(Tile a, Tile b, int64_t t, int64_t n) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % GPU_WARP; i < n; i += GPU_WARP)
        sum += a.x[t * a.step + i] * b.x[t * b.step + i];
    return gpu_warp_sum(sum);
}

/* dbeta, and what flows to decays by pairs; then dA and dM are what flows to the products of keys,
 * and of queries with keys. What flows to D takes A's place. As on a CPU, nothing is lost in
 * differences: a pair's flow goes to the decays that it spans. */
__device__ static void pairs_back(const Delta &d, const Tiles &x, Numbers *y) {
    int lane = (int)threadIdx.x % GPU_WARP;
    for (int64_t t = threadIdx.x / GPU_WARP; t < CHUNK; t += GPU_BLOCK / GPU_WARP) {
        float of_values = dot_rows(x.dR, x.R, t, d.W), of_pairs = dot_rows(x.dA, x.A, t, CHUNK);
        for (int64_t j = lane; j < CHUNK; j += GPU_WARP) {
            float *A = &x.A.x[t * x.A.step + j], *dA = &x.dA.x[t * x.dA.step + j];
            float M = x.M.x[t * x.M.step + j], *dM = &x.dM.x[t * x.dM.step + j];
            float D = weight_of_pair(y, t, j), flow = *dM * M - y->beta[t] * *dA * *A;
            *A = j < t ? flow : 0.0f;
            *dA = j < t ? -y->beta[t] * *dA * D : 0.0f;
            *dM = *dM * D;
        }
        if (lane == 0) y->dbeta[t] = of_values - of_pairs;
    }
    __syncthreads();
    if (threadIdx.x < CHUNK) {
        float *row = &x.A.x[threadIdx.x * x.A.step], sum = 0.0f;
        for (int64_t j = 0; j < threadIdx.x; j++) row[j] = sum += row[j];
        y->dG[threadIdx.x] = 0.0f;
    }
    __syncthreads();
    if (threadIdx.x < CHUNK) {
        float sum = 0.0f;
        for (int64_t t = threadIdx.x; threadIdx.x && t < CHUNK; t++)
            sum += x.A.x[t * x.A.step + threadIdx.x - 1];
        y->between[threadIdx.x] = sum;
    }
    __syncthreads();
}

/* dG[t] gets the products of a row of two tiles; with `from_last` they are a pair's with the last.
 */
__device__ static void add_flow(const Tile &a, const Tile &b, int64_t n, int64_t last,
                                bool from_last, Numbers *y) {
    for (int64_t t = threadIdx.x / GPU_WARP; t < CHUNK; t += GPU_BLOCK / GPU_WARP) {
        float sum = dot_rows(a, b, t, n);
        if (threadIdx.x % GPU_WARP == 0) y->flow[t] = sum;
    }
    __syncthreads();
    if (threadIdx.x < CHUNK && !from_last) y->dG[threadIdx.x] += y->flow[threadIdx.x];
    if (threadIdx.x <= last && from_last)
        for (int64_t t = 0; t < threadIdx.x; t++) y->between[threadIdx.x] += y->flow[t];
    __syncthreads();
}

/* What `keep` gets. */
__device__ static void keep_back(const Delta &d, Tile S, Tile dS, int64_t last, Numbers *y) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < d.H * d.W; i += GPU_BLOCK) {
        int64_t h = i / d.W, w = i % d.W;
        sum += S.x[h * S.step + w] * dS.x[h * dS.step + w];
    }
    sum = gpu_block_sum(sum);
    if (threadIdx.x == 0) y->dG[last] += y->keep * sum;
    __syncthreads();
}

/* dq and dk by way of the memories before and behind the chunk, dG with them, and dS. dR becomes
 * dP. */
__device__ static void memory_back(const Delta &d, const Tiles &x, Numbers *y, Tile S, Tile dS,
                                   int64_t last) {
    tile_product<false, true>(
        x.U, dS, CHUNK, d.H, d.W, nullptr,
        [&](int64_t t, int64_t h, float sum) { x.dk.x[t * x.dk.step + h] = y->rest[t] * sum; });
    tile_product<false, true>(
        x.o, S, CHUNK, d.H, d.W, nullptr,
        [&](int64_t t, int64_t h, float sum) { x.dq.x[t * x.dq.step + h] = y->e[t] * sum; });
    for (int64_t i = threadIdx.x; i < CHUNK * d.W; i += GPU_BLOCK)
        x.dR.x[i / d.W * x.dR.step + i % d.W] *= -y->beta[i / d.W];
    __syncthreads();
    add_flow(x.dk, x.k, d.H, last, true, y);
    keep_back(d, S, dS, last, y);
    add_flow(x.dq, x.q, d.H, last, false, y);
    add_flow(x.dR, x.P, d.W, last, false, y);
    tile_product<false, true>(
        x.dR, S, CHUNK, d.H, d.W, nullptr,
        [&](int64_t t, int64_t h, float sum) { x.dk.x[t * x.dk.step + h] += y->e[t] * sum; });
    tile_each<false>(d.H, d.W, [&](int64_t i, int64_t j) {
        float sum[TILE_FOUR][TILE_FOUR] = {};
        tile_sum<true, false>(x.q, x.o, i, j, d.W, CHUNK, y->e, sum);
        tile_sum<true, false>(x.k, x.dR, i, j, d.W, CHUNK, y->e, sum);
        tile_give<false>(i, j, d.W, sum, [&](int64_t h, int64_t w, float value) {
            dS.x[h * dS.step + w] = y->keep * dS.x[h * dS.step + w] + value;
        });
    });
    __syncthreads();
}

/* Keys and queries of all heads of values so far. */
__device__ static void keys_back(const Delta &d, const Tiles &x, bool adds) {
    tile_each<false>(CHUNK, d.H, [&](int64_t i, int64_t j) {
        float q[TILE_FOUR][TILE_FOUR] = {}, k[TILE_FOUR][TILE_FOUR] = {};
        tile_sum<false, false>(x.dM, x.k, i, j, d.H, CHUNK, nullptr, q);
        tile_sum<false, false>(x.dA, x.k, i, j, d.H, CHUNK, nullptr, k);
        tile_sum<true, false>(x.dA, x.k, i, j, d.H, CHUNK, nullptr, k);
        tile_sum<true, false>(x.dM, x.q, i, j, d.H, CHUNK, nullptr, k);
        tile_give<false>(i, j, d.H, q, [&](int64_t t, int64_t h, float value) {
            float *to = &x.sum_q.x[t * x.sum_q.step + h];
            *to = (adds ? *to : 0.0f) + x.dq.x[t * x.dq.step + h] + value;
        });
        tile_give<false>(i, j, d.H, k, [&](int64_t t, int64_t h, float value) {
            float *to = &x.sum_k.x[t * x.sum_k.step + h];
            *to = (adds ? *to : 0.0f) + x.dk.x[t * x.dk.step + h] + value;
        });
    });
    __syncthreads();
}

/* ---- results */

__device__ static void store_values(const Backward &f, const Span &s, const Tiles &x,
                                    const Numbers *y) {
    const Delta &d = f.d;
    Head h = head_of_values(d, s, f.dv);
    for (int64_t i = threadIdx.x; f.dv.data && i < s.n * d.value_width; i += GPU_BLOCK) {
        int64_t t = i / d.value_width, w = i % d.value_width;
        float value = y->silent[t] ? 0.0f : y->beta[t] * x.dR.x[t * x.dR.step + w];
        gpu_put(f.dv, element_at(d, s, h, t, w), value);
    }
    __syncthreads();
}

/* A decay counts for all tokens of its run from its own on. */
__device__ static void store_numbers(const Backward &f, const Span &s, const Numbers *y) {
    int64_t t = threadIdx.x;
    if (t < s.n) {
        float sum = 0.0f;
        for (int64_t j = s.n - 1; j >= t; j--)
            if (y->run[j] == y->run[t]) sum += y->dG[j];
        if (f.ddecay) f.ddecay[number_at(f.d, s, t)] = y->silent[t] ? 0.0f : sum + y->between[t];
        if (f.dbeta) f.dbeta[number_at(f.d, s, t)] = y->unread[t] ? 0.0f : y->dbeta[t];
    }
    __syncthreads();
}

__device__ static void store_keys(const Backward &f, const Span &s, GpuArray to,
                                  const bool *left_out, Tile sum) {
    const Delta &d = f.d;
    Head h = head_of_keys(d, s, to);
    for (int64_t i = threadIdx.x; to.data && i < s.n * d.width; i += GPU_BLOCK) {
        int64_t t = i / d.width, column = i % d.width;
        gpu_put(to, element_at(d, s, h, t, column),
                left_out[t] ? 0.0f : sum.x[t * sum.step + column]);
    }
}

__device__ static void chunk_back(const Backward &f, const Span &s, int64_t g, const Tiles &x,
                                  Numbers *y) {
    const Delta &d = f.d;
    Tile S = state_of(f, x, g, s.t / CHUNK), dS = state_gradient(f, x, g);
    load_numbers(d, s, y);
    load_rows(d, s, head_of_keys(d, s, d.q), y->unread, x.q);
    load_rows(d, s, head_of_values(d, s, d.dout), y->unread, x.o);
    prepare(d, s, x, y, S);
    residuals_back(d, x, y, dS);
    pairs_back(d, x, y);
    store_values(f, s, x, y);
    memory_back(d, x, y, S, dS, s.n - 1);
    store_numbers(f, s, y);
    keys_back(d, x, g > 0);
}

__global__ void __launch_bounds__(GPU_BLOCK) delta_grad_kernel(Backward f) {
    __shared__ Numbers numbers;
    const Delta &d = f.d;
    TileRoom room = {(char *)gpu_dynamic<float>(), d.scratch + blockIdx.x * d.block_bytes, 0, 0,
                     SHARED_MOST};
    Tiles x = lay_out(f, &room);
    for (int64_t i = blockIdx.x; i < d.batch * d.key_heads; i += gridDim.x) {
        int64_t first = i % d.key_heads * d.group;
        Span s = {i / d.key_heads, 0, 0, first, 0};
        for (int64_t g = 0; g < d.group; g++) {
            s.head = first + g;
            make_states(f, s, g, x, &numbers);
        }
        for (int64_t chunk = f.n_chunks - 1; chunk >= 0; chunk--) {
            s.t = chunk * CHUNK;
            s.n = gpu_min(CHUNK, d.time - s.t);
            for (int64_t g = 0; g < d.group; g++) {
                s.head = first + g;
                chunk_back(f, s, g, x, &numbers);
            }
            store_keys(f, s, f.dq, numbers.unread, x.sum_q);
            store_keys(f, s, f.dk, numbers.silent, x.sum_k);
            __syncthreads();
        }
    }
}

/* ---- */

static Backward backward_of(const MxKernelCall *call, void *const *in) {
    Backward f = {};
    f.d = delta_of(call->in_type, in, ((const MxDeltaAttr *)call->attr)->carries);
    f.n_chunks = (f.d.time + CHUNK - 1) / CHUNK;
    return f;
}

static TileRoom room_of(const Backward &f) {
    TileRoom room = {nullptr, nullptr, 0, 0, SHARED_MOST};
    lay_out(f, &room);
    return room;
}

/* One a processor: each has memories of its own. */
static int64_t blocks_of(const MxDevice *device, const Delta &d) {
    return gpu_min(d.batch * d.key_heads, gpu_of(device)->n_processors);
}

static size_t delta_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Backward f = backward_of(call, nullptr);
    return room_of(f).scratch_used * (size_t)blocks_of(device, f.d);
}

static void delta_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Backward f = backward_of(call, call->in);
    TileRoom room = room_of(f);
    f.d.dout = gpu_in(call, DELTA_DO);
    f.dq = gpu_out(call, DELTA_Q);
    f.dk = gpu_out(call, DELTA_K);
    f.dv = gpu_out(call, DELTA_V);
    f.ddecay = (float *)call->out[DELTA_DECAY];
    f.dbeta = (float *)call->out[DELTA_BETA];
    f.d.scratch = (char *)call->scratch;
    f.d.block_bytes = room.scratch_used;
    if (f.n_chunks)
        gpu_launch(device, delta_grad_kernel, (unsigned)blocks_of(device, f.d), GPU_BLOCK,
                   room.shared_used, f);
}
GPU_KERNEL(delta_grad, .scratch = delta_grad_scratch, .run = delta_grad_run);

} // namespace gpu_delta_grad

/* sinkhorn.c — doubly stochastic matrices of a few rows each, f32, divided among threads by
 * matrices; each by one thread. */
#include "kernel.h"

#include <math.h>

static const float EPS = 1e-6f;

static int64_t matrix_side(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    return x.dim[x.rank - 1];
}

/* Row or column `i` of a matrix: every `step`-th of n elements. */
typedef struct Line {
    int64_t first, step;
} Line;

static Line line_of(int64_t n, int64_t i, bool is_row) {
    return is_row ? (Line){i * n, 1} : (Line){i, n};
}

static void soften(int64_t n, const float *x, float *y) {
    for (int64_t row = 0; row < n * n; row += n) {
        float most = -INFINITY, sum = 0;
        for (int64_t i = row; i < row + n; i++) most = x[i] > most ? x[i] : most;
        for (int64_t i = row; i < row + n; i++) sum += y[i] = expf(x[i] - most);
        for (int64_t i = row; i < row + n; i++) y[i] = y[i] / sum + EPS;
    }
}

/* Columns, then rows and columns in turns: so often in all. */
static int64_t count_turns(const MxKernelCall *call) {
    return 2 * ((const MxSinkhornAttr *)call->attr)->iterations - 1;
}

static void divide_lines(int64_t n, bool is_row, const float *x, float *y, float *sums) {
    for (int64_t k = 0; k < n; k++) {
        Line line = line_of(n, k, is_row);
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[line.first + i * line.step];
        sums[k] = sum + EPS;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = line.first + i * line.step;
            y[at] = x[at] / sums[k];
        }
    }
}

/* What a worker needs: the matrix after every turn, the sums of its lines, and a cotangent. */
static int64_t floats_of(const MxKernelCall *call, bool is_grad) {
    int64_t n = matrix_side(call), turns = is_grad ? count_turns(call) : 0;
    return n + turns * (n * n + n) + 2 * n * n;
}

static size_t sinkhorn_scratch(const MxDevice *device, const MxKernelCall *call) {
    return sizeof(float) * (size_t)(floats_of(call, false) * device->n_threads);
}

static void sinkhorn_matrices(const void *context, int64_t begin, int64_t end, int worker) {
    const MxKernelCall *call = context;
    int64_t n = matrix_side(call), turns = count_turns(call);
    float *sums = (float *)call->scratch + worker * floats_of(call, false);
    for (int64_t i = begin; i < end; i++) {
        float *y = (float *)call->out[0] + i * n * n;
        soften(n, (const float *)call->in[0] + i * n * n, y);
        for (int64_t turn = 0; turn < turns; turn++) divide_lines(n, turn % 2, y, y, sums);
    }
}

static void for_matrices(const MxDevice *device, const MxKernelCall *call, CpuWork *work) {
    int64_t n = matrix_side(call), each = n * n;
    int64_t count = each ? mx_shape_count(call->in_type[0].shape) / each : 0;
    int64_t cost = cpu_max(1, each * count_turns(call));
    if (call->out[0]) cpu_for(device, count, cpu_max(1, CPU_PIECE / cost), work, call);
}

static void sinkhorn_run(const MxDevice *device, const MxKernelCall *call) {
    for_matrices(device, call, sinkhorn_matrices);
}

const MxKernel cpu_sinkhorn = {.scratch = sinkhorn_scratch, .run = sinkhorn_run};

/* Through y = x / sums, or, without sums, through y = softmax(x) + EPS of rows: the cotangent g of
 * y becomes that of x. */
static void back_lines(int64_t n, bool is_row, const float *y, const float *sums, float *g) {
    for (int64_t k = 0; k < n; k++) {
        Line line = line_of(n, k, is_row);
        float dot = 0, eps = sums ? 0 : EPS;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = line.first + i * line.step;
            dot += g[at] * (y[at] - eps);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t at = line.first + i * line.step;
            g[at] = (g[at] - dot) * (sums ? 1 / sums[k] : y[at] - eps);
        }
    }
}

static void grad_matrices(const void *context, int64_t begin, int64_t end, int worker) {
    const MxKernelCall *call = context;
    int64_t n = matrix_side(call), turns = count_turns(call), each = n * n;
    float *after = (float *)call->scratch + worker * floats_of(call, true); /* [1 + turns] */
    float *sums = after + (1 + turns) * each, *g = sums + turns * n;
    for (int64_t m = begin; m < end; m++) {
        memcpy(g, (const float *)call->in[1] + m * each, sizeof *g * (size_t)each);
        soften(n, (const float *)call->in[0] + m * each, after);
        for (int64_t i = 0; i < turns; i++)
            divide_lines(n, i % 2, after + i * each, after + (i + 1) * each, sums + i * n);
        for (int64_t i = turns - 1; i >= 0; i--)
            back_lines(n, i % 2, after + (i + 1) * each, sums + i * n, g);
        back_lines(n, true, after, NULL, g);
        memcpy((float *)call->out[0] + m * each, g, sizeof *g * (size_t)each);
    }
}

static size_t sinkhorn_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    return sizeof(float) * (size_t)(floats_of(call, true) * device->n_threads);
}

static void sinkhorn_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_matrices(device, call, grad_matrices);
}

const MxKernel cpu_sinkhorn_grad = {.scratch = sinkhorn_grad_scratch, .run = sinkhorn_grad_run};

/* ---- sums of permutations */

static int64_t count_weights(const MxKernelCall *call) {
    const MxPermutationsAttr *attr = call->attr;
    MxShape weights = attr->is_back ? call->out_type[0].shape : call->in_type[0].shape;
    return weights.dim[weights.rank - 1];
}

static void permute_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const MxPermutationsAttr *attr = call->attr;
    int64_t n = attr->n, n_weights = count_weights(call), n_in = attr->is_back ? n * n : n_weights;
    int64_t n_out = attr->is_back ? n_weights : n * n;
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * n_in;
        float *y = (float *)call->out[0] + row * n_out;
        uint8_t p[MX_MOST_PERMUTED];
        int64_t k = 0;
        memset(y, 0, sizeof *y * (size_t)n_out);
        for (int64_t i = 0; i < n; i++) p[i] = (uint8_t)i;
        do {
            for (int64_t i = 0; i < n; i++) {
                int64_t at = i * n + p[i];
                y[attr->is_back ? k : at] += x[attr->is_back ? at : k];
            }
            k++;
        } while (mx_next_permutation(n, p));
    }
}

static void permutations_run(const MxDevice *device, const MxKernelCall *call) {
    const MxPermutationsAttr *attr = call->attr;
    int64_t n_weights = count_weights(call);
    MxShape weights = attr->is_back ? call->out_type[0].shape : call->in_type[0].shape;
    int64_t rows = mx_shape_count(weights) / n_weights;
    if (call->out[0])
        cpu_for(device, rows, cpu_max(1, CPU_PIECE / (n_weights * attr->n)), permute_rows, call);
}

const MxKernel cpu_permutations = {.run = permutations_run};

/* expert.c — products of rows with the matrix of the expert chosen for each. Choices are sorted by
 * expert (stable, so that sums have one order); an expert's rows are gathered, up to a thousand at
 * a time, multiplied by the provider for products of that size, and put back. Gathering costs two
 * passes over the rows, a product many.
 *
 * Products are prepared for certain numbers of rows; missing rows up to the next number are zeros.
 */
#include "kernel.h"

enum {
    FINE_STEP = 16, /* sizes: every 16 rows up to 128, … */
    FINE_SIZES = 8,
    STEP = 64, /* … then every 64 up to 1024 */
    SIZES = 22,
    MOST_ROWS = FINE_STEP * FINE_SIZES + STEP * (SIZES - FINE_SIZES)
};

static int64_t rows_of(int size) {
    if (size < FINE_SIZES) return FINE_STEP * (size + 1);
    return FINE_STEP * FINE_SIZES + STEP * (size + 1 - FINE_SIZES);
}

/* Rows that an expert's next product takes: all that are left, or an even part of them. */
static int64_t next_rows(int64_t left) {
    return cpu_pieces(left, cpu_pieces(left, MOST_ROWS));
}

static int size_for(int64_t rows) {
    int size = 0;
    while (rows_of(size) < rows) size++;
    return size;
}

/* Rows of an operand: one a choice, or one a token that all its choices share. */
typedef struct Rows {
    char *data;
    MxDtype dtype;
    int64_t width, choices_a_row;
} Rows;

static Rows rows_in(const MxKernelCall *call, int i) {
    MxShape shape = call->in_type[i].shape, ids = call->in_type[1].shape;
    bool is_shared = shape.rank == ids.rank;
    return (Rows){.dtype = call->in_type[i].dtype,
                  .width = shape.dim[shape.rank - 1],
                  .choices_a_row = is_shared ? ids.dim[ids.rank - 1] : 1};
}

static size_t row_bytes(const Rows *rows) {
    return (size_t)rows->width * mx_dtype_bytes(rows->dtype);
}

/* Choices in the order of their experts. */
typedef struct Sorted {
    int64_t n, n_experts, first;
    int32_t *order; /* [n] those of other experts last */
    int64_t *start; /* [n_experts + 1] */
} Sorted;

static Sorted sorted_of(const MxKernelCall *call, int64_t n_experts, int64_t first,
                        void **scratch) {
    Sorted s = {
        .n = mx_shape_count(call->in_type[1].shape), .n_experts = n_experts, .first = first};
    s.order = cpu_carve(scratch, sizeof *s.order * (size_t)s.n);
    s.start = cpu_carve(scratch, sizeof *s.start * (size_t)(n_experts + 2));
    return s;
}

/* Experts of other ranks, and none at all, count as one behind the last. */
static int64_t local_expert(const Sorted *s, int32_t id) {
    int64_t expert = id - s->first;
    return id < 0 || expert < 0 || expert >= s->n_experts ? s->n_experts : expert;
}

/* start[e + 1] counts up to where e ends: while choices are put in order it is where the next of e
 * goes. */
static void sort(Sorted *s, const int32_t *ids) {
    MX_ASSERT(s->n <= INT32_MAX);
    memset(s->start, 0, sizeof *s->start * (size_t)(s->n_experts + 2));
    for (int64_t i = 0; i < s->n; i++)
        if (local_expert(s, ids[i]) + 2 <= s->n_experts + 1)
            s->start[local_expert(s, ids[i]) + 2]++;
    for (int64_t e = 0; e <= s->n_experts; e++) s->start[e + 1] += s->start[e];
    for (int64_t i = 0; i < s->n; i++)
        s->order[s->start[local_expert(s, ids[i]) + 1]++] = (int32_t)i;
}

/* ---- rows there and back */

typedef struct Move {
    const Rows *rows;
    const int32_t *order; /* of those that are moved */
    char *packed;         /* [n, width] */
    bool back;
} Move;

static void move_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Move *move = context;
    size_t bytes = row_bytes(move->rows);
    for (int64_t i = begin; i < end; i++) {
        char *row = move->rows->data + (size_t)(move->order[i] / move->rows->choices_a_row) * bytes;
        char *packed = move->packed + (size_t)i * bytes;
        memcpy(move->back ? row : packed, move->back ? packed : row, bytes);
    }
}

static void move(const MxDevice *device, const Move *m, int64_t n) {
    cpu_for(device, n, cpu_max(1, CPU_PIECE / cpu_max(1, m->rows->width)), move_rows, m);
}

/* n rows, and zeros up to `padded`. */
static void gather(const MxDevice *device, const Rows *rows, const int32_t *order,
                   const int64_t n_padded[2], void *packed) {
    int64_t n = n_padded[0];
    move(device, &(Move){.rows = rows, .order = order, .packed = packed}, n);
    memset((char *)packed + (size_t)n * row_bytes(rows), 0,
           (size_t)(n_padded[1] - n) * row_bytes(rows));
}

/* Adds rows to their tokens' sums: a piece of work has some of the columns, of all rows in their
 * order, for a token may be there twice. */
typedef struct Sum {
    const float *packed;
    const int32_t *order;
    float *sums;
    int64_t n, width, choices;
} Sum;

static void add_columns(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Sum *s = context;
    for (int64_t i = 0; i < s->n; i++) {
        const float *from = s->packed + i * s->width;
        float *to = s->sums + s->order[i] / s->choices * s->width;
#pragma omp simd
        for (int64_t j = begin; j < end; j++) to[j] += from[j];
    }
}

static void narrow_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Sum *s = context;
    cpu_narrow(s->packed + begin, end - begin, (MxBf16 *)s->sums + begin);
}

/* ---- expert_dot */

typedef struct ExpertDot {
    const MxKernelCall *call;
    const MxExpertDotAttr *attr;
    Rows x, y;
    int64_t n_experts;
    Sorted sorted;
    void *packed_x, *packed_y, *product;
    float *sums; /* [tokens, width] where out 0 is bf16 */
} ExpertDot;

static CpuMatmulSpec dot_spec(const ExpertDot *d, int size) {
    return (CpuMatmulSpec){.m = rows_of(size),
                           .n = d->y.width,
                           .k = d->x.width,
                           .trans_b = d->attr->transposed,
                           .in = d->x.dtype,
                           .out = d->y.dtype};
}

static int sizes_of(int64_t choices) {
    return size_for(cpu_max(1, cpu_min(choices, MOST_ROWS))) + 1;
}

static ExpertDot expert_dot_of(const MxKernelCall *call) {
    ExpertDot d = {.call = call, .attr = call->attr};
    MxShape out = call->out_type[0].shape, ids = call->in_type[1].shape;
    d.x = rows_in(call, 0);
    d.y = (Rows){.dtype = d.attr->sums ? MX_F32 : call->out_type[0].dtype,
                 .width = out.dim[out.rank - 1],
                 .choices_a_row = d.attr->sums ? ids.dim[ids.rank - 1] : 1};
    d.n_experts = call->in_type[2].shape.dim[0];
    return d;
}

static bool sums_apart(const ExpertDot *d) {
    return d->attr->sums && d->call->out_type[0].dtype != MX_F32;
}

static size_t dot_carve(const MxDevice *device, ExpertDot *d, void *scratch) {
    char *begin = scratch;
    size_t product = 0;
    d->sorted = sorted_of(d->call, d->n_experts, d->attr->first, &scratch);
    int sizes = sizes_of(d->sorted.n);
    d->packed_x = cpu_carve(&scratch, (size_t)rows_of(sizes - 1) * row_bytes(&d->x));
    d->packed_y = cpu_carve(&scratch, (size_t)rows_of(sizes - 1) * row_bytes(&d->y));
    size_t sums = sizeof(float) * (size_t)mx_shape_count(d->call->out_type[0].shape);
    d->sums = cpu_carve(&scratch, sums_apart(d) ? sums : 0);
    for (int i = 0; i < sizes; i++) {
        size_t bytes = cpu_matmul_scratch(device, dot_spec(d, i));
        product = bytes > product ? bytes : product;
    }
    d->product = cpu_carve(&scratch, product);
    return (size_t)((char *)scratch - begin);
}

static size_t dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    ExpertDot d = expert_dot_of(call);
    return dot_carve(device, &d, origin);
}

static bool dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const CpuMatmul **products = mx_new_n(device->arena, const CpuMatmul *, SIZES);
    ExpertDot d = expert_dot_of(call);
    int sizes = sizes_of(mx_shape_count(call->in_type[1].shape));
    for (int i = 0; i < sizes; i++)
        if (!(products[i] = cpu_matmul_prepare(device, dot_spec(&d, i), err))) return false;
    call->state = products;
    return true;
}

static void dot_rows(const MxDevice *device, ExpertDot *d, int64_t expert, int64_t at, int64_t n) {
    const CpuMatmul *const *products = d->call->state;
    const int32_t *order = d->sorted.order + at;
    int size = size_for(n);
    gather(device, &d->x, order, (int64_t[]){n, rows_of(size)}, d->packed_x);
    size_t matrix = (size_t)(d->x.width * d->y.width) * mx_dtype_bytes(d->x.dtype);
    const char *w = (const char *)d->call->in[2] + (size_t)expert * matrix;
    cpu_matmul_part(products[size], (int64_t[]){n, d->x.width}, d->packed_x, w, d->packed_y,
                    d->product);
    if (d->attr->sums) {
        Sum sum = {d->packed_y, order, (float *)d->y.data, n, d->y.width, d->y.choices_a_row};
        cpu_for(device, d->y.width, cpu_max(CPU_ALIGN, CPU_PIECE / n), add_columns, &sum);
    } else {
        Move back = {.rows = &d->y, .order = order, .packed = d->packed_y, .back = true};
        move(device, &back, n);
    }
}

static void zero_rows(const ExpertDot *d) {
    size_t bytes = row_bytes(&d->y);
    for (int64_t i = d->sorted.start[d->n_experts]; i < d->sorted.n; i++)
        memset(d->y.data + (size_t)d->sorted.order[i] * bytes, 0, bytes);
}

static void dot_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    ExpertDot d = expert_dot_of(call);
    int64_t n_out = mx_shape_count(call->out_type[0].shape);
    dot_carve(device, &d, call->scratch);
    d.x.data = call->in[0];
    d.y.data = sums_apart(&d) ? (char *)d.sums : call->out[0];
    sort(&d.sorted, call->in[1]);
    if (d.attr->sums)
        cpu_zero(device, d.y.data, sizeof(float) * (size_t)n_out);
    else
        zero_rows(&d);
    for (int64_t e = 0; e < d.n_experts; e++)
        for (int64_t at = d.sorted.start[e], end = d.sorted.start[e + 1], n; at < end; at += n)
            dot_rows(device, &d, e, at, n = next_rows(end - at));
    if (sums_apart(&d)) {
        Sum sum = {.packed = d.sums, .sums = call->out[0]};
        cpu_for(device, n_out, CPU_PIECE, narrow_span, &sum);
    }
}

const MxKernel cpu_expert_dot = {.scratch = dot_scratch, .prepare = dot_prepare, .run = dot_run};

/* ---- expert_dw */

typedef struct ExpertDw {
    const MxKernelCall *call;
    Rows x, y;
    int64_t n_experts;
    Sorted sorted;
    void *packed_x, *packed_y, *product;
    float *sum; /* a matrix, where out 0 is bf16 */
} ExpertDw;

/* The first product of an expert, and those that add to it. */
typedef struct DwState {
    const CpuMatmul *first[SIZES], *next[SIZES];
} DwState;

static ExpertDw expert_dw_of(const MxKernelCall *call) {
    return (ExpertDw){.call = call,
                      .x = rows_in(call, 0),
                      .y = rows_in(call, 2),
                      .n_experts = call->out_type[0].shape.dim[0]};
}

/* A matrix of bf16 is summed up in scratch. */
static bool is_apart(const ExpertDw *d) {
    return d->call->out_type[0].dtype != MX_F32;
}

static CpuMatmulSpec dw_spec(const ExpertDw *d, int size, bool accumulate) {
    return (CpuMatmulSpec){.m = d->x.width,
                           .n = d->y.width,
                           .k = rows_of(size),
                           .trans_a = true,
                           .accumulate = accumulate,
                           .in = d->x.dtype,
                           .out = MX_F32};
}

static size_t dw_carve(const MxDevice *device, ExpertDw *d, void *scratch) {
    char *begin = scratch;
    size_t product = 0;
    int64_t first = ((const MxExpertDwAttr *)d->call->attr)->first;
    d->sorted = sorted_of(d->call, d->n_experts, first, &scratch);
    int sizes = sizes_of(d->sorted.n);
    d->packed_x = cpu_carve(&scratch, (size_t)rows_of(sizes - 1) * row_bytes(&d->x));
    d->packed_y = cpu_carve(&scratch, (size_t)rows_of(sizes - 1) * row_bytes(&d->y));
    d->sum =
        cpu_carve(&scratch, is_apart(d) ? sizeof(float) * (size_t)(d->x.width * d->y.width) : 0);
    for (int i = 0; i < sizes; i++)
        for (int adds = 0; adds < 2; adds++) {
            size_t bytes = cpu_matmul_scratch(device, dw_spec(d, i, adds));
            product = bytes > product ? bytes : product;
        }
    d->product = cpu_carve(&scratch, product);
    return (size_t)((char *)scratch - begin);
}

static size_t dw_scratch(const MxDevice *device, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    ExpertDw d = expert_dw_of(call);
    return dw_carve(device, &d, origin);
}

static bool dw_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    DwState *state = mx_new(device->arena, DwState);
    ExpertDw d = expert_dw_of(call);
    bool adds = call->accumulate & 1 && !is_apart(&d);
    int sizes = sizes_of(mx_shape_count(call->in_type[1].shape));
    for (int i = 0; i < sizes; i++)
        if (!(state->first[i] = cpu_matmul_prepare(device, dw_spec(&d, i, adds), err)) ||
            !(state->next[i] = cpu_matmul_prepare(device, dw_spec(&d, i, true), err)))
            return false;
    call->state = state;
    return true;
}

static void store_matrix(const ExpertDw *d, int64_t expert) {
    int64_t n = d->x.width * d->y.width;
    if (d->call->accumulate & 1)
        cpu_add_to(d->sum, n, d->call->out[0], MX_BF16, expert * n);
    else
        cpu_store(d->sum, n, d->call->out[0], MX_BF16, expert * n);
}

static void dw_of_expert(const MxDevice *device, ExpertDw *d, int64_t expert) {
    const DwState *state = d->call->state;
    int64_t begin = d->sorted.start[expert], end = d->sorted.start[expert + 1];
    int64_t n = d->x.width * d->y.width;
    float *dw = is_apart(d) ? d->sum : (float *)d->call->out[0] + expert * n;
    if (begin == end && (is_apart(d) || !(d->call->accumulate & 1)))
        cpu_zero(device, dw, sizeof *dw * (size_t)n);
    for (int64_t at = begin, rows; at < end; at += rows) {
        rows = next_rows(end - at);
        int size = size_for(rows);
        const int64_t padded[] = {rows, rows_of(size)};
        gather(device, &d->x, d->sorted.order + at, padded, d->packed_x);
        gather(device, &d->y, d->sorted.order + at, padded, d->packed_y);
        cpu_matmul_part(at == begin ? state->first[size] : state->next[size],
                        (int64_t[]){d->x.width, rows}, d->packed_x, d->packed_y, dw, d->product);
    }
    if (is_apart(d)) store_matrix(d, expert);
}

static void dw_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    ExpertDw d = expert_dw_of(call);
    dw_carve(device, &d, call->scratch);
    d.x.data = call->in[0];
    d.y.data = call->in[2];
    sort(&d.sorted, call->in[1]);
    for (int64_t e = 0; e < d.n_experts; e++) dw_of_expert(device, &d, e);
}

const MxKernel cpu_expert_dw = {.scratch = dw_scratch, .prepare = dw_prepare, .run = dw_run};

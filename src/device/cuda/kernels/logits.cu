/* logits.cu — the products behind logits.cuh, chunk by chunk: logits of the chunk into scratch, in
 * the dtype of the hidden states; rows, which overwrite them with their cotangents in a gradient;
 * products of those. Totals over tokens are in f64, in a fixed order. */
#include "device/cuda/map.cuh"
#include "logits.cuh"

/* ---- the plan */

static const struct {
    const MxOp *op;
    int n_sums;
    bool is_grad, has_teacher;
} kinds[] = {
    {&op_xent, 2, false, false},
    {&op_xent_grad, 2, true, false},
    {&op_logprob, 0, false, false},
    {&op_logprob_grad, 0, true, false},
    {&op_distill, 1 + MX_DISTILL_SUMS, false, true},
    {&op_distill_grad, 1 + MX_DISTILL_SUMS, true, true},
};

static LogitsHead head_of(const MxKernelCall *call, const MxXentAttr *attr, int h, int w) {
    LogitsHead head = {};
    head.attr = attr;
    head.width = call->in_type[w].shape.dim[attr->tied ? 1 : 0];
    head.dtype = call->in_type[h].dtype;
    return head;
}

static Logits plan_of(const MxDevice *device, const MxKernelCall *call) {
    int kind = 0;
    while (kinds[kind].op != call->op) kind++;
    const MxXentAttr *attr = (const MxXentAttr *)call->attr; /* of a student too */
    Logits l = {};
    l.n_sums = kinds[kind].n_sums;
    l.is_grad = kinds[kind].is_grad;
    l.has_teacher = kinds[kind].has_teacher;
    l.own = head_of(call, attr, H, W);
    if (l.has_teacher)
        l.teacher =
            head_of(call, &((const MxDistillAttr *)call->attr)->teacher, TEACHER_H, TEACHER_W);
    l.tokens = mx_shape_count(call->in_type[TARGETS].shape);
    l.vocab = call->in_type[W].shape.dim[attr->tied ? 0 : 1];
    l.chunk = mx_xent_chunk(device->backend->machine, l.tokens,
                            l.vocab * (int64_t)mx_dtype_bytes(l.own.dtype), attr->tiles);
    l.stride = (l.vocab + GPU_PACK - 1) / GPU_PACK * GPU_PACK;
    return l;
}

static int64_t size_of(const Logits *l, int size) {
    if (!l->tokens) return 0;
    return size == WHOLE ? l->chunk : l->tokens % l->chunk;
}

static GpuProductSpec logits_spec(const Logits *l, const LogitsHead *head, int64_t n) {
    GpuProductSpec spec = {};
    spec.m = n, spec.n = l->vocab, spec.k = head->width;
    spec.ldc = l->stride;
    spec.batch = 1;
    spec.trans_b = head->attr->tied;
    spec.in = spec.out = head->dtype;
    return spec;
}

static GpuProductSpec dh_spec(const Logits *l, int64_t n) {
    GpuProductSpec spec = {};
    spec.m = n, spec.n = l->own.width, spec.k = l->vocab;
    spec.lda = l->stride;
    spec.batch = 1;
    spec.trans_b = !l->own.attr->tied;
    spec.in = spec.out = l->own.dtype;
    return spec;
}

static GpuProductSpec dw_spec(const Logits *l, int64_t n, bool accumulate) {
    GpuProductSpec spec = {};
    bool tied = l->own.attr->tied;
    spec.m = tied ? l->vocab : l->own.width, spec.n = tied ? l->own.width : l->vocab, spec.k = n;
    spec.lda = tied ? l->stride : 0, spec.ldb = tied ? 0 : l->stride;
    spec.batch = 1;
    spec.trans_a = true;
    spec.accumulate = accumulate;
    spec.in = l->own.dtype;
    spec.out = MX_F32;
    return spec;
}

/* A dw of bf16 is summed up in scratch. */
static bool sums_dw_apart(const Logits *l, const MxKernelCall *call) {
    bool is_wanted = l->is_grad && !(call->unused >> DW & 1);
    return is_wanted && call->out_type[DW].dtype != MX_F32;
}

static bool adds_dw(const Logits *l, const MxKernelCall *call) {
    return call->accumulate >> DW & 1 && !sums_dw_apart(l, call);
}

/* ---- scratch */

typedef struct Memory {
    void *logits, *teacher, *product;
    double *sums;
    float *dw;
} Memory;

static size_t carve(const Logits *l, const MxKernelCall *call, void *scratch, Memory *memory) {
    size_t cells = (size_t)(l->chunk * l->stride), weights = (size_t)(l->own.width * l->vocab);
    char *start = (char *)scratch;
    memory->logits = gpu_carve(&scratch, cells * mx_dtype_bytes(l->own.dtype));
    memory->teacher =
        gpu_carve(&scratch, l->has_teacher ? cells * mx_dtype_bytes(l->teacher.dtype) : 0);
    memory->sums = (double *)gpu_carve(&scratch, (size_t)(l->tokens * l->n_sums) * sizeof(double));
    memory->dw = (float *)gpu_carve(&scratch, sums_dw_apart(l, call) ? weights * sizeof(float) : 0);
    memory->product = scratch;
    return (size_t)((char *)scratch - start);
}

static size_t larger(const MxDevice *device, size_t most, GpuProductSpec spec) {
    size_t bytes = gpu_product_bytes(device, &spec);
    return bytes > most ? bytes : most;
}

static size_t product_bytes(const MxDevice *device, const Logits *l) {
    size_t most = 0;
    for (int size = 0; size < SIZES; size++) {
        int64_t n = size_of(l, size);
        if (!n) continue;
        most = larger(device, most, logits_spec(l, &l->own, n));
        if (l->has_teacher) most = larger(device, most, logits_spec(l, &l->teacher, n));
        if (!l->is_grad) continue;
        most = larger(device, most, dh_spec(l, n));
        most = larger(device, most, dw_spec(l, n, true));
        most = larger(device, most, dw_spec(l, n, false));
    }
    return most;
}

size_t logits_scratch(const MxDevice *device, const MxKernelCall *call) {
    Logits l = plan_of(device, call);
    static char origin[1]; /* offsets alone matter */
    Memory memory;
    return carve(&l, call, origin, &memory) + product_bytes(device, &l);
}

static bool make(MxDevice *device, GpuProductSpec spec, const GpuProduct **out, MxError *err) {
    *out = gpu_product_prepare(device, &spec, err);
    return *out != nullptr;
}

bool logits_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    Logits *l = mx_new(device->arena, Logits);
    *l = plan_of(device, call);
    call->state = l;
    for (int size = 0; size < SIZES; size++) {
        int64_t n = size_of(l, size);
        if (!n) continue;
        if (!make(device, logits_spec(l, &l->own, n), &l->own.logits[size], err)) return false;
        if (l->has_teacher &&
            !make(device, logits_spec(l, &l->teacher, n), &l->teacher.logits[size], err))
            return false;
        if (!l->is_grad) continue;
        if (!make(device, dh_spec(l, n), &l->dh[size], err) ||
            !make(device, dw_spec(l, n, true), &l->dw[size], err))
            return false;
        if (size == WHOLE && !make(device, dw_spec(l, n, adds_dw(l, call)), &l->dw_first, err))
            return false;
    }
    return true;
}

/* ---- chunks */

static char *rows_at(void *x, int64_t row, int64_t width, MxDtype dtype) {
    return (char *)x + row * width * (int64_t)mx_dtype_bytes(dtype);
}

static void multiply(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                     const LogitsChunk *c, const Memory *memory) {
    int size = c->n == l->chunk ? WHOLE : REST;
    const LogitsHead *own = &l->own;
    char *h = rows_at(call->in[H], c->first, own->width, own->dtype);
    const void *d = memory->logits;
    if (call->out[DH])
        gpu_product_run(device, l->dh[size], d, call->in[W],
                        rows_at(call->out[DH], c->first, own->width, own->dtype), memory->product);
    if (!call->out[DW]) return;
    void *dw = sums_dw_apart(l, call) ? memory->dw : call->out[DW];
    gpu_product_run(device, c->first ? l->dw[size] : l->dw_first, own->attr->tied ? d : h,
                    own->attr->tied ? h : d, dw, memory->product);
}

static void run_chunk(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                      const LogitsChunk *c, const Memory *memory, LogitsRows *rows) {
    int size = c->n == l->chunk ? WHOLE : REST;
    gpu_product_run(device, l->own.logits[size],
                    rows_at(call->in[H], c->first, l->own.width, l->own.dtype), call->in[W],
                    memory->logits, memory->product);
    if (l->has_teacher)
        gpu_product_run(device, l->teacher.logits[size],
                        rows_at(call->in[TEACHER_H], c->first, l->teacher.width, l->teacher.dtype),
                        call->in[TEACHER_W], memory->teacher, memory->product);
    rows(device, call, l, c);
    if (l->is_grad) multiply(device, call, l, c, memory);
}

/* ---- totals */

/* Threads for n pieces of work: whole warps, a power of two of them. */
static unsigned threads_for(int64_t n, unsigned most) {
    unsigned threads = GPU_WARP;
    while (threads < most && threads < n) threads *= 2;
    return threads;
}

/* A block for each sum: the loss, and all others as one array. */
__global__ void __launch_bounds__(1024)
    logits_total_kernel(const double *sums, int64_t tokens, int n_sums, float *loss,
                        float *others) {
    int k = (int)blockIdx.x;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < tokens; i += blockDim.x) sum += sums[i * n_sums + k];
    sum = gpu_block_sum(sum);
    float *to = k ? others ? others + k - 1 : nullptr : loss;
    if (to && !threadIdx.x) *to = (float)sum;
}

struct LogitsRounded : GpuEach {
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0]; }
};

static void finish_dw(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                      float *apart) {
    int64_t n = l->own.width * l->vocab;
    void *sum = apart ? apart : call->out[DW];
    if (!l->tokens && !adds_dw(l, call))
        gpu_runtime_zero(gpu_of(device), sum, (size_t)n * sizeof(float));
    if (!apart) return;
    GpuMap map = {};
    map.in[0] = GpuArray{apart, MX_F32};
    map.out[0] = gpu_out(call, DW);
    map.n = map.period = n;
    map.accumulate = call->accumulate;
    gpu_map_arrays<1, 1>(device, map, LogitsRounded());
}

void logits_run(const MxDevice *device, const MxKernelCall *call, LogitsRows *rows) {
    Logits l = *(const Logits *)call->state;
    l.own.attr = (const MxXentAttr *)call->attr;
    if (l.has_teacher) l.teacher.attr = &((const MxDistillAttr *)call->attr)->teacher;
    Memory memory;
    carve(&l, call, call->scratch, &memory);
    for (int64_t at = 0; at < l.tokens; at += l.chunk) {
        LogitsChunk c = {};
        c.first = at;
        c.n = gpu_min(l.chunk, l.tokens - at);
        c.logits = GpuArray{memory.logits, l.own.dtype};
        c.teacher = GpuArray{memory.teacher, l.teacher.dtype};
        c.sums = memory.sums + at * l.n_sums;
        run_chunk(device, call, &l, &c, &memory, rows);
    }
    if (l.is_grad && call->out[DW])
        finish_dw(device, call, &l, sums_dw_apart(&l, call) ? memory.dw : nullptr);
    float *const *out = (float *const *)(call->out + (l.is_grad ? GRAD_SUM : 0));
    if (l.n_sums && (out[0] || out[1]))
        gpu_launch(device, logits_total_kernel, (unsigned)l.n_sums, threads_for(l.tokens, 1024), 0,
                   memory.sums, l.tokens, l.n_sums, out[0], out[1]);
}

/* ---- for rows */

unsigned logits_threads(const Logits *l) {
    return threads_for(l->stride / GPU_PACK, LOGITS_BLOCK);
}

LogitsScale logits_scale(const MxXentAttr *attr) {
    LogitsScale scale = {};
    scale.factor = (float)attr->scale;
    if (attr->softcap > 0) {
        scale.cap = (float)attr->softcap;
        scale.inverse_cap = 1.0f / scale.cap;
    }
    return scale;
}

LogitsTargets logits_targets(const MxKernelCall *call, const Logits *l) {
    LogitsTargets targets = {};
    targets.ids = (const int32_t *)call->in[TARGETS];
    targets.weights = (const int32_t *)call->in[WEIGHTS];
    targets.first_id = l->own.attr->first_id;
    targets.vocab = l->vocab;
    targets.n_ids = l->vocab * gpu_max(1, l->own.attr->group.size); /* parts are alike */
    return targets;
}

/* embed.c — rows of the embedding table, and their gradient. In the gradient a piece of work owns a
 * range of the table's rows and searches all tokens for them, so that rows of repeated tokens are
 * added up in the order of the tokens. */
#include "kernel.h"

static void embed_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape table = call->in_type[0].shape;
    int64_t width = table.dim[1];
    MxDtype from = call->in_type[0].dtype, to = call->out_type[0].dtype;
    size_t from_bytes = (size_t)width * mx_dtype_bytes(from);
    size_t to_bytes = (size_t)width * mx_dtype_bytes(to);
    const int32_t *ids = call->in[1];
    const MxEmbedAttr *attr = call->attr;
    for (int64_t i = begin; i < end; i++) {
        int64_t id = ids[i] - attr->first_id;
        MX_ASSERT(ids[i] >= -1 && ids[i] < table.dim[0] * cpu_max(1, attr->n_parts));
        char *out = (char *)call->out[0] + (size_t)i * to_bytes;
        const char *row = (const char *)call->in[0] + (size_t)id * from_bytes;
        if (id < 0 || id >= table.dim[0])
            memset(out, 0, to_bytes);
        else if (from == to)
            memcpy(out, row, to_bytes);
        else if (to == MX_BF16)
            cpu_narrow((const float *)row, width, (MxBf16 *)out);
        else
            cpu_widen((const MxBf16 *)row, width, (float *)out);
    }
}

static void embed_run(const MxDevice *device, const MxKernelCall *call) {
    int64_t width = call->in_type[0].shape.dim[1];
    if (call->out[0])
        cpu_for(device, mx_shape_count(call->in_type[1].shape),
                cpu_max(1, CPU_PIECE / cpu_max(1, width)), embed_rows, call);
}

const MxKernel cpu_embed = {.run = embed_run};

static void add_row(const MxKernelCall *call, int64_t token, float *row) {
    int64_t width = call->out_type[0].shape.dim[1];
    float block[CPU_BLOCK];
    for (int64_t at = 0, n; at < width; at += n) {
        n = cpu_min(CPU_BLOCK, width - at);
        const float *dy =
            cpu_read(call->in[1], call->in_type[1].dtype, token * width + at, n, block);
        cpu_add_to(dy, n, row, MX_F32, at);
    }
}

static void embed_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    int64_t width = call->out_type[0].shape.dim[1], n = mx_shape_count(call->in_type[0].shape);
    const int32_t *ids = call->in[0];
    float *out = call->out[0];
    if (!(call->accumulate & 1))
        memset(out + begin * width, 0, (size_t)((end - begin) * width) * sizeof(float));
    int64_t first = ((const MxEmbedGradAttr *)call->attr)->first_id;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ids[i] - first;
        if (id >= begin && id < end) add_row(call, i, out + id * width);
    }
}

static void embed_grad_run(const MxDevice *device, const MxKernelCall *call) {
    enum { PIECES = 32 };
    int64_t vocab = call->out_type[0].shape.dim[0];
    if (call->out[0])
        cpu_for_uneven(device, vocab, cpu_max(CPU_ALIGN, cpu_pieces(vocab, PIECES)),
                       embed_grad_rows, call);
}

const MxKernel cpu_embed_grad = {.run = embed_grad_run};

static void row_ids_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape table = call->in_type[0].shape;
    const int32_t *ids = call->in[1];
    int32_t *out = call->out[0];
    float row[CPU_BLOCK];
    (void)device;
    for (int64_t i = 0; out && i < mx_shape_count(call->in_type[1].shape); i++)
        for (int64_t at = 0, n; at < table.dim[1]; at += n) {
            MX_ASSERT(ids[i] >= 0 && ids[i] < table.dim[0]);
            n = cpu_min(CPU_BLOCK, table.dim[1] - at);
            const float *x =
                cpu_read(call->in[0], call->in_type[0].dtype, ids[i] * table.dim[1] + at, n, row);
            for (int64_t j = 0; j < n; j++) *out++ = (int32_t)x[j];
        }
}

const MxKernel cpu_row_ids = {.run = row_ids_run};

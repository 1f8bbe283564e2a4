/* dense.c — products with a matrix an expert as one dense product of the same sizes, by the better
 * library: what they would cost if all rows chose one expert, and nobody had to sort them. */
#include "dense.h"

#include <mx/ops.h>

double product_best_s(const Product *p, const Operands *operands) {
    double best = 0;
    for (int library = 0; library < LIBRARY_COUNT; library++) {
        if (!product_can(p, (Library)library)) continue;
        double seconds = product_time(p, (Library)library, operands).median_s;
        best = best > 0 && best < seconds ? best : seconds;
    }
    return best;
}

static int64_t width_of(MxType type) {
    return type.shape.dim[type.shape.rank - 1];
}

static Product product_of(const MxKernelCall *call) {
    int rows = (int)mx_shape_count(call->in_type[1].shape);
    int in = (int)width_of(call->in_type[0]), out = (int)width_of(call->out_type[0]);
    bool is_dw = call->op == &op_expert_dw;
    return (Product){.m = is_dw ? in : rows,
                     .n = out,
                     .k = is_dw ? rows : in,
                     .trans_a = is_dw,
                     .trans_b = !is_dw && ((const MxExpertDotAttr *)call->attr)->transposed,
                     .is_bf16 = call->in_type[0].dtype == MX_BF16 && product_has_bf16(),
                     .is_bf16_out = call->out_type[0].dtype == MX_BF16 && product_has_bf16()};
}

/* Memory for the largest array of a product; what a larger one had stays. */
static Operands operands_for(const Product *p) {
    static Operands operands;
    static size_t held;
    size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k, cells = m * n;
    cells = m * k > cells ? m * k : cells;
    cells = n * k > cells ? n * k : cells;
    if (cells > held) operands = product_operands(held = cells);
    return operands;
}

double dense_s(const MxKernelCall *call) {
    if (call->op != &op_expert_dot && call->op != &op_expert_dw) return 0;
    Product p = product_of(call);
    Operands operands = operands_for(&p);
    return product_best_s(&p, &operands);
}

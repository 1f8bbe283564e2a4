/* linear.c — a block: a single matrix, of MaxText's benchmarks. Source: MaxText
 * models/simple_layer.py @e591f30c. */
#include <mx/model.h>

#include "internal.h"

static const void *add_params(const Place *place, const MxConfig *c, const Spec *spec) {
    const MxBlockSpec *row = place->row;
    int64_t in = model_width(c, row->reads), out = model_width(c, row->gives);
    bool is_back = row->reads != MX_WIDTH_STREAM;
    Place outside = *place;
    outside.block = "";
    Dense *dense = mx_new(place->arena, Dense);
    (void)spec;
    *dense = (Dense){.bias = -1};
    dense->kernel = model_add(&outside, row->name, MX_SHAPE(in, out), 1,
                              is_back ? AXES("mlp", "embed") : AXES("embed", "mlp"),
                              model_fan_in(MX_INIT_TRUNCATED_NORMAL, in));
    return dense;
}

static MxValue trace(const Pass *p, const Spec *spec, const void *own, MxValue x_BTD) {
    const Dense *dense = own;
    (void)spec;
    return model_project(p, x_BTD, dense->kernel, dense->bias);
}

/* MaxText counts attention and a gated unit all the same. */
static BlockFlops flops(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row,
                        double rows, double length) {
    double in = (double)model_width(c, row->reads), out = (double)model_width(c, row->gives);
    (void)spec;
    return (BlockFlops){.weights = 2 * rows * length * in * out};
}

static double width(const MxConfig *c, const MxLayerSpec *spec, const MxBlockSpec *row) {
    (void)spec;
    return (double)model_width(c, row->gives);
}

const Block block_linear = {
    .params = add_params,
    .trace = trace,
    .flops = flops,
    .width = width,
};

/* cut.c — partition rules shared by several ops. */
#include "internal.h"

int ops_new_factor(MxFactors *f) {
    MX_ASSERT(f->n < MX_MAX_FACTORS);
    return f->n++;
}

void ops_cut_alike(MxFactors *f) {
    MxShape shape = f->out[0].shape;
    for (int d = 0; d < shape.rank; d++) {
        int factor = ops_new_factor(f);
        for (int i = 0; i < f->n_in; i++)
            if (mx_shape_equal(f->in[i].shape, shape)) f->in_dim[i][d] = factor;
        for (int i = 0; i < f->n_out; i++)
            if (mx_shape_equal(f->out[i].shape, shape)) f->out_dim[i][d] = factor;
    }
}

void ops_cut_alike_linear(MxFactors *f) {
    ops_cut_alike(f);
    f->linear = (1u << f->n_in) - 1;
}

void ops_cut_lead(MxFactors *f, int n, unsigned inputs) {
    for (int d = 0; d < n; d++) {
        int factor = ops_new_factor(f);
        for (int i = 0; i < f->n_in; i++)
            if (inputs >> i & 1) f->in_dim[i][d] = factor;
    }
}

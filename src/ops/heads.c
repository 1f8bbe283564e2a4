/* heads.c — what kinds of attention share: the checks of queries, keys and values, the types that
 * they make, and how all of it is divided. */
#include "internal.h"

bool ops_check_heads(MxInfer *infer) {
    MxShape q = infer->in[OPS_Q].shape, k = infer->in[OPS_K].shape, v = infer->in[OPS_V].shape;
    MxDtype dtype = infer->in[OPS_Q].dtype;
    if (!ops_is_real(infer, OPS_Q) || !ops_is(infer, OPS_SEGMENTS, MX_I32, 2)) return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4 || infer->in[OPS_K].dtype != dtype ||
        infer->in[OPS_V].dtype != dtype)
        return mx_infer_fail(infer, "q, k and v must be [B, T, heads, H] of one dtype");
    return !memcmp(k.dim, v.dim, 3 * sizeof *k.dim) ||
           mx_infer_fail(infer, "v must be k's shape but for its own width");
}

static MxType type_of_out(const MxInfer *infer) {
    MxType type = infer->in[OPS_Q];
    type.shape.dim[3] = infer->in[OPS_V].shape.dim[3];
    return type;
}

/* A number a row of scores. */
static MxType type_of_rows(const MxInfer *infer) {
    MxShape q = infer->in[OPS_Q].shape;
    return (MxType){MX_F32, MX_SHAPE(q.dim[0], q.dim[2], q.dim[1])};
}

static bool is_type(MxType type, MxType wanted) {
    return type.dtype == wanted.dtype && mx_shape_equal(type.shape, wanted.shape);
}

bool ops_check_saved(MxInfer *infer) {
    const MxType *saved = infer->in + infer->n_in - OPS_OF_GRADIENT;
    if (!is_type(saved[0], type_of_out(infer)) || !is_type(saved[2], type_of_out(infer)))
        return mx_infer_fail(infer, "o and do must be q's type but for the width of v");
    return is_type(saved[1], type_of_rows(infer)) ||
           mx_infer_fail(infer, "log-sums must be float32 [B, N, T]");
}

void ops_infer_attention(MxInfer *infer) {
    infer->n_out = 3;
    infer->out[0] = type_of_out(infer);
    infer->out[1] = infer->out[2] = type_of_rows(infer);
}

/* So many products over the width of keys, and over that of values. */
static double products(const MxType *in, double keys_seen, int of_keys, int of_values) {
    MxShape q = in[OPS_Q].shape;
    double widths = (double)(of_keys * q.dim[3] + of_values * in[OPS_V].shape.dim[3]);
    return 2 * (double)(q.dim[0] * q.dim[1] * q.dim[2]) * keys_seen * widths;
}

double ops_attention_flops(const MxType *in, double keys_seen) {
    return products(in, keys_seen, 1, 1);
}

/* Scores are made again. */
double ops_attention_grad_flops(const MxType *in, double keys_seen) {
    return products(in, keys_seen, 3, 2);
}

/* ---- division */

static const int query_cut[] = {OPS_CUT_B, OPS_CUT_T, OPS_CUT_N};
static const int key_cut[] = {OPS_CUT_B, MX_WHOLE, OPS_CUT_N};
static const int row_cut[] = {OPS_CUT_B, OPS_CUT_N, OPS_CUT_T};

static void cut_heads(MxFactors *f) {
    for (int i = 0; i <= OPS_CUT_N; i++) ops_new_factor(f);
    memcpy(f->in_dim[OPS_Q], query_cut, sizeof query_cut);
    memcpy(f->in_dim[OPS_K], key_cut, sizeof key_cut);
    memcpy(f->in_dim[OPS_V], key_cut, sizeof key_cut);
    f->in_dim[OPS_SEGMENTS][0] = OPS_CUT_B;
}

void ops_cut_attention(MxFactors *f) {
    cut_heads(f);
    memcpy(f->out_dim[0], query_cut, sizeof query_cut);
    memcpy(f->out_dim[1], row_cut, sizeof row_cut);
    memcpy(f->out_dim[2], row_cut, sizeof row_cut);
}

void ops_cut_attention_grad(MxFactors *f) {
    int saved = f->n_in - OPS_OF_GRADIENT;
    cut_heads(f);
    memcpy(f->in_dim[saved], query_cut, sizeof query_cut);
    memcpy(f->in_dim[saved + 1], row_cut, sizeof row_cut);
    memcpy(f->in_dim[saved + 2], query_cut, sizeof query_cut);
    memcpy(f->out_dim[OPS_Q], query_cut, sizeof query_cut);
    memcpy(f->out_dim[OPS_K], key_cut, sizeof key_cut);
    memcpy(f->out_dim[OPS_V], key_cut, sizeof key_cut);
}

void ops_localize_attention(const MxShare *share, void *attr) {
    MxAttentionAttr *a = attr;
    a->is_part = share->is_cut[OPS_CUT_T];
    a->first_query = share->start[OPS_CUT_T];
    a->is_swapped = share->is_swapped;
    a->second_query = share->second;
}

/* cases.c — for every op the types that it takes, and each way in which they can be wrong. An op
 * without a case fails the suite. */
#include "ops_test.h"

#define ATTR(type, ...)                                                                            \
    &(const type) {                                                                                \
        __VA_ARGS__                                                                                \
    }
#define DOT(kind_, n)   ATTR(MxDotAttr, .dtype = MX_F32, .kind = MX_DOT_##kind_, .n_contract = n)
#define LEAD(dtype_, n) ATTR(MxSumLeadAttr, .dtype = MX_##dtype_, .n_lead = n)
#define SHAPE(...)      ATTR(MxReshapeAttr, .shape = {__VA_ARGS__})

static const MxAttentionAttr causal = {.scale = 1};
static const MxXentAttr untied = {.scale = 1},
                        bf16_tied = {.dtype = MX_BF16, .scale = 1, .tied = true},
                        tied = {.scale = 1, .tied = true},
                        bf16_xent = {.dtype = MX_BF16, .scale = 1};
static const MxRopeAttr halves = {0};
static const MxRopeTableAttr three_pairs = {.freqs = {.n = 3, .amplitude = 1}};
static const MxGluAttr silu = {.activation = MX_SILU};
static const MxScaleAttr twice = {.factor = 2};
static const MxSoftcapAttr cap = {.cap = 30};
static const MxRmsnormAttr eps = {.eps = 1e-5};
static const MxAdamwAttr adamw = {.b1 = 0.9, .b2 = 0.95};

const OpCase op_cases[] = {
    // clang-format off
    {&op_variable, ATTR(MxVariableAttr, .type = {MX_I32, {.rank = 2, .dim = {2, 3}}}), "", "i2,3"},
    {&op_init, ATTR(MxInitAttr, .type = {MX_F32, {.rank = 1, .dim = {4}}}), "", "f4"},

    {&op_reshape, SHAPE(.rank = 1, .dim = {6}), "b2,3", "b6"},
    {&op_reshape, SHAPE(.rank = 2, .dim = {1, 1}), "i", "i1,1"},
    {&op_reshape, SHAPE(.rank = 0), "f1,1", "f"},
    {&op_reshape, SHAPE(.rank = 2, .dim = {2, 4}), "f2,3", "!another number of elements"},
    {&op_reshape, SHAPE(.rank = 0), "f2", "!another number of elements"},

    {&op_copy, NULL, "f2,3", "f2,3"},
    {&op_copy, NULL, "b", "b"},
    {&op_copy, NULL, "i2", "!input 0 must be float32 or bfloat16"},

    {&op_cast, ATTR(MxCastAttr, MX_BF16), "f2,3", "b2,3"},
    {&op_cast, ATTR(MxCastAttr, MX_F32), "b", "f"},
    {&op_cast, ATTR(MxCastAttr, MX_I32), "f2", "!cannot cast to that dtype"},
    {&op_cast, ATTR(MxCastAttr, MX_F64), "f2", "!cannot cast to that dtype"},
    {&op_cast, ATTR(MxCastAttr, MX_F32), "i2", "!input 0 must be float32 or bfloat16"},

    {&op_add, NULL, "f2,3 f2,3", "f2,3"},
    {&op_add, NULL, "b2,3 b3", "b2,3"},
    {&op_add, NULL, "f2,3 f", "f2,3"},
    {&op_add, NULL, "f f", "f"},
    {&op_add, NULL, "f2,3 f2", "!trailing dims"},
    {&op_add, NULL, "f2,3 f1,3", "!trailing dims"},
    {&op_add, NULL, "f3 f2,3", "!trailing dims"},
    {&op_add, NULL, "f2,3 b2,3", "!y must have x's dtype"},
    {&op_add, NULL, "i2 i2", "!input 0 must be float32 or bfloat16"},

    {&op_sum_lead, LEAD(F32, 1), "f2,3,4", "f3,4"},
    {&op_sum_lead, LEAD(F32, 2), "b2,3,4", "f4"},
    {&op_sum_lead, LEAD(BF16, 3), "b2,3,4", "b"},
    {&op_sum_lead, LEAD(F32, 0), "f2", "f2"},
    {&op_sum_lead, LEAD(F32, 3), "f2,3", "!fewer dims than are summed"},
    {&op_sum_lead, LEAD(F32, 1), "i2,3", "!input 0 must be float32 or bfloat16"},

    {&op_scale, &twice, "f2,3", "f2,3"},
    {&op_scale, &twice, "b", "b"},
    {&op_scale, &twice, "i2", "!input 0 must be float32 or bfloat16"},

    {&op_softcap, &cap, "f2,3", "f2,3"},
    {&op_softcap, &cap, "i2", "!input 0 must be float32 or bfloat16"},
    {&op_softcap_grad, &cap, "b2 b2", "b2"},
    {&op_softcap_grad, &cap, "f2 f3", "!inputs 0 and 1 must have one type"},
    {&op_softcap_grad, &cap, "f2 b2", "!inputs 0 and 1 must have one type"},
    {&op_softcap_grad, &cap, "i2 i2", "!input 0 must be float32 or bfloat16"},

    {&op_ratio, ATTR(MxRatioAttr, 0), "f f", "f"},
    {&op_ratio, ATTR(MxRatioAttr, 0), "f1 f", "!input 0 must be float32 of rank 0"},
    {&op_ratio, ATTR(MxRatioAttr, 0), "b f", "!input 0 must be float32 of rank 0"},
    {&op_ratio, ATTR(MxRatioAttr, 0), "f f1", "!input 1 must be float32 of rank 0"},
    {&op_ratio, ATTR(MxRatioAttr, 0), "f i", "!input 1 must be float32 of rank 0"},

    {&op_glu, &silu, "b2,3 b2,3", "b2,3"},
    {&op_glu, &silu, "f2,3 f3", "!inputs 0 and 1 must have one type"},
    {&op_glu, &silu, "f2 b2", "!inputs 0 and 1 must have one type"},
    {&op_glu, &silu, "i2 i2", "!input 0 must be float32 or bfloat16"},
    {&op_glu_grad, &silu, "f2 f2 f2", "f2 f2"},
    {&op_glu_grad, &silu, "f2 f3 f2", "!inputs 0 and 1 must have one type"},
    {&op_glu_grad, &silu, "f2 f2 f3", "!inputs 0 and 2 must have one type"},
    {&op_glu_grad, &silu, "f2 f2 b2", "!inputs 0 and 2 must have one type"},
    {&op_glu_grad, &silu, "i2 i2 i2", "!input 0 must be float32 or bfloat16"},

    {&op_dot, DOT(NN, 1), "f2,3,4 f4,5", "f2,3,5"},
    {&op_dot, DOT(NN, 2), "b2,3,4 b3,4,5", "f2,5"},
    {&op_dot, DOT(NN, 1), "f2,4 f4,5,6", "f2,5,6"},
    {&op_dot, DOT(NT, 1), "f2,3,4 f5,4", "f2,3,5"},
    {&op_dot, DOT(NT, 2), "f2,3,4 f5,3,4", "f2,5"},
    {&op_dot, DOT(TN, 2), "f2,3,4 f2,3,5", "f4,5"},
    {&op_dot, DOT(TN, 1), "f2,3,4 f2,5,6", "f3,4,5,6"},
    {&op_dot, DOT(NN, 1), "f4 f4", "f"},
    {&op_dot, DOT(NN, 1), "f2,3 f4,5", "!contracted dims differ"},
    {&op_dot, DOT(NN, 2), "f2,3,4 f3,5,6", "!contracted dims differ"},
    {&op_dot, DOT(NT, 1), "f2,3 f3,4", "!contracted dims differ"},
    {&op_dot, DOT(TN, 1), "f2,3 f3,4", "!contracted dims differ"},
    {&op_dot, DOT(NN, 1), "f2,3 b3,4", "!operands of two dtypes"},
    {&op_dot, DOT(NN, 0), "f2 f3", "f2,3"}, /* as the gradient of a full contraction needs it */
    {&op_dot, DOT(NN, -1), "f2,3 f3,4", "!cannot contract -1 dims"},
    {&op_dot, DOT(NN, 3), "f2,3 f3,4", "!cannot contract 3 dims"},
    {&op_dot, DOT(NN, 2), "f2,3 f3", "!cannot contract 2 dims"},
    {&op_dot, DOT(NN, 1), "f2,2,2,2,3 f3,2,2,2", "!cannot contract 1 dims"}, /* rank 7 */
    {&op_dot, DOT(NN, 1), "i2,3 i3,4", "!input 0 must be float32 or bfloat16"},

    {&op_rmsnorm, &eps, "b2,3,4 f4", "b2,3,4 f2,3"},
    {&op_rmsnorm, &eps, "f4 f4", "f4 f"},
    {&op_rmsnorm, &eps, "f2,3 f2", "!scale must have the last dim of x"},
    {&op_rmsnorm, &eps, "f f1", "!scale must have the last dim of x"},
    {&op_rmsnorm, &eps, "f2,3 b3", "!input 1 must be float32 of rank 1"},
    {&op_rmsnorm, &eps, "f2,3 f1,3", "!input 1 must be float32 of rank 1"},
    {&op_rmsnorm, &eps, "i2,3 f3", "!input 0 must be float32 or bfloat16"},
    {&op_rmsnorm_grad, NULL, "b2,3,4 f4 f2,3 b2,3,4", "b2,3,4 f4"},
    {&op_rmsnorm_grad, NULL, "b2,4 f4 f2 f2,4", "!inputs 0 and 3 must have one type"},
    {&op_rmsnorm_grad, NULL, "b2,4 f3 f2 b2,4", "!scale must have the last dim of x"},
    {&op_rmsnorm_grad, NULL, "f2,4 f4 f3 f2,4", "!rstd must"},
    {&op_rmsnorm_grad, NULL, "f2,4 f4 b2 f2,4", "!rstd must"},

    {&op_rope_table, &three_pairs, "i2,5", "f2,5,3,2"},
    {&op_rope_table, &three_pairs, "i5", "!input 0 must be int32 of rank 2"},
    {&op_rope_table, &three_pairs, "f2,5", "!input 0 must be int32 of rank 2"},
    {&op_rope, &halves, "b2,5,4,6 f2,5,3,2", "b2,5,4,6"},
    {&op_rope, &halves, "f2,5,4,6 f2,5,4,2", "!x must be [B, T, N, 2n]"},
    {&op_rope, &halves, "f2,5,4,6 f1,5,3,2", "!x must be [B, T, N, 2n]"},
    {&op_rope, &halves, "f2,5,4,6 f2,4,3,2", "!x must be [B, T, N, 2n]"},
    {&op_rope, &halves, "f2,5,4,6 f2,5,3,1", "!x must be [B, T, N, 2n]"},
    {&op_rope, &halves, "f2,5,6 f2,5,3,2", "!x must be [B, T, N, 2n]"},
    {&op_rope, &halves, "f2,5,4,6 b2,5,3,2", "!input 1 must be float32 of rank 4"},
    {&op_rope, &halves, "i2,5,4,6 f2,5,3,2", "!input 0 must be float32 or bfloat16"},

    {&op_attention, &causal, "b2,5,4,6 b2,5,2,6 b2,5,2,6 i2,5", "b2,5,4,6 f2,4,5"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,4,6 f2,5,4,6 i2,5", "f2,5,4,6 f2,4,5"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,3,6 f2,5,3,6 i2,5", "!fewer heads that divide q's"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,0,6 f2,5,0,6 i2,5", "!fewer heads that divide q's"},
    {&op_attention, &causal, "f2,5,4,6 f2,4,2,6 f2,4,2,6 i2,5", "!k and v must be q's shape"},
    {&op_attention, &causal, "f2,5,4,6 f1,5,2,6 f1,5,2,6 i2,5", "!k and v must be q's shape"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,2,8 f2,5,2,8 i2,5", "!k and v must be q's shape"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,2,6 f2,5,1,6 i2,5", "!inputs 1 and 2 must have one type"},
    {&op_attention, &causal, "f2,5,4,6 b2,5,2,6 b2,5,2,6 i2,5", "!of one dtype"},
    {&op_attention, &causal, "f5,4,6 f5,2,6 f5,2,6 i2,5", "!must be [B, T, heads, H]"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,4", "!segments must be [B, T]"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,2,6 f2,5,2,6 i5", "!input 3 must be int32 of rank 2"},
    {&op_attention, &causal, "f2,5,4,6 f2,5,2,6 f2,5,2,6 f2,5", "!input 3 must be int32 of rank 2"},
    {&op_attention, &causal, "i2,5,4,6 i2,5,2,6 i2,5,2,6 i2,5", "!input 0 must be float32 or bfloat16"},
    {&op_attention_grad, &causal,
     "b2,5,4,6 b2,5,2,6 b2,5,2,6 i2,5 b2,5,4,6 f2,4,5 b2,5,4,6", "b2,5,4,6 b2,5,2,6 b2,5,2,6"},
    {&op_attention_grad, &causal,
     "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,2,6 f2,4,5 f2,5,4,6", "!inputs 0 and 4 must have one type"},
    {&op_attention_grad, &causal,
     "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 f2,4,5 b2,5,4,6", "!inputs 0 and 6 must have one type"},
    {&op_attention_grad, &causal,
     "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 b2,4,5 f2,5,4,6", "!log-sums must"},
    {&op_attention_grad, &causal,
     "f2,5,4,6 f2,5,2,6 f2,5,2,6 i2,5 f2,5,4,6 f2,5,4 f2,5,4,6", "!log-sums must"},
    {&op_attention_grad, &causal,
     "f2,5,4,6 f2,5,3,6 f2,5,3,6 i2,5 f2,5,4,6 f2,4,5 f2,5,4,6", "!fewer heads that divide q's"},

    {&op_embed, ATTR(MxEmbedAttr, MX_BF16), "f9,4 i2,5", "b2,5,4"},
    {&op_embed, ATTR(MxEmbedAttr, MX_F32), "f9,4 i2,5", "f2,5,4"},
    {&op_embed, ATTR(MxEmbedAttr, MX_F32), "b9,4 i2,5", "!input 0 must be float32 of rank 2"},
    {&op_embed, ATTR(MxEmbedAttr, MX_F32), "f9 i2,5", "!input 0 must be float32 of rank 2"},
    {&op_embed, ATTR(MxEmbedAttr, MX_F32), "f9,4 i5", "!input 1 must be int32 of rank 2"},
    {&op_embed, ATTR(MxEmbedAttr, MX_F32), "f9,4 f2,5", "!input 1 must be int32 of rank 2"},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, 9), "i2,5 b2,5,4", "f9,4"},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, 9), "i5 f2,5,4", "!input 0 must be int32 of rank 2"},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, 9), "i2,5 i2,5,4", "!input 1 must be float32 or bfloat16"},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, 9), "i2,5 f2,4,4", "!dy must be [B, T, D]"},
    {&op_embed_grad, ATTR(MxEmbedGradAttr, 9), "i2,5 f2,5", "!dy must be [B, T, D]"},

    {&op_xent, &untied, "f2,5,4 f4,9 i2,5 i2,5", "f f"},
    {&op_xent, &bf16_tied, "b2,5,4 b9,4 i2,5 i2,5", "f f"},
    {&op_xent, &untied, "f4 f4,9 i i", "f f"},
    {&op_xent, &untied, "f2,5,4 f9,4 i2,5 i2,5", "!w must have h's last dim"},
    {&op_xent, &tied, "f2,5,4 f4,9 i2,5 i2,5", "!w must have h's last dim"},
    {&op_xent, &untied, "f2,5,4 b4,9 i2,5 i2,5", "!input 1 must be float32 of rank 2"},
    {&op_xent, &untied, "f2,5,4 f4 i2,5 i2,5", "!input 1 must be float32 of rank 2"},
    {&op_xent, &untied, "f2,5,4 f4,9 f2,5 i2,5", "!input 2 must be int32 of rank 2"},
    {&op_xent, &untied, "f2,5,4 f4,9 i5 i2,5", "!input 2 must be int32 of rank 2"},
    {&op_xent, &untied, "f2,5,4 f4,9 i2,5 f2,5", "!input 3 must be int32 of rank 2"},
    {&op_xent, &untied, "f2,5,4 f4,9 i2,4 i2,5", "!targets and weights must have h's leading dims"},
    {&op_xent, &untied, "f2,5,4 f4,9 i2,5 i1,5", "!targets and weights must have h's leading dims"},
    {&op_xent, &untied, "i2,5,4 i4,9 i2,5 i2,5", "!input 0 must be float32 or bfloat16"},
    {&op_xent, &untied, "f f4,9 i i", "!h must have a last dim"},
    {&op_xent_grad, &untied, "f2,5,4 f4,9 i2,5 i2,5 f", "f4,9 f2,5,4 f f"},
    {&op_xent_grad, &bf16_xent, "b2,5,4 b4,9 i2,5 i2,5 f", "b4,9 b2,5,4 f f"},
    {&op_xent_grad, &untied, "b2,5,4 b4,9 i2,5 i2,5 f", "f4,9 b2,5,4 f f"},
    {&op_xent_grad, &untied, "f2,5,4 f9,4 i2,5 i2,5 f", "!w must have h's last dim"},
    {&op_xent_grad, &untied, "f2,5,4 f4,9 i2,5 i2,5 f1", "!input 4 must be float32 of rank 0"},
    {&op_xent_grad, &untied, "f2,5,4 f4,9 i2,5 i2,5 b", "!input 4 must be float32 of rank 0"},

    {&op_count_nonzero, NULL, "i2,3", "f"},
    {&op_count_nonzero, NULL, "i", "f"},
    {&op_count_nonzero, NULL, "f2,3", "!input 0 must be int32"},

    {&op_sum_squares, NULL, "f2,3 b4 f", "f"},
    {&op_sum_squares, NULL, "", "f"},
    {&op_sum_squares, NULL, "f2,3 i4", "!input 1 must be float32 or bfloat16"},

    {&op_clip_factor, ATTR(MxClipFactorAttr, 1), "f", "f"},
    {&op_clip_factor, ATTR(MxClipFactorAttr, 1), "f1", "!input 0 must be float32 of rank 0"},
    {&op_clip_factor, ATTR(MxClipFactorAttr, 1), "b", "!input 0 must be float32 of rank 0"},

    {&op_adamw, &adamw, "f2,3 f2,3 f2,3 f2,3 f3 f", "f2,3 f2,3 f2,3"},
    {&op_adamw, &adamw, "f2,3 f2,3 b2,3 f2,3 f3 f", "f2,3 b2,3 f2,3"},
    {&op_adamw, &adamw, "b2 f2 f2 f2 f3 f", "!input 0 must be float32"},
    {&op_adamw, &adamw, "f2 b2 f2 f2 f3 f", "!input 1 must be float32"},
    {&op_adamw, &adamw, "f2 f2 i2 f2 f3 f", "!input 2 must be float32 or bfloat16"},
    {&op_adamw, &adamw, "f2 f2 f2 b2 f3 f", "!input 3 must be float32"},
    {&op_adamw, &adamw, "f2 f3 f2 f2 f3 f", "!input 1 must have the parameter's shape"},
    {&op_adamw, &adamw, "f2 f2 f3 f2 f3 f", "!input 2 must have the parameter's shape"},
    {&op_adamw, &adamw, "f2 f2 f2 f1,2 f3 f", "!input 3 must have the parameter's shape"},
    {&op_adamw, &adamw, "f2 f2 f2 f2 f f", "!input 4 must be float32 of rank 1"},
    {&op_adamw, &adamw, "f2 f2 f2 f2 f2 f", "!hyper must have 3 elements"},
    {&op_adamw, &adamw, "f2 f2 f2 f2 f3 f1", "!input 5 must be float32 of rank 0"},

    {&op_sgd, NULL, "f2,3 f2,3 f3 f", "f2,3"},
    {&op_sgd, NULL, "b2 f2 f3 f", "!input 0 must be float32"},
    {&op_sgd, NULL, "f2 b2 f3 f", "!input 1 must be float32"},
    {&op_sgd, NULL, "f2 f3 f3 f", "!input 1 must have the parameter's shape"},
    {&op_sgd, NULL, "f2 f2 f f", "!input 2 must be float32 of rank 1"},
    {&op_sgd, NULL, "f2 f2 f2 f", "!hyper must have 3 elements"},
    {&op_sgd, NULL, "f2 f2 f3 f1", "!input 3 must be float32 of rank 0"},
    // clang-format on
};
const int n_op_cases = MX_COUNT(op_cases);

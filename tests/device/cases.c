/* cases.c — one row a case. Sizes are odd on purpose; those named "large" pass the sizes from which
 * kernels share work among threads or cut it into blocks. */
#include "cases.h"

// clang-format off
#define S0                {.rank = 0}
#define S1(a)             {.rank = 1, .dim = {a}}
#define S2(a, b)          {.rank = 2, .dim = {a, b}}
#define S3(a, b, c)       {.rank = 3, .dim = {a, b, c}}
#define S4(a, b, c, d)    {.rank = 4, .dim = {a, b, c, d}}
#define NORMAL(a, ...)    {FILL_NORMAL, a, __VA_ARGS__}
#define ATTR(type, ...)   &(const type){__VA_ARGS__}
#define IN(...)           .in = {__VA_ARGS__}, .n_in = MX_COUNT(((const CaseInput[]){__VA_ARGS__}))

#define ATTENTION_SCALED(scale_, label_, mask_, window_, cap_, b, t, n, k, h, length)            \
    {.op = &op_attention, .label = label_,                                                        \
     .attr = ATTR(MxAttentionAttr, .scale = scale_, .softcap = cap_, .mask = mask_, .window = window_), \
     IN(NORMAL(1, S4(b, t, n, h)), NORMAL(1, S4(b, t, k, h)), NORMAL(1, S4(b, t, k, h)),          \
        {FILL_SEGMENTS, length, S2(b, t)})},                                                      \
    {.op = &op_attention_grad, .label = label_,                                                   \
     .attr = ATTR(MxAttentionAttr, .scale = scale_, .softcap = cap_, .mask = mask_, .window = window_), \
     IN(NORMAL(1, S4(b, t, n, h)), NORMAL(1, S4(b, t, k, h)), NORMAL(1, S4(b, t, k, h)),          \
        {FILL_SEGMENTS, length, S2(b, t)}, {FILL_FORWARD, 0, S4(b, t, n, h)},                     \
        {FILL_FORWARD, 1, S3(b, n, t)}, {FILL_DY, 1, S4(b, t, n, h)})}
#define ATTENTION(...) ATTENTION_SCALED(0.37, __VA_ARGS__)

/* Queries from `first` on; 7 more keys follow the last. */
#define ATTENTION_PART(label_, mask_, window_, first, n)                                          \
    {.op = &op_attention, .label = label_,                                                        \
     .attr = ATTR(MxAttentionAttr, .scale = 0.37, .mask = mask_, .window = window_, .is_part = true, .first_query = first), \
     IN(NORMAL(1, S4(2, n, 4, 5)), NORMAL(1, S4(2, first + n + 7, 2, 5)), NORMAL(1, S4(2, first + n + 7, 2, 5)), \
        {FILL_SEGMENTS, first + n, S2(2, first + n + 7)})},                                        \
    {.op = &op_attention_grad, .label = label_,                                                   \
     .attr = ATTR(MxAttentionAttr, .scale = 0.37, .mask = mask_, .window = window_, .is_part = true, .first_query = first), \
     IN(NORMAL(1, S4(2, n, 4, 5)), NORMAL(1, S4(2, first + n + 7, 2, 5)), NORMAL(1, S4(2, first + n + 7, 2, 5)), \
        {FILL_SEGMENTS, first + n, S2(2, first + n + 7)}, {FILL_FORWARD, 0, S4(2, n, 4, 5)},       \
        {FILL_FORWARD, 1, S3(2, 4, n)}, {FILL_DY, 1, S4(2, n, 4, 5)})}

/* Rows and columns of a matrix. */
#define INIT_PART(label_, fill_, whole_, row, column, rows, columns)                              \
    {.op = &op_init, .label = "part, " label_, .n_in = 0, .only_f32 = true,                       \
     .attr = ATTR(MxInitAttr, .type = {MX_F32, S2(rows, columns)}, .fill = fill_, .value = 0.3,   \
                  .seed = 7, .stream = 99, .whole = whole_, .start = {row, column})}

/* A group of one rank. */
#define ALONE(op_)                                                                                \
    {.op = &op_, .label = "alone",                                                                \
     .attr = ATTR(MxCollectiveAttr, .group = {.axes = "data", .size = 1}, .dim = 1),              \
     IN(NORMAL(1, S3(3, 5, 71)))}

#define XENT(label_, tied_, scale_, cap_, z, b, t, d, v, p)                                       \
    {.op = &op_xent, .label = label_,                                                             \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .z_loss = z),      \
     .dtype_follows = true,                                                                       \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)})},                                                              \
    {.op = &op_xent_grad, .label = label_,                                                        \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .z_loss = z),      \
     .dtype_follows = true,                                                                       \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)}, {FILL_VALUE, 0.7, S0})},                                       \
    {.op = &op_xent_grad, .label = label_ ", dw f32",                                             \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .z_loss = z),      \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)}, {FILL_VALUE, 0.7, S0})}
#define XENT_W(tied, d, v) {.rank = 2, .dim = {(tied) ? (v) : (d), (tied) ? (d) : (v)}}

#define LOGPROB(label_, tied_, scale_, cap_, tiles_, b, t, d, v, p)                               \
    {.op = &op_logprob, .label = label_, .dtype_follows = true,                                   \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .tiles = tiles_),  \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)})},                                                              \
    {.op = &op_logprob_grad, .label = label_, .dtype_follows = true,                              \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .tiles = tiles_),  \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)}, {FILL_FORWARD, 1, S2(b, t)}, {FILL_F32, 1, S2(b, t)})},        \
    {.op = &op_logprob_grad, .label = label_ ", dw f32",                                          \
     .attr = ATTR(MxXentAttr, .tied = tied_, .scale = scale_, .softcap = cap_, .tiles = tiles_),  \
     IN(NORMAL(1, S3(b, t, d)), NORMAL(0.3, XENT_W(tied_, d, v)), {FILL_IDS, v, S2(b, t)},        \
        {FILL_FLAGS, p, S2(b, t)}, {FILL_FORWARD, 1, S2(b, t)}, {FILL_F32, 1, S2(b, t)})}

/* The reference's log-probabilities are drawn apart from the policy's: margins of both signs. */
#define PREFERENCE(label_, p, t, ...)                                                             \
    {.op = &op_preference, .label = label_, .only_f32 = true,                                     \
     .attr = ATTR(MxPreferenceAttr, __VA_ARGS__),                                                 \
     IN({FILL_LOGP, 0.7, S2(2 * (p), t)}, {FILL_FLAGS, 0.3, S2(2 * (p), t)},                      \
        {FILL_FLAGS, 0.1, S2(2 * (p), t)}, {FILL_LOGP, 0.7, S2(2 * (p), t)})},                    \
    {.op = &op_preference_grad, .label = label_, .only_f32 = true,                                \
     .attr = ATTR(MxPreferenceAttr, __VA_ARGS__),                                                 \
     IN({FILL_LOGP, 0.7, S2(2 * (p), t)}, {FILL_FLAGS, 0.3, S2(2 * (p), t)},                      \
        {FILL_FLAGS, 0.1, S2(2 * (p), t)}, {FILL_LOGP, 0.7, S2(2 * (p), t)},                      \
        {FILL_VALUE, 0.7, S0})}
#define NO_REFERENCE(label_, p, t, ...)                                                           \
    {.op = &op_preference, .label = label_, .only_f32 = true,                                     \
     .attr = ATTR(MxPreferenceAttr, __VA_ARGS__),                                                 \
     IN({FILL_LOGP, 0.2, S2(2 * (p), t)}, {FILL_FLAGS, 0.3, S2(2 * (p), t)},                      \
        {FILL_FLAGS, 0.1, S2(2 * (p), t)})},                                                      \
    {.op = &op_preference_grad, .label = label_, .only_f32 = true,                                \
     .attr = ATTR(MxPreferenceAttr, __VA_ARGS__),                                                 \
     IN({FILL_LOGP, 0.2, S2(2 * (p), t)}, {FILL_FLAGS, 0.3, S2(2 * (p), t)},                      \
        {FILL_FLAGS, 0.1, S2(2 * (p), t)}, {FILL_VALUE, 0.7, S0})}

#define GLU(label_, activation_, ...)                                                             \
    {.op = &op_glu, .label = label_, .attr = ATTR(MxGluAttr, activation_),                        \
     IN(NORMAL(2, __VA_ARGS__), NORMAL(1, __VA_ARGS__))},                                         \
    {.op = &op_glu_grad, .label = label_, .attr = ATTR(MxGluAttr, activation_),                   \
     IN(NORMAL(2, __VA_ARGS__), NORMAL(1, __VA_ARGS__), {FILL_DY, 1, __VA_ARGS__})}

#define NORM(label_, x, rows, d)                                                                  \
    {.op = &op_rmsnorm, .label = label_, .attr = ATTR(MxRmsnormAttr, 1e-5),                       \
     IN(NORMAL(3, x), {FILL_F32, 1, S1(d)})},                                                     \
    {.op = &op_rmsnorm_grad, .label = label_, .attr = ATTR(MxRmsnormAttr, 1e-5),                  \
     IN(NORMAL(3, x), {FILL_F32, 1, S1(d)}, {FILL_FORWARD, 1, rows}, {FILL_DY, 1, x})}

#define ROPE(label_, in_, out_, inverse_, b, t, n, h)                                             \
    {.op = &op_rope, .label = label_,                                                             \
     .attr = ATTR(MxRopeAttr, .interleaved_in = in_, .interleaved_out = out_, .inverse = inverse_), \
     IN(NORMAL(1, S4(b, t, n, h)), {FILL_TRIG, 0, S4(b, t, (h) / 2, 2)})}

#define DOT(label_, kind_, contract, x, y)                                                        \
    {.op = &op_dot, .label = label_, .dtype_follows = true,                                       \
     .attr = ATTR(MxDotAttr, .kind = kind_, .n_contract = contract), IN(NORMAL(1, x), NORMAL(1, y))}

#define ADAMW(label_, root, decay, ...)                                                           \
    {.op = &op_adamw, .label = label_,                                                            \
     .attr = ATTR(MxAdamwAttr, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .eps_root = root, .weight_decay = decay), \
     IN({FILL_F32, 1, __VA_ARGS__}, {FILL_F32, 1, __VA_ARGS__}, NORMAL(0.5, __VA_ARGS__),         \
        {FILL_SQUARE, 0.5, __VA_ARGS__}, {FILL_HYPER, 0, S1(MX_HYPER_COUNT)}, {FILL_VALUE, 0.6, S0})}

#define INIT(label_, fill_, value_, ...)                                                          \
    {.op = &op_init, .label = label_, .dtype_follows = true,                                      \
     .attr = ATTR(MxInitAttr, .type = {MX_F32, __VA_ARGS__}, .fill = fill_, .value = value_,      \
                  .seed = 0x1234567890, .stream = 0x700000003)}

static double frequencies[] = {1.0, 0.31, 0.01, 1e-4, 3e-7};

const Case cases[] = {
    {.op = &op_shift, .label = "segments", .only_f32 = true, .attr = ATTR(MxShiftAttr, 0), IN({FILL_IDS, 97, S2(3, 41)}, {FILL_SEGMENTS, 7, S2(3, 41)})},
    {.op = &op_shift, .label = "again, large", .only_f32 = true, .attr = ATTR(MxShiftAttr, 2), IN({FILL_IDS, 97, S2(70, 1501)}, {FILL_SEGMENTS, 99, S2(70, 1501)})},
    {.op = &op_concat, .label = "rows", IN(NORMAL(1, S3(3, 5, 7)), NORMAL(1, S3(3, 5, 4)))},
    {.op = &op_concat, .label = "large", IN(NORMAL(1, S2(211, 113)), NORMAL(1, S2(211, 113)))},
    {.op = &op_split, .label = "rows", .attr = ATTR(MxSplitAttr, 7), IN(NORMAL(1, S3(3, 5, 11)))},
    {.op = &op_split, .label = "large", .attr = ATTR(MxSplitAttr, 113), IN(NORMAL(1, S2(211, 226)))},
    {.op = &op_copy, .label = "vector", IN(NORMAL(1, S1(1027)))},
    {.op = &op_copy, .label = "large", IN(NORMAL(1, S3(3, 211, 113)))},
    {.op = &op_cast, .label = "same dtype", .dtype_follows = true, .attr = ATTR(MxCastAttr, 0), IN(NORMAL(1, S2(3, 341)))},
    {.op = &op_cast, .label = "bf16 to f32", .attr = ATTR(MxCastAttr, MX_F32), IN(NORMAL(1, S2(3, 341)))},
    {.op = &op_cast, .label = "f32 to bf16", .attr = ATTR(MxCastAttr, MX_BF16), IN(NORMAL(1, S2(3, 341)))},
    {.op = &op_add, .label = "one shape", IN(NORMAL(1, S2(31, 37)), NORMAL(1, S2(31, 37)))},
    {.op = &op_add, .label = "bias", IN(NORMAL(1, S3(2, 19, 37)), NORMAL(1, S1(37)))},
    {.op = &op_add, .label = "large bias of two dims", IN(NORMAL(1, S4(5, 17, 33, 21)), NORMAL(1, S2(33, 21)))},
    {.op = &op_add, .label = "wide bias", IN(NORMAL(1, S2(40, 2051)), NORMAL(1, S1(2051)))},
    {.op = &op_sum_lead, .label = "one dim", .dtype_follows = true, .attr = ATTR(MxSumLeadAttr, .n_lead = 1), IN(NORMAL(1, S2(19, 37)))},
    {.op = &op_sum_lead, .label = "large, two dims", .dtype_follows = true, .attr = ATTR(MxSumLeadAttr, .n_lead = 2), IN(NORMAL(1, S4(5, 91, 17, 33)))},
    {.op = &op_sum_lead, .label = "to a scalar, folded", .attr = ATTR(MxSumLeadAttr, .n_lead = 2), IN({FILL_NORMAL, 1, S2(51, 7)})},
    {.op = &op_scale, .label = "vector", .attr = ATTR(MxScaleAttr, -1.7), IN(NORMAL(1, S1(1025)))},
    {.op = &op_softcap, .label = "vector", .attr = ATTR(MxSoftcapAttr, 3.0), IN(NORMAL(4, S2(5, 333)))},
    {.op = &op_softcap_grad, .label = "vector", .attr = ATTR(MxSoftcapAttr, 3.0), IN(NORMAL(4, S2(5, 333)), {FILL_DY, 1, S2(5, 333)})},
    {.op = &op_ratio, .label = "scalars", .only_f32 = true, .attr = ATTR(MxRatioAttr, 1e-3), IN({FILL_F32, 1, S0}, {FILL_VALUE, 7, S0})},
    GLU("silu", MX_SILU, S3(2, 5, 111)),
    GLU("gelu", MX_GELU, S3(2, 5, 111)),
    GLU("relu", MX_RELU, S3(2, 5, 111)),
    GLU("linear", MX_LINEAR, S3(2, 5, 111)),
    GLU("silu large", MX_SILU, S3(4, 71, 131)),
    DOT("nn", MX_DOT_NN, 1, S2(17, 23), S2(23, 31)),
    DOT("nt", MX_DOT_NT, 1, S2(17, 23), S2(31, 23)),
    DOT("tn", MX_DOT_TN, 1, S2(23, 17), S2(23, 31)),
    DOT("nn, groups of dims", MX_DOT_NN, 2, S4(2, 3, 4, 5), S3(4, 5, 7)),
    DOT("nt, groups of dims", MX_DOT_NT, 2, S4(2, 3, 4, 5), S4(3, 2, 4, 5)),
    DOT("tn, groups of dims", MX_DOT_TN, 2, S3(4, 5, 7), S4(4, 5, 3, 2)),
    DOT("nn large", MX_DOT_NN, 1, S2(150, 129), S2(129, 203)),
    DOT("tn large", MX_DOT_TN, 1, S2(301, 65), S2(301, 97)),
    {.op = &op_dot, .label = "folded to f32", .attr = ATTR(MxDotAttr, .kind = MX_DOT_TN, .n_contract = 1), IN(NORMAL(1, S2(40, 24)), NORMAL(1, S2(40, 33)))},
    NORM("one row", S1(37), S0, 37),
    NORM("rows", S3(2, 7, 65), S2(2, 7), 65),
    NORM("large", S3(3, 170, 131), S2(3, 170), 131),
    {.op = &op_rope_table, .label = "positions", .only_f32 = true, .attr = ATTR(MxRopeTableAttr, {.n = 5, .frequency = frequencies, .amplitude = 1.1}), IN({FILL_POSITIONS, 100000, S2(3, 201)})},
    ROPE("halves", false, false, false, 2, 9, 3, 10),
    ROPE("halves back", false, false, true, 2, 9, 3, 10),
    ROPE("interleaved", true, true, false, 2, 9, 3, 10),
    ROPE("interleaved to halves", true, false, false, 2, 9, 3, 10),
    ROPE("halves to interleaved back", false, true, true, 2, 9, 3, 10),
    ROPE("large heads", true, false, false, 3, 41, 2, 2 * 131),
    ROPE("many heads", false, false, false, 2, 3, 37, 64),
    ROPE("many heads, interleaved", true, true, false, 2, 3, 37, 64),
    ROPE("heads wider than a block", false, true, true, 1, 5, 3, 2 * 531),
    ATTENTION("causal", MX_MASK_CAUSAL, 0, 0, 2, 9, 2, 2, 4, 100),
    ATTENTION("one token", MX_MASK_CAUSAL, 0, 0, 3, 1, 2, 1, 3, 1),
    ATTENTION("groups of 2, segments", MX_MASK_CAUSAL, 0, 0, 2, 13, 4, 2, 5, 4),
    ATTENTION("groups of 4, sliding", MX_MASK_SLIDING, 3, 0, 1, 12, 4, 1, 3, 7),
    ATTENTION("chunks, cap", MX_MASK_CHUNK, 5, 1.5, 1, 14, 2, 1, 3, 9),
    ATTENTION("full, segments", MX_MASK_FULL, 0, 0, 2, 11, 2, 2, 3, 4),
    ATTENTION("full, cap", MX_MASK_FULL, 0, 2.0, 1, 10, 1, 1, 4, 100),
    ATTENTION("blocks, causal", MX_MASK_CAUSAL, 0, 0, 2, 300, 2, 1, 16, 1000),
    ATTENTION("blocks, segments, cap", MX_MASK_CAUSAL, 0, 4.0, 1, 290, 4, 2, 8, 77),
    ATTENTION("blocks, sliding", MX_MASK_SLIDING, 70, 0, 1, 401, 2, 2, 8, 1000),
    ATTENTION("blocks, chunks", MX_MASK_CHUNK, 150, 0, 1, 401, 1, 1, 8, 333),
    ATTENTION("blocks, wide", MX_MASK_CAUSAL, 0, 0, 1, 203, 2, 1, 72, 150),
    ATTENTION_SCALED(3.0, "blocks, far apart", MX_MASK_CAUSAL, 0, 0, 1, 300, 2, 2, 16, 1000),
    ATTENTION("spans that take turns", MX_MASK_FULL, 0, 0, 1, 1100, 1, 1, 16, 2000),
    ATTENTION("blocks, groups, heads of whole tiles", MX_MASK_SLIDING, 150, 0, 1, 269, 4, 2, 64, 190),
    ATTENTION("blocks, full", MX_MASK_FULL, 0, 0, 1, 257, 2, 2, 8, 90),
    {.op = &op_embed, .label = "rows", .dtype_follows = true, .attr = ATTR(MxEmbedAttr, 0), IN({FILL_F32, 1, S2(23, 37)}, {FILL_IDS, 23, S2(3, 19)})},
    {.op = &op_embed, .label = "large", .dtype_follows = true, .attr = ATTR(MxEmbedAttr, 0), IN({FILL_F32, 1, S2(301, 137)}, {FILL_IDS, 301, S2(5, 101)})},
    {.op = &op_embed_grad, .label = "rows", .attr = ATTR(MxEmbedGradAttr, .vocab = 23), IN({FILL_IDS, 23, S2(3, 19)}, NORMAL(1, S3(3, 19, 37)))},
    {.op = &op_embed_grad, .label = "large", .attr = ATTR(MxEmbedGradAttr, .vocab = 1001), IN({FILL_IDS, 1001, S2(5, 201)}, NORMAL(1, S3(5, 201, 1031)))},
    XENT("untied", false, 1, 0, 0, 2, 5, 7, 19, 0.3),
    XENT("tied, scale, z", true, 0.8, 0, 0.01, 2, 5, 7, 19, 0.3),
    XENT("untied, cap, z", false, 1.3, 2.5, 0.05, 2, 5, 7, 19, 0),
    XENT("nothing counts", true, 1, 0, 0.01, 1, 4, 5, 7, 1),
    XENT("large", false, 1, 0, 1e-3, 3, 33, 20, 1501, 0.2),
    XENT("chunks", true, 0.5, 6.0, 1e-3, 2, 1250, 3, 13, 0.2),
    XENT("chunks untied", false, 1, 0, 0, 2, 1251, 3, 13, 0.2),
    XENT("few count", false, 1, 0, 1e-3, 2, 1250, 3, 13, 0.9),
    LOGPROB("untied", false, 1, 0, 0, 2, 5, 7, 19, 0.3),
    LOGPROB("tied, scale", true, 0.8, 0, 0, 2, 5, 7, 19, 0.3),
    LOGPROB("untied, cap, all count", false, 1.3, 2.5, 1, 2, 5, 7, 19, 0),
    LOGPROB("nothing counts", true, 1, 0, 0, 1, 4, 5, 7, 1),
    LOGPROB("large, tiles", false, 1, 0, 5, 3, 33, 20, 1501, 0.2),
    LOGPROB("chunks", true, 0.5, 6.0, 0, 2, 1250, 3, 13, 0.2),
    LOGPROB("few count", false, 1, 0, 0, 2, 1250, 3, 13, 0.9),
    PREFERENCE("dpo", 3, 9, .beta = 0.3),
    PREFERENCE("dpo, smoothed, MaxText's", 3, 9, .formula = MX_FORMULA_MAXTEXT, .beta = 0.5, .label_smoothing = 0.2),
    PREFERENCE("dpo, no beta", 3, 9, .beta = 0),
    PREFERENCE("large", 37, 1031, .beta = 0.02, .label_smoothing = 0.1),
    PREFERENCE("means", 5, 9, .algo = MX_PREFERENCE_SIGMOID_NORM, .beta = 2, .label_smoothing = 0.1),
    PREFERENCE("hinge", 7, 9, .algo = MX_PREFERENCE_HINGE, .beta = 0.5),
    PREFERENCE("ipo", 5, 9, .algo = MX_PREFERENCE_IPO, .beta = 0.4),
    PREFERENCE("robust", 5, 9, .algo = MX_PREFERENCE_ROBUST, .beta = 0.4, .label_smoothing = 0.25),
    PREFERENCE("exo", 5, 9, .algo = MX_PREFERENCE_EXO_PAIR, .beta = 0.4, .label_smoothing = 0.1),
    PREFERENCE("nca", 5, 9, .algo = MX_PREFERENCE_NCA_PAIR, .beta = 0.4),
    PREFERENCE("bco", 5, 9, .algo = MX_PREFERENCE_BCO_PAIR, .beta = 0.4),
    PREFERENCE("sppo", 5, 9, .algo = MX_PREFERENCE_SPPO_HARD, .beta = 0.4),
    PREFERENCE("apo zero", 5, 9, .algo = MX_PREFERENCE_APO_ZERO, .beta = 0.4),
    PREFERENCE("apo down", 5, 9, .algo = MX_PREFERENCE_APO_DOWN, .beta = 0.4),
    PREFERENCE("discopop", 5, 9, .algo = MX_PREFERENCE_DISCOPOP, .beta = 0.02),
    NO_REFERENCE("orpo", 5, 9, .algo = MX_PREFERENCE_ORPO, .lambda = 0.3, .label_smoothing = 0.1),
    NO_REFERENCE("orpo, MaxText's", 5, 9, .algo = MX_PREFERENCE_ORPO, .formula = MX_FORMULA_MAXTEXT, .lambda = 0.3),
    NO_REFERENCE("simpo", 5, 9, .algo = MX_PREFERENCE_SIMPO, .beta = 2, .gamma = 0.5, .label_smoothing = 0.1),
    {.op = &op_argmax, .label = "untied", .dtype_follows = true, .attr = ATTR(MxXentAttr, .scale = 1), IN(NORMAL(1, S3(2, 5, 7)), NORMAL(0.3, S2(7, 19)), {FILL_FLAGS, 0.3, S2(2, 5)})},
    {.op = &op_argmax, .label = "tied, scale, cap, tiles", .dtype_follows = true, .attr = ATTR(MxXentAttr, .tied = true, .scale = -0.7, .softcap = 20, .tiles = 7), IN(NORMAL(1, S3(2, 75, 7)), NORMAL(0.3, S2(301, 7)), {FILL_FLAGS, 0.3, S2(2, 75)})},
    {.op = &op_count_equal, .label = "ids", .only_f32 = true, IN({FILL_IDS, 3, S2(13, 77)}, {FILL_IDS, 3, S2(13, 77)}, {FILL_FLAGS, 0.4, S2(13, 77)})},
    {.op = &op_count_segments, .label = "flags, none", .only_f32 = true, IN({FILL_FLAGS, 0.8, S2(77, 3)})},
    {.op = &op_count_nonzero, .label = "flags", .only_f32 = true, IN({FILL_FLAGS, 0.4, S2(13, 77)})},
    {.op = &op_sum_squares, .label = "several", IN(NORMAL(1, S2(3, 41)), NORMAL(2, S0), NORMAL(1, S3(3, 211, 113)))},
    INIT("constant", MX_FILL_CONSTANT, 0.75, S2(7, 11)),
    INIT("zeros", MX_FILL_CONSTANT, 0.0, S2(7, 11)),
    INIT("normal", MX_FILL_NORMAL, 0.02, S2(37, 31)),
    INIT("truncated", MX_FILL_TRUNCATED_NORMAL, 0.3, S2(37, 31)),
    INIT("uniform", MX_FILL_UNIFORM, 0.3, S2(37, 31)),
    INIT("normal large", MX_FILL_NORMAL, 1.0, S2(211, 333)),
    {.op = &op_clip_factor, .label = "above", .only_f32 = true, .attr = ATTR(MxClipFactorAttr, 1.0), IN({FILL_VALUE, 6.25, S0})},
    {.op = &op_clip_factor, .label = "below", .only_f32 = true, .attr = ATTR(MxClipFactorAttr, 1.0), IN({FILL_VALUE, 0.25, S0})},
    ADAMW("plain", 0, 0, S2(31, 41)),
    ADAMW("decay, root", 1e-6, 0.1, S2(31, 41)),
    ADAMW("large", 0, 0.1, S3(3, 211, 113)),
    {.op = &op_embed, .label = "part of the rows", .dtype_follows = true, .attr = ATTR(MxEmbedAttr, .n_parts = 3, .first_id = 11), IN({FILL_F32, 1, S2(11, 37)}, {FILL_IDS, 33, S2(3, 19)})},
    {.op = &op_embed_grad, .label = "part of the rows", .attr = ATTR(MxEmbedGradAttr, .vocab = 11, .first_id = 6), IN({FILL_IDS, 23, S2(3, 19)}, NORMAL(1, S3(3, 19, 37)))},
    INIT_PART("normal, rows", MX_FILL_NORMAL, S2(37, 31), 1, 0, 15, 31),
    INIT_PART("truncated, columns", MX_FILL_TRUNCATED_NORMAL, S2(37, 31), 0, 13, 37, 7),
    INIT_PART("normal, box", MX_FILL_NORMAL, S2(211, 333), 17, 31, 150, 273),
    ATTENTION_PART("causal, later queries", MX_MASK_CAUSAL, 0, 5, 4),
    ATTENTION_PART("causal, first queries", MX_MASK_CAUSAL, 0, 0, 4),
    ATTENTION_PART("sliding, later queries", MX_MASK_SLIDING, 4, 5, 6),
    ATTENTION_PART("chunks, later queries", MX_MASK_CHUNK, 4, 6, 5),
    ATTENTION_PART("full, later queries", MX_MASK_FULL, 0, 5, 6),
    ATTENTION_PART("blocks, later queries", MX_MASK_CAUSAL, 0, 130, 150),
    ATTENTION_PART("blocks sliding, later queries", MX_MASK_SLIDING, 70, 210, 150),
    ALONE(op_all_reduce), ALONE(op_reduce_scatter), ALONE(op_all_gather), ALONE(op_take_part),
    {.op = &op_pack, .label = "three parts", .attr = ATTR(MxPackAttr, 3, (const int[]){1, 0, 2}), IN(NORMAL(1, S2(2, 6)), NORMAL(1, S1(9)), NORMAL(1, S3(5, 7, 12)))},
    {.op = &op_pack, .label = "whole", .attr = ATTR(MxPackAttr, 1, (const int[]){0, 0}), IN(NORMAL(1, S0), NORMAL(1, S2(31, 67)))},
    {.op = &op_unpack, .label = "three parts", .attr = ATTR(MxUnpackAttr, 5, 1, S3(4, 6, 11)), IN(NORMAL(1, S2(3, 100)))},
    {.op = &op_unpack, .label = "whole", .attr = ATTR(MxUnpackAttr, 7, 0, S2(41, 31)), IN(NORMAL(1, S2(1, 1300)))},
    {.op = &op_sgd, .label = "plain", .only_f32 = true, IN({FILL_F32, 1, S2(31, 41)}, {FILL_F32, 1, S2(31, 41)}, {FILL_HYPER, 0, S1(MX_HYPER_COUNT)}, {FILL_VALUE, 0.6, S0})},
};
// clang-format on

const int n_cases = MX_COUNT(cases);

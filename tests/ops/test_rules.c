/* test_rules.c — the other rules of ops: gradients have the types of what they are gradients of,
 * floating-point operations, printed attributes, and what the tracing functions fill in. Values of
 * gradients are tested where there are kernels. */
#include "ops_test.h"

#include <math.h>

static const Shot *const *shots; /* of ops with a gradient rule */
static int n_shots;

static MxValue variable(const char *type) {
    MxType types[SHOT_INPUTS];
    ck_assert_int_eq(parse_types(type, types), 1);
    return mx_variable(&t, mx_vars_add(&vars, "x", types[0]));
}

/* ---- gradients */

static bool is_real(MxDtype dtype) {
    return dtype == MX_F32 || dtype == MX_BF16;
}

/* The dtype of cotangents; codes have those of the values that they represent. */
static MxDtype dtype_of_values(const Shot *s, MxDtype dtype) {
    return dtype == MX_I8 ? s->dtype : dtype;
}

/* Asks the rule for gradients, with a cotangent of output 0. */
static void differentiate(const Shot *s, const MxNode *node, const bool *needs, MxValue *dx) {
    MxType type = mx_trace_type(&t, node->out[0]);
    type.dtype = dtype_of_values(s, type.dtype);
    MxValue dy[MX_MAX_OUT] = {mx_variable(&t, mx_vars_add(&vars, "dy", type)), MX_NONE, MX_NONE,
                              MX_NONE, MX_NONE};
    for (int i = 0; i < node->n_in; i++) dx[i] = MX_NONE;
    s->op->vjp(&(MxVjp){.t = &t,
                        .attr = node->attr,
                        .in = node->in,
                        .out = node->out,
                        .dy = dy,
                        .n_in = node->n_in,
                        .needs = needs,
                        .dx = dx});
}

/* Of the inputs in `mask` only. */
static void ck_gradients(const Shot *s, const MxNode *node, unsigned mask) {
    MxValue dx[SHOT_INPUTS];
    bool needs[SHOT_INPUTS] = {false}, any = false;
    for (int i = 0; i < node->n_in; i++) {
        MxDtype dtype = mx_trace_type(&t, node->in[i]).dtype;
        needs[i] = mask >> i & 1 && is_real(dtype_of_values(s, dtype));
        any = any || needs[i];
    }
    if (!any) return;
    differentiate(s, node, needs, dx);
    ck_assert_msg(!t.failure.len, "%s mask %u: %s", s->name, mask, t.failure.data);
    for (int i = 0; i < node->n_in; i++) {
        if (!needs[i] || dx[i] == MX_NONE) continue;
        MxType want = mx_trace_type(&t, node->in[i]), got = mx_trace_type(&t, dx[i]);
        bool is_variable = mx_graph_producer(t.graph, node->in[i])->op->flags & MX_OP_SOURCE;
        bool is_wide = is_variable && got.dtype == MX_F32;
        want.dtype = dtype_of_values(s, want.dtype);
        ck_assert_msg((want.dtype == got.dtype || is_wide) && mx_shape_equal(want.shape, got.shape),
                      "%s mask %u: gradient %d is %s%s", s->name, mask, i, mx_dtype_name(got.dtype),
                      mx_shape_text(&arena, got.shape));
    }
    mx_graph_verify(t.graph);
}

/* A copy: the array of nodes moves. */
static MxNode traced(const Shot *s) {
    return *mx_graph_producer(t.graph, trace_node(s->op, s->attr, s->in, s->n_in));
}

START_TEST(gradients_have_their_inputs_types) {
    MxNode node = traced(shots[_i]);
    for (unsigned mask = 1; mask < 1u << node.n_in; mask++) ck_gradients(shots[_i], &node, mask);
}
END_TEST

/* No gradient flows to ids, positions, segments, targets, tables or divisors; to all else it does.
 */
START_TEST(gradients_flow_where_they_should) {
    const Shot *s = shots[_i];
    MxNode node = traced(s);
    bool needs[SHOT_INPUTS];
    MxValue dx[SHOT_INPUTS];
    unsigned got = 0, inputs = 0; /* but integers that may be there have none */
    for (int i = 0; i < node.n_in; i++) needs[i] = true;
    for (int i = 0; i < node.n_in; i++)
        inputs |= i >= s->op->arity && s->op->optional && s->in[i].dtype == MX_I32 ? 0 : 1u << i;
    differentiate(s, &node, needs, dx);
    for (int i = 0; i < node.n_in; i++) got |= dx[i] == MX_NONE ? 0 : 1u << i;
    ck_assert_msg(got == (s->test->flows & inputs), "%s: gradients %#x, not %#x", s->name, got,
                  s->test->flows & inputs);
}
END_TEST

/* ---- matrix products */

static const struct {
    const char *x, *y;
    MxDotKind kind;
    int n_contract, n_batch;
    MxDotSizes sizes;
} products[] = {
    {"f2,3,4", "f4,5", MX_DOT_NN, 1, 0, {6, 5, 4, 1}},
    {"f2,3,4", "f3,4,5", MX_DOT_NN, 2, 0, {2, 5, 12, 1}},
    {"f2,4", "f4,5,6", MX_DOT_NN, 1, 0, {2, 30, 4, 1}},
    {"f2,3,4", "f5,6,4", MX_DOT_NT, 1, 0, {6, 30, 4, 1}},
    {"f2,3,4", "f5,3,4", MX_DOT_NT, 2, 0, {2, 5, 12, 1}},
    {"f2,3,4", "f2,3,5", MX_DOT_TN, 2, 0, {4, 5, 6, 1}},
    {"f2,3,4", "f2,5", MX_DOT_TN, 1, 0, {12, 5, 2, 1}},
    {"f4", "f4", MX_DOT_NN, 1, 0, {1, 1, 4, 1}},
    {"f7,2,4", "f7,4,5", MX_DOT_NN, 1, 1, {2, 5, 4, 7}},
    {"f7,2,3,4", "f7,5,3,4", MX_DOT_NT, 2, 1, {2, 5, 12, 7}},
    {"f7,8,2,4", "f7,8,2,5", MX_DOT_TN, 1, 2, {4, 5, 2, 56}},
};

START_TEST(products_are_one_matrix_product) {
    MxType x[SHOT_INPUTS], y[SHOT_INPUTS];
    parse_types(products[_i].x, x);
    parse_types(products[_i].y, y);
    MxDotAttr attr = {.kind = products[_i].kind,
                      .n_contract = products[_i].n_contract,
                      .n_batch = products[_i].n_batch};
    MxDotSizes got = mx_dot_sizes(x->shape, y->shape, &attr), want = products[_i].sizes;
    ck_assert_msg(got.m == want.m && got.n == want.n && got.k == want.k && got.batch == want.batch,
                  "%s %s: %lld of m %lld n %lld k %lld", products[_i].x, products[_i].y,
                  (long long)got.batch, (long long)got.m, (long long)got.n, (long long)got.k);
    double flops = op_dot.flops((MxType[]){*x, *y}, NULL, &attr);
    ck_assert(flops == 2.0 * (double)(want.m * want.n * want.k * want.batch));
}
END_TEST

/* ---- attention's operations, against counting the pairs */

static const struct {
    MxMask mask;
    int64_t length, window;
} masks[] = {
    {MX_MASK_CAUSAL, 64, 0},   {MX_MASK_FULL, 64, 0},     {MX_MASK_SLIDING, 64, 8},
    {MX_MASK_SLIDING, 64, 64}, {MX_MASK_SLIDING, 64, 99}, {MX_MASK_CHUNK, 64, 8},
    {MX_MASK_CHUNK, 64, 64},   {MX_MASK_CHUNK, 64, 128},  {MX_MASK_BLOCKS, 64, 8},
    {MX_MASK_BLOCKS, 64, 64},  {MX_MASK_BLOCKS, 64, 1},
};

static bool sees(MxMask mask, int64_t window, int64_t query, int64_t key) {
    switch (mask) {
    case MX_MASK_FULL:
        return true;
    case MX_MASK_SLIDING:
        return query - window < key && key <= query;
    case MX_MASK_CHUNK:
        return key <= query && key / window == query / window;
    case MX_MASK_BLOCKS:
        return key / window <= query / window;
    default:
        return key <= query;
    }
}

START_TEST(attention_counts_the_keys_that_are_seen) {
    enum { BATCH = 2, HEADS = 3, WIDTH = 4 };
    int64_t length = masks[_i].length;
    MxAttentionAttr attr = {.mask = masks[_i].mask, .window = masks[_i].window};
    MxType q = {MX_F32, MX_SHAPE(BATCH, length, HEADS, WIDTH)}, in[] = {q, q, q};
    double pairs = 0;
    for (int64_t query = 0; query < length; query++)
        for (int64_t key = 0; key < length; key++)
            pairs += sees(attr.mask, attr.window, query, key);
    double per_pair = 2 * 2 * BATCH * HEADS * WIDTH, got = op_attention.flops(in, NULL, &attr);
    double half_a_key = 0.51 * (double)length * per_pair; /* the diagonal counts half */
    ck_assert_msg(fabs(got - pairs * per_pair) <= half_a_key, "mask %d window %lld: %g, not %g",
                  attr.mask, (long long)attr.window, got, pairs * per_pair);
    ck_assert(op_attention_grad.flops(in, NULL, &attr) == 2.5 * got);
}
END_TEST

static const struct {
    int64_t tokens, row_bytes, tiles, chunk;
} chunks[] = {
    {4096, 4 << 10, 0, 1024},  /* the most tokens */
    {4096, 128 << 10, 0, 512}, /* the most bytes */
    {4096, 1 << 20, 0, 256},   /* the fewest tokens, in spite of their bytes */
    {4096, 1 << 20, 64, 64},   /* what the config says */
    {1000, 128 << 10, 0, 500}, /* even ones */
    {100, 1 << 20, 0, 100},    {100, 1 << 20, 200, 1},
};

START_TEST(chunks_of_logits_are_large_enough) {
    const MxMachine machine = {.chunk_tokens = 1024, .chunk_least = 256, .chunk_bytes = 64 << 20};
    ck_assert_int_eq(
        mx_xent_chunk(&machine, chunks[_i].tokens, chunks[_i].row_bytes, chunks[_i].tiles),
        chunks[_i].chunk);
}
END_TEST

START_TEST(xent_counts_its_products) {
    MxType in[SHOT_INPUTS];
    parse_types("f2,5,4 f4,9 i2,5 i2,5 f", in);
    ck_assert(op_xent.flops(in, NULL, NULL) == 2.0 * 10 * 4 * 9);
    ck_assert(op_xent_grad.flops(in, NULL, NULL) == 3 * 2.0 * 10 * 4 * 9);
    ck_assert(op_argmax.flops(in, NULL, NULL) == 2.0 * 10 * 4 * 9);
    ck_assert(op_logprob.flops(in, NULL, NULL) == 2.0 * 10 * 4 * 9);
    ck_assert(op_logprob_grad.flops(in, NULL, NULL) == 3 * 2.0 * 10 * 4 * 9);
}
END_TEST

/* ---- what is printed and filled in */

static const struct {
    const MxOp *op;
    const void *attr;
    const char *text;
} prints[] = {
    {&op_dot, &(const MxDotAttr){MX_BF16, MX_DOT_TN, 2, 0, true}, "tn 2 bfloat16 square"},
    {&op_dot, &(const MxDotAttr){MX_F32, MX_DOT_NN, 1, 1, false}, "nn 1 float32 batch 1"},
    {&op_cast, &(const MxCastAttr){MX_F32}, "float32"},
    {&op_sinkhorn, &(const MxSinkhornAttr){20}, "20"},
    {&op_permutations, &(const MxPermutationsAttr){3, true}, "of 3 back"},
    {&op_quantize, &(const MxQuantAttr){MX_F32, {MX_NF4, 0, 64}}, "nf4 64 dim 0"},
    {&op_dequantize, &(const MxQuantAttr){MX_BF16, {MX_INT8, 1, 32}}, "int8 32 dim 1 bfloat16"},
    {&op_quant_dot, &(const MxQuantDotAttr){{MX_BF16, MX_DOT_NT, 1, 0, false}, {MX_NF4, 0, 64}},
     "nt 1 bfloat16 nf4 64 dim 0"},
    {&op_count_nonzero, &(const MxCountAttr){2}, "first of 2 parts"},
    {&op_prune, &(const MxPruneAttr){2}, "2"},
    {&op_encode,
     &(const MxEncodeAttr){.coding = {MX_GRID_E5M2, {MX_RMS, 3}}, .n_contract = 2, .leads = true},
     "fp8_e5m2 first 2 rms 3"},
    {&op_within, &(const MxEncodeAttr){.n_contract = 1}, "last 1"},
    {&op_coded_dot,
     &(const MxCodedDotAttr){.dot = {MX_F32, MX_DOT_TN, 2, 0, false}, .columns = true},
     "tn 2 float32 columns"},
    {&op_adamw, &(const MxAdamwAttr){.eps = 1e-8, .weight_decay = 0.1, .nesterov = true},
     "eps 1e-08 0 decay 0.1 nesterov"},
    {&op_lion, &(const MxLionAttr){.weight_decay = 0.1}, "decay 0.1"},
    {&op_schedule_free, &(const MxScheduleFreeAttr){.b1 = 0.9, .eps = 1e-8, .weight_decay = 0.1},
     "b1 0.9 eps 1e-08 decay 0.1"},
    {&op_sum_dim, &(const MxSumDimAttr){.dim = 1, .squares = true}, "dim 1 of squares"},
    {&op_times, &(const MxTimesAttr){.dim = 1, .factor = MX_FACTOR_INVERSE_ROOT},
     "1 / sqrt(y) dim 1"},
    {&op_decayed, &(const MxDecayedAttr){.is_second = true, .factor = 0.5, .plus = 0.25},
     "second factor 0.5 plus 0.25"},
    {&op_rms_step, &(const MxRmsStepAttr){.count = 6, .threshold = 1, .scales = true},
     "6 elements threshold 1 scales"},
    {&op_merge_grad, &(const MxMergeGradAttr){.n = 8}, "8 rows"},
    {&op_unit, &(const MxUnitAttr){.eps = 1e-8}, "eps 1e-08"},
    {&op_descend, &(const MxDescendAttr){.factor = 0.5, .weight_decay = 0.1},
     "factor 0.5 decay 0.1"},
    {&op_spike, &(const MxSpikeAttr){.threshold = 1}, "threshold 1"},
    {&op_to_few, &(const MxToFewAttr){MX_I8, 4, 1}, "int8 parts 4 dim 1"},
    {&op_from_few, &(const MxFromFewAttr){.wire = MX_BF16, .sums = true}, "bfloat16 sum"},
    {&op_add_part, &(const MxAddPartAttr){2, 1, MX_WHOLE, 1}, "parts 2"},
    {&op_scale, &(const MxScaleAttr){.factor = 0.125}, "0.125"},
    {&op_scale, &(const MxScaleAttr){.factor = 1, .plus = 0.5}, "1 plus 0.5"},
    {&op_conv, &(const MxDeltaAttr){.carries = false}, "by segment"},
    {&op_cache_conv, &(const MxDeltaAttr){true, 3}, "carries 3 apart"},
    {&op_ngrams, &(const MxNgramAttr){&(const MxNgrams){.longest = 3, .n_heads = 8}},
     "of 2 to 3 tokens, 8 heads"},
    {&op_match, &(const MxMatchAttr){0.25}, "scale 0.25"},
    {&op_delta, &(const MxDeltaAttr){.carries = true}, "carries"},
    {&op_activate, &(const MxGluAttr){.activation = MX_RELU}, "relu"},
    {&op_glu, &(const MxGluAttr){.activation = MX_GELU}, "gelu"},
    {&op_glu, &(const MxGluAttr){MX_QUICK_GELU, 7, 1}, "quick_gelu within 7 + 1"},
    {&op_top_k, &(const MxTopKAttr){.k = 8, .n_groups = 8, .n_best = 4}, "8 in 4 of 8 groups"},
    {&op_even_out, &(const MxEvenOutAttr){0.001}, "0.001"},
    {&op_dropout, &(const MxRandomAttr){.amount = 0.1, .stream = 7}, "0.1 stream 7"},
    {&op_dropout,
     &(const MxRandomAttr){.amount = 0.5,
                           .by_column = true,
                           .whole = {.rank = 3, .dim = {2, 9, 96}},
                           .first = {0, 0, 64}},
     "0.5 stream 0 by column dim 2 from 64"},
    {&op_noise, &(const MxRandomAttr){.amount = 0.1, .stream = 7}, "0.1 stream 7"},
    {&op_draw_ids, &(const MxDrawIdsAttr){.k = 2, .stream = 7}, "2 stream 7"},
    {&op_draw_ids, &(const MxDrawIdsAttr){.k = 2, .first = 64}, "2 stream 0 from 64"},
    {&op_clip_heads, &(const MxClipHeadsAttr){100, 64, false}, "100, 64 by the root"},
    {&op_clip_heads, &(const MxClipHeadsAttr){0.5, 64, true}, "0.5, 64 by the root alone"},
    {&op_every, &(const MxEveryAttr){4}, "4"},
    {&op_first_bits, &(const MxFirstBitsAttr){40}, "of 40"},
    {&op_rmsnorm, &(const MxRmsnormAttr){1e-5}, "eps 1e-05"},
    {&op_rope, &(const MxRopeAttr){.interleaved_in = true, .inverse = true},
     "interleaved to halves inverse"},
    {&op_rope, &(const MxRopeAttr){.first = 6}, "halves to halves from 6"},
    {&op_attention, &(const MxAttentionAttr){.scale = 0.5}, "causal scale 0.5"},
    {&op_attention,
     &(const MxAttentionAttr){.scale = 1, .softcap = 50, .mask = MX_MASK_SLIDING, .window = 8},
     "sliding 8 scale 1 softcap 50"},
    {&op_cache_attention,
     &(const MxAttentionAttr){.scale = 0.5, .mask = MX_MASK_CHUNK, .window = 4},
     "chunk 4 scale 0.5"},
    {&op_cache_attention, &(const MxAttentionAttr){.scale = 0.5, .value_width = 4},
     "causal scale 0.5 values 4"},
    {&op_cache_attention, &(const MxAttentionAttr){.scale = 1, .value_width = 4, .kept = MX_INT8},
     "causal scale 1 values 4 kept as int8"},
    {&op_cache_codes, &(const MxCacheCodesAttr){MX_INT4, true}, "int4 of all heads"},
    {&op_attention, &(const MxAttentionAttr){.scale = 1, .is_chosen = true},
     "causal scale 1 chosen"},
    {&op_attention,
     &(const MxAttentionAttr){
         .scale = 1, .is_part = true, .first_query = 4, .is_swapped = true, .second_query = 14},
     "causal scale 1 from query 4 and 14"},
    {&op_attention, &(const MxAttentionAttr){.scale = 1, .is_chosen = true, .chunk = 64},
     "causal scale 1 chosen chunks of 64"},
    {&op_chunks, &(const MxChunksAttr){.chunk = 64, .n_best = 3}, "3 of 64"},
    {&op_cache_chunks,
     &(const MxChunksAttr){.chunk = 64, .n_best = 3, .is_part = true, .first_query = 4},
     "3 of 64 from query 4"},
    {&op_index, &(const MxIndexAttr){.n_best = 8, .keeps_ties = true}, "8 and ties"},
    {&op_index, &(const MxIndexAttr){.n_best = 8, .ratio = 4}, "8 windows of 4"},
    {&op_pool, &(const MxPoolAttr){4, true}, "4 overlaps"},
    {&op_pool_grad, &(const MxPoolAttr){.ratio = 128}, "128"},
    {&op_cache_pool, &(const MxPoolAttr){.ratio = 4}, "4"},
    {&op_cache_windows, &(const MxWindowsAttr){4}, "4"},
    {&op_cache_last_window, &(const MxWindowsAttr){4}, "4"},
    {&op_windows, &(const MxWindowsAttr){4}, "4"},
    {&op_cache_index, &(const MxIndexAttr){.n_best = 8, .is_part = true, .first_query = 4},
     "8 from query 4"},
    {&op_index_loss, &(const MxIndexLossAttr){.factor = 0.5, .scale = 2}, "0.5 scale 2"},
    {&op_index_loss_grad,
     &(const MxIndexLossAttr){.factor = 1, .scale = 1, .is_part = true, .first_query = 6},
     "1 scale 1 from query 6"},
    {&op_head_dot, &(const MxHeadDotAttr){.transposed = true, .first = 2, .width = 6},
     "nt 6 from 2"},
    {&op_top_logits, &(const MxTopAttr){.k = 3}, "k 3"},
    {&op_preference, &(const MxPreferenceAttr){.beta = 0.1}, "dpo standard beta 0.1"},
    {&op_policy, &(const MxPolicyAttr){.low = 0.2, .high = 0.3, .beta = 0.5},
     "clip token means low 0.2 high 0.3 beta 0.5 low_var"},
    {&op_policy_grad, &(const MxPolicyAttr){.ratio = MX_RATIO_SUM, .sums = true, .high = 4},
     "clip sum sums low 0 high 4 beta 0 low_var"},
    {&op_kto, &(const MxKtoAttr){.beta = 0.1, .wanted = 1, .unwanted = 2},
     "beta 0.1 wanted 1 unwanted 2"},
    {&op_attention, &(const MxAttentionAttr){.scale = 1, .is_part = true, .first_query = 64},
     "causal scale 1 from query 64"},
    {&op_all_reduce, &(const MxCollectiveAttr){.group = {.axes = "data,fsdp"}}, "data,fsdp"},
    {&op_all_gather, &(const MxCollectiveAttr){.group = {.axes = "fsdp"}, .joined = 1},
     "dim 1 fsdp"},
    {&op_pack, &(const MxPackAttr){.n_parts = 4}, "parts 4"},
    {&op_unpack, &(const MxUnpackAttr){.at = 12}, "at 12"},
    {&op_init, &(const MxInitAttr){.fill = MX_FILL_NORMAL, .value = 2, .stream = 3},
     "normal 2 stream 3"},
};

START_TEST(attributes_are_printed) {
    MxText text;
    mx_text_init(&text, &arena);
    prints[_i].op->print(&text, prints[_i].attr);
    ck_assert_str_eq(text.data, prints[_i].text);
}
END_TEST

START_TEST(every_activation_and_mask_has_a_name) {
    for (int i = 0; i < MX_ACTIVATION_COUNT; i++) ck_assert_ptr_nonnull(mx_activation_names[i]);
    for (int i = 0; i < MX_MASK_COUNT; i++) {
        MxText text;
        mx_text_init(&text, &arena);
        op_attention.print(&text, &(const MxAttentionAttr){.mask = (MxMask)i});
        ck_assert_msg(text.data[0] != ' ' && text.data[0] != '(', "%s", text.data);
    }
}
END_TEST

START_TEST(every_preference_loss_has_a_name) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++) ck_assert_ptr_nonnull(mx_preferences[i].name);
    for (int i = 0; i < MX_FORMULA_COUNT; i++) ck_assert_ptr_nonnull(mx_formula_names[i]);
}
END_TEST

static const void *attr_of(MxValue value) {
    ck_assert_msg(value >= 0, "%s", t.failure.data);
    return mx_graph_producer(t.graph, value)->attr;
}

START_TEST(tracing_functions_fill_in_dtypes) {
    MxValue x = variable("b2,3"), w = variable("b3,4"), ids = variable("i2");
    ck_assert_int_eq(mx_cast(&t, x, MX_BF16), x); /* nothing to do */
    ck_assert_int_ne(mx_cast(&t, x, MX_F32), x);
    const MxDotAttr *dot = attr_of(mx_dot(&t, x, w, MX_DOT_NN, 1));
    ck_assert_int_eq(dot->dtype, MX_BF16);
    const MxSumLeadAttr *sum = attr_of(mx_sum_lead(&t, x, 1));
    ck_assert_int_eq(sum->dtype, MX_BF16);
    const MxXentAttr *xent = attr_of(mx_xent(&t, x, w, ids, ids, (MxXentAttr){.scale = 1}));
    ck_assert_int_eq(xent->dtype, MX_BF16);
    xent = attr_of(mx_logprob(&t, x, w, ids, ids, (MxXentAttr){.scale = 1}));
    ck_assert_int_eq(xent->dtype, MX_BF16);
    MxValue p = variable("f2"), moments[] = {p, p, p, p}, hyper = variable("f8");
    MxValue clip = mx_clip_factor(&t, mx_sum_squares(&t, &p, 1), 1);
    MxValue update = mx_adamw(&t, moments, hyper, clip, (MxAdamwAttr){.eps = 0.5});
    ck_assert(((const MxAdamwAttr *)attr_of(update))->eps == 0.5);
    ck_assert_int_ge(mx_sgd(&t, p, p, hyper, clip), 0);
    ck_assert_uint_eq(t.failure.len, 0);
}
END_TEST

static bool has_gradient(const Shot *shot) {
    return shot->op->vjp != NULL && !(shot->c->use & CASE_LAST);
}

Suite *rules_suite(void) {
    Suite *suite = suite_create("ops/rules");
    TCase *tcase = tcase_create("rules");
    shots = op_shots(has_gradient, &n_shots);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, gradients_have_their_inputs_types, 0, n_shots);
    tcase_add_loop_test(tcase, gradients_flow_where_they_should, 0, n_shots);
    tcase_add_loop_test(tcase, products_are_one_matrix_product, 0, MX_COUNT(products));
    tcase_add_loop_test(tcase, attention_counts_the_keys_that_are_seen, 0, MX_COUNT(masks));
    tcase_add_loop_test(tcase, chunks_of_logits_are_large_enough, 0, MX_COUNT(chunks));
    tcase_add_test(tcase, xent_counts_its_products);
    tcase_add_loop_test(tcase, attributes_are_printed, 0, MX_COUNT(prints));
    tcase_add_test(tcase, every_activation_and_mask_has_a_name);
    tcase_add_test(tcase, every_preference_loss_has_a_name);
    tcase_add_test(tcase, tracing_functions_fill_in_dtypes);
    suite_add_tcase(suite, tcase);
    return suite;
}

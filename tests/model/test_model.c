/* test_model.c — what a config makes of a model: as many parameters as the published weights have,
 * adapters beside them, what attention of each layer is told, and what a family cannot honour. That
 * trees have MaxText's names and shapes is tested in tests/plan, what they compute in tests/train.
 */
#include "common/families.h"
#include "common/suite.h"

#include <mx/model.h>

#include <check.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

/* False where the config or the model is refused; err tells why. */
static bool open_model(const char *const *overrides, int n, MxModel **model) {
    const char *file = "configs/base.yml";
    MxConfig *config;
    MxConfigRequest request = {
        .files = &file, .n_files = 1, .overrides = overrides, .n_overrides = n};
    return mx_config_load(&arena, &request, &config, &err) &&
           mx_model_new(&arena, config, model, &err);
}

/* Of the parameters of an image encoder that are not trained. */
static int64_t count_tower(const MxModel *model) {
    const MxTree *tree = mx_model_params(model);
    int64_t n = 0;
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind == MX_KIND_FROZEN &&
            (mx_text_has_prefix(tree->leaves[i].path, "vision_encoder/") ||
             mx_text_has_prefix(tree->leaves[i].path, "audio_encoder/")))
            n += mx_shape_count(tree->leaves[i].shape);
    return n;
}

static int64_t count(const MxModel *model, MxKind kind) {
    const MxTree *tree = mx_model_params(model);
    int64_t n = 0;
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind == kind) n += mx_shape_count(tree->leaves[i].shape);
    return n;
}

/* ---- sizes, as the published weights have them (model.safetensors.index.json, model cards) */

static const struct {
    const char *preset;
    int64_t n;
} published[] = {
    {"llama2-7b", 6738415616},
    {"llama2-13b", 13015864320},
    {"llama2-70b", 68976648192},
    {"llama3.1-8b", 8030261248},
    {"llama3.1-70b", 70553706496},
    {"llama3.1-405b", 405853388800},
    {"mistral-7b", 7241732096},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-7b", 7615616512},
    {"qwen3-0.6b", 596049920},
    {"qwen3-8b", 8190735360},
    {"qwen3-32b", 32762123264},
    {"qwen3-vl-2b", 2127532032}, /* with their encoders */
    {"qwen3-vl-4b", 4437815808},
    {"qwen3-vl-30b-a3b", 31070754032},
    {"qwen3-omni-30b-a3b", 31070754032 + 2 * (152064 - 151936) * 2048 + 647927168},
    {"mixtral-8x7b", 46702792704},
    {"mixtral-8x22b", 140630071296},
    {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560},
    {"qwen3-480b-a35b", 480154875392},
    {"deepseek2-16b", 15706484224},
    {"deepseek2-236b", 235741434880},
    {"deepseek3-671b", 671026419200}, /* without its module that looks ahead */
    {"deepseek3.2-671b", 671026419200 + INT64_C(61) * (7168 * (128 + 64) + 1536 * 64 * 128 +
                                                       2 * 128)}, /* with an indexer a layer */
    {"deepseek4-284b", 284333639255 + 40 * 256}, /* MaxText's, and biases of routers */
    /* as published, but for the rows by which MaxText's vocab_size differs (256000, 262208) */
    {"gemma-2b", 2506172416 + 128 * 2048},
    {"gemma-7b", 8537680896 + 128 * 3072},
    {"gemma2-2b", 2614341888 + 128 * 2304},
    {"gemma2-9b", 9241705984 + 128 * 3584},
    {"gemma2-27b", 27227128320 + 128 * 4608},
    {"gemma3-4b", 3880263168 - 64 * 2560},
    {"gemma3-27b", 27009346304 - 64 * 5376},
    {"olmo3-7b", 7298011136},
    {"llama4-17b-16e", 107769861120}, /* of text, as transformers' class has them */
    {"llama4-17b-128e", 400711848960},
    /* by the sizes of the paper, but for vocab_size (50257 there) and positions (2048) */
    {"gpt3-175b", 174604259328 + (50304 - 50257 + 16384 - 2048) * 12288},
};

START_TEST(presets_have_the_published_sizes) {
    MxModel *model;
    const char *name = mx_arena_printf(&arena, "model_name=%s", published[_i].preset);
    ck_assert_msg(open_model(&name, 1, &model), "%s", err.text.data);
    ck_assert_int_eq(count(model, MX_KIND_PARAM) + count_tower(model), published[_i].n);
    ck_assert_int_eq(mx_model_trains(model), MX_KIND_PARAM);
    ck_assert(mx_model_lora(model) == NULL);
}
END_TEST

/* ---- adapters */

START_TEST(adapters_stand_beside_frozen_weights) {
    enum { RANK = 4, D = 4096, F = 11008, LAYERS = 32 };
    static const char *const overrides[] = {
        "model_name=llama2-7b",
        "lora.enable_lora=true",
        "lora.lora_rank=4",
        "lora.lora_alpha=8",
        "lora.lora_module_path=.*(self_attention/query|mlp/wi_0)",
    };
    MxModel *model;
    ck_assert_msg(open_model(overrides, MX_COUNT(overrides), &model), "%s", err.text.data);
    int64_t rows_and_columns = (D + D) + (D + F);
    ck_assert_int_eq(count(model, MX_KIND_LORA_PARAM), LAYERS * RANK * rows_and_columns);
    ck_assert_int_eq(count(model, MX_KIND_PARAM), 6738415616);
    ck_assert_int_eq(mx_model_trains(model), MX_KIND_LORA_PARAM);
    ck_assert_double_eq(mx_model_lora(model)->scale, 2);
    ck_assert_int_eq(mx_model_lora(model)->n_modules, 2);
}
END_TEST

/* ---- what attention is told */

/* The attributes of attention in each layer of a traced forward pass. */
static int trace_attention(const MxModel *model, MxAttentionAttr *out, int cap) {
    const MxTree *tree = mx_model_params(model);
    MxShape ids = MX_SHAPE(2, 8);
    MxVars vars = {.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "stream", &vars);
    MxValue *params = mx_new_n(&arena, MxValue, tree->n), in[3];
    MxTrace t;
    int n = 0;
    mx_trace_begin(&t, graph);
    for (int i = 0; i < tree->n; i++)
        params[i] =
            mx_variable(&t, mx_vars_add(&vars, "param", (MxType){MX_F32, tree->leaves[i].shape}));
    for (int i = 0; i < MX_COUNT(in); i++)
        in[i] = mx_variable(&t, mx_vars_add(&vars, "in", (MxType){MX_I32, ids}));
    mx_model_stream(&t, model, params,
                    (MxModelInputs){.tokens = in[0], .positions = in[1], .segments = in[2]});
    ck_assert_msg(mx_trace_end(&t, &err), "%s", err.text.data);
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == &op_attention) {
            ck_assert_int_lt(n, cap);
            out[n++] = *(const MxAttentionAttr *)graph->nodes[i].attr;
        }
    return n;
}

#define TINY                                                                                       \
    "base_emb_dim=16", "base_num_query_heads=2", "base_num_kv_heads=1", "base_mlp_dim=24",         \
        "base_num_decoder_layers=2", "vocab_size=300"

/* Scores are q·k times `scale`; without one the query kernel starts as much smaller. MaxText's
 * families multiply the query with 1/sqrt(query_pre_attn_scalar of Hugging Face): gemma3.py,
 * get_query_pre_attn_scalar. */
static const struct {
    const char *overrides[3];
    double scale, query_scale; /* the latter with heads of 64 */
} scales[] = {
    {{"decoder_block=llama2"}, 1, 0.125},
    {{"decoder_block=llama2", "use_qk_norm=true"}, 0.125, 1},
    {{"decoder_block=mistral"}, 1, 0.125},
    {{"decoder_block=qwen2"}, 0.125, 1},
    {{"decoder_block=qwen3"}, 0.125, 1},
    {{"decoder_block=qwen3", "query_pre_attn_scalar=256"}, 0.0625, 2},
    {{"decoder_block=llama2", "query_pre_attn_scalar=256"}, 0.0625, 2},
    {{"decoder_block=qwen2", "query_pre_attn_scalar=64"}, 0.125, 1},
};

START_TEST(scores_are_scaled) {
    const char *overrides[] = {TINY, "head_dim=64", scales[_i].overrides[0],
                               scales[_i].overrides[1]};
    int n = scales[_i].overrides[1] ? MX_COUNT(overrides) : MX_COUNT(overrides) - 1;
    MxModel *model;
    MxAttentionAttr seen[2];
    ck_assert_msg(open_model(overrides, n, &model), "%s", err.text.data);
    ck_assert_int_eq(trace_attention(model, seen, 2), 2);
    for (int i = 0; i < 2; i++) ck_assert_double_eq(seen[i].scale, scales[_i].scale);
    ck_assert_double_eq(mx_model_head_form(model).query_scale, scales[_i].query_scale);
    int query =
        mx_tree_find(mx_model_params(model), "decoder/layers_1/self_attention/query/kernel");
    ck_assert_double_eq(mx_model_params(model)->leaves[query].init.std,
                        scales[_i].scale == 1 ? 0.25 * 0.125 : 0.25);
}
END_TEST

/* Of experts, routers and shared units, and of nothing else. */
START_TEST(kernels_of_experts_start_as_asked) {
    static const struct {
        const char *path;
        double factor;
    } kernels[] = {
        {"decoder/moe_layers_0/DeepSeekMoeBlock_0/MoeBlock_0/wi_0", 3},
        {"decoder/moe_layers_0/DeepSeekMoeBlock_0/MoeBlock_0/gate/kernel", 3},
        {"decoder/moe_layers_0/DeepSeekMoeBlock_0/shared_experts/wo/kernel", 3},
        {"decoder/moe_layers_0/self_attention/out/kernel", 1},
        {"decoder/logits_dense/kernel", 1},
    };
    double std[2][MX_COUNT(kernels)];
    for (int with = 0; with < 2; with++) {
        const char *overrides[] = {TINY,
                                   "decoder_block=deepseek",
                                   "attention_type=mla",
                                   "base_num_kv_heads=2",
                                   "num_experts=4",
                                   "num_experts_per_tok=2",
                                   "first_num_dense_layers=1",
                                   "shared_experts=1",
                                   "dense_init_scale=9"};
        MxModel *model;
        ck_assert_msg(open_model(overrides, MX_COUNT(overrides) - !with, &model), "%s",
                      err.text.data);
        const MxTree *tree = mx_model_params(model);
        for (int i = 0; i < MX_COUNT(kernels); i++) {
            int leaf = mx_tree_find(tree, kernels[i].path);
            ck_assert_msg(leaf >= 0, "no %s", kernels[i].path);
            std[with][i] = tree->leaves[leaf].init.std;
        }
    }
    for (int i = 0; i < MX_COUNT(kernels); i++)
        ck_assert_double_eq_tol(std[1][i], kernels[i].factor * std[0][i], 1e-12);
}
END_TEST

/* ---- layers that take turns */

START_TEST(layers_see_what_their_family_says) {
    static const char *const overrides[] = {
        "base_emb_dim=16",           "base_num_query_heads=2", "base_num_kv_heads=1",
        "base_mlp_dim=24",           "vocab_size=300",         "head_dim=64",
        "base_num_decoder_layers=8", "decoder_block=gemma3",   "sliding_window_size=5",
        "use_post_attn_norm=true"};
    enum { LAYERS = 8, GLOBAL = 5 };
    MxModel *model;
    MxAttentionAttr seen[LAYERS];
    ck_assert_msg(open_model(overrides, MX_COUNT(overrides), &model), "%s", err.text.data);
    ck_assert_int_eq(trace_attention(model, seen, LAYERS), LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        ck_assert_int_eq(seen[i].mask, i == GLOBAL ? MX_MASK_CAUSAL : MX_MASK_SLIDING);
        ck_assert_int_eq(seen[i].window, i == GLOBAL ? 0 : 5);
    }
    const MxTree *tree = mx_model_params(model);
    ck_assert_int_ge(mx_tree_find(tree, "decoder/layers_7/post_self_attention_norm/scale"), 0);
    ck_assert_int_eq(mx_tree_find(tree, "decoder/layers_7/post_ffw_norm/scale"), -1);
    int last = mx_tree_find(tree, "decoder/layers_7/mlp/wo/kernel");
    ck_assert_str_eq(tree->leaves[last].stack.path,
                     "decoder/layers_remainder/layers_1/mlp/wo/kernel");
}
END_TEST

/* Of layers that take turns, one more than whole periods have. */
static const struct {
    const char *family, *words;
} one_more[] = {
    {"llama4", "base_num_decoder_layers=7"},
    {"qwen3_next", "base_num_decoder_layers=5"},
    {"qwen3_5", "base_num_decoder_layers=5"},
    {"deepseek4", "base_num_decoder_layers=4 compress_ratios=[0,4,128,4]"},
};

/* A small model of a family with its default adapters. */
static const MxModel *open_adapted(const char *family, const char *more) {
    char *save = NULL;
    const char *words[64];
    int n = 0;
    char *all = mx_arena_printf(&arena,
                                "%s lora.enable_lora=true lora.lora_rank=2 "
                                "lora.lora_alpha=2 %s",
                                family_small(&arena, family), more);
    for (int i = 0; i < MX_COUNT(one_more); i++)
        if (!strcmp(one_more[i].family, family))
            all = mx_arena_printf(&arena, "%s %s", all, one_more[i].words);
    for (char *word = strtok_r(all, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    MxModel *model;
    ck_assert_msg(open_model(words, n, &model), "%s: %s", family, err.text.data);
    return model;
}

/* Default modules of adapters are found in whole periods, behind them, and one by one. */
START_TEST(adapters_are_in_every_layer) {
    const char *family = family_model(_i);
    if (!family) return;
    const MxModel *stacked = open_adapted(family, "scan_layers=true");
    const MxModel *apart = open_adapted(family, "scan_layers=false");
    ck_assert_int_gt(count(stacked, MX_KIND_LORA_PARAM), 0);
    ck_assert_int_eq(count(stacked, MX_KIND_LORA_PARAM), count(apart, MX_KIND_LORA_PARAM));
}
END_TEST

/* ---- what cannot be */

#define LATENT "decoder_block=deepseek", "attention_type=mla"

static const struct {
    const char *overrides[5], *message;
} refusals[] = {
    {{"mlp_activations=[silu,silu,silu,silu]"},
     "mlp_activations: wants one to three branches, found 4"},
    {{"decoder_block=qwen3_next"},
     "inhomogeneous_layer_cycle_interval: not available yet: qwen3_next wants 4 here, found 1"},
    {{"decoder_block=qwen3_next", "inhomogeneous_layer_cycle_interval=4", "gdn_num_value_heads=24"},
     "gdn_num_value_heads: 24 is not a multiple of gdn_num_key_heads (16)"},
    {{"decoder_block=qwen3_next", "inhomogeneous_layer_cycle_interval=4", "fused_qkv=true"},
     "fused_qkv: qwen3_next has gates beside queries; wants false"},
    {{"partial_rotary_factor=0.3"},
     "partial_rotary_factor: 19 elements of a head are rotated, which are no pairs"},
    {{"decoder_block=gpt3", "base_num_kv_heads=2"},
     "base_num_kv_heads: gpt3 has a key and a value for each query head; wants 4, found 2"},
    {{"moba=true", "decoder_block=simple"},
     "moba: not available yet with compressed attention, or layers without attention"},
    {{"moba=true", LATENT, "use_indexer=true", "q_lora_rank=12"},
     "moba: not available yet with use_indexer"},
    {{"moba=true", "attention_type=full"},
     "moba: not available yet with tokens that see later ones"},
    {{"moba=true", "attention_sink=true", "decoder_block=llama2"},
     "moba: not available yet with attention_sink"},
    {{"use_untrainable_positional_embedding=true", "base_emb_dim=15"},
     "adds a sine and a cosine of each frequency; wants an even emb_dim, found 15"},
    {{"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=4",
      "lora.lora_module_path=nothing"},
     "\"nothing\" matches no module that can be adapted"},
    {{"decoder_block=gemma3", "attention_type=chunk", "chunk_attn_window_size=8"},
     "attention_type: chunk, but layers of gemma3 see what their family says; wants global"},
    {{"decoder_block=gemma3"},
     "sliding_window_size: layers of gemma3 have a window; wants at least 1, found 0"},
    {{"decoder_block=deepseek"},
     "attention_type: global, but layers of deepseek have latent attention; wants mla"},
    {{"attention_type=mla"}, "attention_type: mla, but layers of llama2 have no latent attention"},
    {{LATENT, "base_num_kv_heads=2"},
     "base_num_kv_heads: latent attention has a key and a value for each query head; wants 4, "
     "found 2"},
    {{"rope_type=llama3.1", "rope_stretch_low=2", "rope_stretch_high=1.5"},
     "rope_stretch_high 1.5 is less than rope_stretch_low 2"},
    {{"decoder_block=llama4"},
     "chunk_attn_window_size: layers of llama4 see a chunk; wants at least 1, found 0"},
    {{"decoder_block=llama4", "chunk_attn_window_size=8", "nope_layer_interval=4"},
     "inhomogeneous_layer_cycle_interval 1 is not a multiple of nope_layer_interval 4"},
    {{"decoder_block=llama4", "chunk_attn_window_size=8", "num_experts=4", "num_experts_per_tok=2"},
     "num_experts_per_tok: not available yet: a token of llama4 goes to one expert; wants 1, found "
     "2"},
    {{LATENT, "qk_rope_head_dim=7"}, "qk_rope_head_dim: 7 is odd"},
    {{LATENT, "mhc_expansion_rate=2", "mtp_num_layers=1"},
     "mtp_num_layers: not available yet with mhc_expansion_rate above 1"},
    {{LATENT, "mhc_expansion_rate=2", "dropout_rate=0.1"},
     "dropout_rate: not available yet with mhc_expansion_rate above 1"},
    {{LATENT, "mhc_expansion_rate=2", "quantization=int8"},
     "quantization: not available yet with mhc_expansion_rate above 1"},
    {{LATENT, "mhc_expansion_rate=9", "enable_mhc_lite=true"},
     "mhc_expansion_rate: 9 rows have too many permutations (enable_mhc_lite); wants at most 8"},
    {{LATENT, "engram_layers=[0]", "engram_vocab_bases=[7, 7]"},
     "layers with n-gram memories (engram_layers) write a stream of several rows a token; wants "
     "mhc_expansion_rate above 1, found 1"},
    {{LATENT, "mhc_expansion_rate=2", "engram_layers=3"},
     "engram_layers: wants a list of layers, found 3"},
    {{LATENT, "mhc_expansion_rate=2", "base_num_decoder_layers=4", "engram_layers=[4]"},
     "engram_layers: wants layers from 0 to 3, found 4"},
    {{LATENT, "mhc_expansion_rate=2", "engram_layers=[1, 0, 1]"},
     "engram_layers: has layer 1 twice"},
    {{LATENT, "mhc_expansion_rate=2", "engram_layers=[1]"},
     "engram_vocab_bases has 0 entries, wants 2: one for each length from 2 to "
     "engram_max_ngram_size 3"},
    {{LATENT, "mhc_expansion_rate=2", "engram_layers=[1]", "engram_vocab_bases=[7, 0]"},
     "engram_vocab_bases: wants rows of a table from 1 to 1073741824, found 0"},
    {{LATENT, "mhc_expansion_rate=2", "engram_layers=[1]",
      "engram_vocab_bases=[1073741824, 1073741824]"},
     "engram_vocab_bases: the tables of a layer have 17179870732 rows; wants at most 2147483647"},
    {{LATENT, "use_qk_norm=true"}, "use_qk_norm: latent attention has none; wants false"},
};

START_TEST(what_cannot_be_is_refused) {
    MxModel *model;
    int n = 0;
    while (n < 5 && refusals[_i].overrides[n]) n++;
    ck_assert(!open_model(refusals[_i].overrides, n, &model));
    ck_assert_msg(strstr(err.text.data, refusals[_i].message), "%s", err.text.data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, presets_have_the_published_sizes, 0, MX_COUNT(published));
    tcase_add_test(tcase, adapters_stand_beside_frozen_weights);
    tcase_add_loop_test(tcase, scores_are_scaled, 0, MX_COUNT(scales));
    tcase_add_test(tcase, kernels_of_experts_start_as_asked);
    tcase_add_test(tcase, layers_see_what_their_family_says);
    tcase_add_loop_test(tcase, adapters_are_in_every_layer, 0, family_models());
    tcase_add_loop_test(tcase, what_cannot_be_is_refused, 0, MX_COUNT(refusals));
    suite_add_tcase(suite, tcase);
    return RUN_SUITES(suite);
}

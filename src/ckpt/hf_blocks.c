/* hf_blocks.c — the members of config.json that determine the layers of a model, and the sizes of
 * latent attention and of gated delta nets. Source: transformers 4.51 and 5.23, models/deepseek_v2,
 * deepseek_v3, llama4, qwen3_next. */
#include "hf.h"

#include <math.h>

/* ---- which layers */

/* A number that may be 0. */
static void read_from_0(HfReader *r, const HfMember *m) {
    int64_t *out = (int64_t *)((char *)r->model + m->at);
    const MxJson *value = hf_get(r->json, m->theirs);
    *out = hf_missing(r, m);
    if (!value || (mx_json_int(value, out) && *out == 0)) return;
    hf_read_size(r, m->theirs, m->most, hf_missing(r, m), out);
}

static void read_ahead(HfReader *r, const HfMember *m) {
    HfMember one = *m;
    if (hf_get(r->json, "num_mtp_layers")) one.theirs = "num_mtp_layers";
    read_from_0(r, &one);
}

static void take_ahead(const MxConfig *c, MxHfModel *model) {
    (void)c;
    model->n_ahead = 0;
}

static void yaml_nothing(const MxHfModel *model, MxText *t) {
    (void)model, (void)t;
}

/* The kind of a layer in their words. */
static const char *type_of(const MxLayerSpec *spec) {
    if (spec->block[0].kind == MX_BLOCK_DELTA) return "linear_attention";
    if (spec->sees == MX_SEES_WINDOW) return "sliding_attention";
    return spec->sees == MX_SEES_CHUNK ? "chunked_attention" : "full_attention";
}

/* Whether the layers take turns as the family or other members say; if not, it is a lack. */
static void read_types(HfReader *r, const HfMember *m) {
    const MxJson *types = hf_get(r->json, m->theirs);
    int n = (int)mx_json_length(types);
    MxLayers layers = hf_model_layers(r->model);
    bool is_so = !types || n == layers.n;
    for (int i = 0; is_so && i < n; i++) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        is_so = type && !strcmp(type, type_of(mx_layer_spec(&layers, i)));
    }
    if (!is_so) hf_lack(r, m->theirs, types);
}

/* It says the same as first_k_dense_replace, or nothing. */
static void read_mlp_types(HfReader *r, const HfMember *m) {
    const MxJson *types = hf_get(r->json, m->theirs);
    int n = (int)mx_json_length(types);
    bool is_so = !types || n == r->model->n_layers;
    for (int i = 0; is_so && i < n; i++) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        is_so = type && !strcmp(type, i < r->model->n_dense ? "dense" : "sparse");
    }
    if (!is_so) hf_refuse(r, m->theirs, "wanted dense layers first, as first_k_dense_replace says");
}

/* So many layers on, one sees all tokens; layer_types goes before it. */
static void read_interval(HfReader *r, const HfMember *m) {
    int64_t found;
    hf_read_size(r, m->theirs, m->most, r->family->period, &found);
    if (found != r->family->period && !hf_get(r->json, "layer_types"))
        hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
    r->model->cycle = r->family->period;
}

static void write_interval(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "full_attention_interval", hf_family_of(model)->period);
}

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t n = a;
    while (n % b) n += a;
    return n;
}

static void read_nope(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    hf_read_size(r, m->theirs, m->most, m->missing, &model->nope_interval);
    hf_read_size(r, "interleave_moe_layer_step", m->most, 1, &model->moe_step);
    model->cycle = common_multiple(model->nope_interval, model->moe_step);
}

static void take_nope(const MxConfig *c, MxHfModel *model) {
    model->nope_interval = c->nope_layer_interval;
    model->moe_step = c->interleave_moe_layer_step;
    model->cycle = c->inhomogeneous_layer_cycle_interval;
}

static void write_nope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    int64_t none = model->n_layers + 1;
    mx_json_set_int(out, "no_rope_layer_interval",
                    model->nope_interval > 0 ? model->nope_interval : none);
    mx_json_set_int(out, "interleave_moe_layer_step", model->moe_step);
}

static void yaml_nope(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "nope_layer_interval: %lld\n", (long long)model->nope_interval);
    mx_text_add(t, "interleave_moe_layer_step: %lld\n", (long long)model->moe_step);
}

/* Lists say the same as the intervals, or nothing. Each has 1 where a layer is rotated … */
static void read_rotated(HfReader *r, const HfMember *m) {
    const MxJson *list = hf_get(r->json, m->theirs);
    int64_t n = (int64_t)mx_json_length(list), found;
    bool is_so = !n || n == r->model->n_layers;
    for (int64_t i = 0; is_so && i < n; i++)
        is_so = mx_json_int(mx_json_at(list, (size_t)i), &found) &&
                (found == 0) == ((i + 1) % r->model->nope_interval == 0);
    if (!is_so) hf_lack(r, m->theirs, list);
}

/* … or the numbers of those with experts. */
static void read_sparse(HfReader *r, const HfMember *m) {
    const MxJson *list = hf_get(r->json, m->theirs);
    int64_t n = (int64_t)mx_json_length(list), step = r->model->moe_step, found;
    bool is_so = !list || n == r->model->n_layers / step;
    for (int64_t i = 0; is_so && i < n; i++)
        is_so = mx_json_int(mx_json_at(list, (size_t)i), &found) && found == (i + 1) * step - 1;
    if (!is_so)
        hf_refuse(r, m->theirs, "wanted every so many layers, as interleave_moe_layer_step says");
}

static void read_chunk(HfReader *r, const HfMember *m) {
    bool is_null = mx_json_get(r->json, m->theirs) && !hf_get(r->json, m->theirs);
    if (is_null) hf_lack(r, m->theirs, mx_json_get(r->json, m->theirs));
    hf_read_size(r, m->theirs, m->most, m->missing, &r->model->chunk);
}

/* Any number says yes. */
static void read_tunes(HfReader *r, const HfMember *m) {
    r->model->tunes = !hf_get(r->json, m->theirs) || hf_flag(r, m->theirs);
}

// clang-format off
const HfMember hf_layer_members[] = {
    {.theirs = "first_k_dense_replace", .ours = "first_num_dense_layers", .flag = HF_OF(like_deepseek), .unless = HF_OF(like_deepseek4),
     HF_SIZE_OF(n_dense, first_num_dense_layers), .most = HF_LARGEST_SIZE, .of_family = HF_OF(default_dense),
     .shapes = true, .read = read_from_0},
    {.theirs = "num_nextn_predict_layers", .flag = HF_OF(looks_ahead), HF_SIZE_OF(n_ahead, mtp_num_layers),
     .most = HF_LARGEST_SIZE, .missing = 1, .read = read_ahead, .take = take_ahead, .yaml = yaml_nothing},
    {.theirs = "full_attention_interval", .ours = "inhomogeneous_layer_cycle_interval", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(cycle, inhomogeneous_layer_cycle_interval), .most = HF_LARGEST_SIZE,
     .read = read_interval, .write = write_interval},
    {.theirs = "no_rope_layer_interval", .ours = "nope_layer_interval", .flag = HF_OF(tells_turns),
     HF_SIZE_OF(nope_interval, nope_layer_interval), .most = HF_LARGEST_SIZE, .missing = 4, .agrees = true,
     .read = read_nope, .take = take_nope, .write = write_nope, .yaml = yaml_nope},
    {.what = "interleave_moe_layer_step", .ours = "inhomogeneous_layer_cycle_interval", .flag = HF_OF(tells_turns),
     HF_SIZE_OF(cycle, inhomogeneous_layer_cycle_interval)},
    {.theirs = "no_rope_layers", .flag = HF_OF(tells_turns), .read = read_rotated},
    {.theirs = "moe_layers", .flag = HF_OF(tells_turns), .read = read_sparse},
    {.theirs = "attention_chunk_size", .ours = "chunk_attn_window_size", .flag = HF_OF(sees_chunks),
     HF_SIZE_OF(chunk, chunk_attn_window_size), .most = INT32_MAX, .missing = 8192, .agrees = true, .read = read_chunk},
    {.theirs = "attn_temperature_tuning", .ours = "temperature_tuning", .flag = HF_OF(tunes_queries),
     HF_FLAG_OF(tunes, temperature_tuning), .agrees = true, .read = read_tunes},
    {.theirs = "attn_scale", .ours = "temperature_tuning_scale", .flag = HF_OF(tunes_queries),
     HF_NUMBER_OF(tuning_scale, temperature_tuning_scale), .usual = 0.1, .agrees = true},
    {.theirs = "floor_scale", .ours = "temperature_tuning_floor_scale", .flag = HF_OF(tunes_queries),
     HF_SIZE_OF(tuning_period, temperature_tuning_floor_scale), .most = INT32_MAX, .missing = 8192, .agrees = true},
    {.theirs = "layer_types", .flag = HF_OF(tells_layers), .read = read_types},
    {.theirs = "mlp_layer_types", .flag = HF_OF(has_indexer), .read = read_mlp_types},
    {0},
};
// clang-format on

/* ---- sizes */

/* null = queries are made of the stream */
static void read_q_rank(HfReader *r, const HfMember *m) {
    bool is_null = mx_json_get(r->json, m->theirs) && !hf_get(r->json, m->theirs);
    r->model->q_rank = 0;
    if (!is_null) hf_read_size(r, m->theirs, m->most, m->missing, &r->model->q_rank);
}

static void write_q_rank(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    if (model->q_rank)
        mx_json_set_int(out, "q_lora_rank", model->q_rank);
    else
        mx_json_set_number(out, "q_lora_rank", NAN); /* null */
}

/* Where nothing is scaled, ours turns pairs that are neighbours in the indexer too. */
static void read_topk(HfReader *r, const HfMember *m) {
    hf_read_size(r, m->theirs, m->most, m->missing, &r->model->index_topk);
    if (!r->model->is_yarn) hf_lack(r, "rope_type", NULL);
}

static bool fits_indexer(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool is_so = hf_must_be(c, MX_KEY_use_indexer, c->use_indexer == names->has_indexer,
                            names->has_indexer ? "true" : "false", err);
    return hf_must_be(c, MX_KEY_indexer_mask_exact_topk,
                      !c->use_indexer || c->indexer_mask_exact_topk, "true", err) &&
           is_so;
}

static bool fits_streams(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_mhc_expansion_rate, c->mhc_expansion_rate == 1, "1", err);
}

static void read_indexer(HfReader *r, const HfMember *m) {
    (void)m;
    r->model->has_indexer = r->names->has_indexer;
}

/* A head of keys has several of values. */
static void read_delta_values(HfReader *r, const HfMember *m) {
    hf_read_size(r, m->theirs, m->most, m->missing, &r->model->delta_values);
    if (r->model->delta_keys > 0 && r->model->delta_values % r->model->delta_keys)
        hf_refuse(r, m->theirs, "wanted a multiple of linear_num_key_heads");
}

// clang-format off
const HfMember hf_block_members[] = {
    {.theirs = "q_lora_rank", .ours = "q_lora_rank", .block = MX_BLOCK_MLA, HF_SIZE_OF(q_rank, q_lora_rank),
     .most = HF_LARGEST_SIZE, .missing = 1536, .shapes = true, .read = read_q_rank, .write = write_q_rank},
    {.theirs = "kv_lora_rank", .ours = "kv_lora_rank", .block = MX_BLOCK_MLA, HF_SIZE_OF(kv_rank, kv_lora_rank),
     .most = HF_LARGEST_SIZE, .missing = 512, .shapes = true},
    {.theirs = "qk_nope_head_dim", .ours = "qk_nope_head_dim", .block = MX_BLOCK_MLA, HF_SIZE_OF(nope_dim, qk_nope_head_dim),
     .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.theirs = "qk_rope_head_dim", .ours = "qk_rope_head_dim", .block = MX_BLOCK_MLA, HF_SIZE_OF(rope_dim, qk_rope_head_dim),
     .most = HF_LARGEST_SIZE, .missing = 64, .shapes = true},
    {.theirs = "v_head_dim", .ours = "v_head_dim", .block = MX_BLOCK_MLA, HF_SIZE_OF(value_dim, v_head_dim),
     .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.ours = "use_indexer", .block = MX_BLOCK_MLA, HF_FLAG_OF(has_indexer, use_indexer), .shapes = true,
     .read = read_indexer, .fits = fits_indexer},
    {.block = MX_BLOCK_MLA, .fits = fits_streams},
    {.theirs = "index_n_heads", .ours = "indexer_n_heads", .flag = HF_OF(has_indexer), HF_SIZE_OF(index_heads, indexer_n_heads),
     .most = HF_LARGEST_SIZE, .missing = 64, .shapes = true},
    {.theirs = "index_head_dim", .ours = "indexer_head_dim", .flag = HF_OF(has_indexer), HF_SIZE_OF(index_dim, indexer_head_dim),
     .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.theirs = "index_topk", .ours = "indexer_topk", .flag = HF_OF(has_indexer), HF_SIZE_OF(index_topk, indexer_topk),
     .most = INT32_MAX, .missing = 2048, .agrees = true, .read = read_topk},
    {.theirs = "linear_num_key_heads", .ours = "gdn_num_key_heads", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(delta_keys, gdn_num_key_heads), .most = HF_LARGEST_SIZE, .missing = 16, .shapes = true},
    {.theirs = "linear_num_value_heads", .ours = "gdn_num_value_heads", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(delta_values, gdn_num_value_heads), .most = HF_LARGEST_SIZE, .missing = 32, .shapes = true, .read = read_delta_values},
    {.theirs = "linear_key_head_dim", .ours = "gdn_key_head_dim", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(delta_key_dim, gdn_key_head_dim), .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.theirs = "linear_value_head_dim", .ours = "gdn_value_head_dim", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(delta_value_dim, gdn_value_head_dim), .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.theirs = "linear_conv_kernel_dim", .ours = "gdn_conv_kernel_dim", .block = MX_BLOCK_DELTA,
     HF_SIZE_OF(delta_taps, gdn_conv_kernel_dim), .most = HF_LARGEST_SIZE, .missing = 4, .shapes = true},
    {0},
};
// clang-format on

/* hf_compressed.c — the members of config.json of models with compressed attention between streams
 * of several rows: which layers pool windows and which experts a table chooses, sizes, rotations.
 * Source: transformers 5.24, models/deepseek_v4/configuration_deepseek_v4.py. */
#include "hf.h"

#include <math.h>

/* ---- which layers */

/* Kinds of layers there, and how many tokens a row of theirs stands for where nothing else is said;
 * 0 = they have no such rows. */
static const struct {
    const char *type;
    int64_t ratio;
} types[] = {{"sliding_attention", 0},
             {"compressed_sparse_attention", MX_WINDOWS_CHOSEN_RATIO},
             {"heavily_compressed_attention", 128}};
enum { NONE, CHOSEN, ALL };

static int type_of(int64_t ratio) {
    return ratio > MX_WINDOWS_CHOSEN_RATIO ? ALL : ratio ? CHOSEN : NONE;
}

/* By compress_rates; -1 = no such type. */
static int64_t ratio_of(const HfReader *r, const char *type) {
    for (int i = 0; type && i < MX_COUNT(types); i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        const MxJson *said = hf_get(hf_get(r->json, "compress_rates"), type);
        int64_t ratio = types[i].ratio;
        bool fits = !i || !said || (mx_json_int(said, &ratio) && type_of(ratio) == i);
        return fits ? ratio : -1;
    }
    return -1;
}

/* Where nothing is said: two that pool all windows, then these and the others in turns. */
static const char *usual_type(int64_t layer) {
    return types[layer < 2 || layer % 2 == 0 ? ALL : CHOSEN].type;
}

/* layer_types goes before compress_ratios, which may be longer. */
static void read_ratios(HfReader *r, const HfMember *m) {
    const MxJson *names = hf_get(r->json, m->theirs), *list = hf_get(r->json, "compress_ratios");
    int64_t n = r->model->n_layers, all = 0;
    int64_t *ratios = mx_new_n(r->arena, int64_t, n);
    bool is_so = !names || (int64_t)mx_json_length(names) == n;
    for (int64_t i = 0; is_so && i < n; i++) {
        if (names || !list)
            ratios[i] =
                ratio_of(r, names ? mx_json_string(mx_json_at(names, (size_t)i)) : usual_type(i));
        else
            is_so = mx_json_int(mx_json_at(list, (size_t)i), &ratios[i]);
        is_so = is_so && (!ratios[i] || ratios[i] >= MX_WINDOWS_CHOSEN_RATIO);
        if (!is_so || type_of(ratios[i]) != ALL) continue;
        is_so = !all || ratios[i] == all;
        all = ratios[i];
    }
    r->model->ratios = ratios;
    if (!is_so)
        hf_refuse(
            r, names ? m->theirs : "compress_ratios",
            "wanted one of a layer: sliding_attention or 0, compressed_sparse_attention or 4, "
            "heavily_compressed_attention or one number above 4");
}

static void take_ratios(const MxConfig *c, MxHfModel *model) {
    model->ratios = c->layer_ratios;
}

static void write_ratios(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    MxJson *list = mx_json_put_array(out, "layer_types");
    MxJson *rates = mx_json_put_object(out, "compress_rates");
    (void)names;
    for (int i = CHOSEN; i <= ALL; i++) mx_json_set_int(rates, types[i].type, types[i].ratio);
    for (int64_t i = 0; i < model->n_layers; i++) {
        int type = type_of(model->ratios[i]);
        mx_json_push_string(list, types[type].type);
        if (type == ALL) mx_json_set_int(rates, types[ALL].type, model->ratios[i]);
    }
}

/* Whether layers behind the first ones stand in the pairs that MaxText stacks. */
static bool are_pairs(const MxHfModel *model) {
    bool is_so = (model->n_layers - model->n_hash) % 2 == 0;
    for (int64_t i = model->n_hash; is_so && i < model->n_layers; i++)
        is_so = model->ratios[i] == types[(i - model->n_hash) % 2 ? CHOSEN : ALL].ratio;
    return is_so;
}

static void yaml_ratios(const MxHfModel *model, MxText *t) {
    for (int64_t i = 0; i < model->n_layers; i++)
        mx_text_add(t, "%s%lld", i ? ", " : "compress_ratios: [", (long long)model->ratios[i]);
    mx_text_add(t, "]\n");
    if (!are_pairs(model)) mx_text_add(t, "scan_layers: false\n");
}

/* mlp_layer_types goes before num_hash_layers. */
static void read_hash(HfReader *r, const HfMember *m) {
    const MxJson *list = hf_get(r->json, "mlp_layer_types");
    int64_t n = r->model->n_layers, *n_hash = &r->model->n_hash;
    const MxJson *said = hf_get(r->json, m->theirs);
    bool is_so = !list || (int64_t)mx_json_length(list) == n;
    *n_hash = list ? 0 : m->missing;
    if (!list && said && (!mx_json_int(said, n_hash) || *n_hash < 0))
        hf_refuse(r, m->theirs, "wanted a whole number");
    for (int64_t i = 0; list && is_so && i < n; i++) {
        const char *type = mx_json_string(mx_json_at(list, (size_t)i));
        bool hashes = type && !strcmp(type, "hash_moe");
        is_so = type && (hashes ? *n_hash == i : !strcmp(type, "moe"));
        *n_hash += hashes;
    }
    if (*n_hash > n) *n_hash = n;
    if (!is_so) hf_refuse(r, "mlp_layer_types", "wanted hash_moe of the first layers, then moe");
}

/* ---- numbers that are the same in all models of ours */

static void read_one(HfReader *r, const HfMember *m) {
    int64_t found;
    hf_read_size(r, m->theirs, m->most, 1, &found);
    if (found != 1) hf_refuse(r, m->theirs, "wanted 1");
}

static void read_score(HfReader *r, const HfMember *m) {
    const char *score = mx_json_string(hf_get(r->json, m->theirs));
    if (score && strcmp(score, r->names->score) != 0)
        hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

static void write_score(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model;
    mx_json_set_string(out, "scoring_func", names->score);
}

/* What streams are weighed by has an epsilon of its own here, theirs is that of norms. */
static void read_epsilon(HfReader *r, const HfMember *m) {
    double found;
    hf_read_number(r, r->json, m->theirs, m->usual, &found);
    if (found != m->usual) hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
    if (r->model->epsilon != m->usual) hf_lack(r, "rms_norm_eps", hf_get(r->json, "rms_norm_eps"));
}

static void write_epsilon(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names;
    mx_json_set_number(out, "hc_eps", 1e-6);
}

static bool fits_all(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    const struct {
        MxKey key;
        bool is_so;
        const char *wanted;
    } wants[] = {
        {MX_KEY_shared_experts, c->shared_experts == 1, "1"},
        {MX_KEY_n_routing_groups, c->n_routing_groups == -1, "-1"},
        {MX_KEY_enable_mhc_lite, !c->enable_mhc_lite, "false"},
        {MX_KEY_mhc_expansion_rate, c->mhc_expansion_rate > 1, "2 and more"},
        {MX_KEY_normalization_layer_epsilon, c->normalization_layer_epsilon == 1e-6, "1e-06"}};
    bool ok = true;
    for (int i = 0; i < MX_COUNT(wants); i++)
        ok = hf_must_be(c, wants[i].key, wants[i].is_so, wants[i].wanted, err) && ok;
    return ok;
}

/* ---- rotations */

/* The part of a head that turns: a share in transformers 5. */
static void read_turned(HfReader *r, const HfMember *m) {
    const MxJson *share = hf_get(r->json, "partial_rotary_factor");
    double part;
    hf_read_size(r, m->theirs, m->most, r->model->head_dim / m->missing, &r->model->rope_dim);
    if (!share) return;
    hf_read_number(r, r->json, "partial_rotary_factor", 1, &part);
    r->model->rope_dim = (int64_t)((double)r->model->head_dim * part);
}

static void read_plain(HfReader *r, const MxJson *rope, const char *name) {
    const char *kind = hf_rope_kind(rope);
    if (!kind || strcmp(kind, "default") != 0) hf_lack(r, name, rope);
}

/* Of layers that pool: plain or yarn, which leaves amplitudes alone. */
static void read_pooled(HfReader *r, const MxJson *rope, const char *name) {
    const char *kind = hf_rope_kind(rope);
    if (!kind || strcmp(kind, "yarn") != 0) {
        read_plain(r, rope, name);
        return;
    }
    hf_read_yarn(r, rope);
    if (!hf_get(rope, "attention_factor")) r->model->yarn_amplitude = 1;
    if (r->model->yarn_amplitude != 1) hf_lack(r, "attention_factor", rope);
}

/* transformers 5 tells layers apart; in the published spelling all is that of those that pool. */
static void read_rope(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    const char *name;
    const MxJson *all = hf_rope_said(r, &name);
    const MxJson *own = hf_get(all, "main"), *pooled = hf_get(all, "compress");
    bool is_apart = own && pooled;
    model->rope_factor = model->rotated = 1;
    model->are_pairs = true;
    hf_read_theta(r, is_apart ? own : r->json, m->theirs, m->usual, &model->rope_theta);
    hf_read_theta(r, is_apart ? pooled : r->json, is_apart ? m->theirs : "compress_rope_theta",
                  160000, &model->pooled_theta);
    if (is_apart) read_plain(r, own, name);
    read_pooled(r, is_apart ? pooled : all, name);
}

static void write_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_number(out, "rope_theta", (double)model->rope_theta);
    mx_json_set_number(out, "compress_rope_theta", (double)model->pooled_theta);
    if (!model->is_yarn) return;
    MxJson *rope = mx_json_put_object(out, "rope_scaling");
    mx_json_set_string(rope, "type", "yarn");
    hf_write_yarn(model, rope);
}

static void write_nothing(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names, (void)out;
}

static void yaml_rope(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "rope_type: %s\n", model->is_yarn ? "yarn" : "default");
    mx_text_add(t, "rope_max_timescale: %lld\n", (long long)model->rope_theta);
    hf_yaml_yarn(model, t);
}

static bool fits_rope(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    bool is_known = strcmp(c->rope_type, "llama3.1") != 0;
    return hf_must_be(c, MX_KEY_rope_type, is_known, "default or yarn", err);
}

// clang-format off
const HfMember hf_compressed_members[] = {
    {.theirs = "head_dim", .ours = "head_dim", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(head_dim, head_dim),
     .most = HF_LARGEST_SIZE, .missing = 512, .shapes = true},
    {.theirs = "q_lora_rank", .ours = "q_lora_rank", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(q_rank, q_lora_rank),
     .most = HF_LARGEST_SIZE, .missing = 1024, .shapes = true},
    {.theirs = "o_groups", .ours = "o_groups", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(o_groups, o_groups),
     .most = HF_LARGEST_SIZE, .missing = 8, .shapes = true},
    {.theirs = "o_lora_rank", .ours = "o_lora_rank", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(o_rank, o_lora_rank),
     .most = HF_LARGEST_SIZE, .missing = 1024, .shapes = true},
    {.theirs = "qk_rope_head_dim", .ours = "qk_rope_head_dim", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(rope_dim, qk_rope_head_dim), .most = HF_LARGEST_SIZE, .missing = 8, .agrees = true, .read = read_turned},
    {.theirs = "index_n_heads", .ours = "indexer_n_heads", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(index_heads, indexer_n_heads), .most = HF_LARGEST_SIZE, .missing = 64, .shapes = true},
    {.theirs = "index_head_dim", .ours = "indexer_head_dim", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(index_dim, indexer_head_dim), .most = HF_LARGEST_SIZE, .missing = 128, .shapes = true},
    {.theirs = "index_topk", .ours = "indexer_topk", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(index_topk, indexer_topk),
     .most = INT32_MAX, .missing = 512, .agrees = true},
    {.theirs = "num_hash_layers", .ours = "first_num_hash_layers", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(n_hash, first_num_hash_layers), .missing = 3, .shapes = true, .read = read_hash},
    {.theirs = "layer_types", .block = MX_BLOCK_COMPRESSED,
     .read = read_ratios, .take = take_ratios, .write = write_ratios, .yaml = yaml_ratios},
    {.theirs = "hc_mult", .ours = "mhc_expansion_rate", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(n_streams, mhc_expansion_rate), .most = HF_LARGEST_SIZE, .missing = 4, .shapes = true},
    {.theirs = "hc_sinkhorn_iters", .ours = "sinkhorn_iterations", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(stream_turns, sinkhorn_iterations), .most = INT32_MAX, .missing = 20, .agrees = true},
    {.theirs = "hc_eps", .block = MX_BLOCK_COMPRESSED, .usual = 1e-6, .read = read_epsilon, .write = write_epsilon},
    {.theirs = "num_key_value_heads", .block = MX_BLOCK_COMPRESSED, .most = HF_LARGEST_SIZE, .read = read_one},
    {.theirs = "n_shared_experts", .block = MX_BLOCK_COMPRESSED, .most = HF_LARGEST_SIZE, .read = read_one},
    {.theirs = "scoring_func", .block = MX_BLOCK_COMPRESSED, .read = read_score, .write = write_score},
    {.block = MX_BLOCK_COMPRESSED, .fits = fits_all},
    {.theirs = "rope_theta", .block = MX_BLOCK_COMPRESSED, HF_SIZE_OF(rope_theta, rope_max_timescale), .usual = 10000,
     .agrees = true, .read = read_rope, .write = write_rope, .yaml = yaml_rope, .fits = fits_rope},
    {.what = "compress_rope_theta", .ours = "compressed_rope_max_timescale", .block = MX_BLOCK_COMPRESSED,
     HF_SIZE_OF(pooled_theta, compressed_rope_max_timescale), .agrees = true, .write = write_nothing},
    {0},
};
// clang-format on

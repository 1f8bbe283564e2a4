/* hf_own.c — the members of config.json of models in which some layers have special properties:
 * heads of another width, keys that are also values, keys and values of an earlier layer, rotations
 * by kind of layer, an input beside the stream. Source: transformers 5.23,
 * models/gemma4/configuration_gemma4.py, modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>

static void write_nothing(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names, (void)out;
}

static void take_nothing(const MxConfig *c, MxHfModel *model) {
    (void)c, (void)model;
}

static void read_foreign(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs)) hf_refuse(r, m->theirs, "not available here");
}

/* ---- which layers */

/* The first layer that sees all ends a cycle, and where layers end within one, the last does, too:
 * transformers makes it so. */
static void read_cycle(HfReader *r, const HfMember *m) {
    const MxJson *types = hf_get(r->json, "layer_types");
    int64_t n = (int64_t)mx_json_length(types), cycle = r->names->default_cycle;
    for (int64_t i = n - 1; i >= 0; i--) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        if (type && !strcmp(type, "full_attention")) cycle = i + 1;
    }
    (void)m;
    r->model->cycle = cycle;
    r->model->last_ends_cycle = r->model->n_layers % cycle != 0;
}

static void take_last(const MxConfig *c, MxHfModel *model) {
    bool is_odd = model->n_layers % c->inhomogeneous_layer_cycle_interval != 0;
    model->last_ends_cycle = c->last_layer_sees_all && is_odd;
}

static void yaml_last(const MxHfModel *model, MxText *out) {
    if (model->last_ends_cycle) mx_text_add(out, "last_layer_sees_all: true\n");
}

/* The last layer sees all, or transformers makes it do so. */
static bool check_last(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                       MxError *err) {
    MxLayers layers = hf_model_layers(model);
    return mx_layer_spec(&layers, layers.n - 1)->sees == MX_SEES_ALL_BEFORE ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "base_num_decoder_layers: of %s the last layer sees all; found %d layers, of "
                   "which it does not",
                   names->architecture, layers.n);
}

/* Where layer_types is missing as well. */
static void read_last(HfReader *r, const HfMember *m) {
    MxLayers layers = hf_model_layers(r->model);
    (void)m;
    if (mx_layer_spec(&layers, layers.n - 1)->sees != MX_SEES_ALL_BEFORE)
        hf_lack(r, "num_hidden_layers", hf_get(r->json, "num_hidden_layers"));
}

static void write_types(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    MxLayers layers = hf_model_layers(model);
    MxJson *types = mx_json_put_array(out, "layer_types");
    (void)names;
    for (int i = 0; i < layers.n; i++)
        mx_json_push_string(types, mx_layer_spec(&layers, i)->sees == MX_SEES_WINDOW
                                       ? "sliding_attention"
                                       : "full_attention");
}

static void read_takers(HfReader *r, const HfMember *m) {
    int64_t most = r->model->n_layers - 1;
    if (hf_flag(r, m->theirs)) hf_read_size(r, m->theirs, most, 0, &r->model->n_takers);
}

/* ---- heads */

static bool is_own(const MxLayers *layers, int layer) {
    return mx_layer_spec(layers, layer)->has_own_heads;
}

/* What transformers 5 tells of single layers: the same of all that have heads of their own, and
 * nothing of others. NULL = it does not. */
static const MxJson *read_of_layers(HfReader *r) {
    const MxJson *all = hf_get(r->json, "per_layer_config"), *first = NULL;
    MxLayers layers = hf_model_layers(r->model);
    for (int i = 0; i < layers.n; i++) {
        const MxJson *one = hf_get(all, mx_arena_printf(r->arena, "%d", i));
        bool is_first = is_own(&layers, i) && !first;
        if (is_first) first = one;
        const char *found = one ? mx_json_dump(r->arena, one, false) : "nothing";
        const char *wanted =
            is_own(&layers, i) && first ? mx_json_dump(r->arena, first, false) : "nothing";
        if (all && strcmp(found, wanted) != 0)
            hf_refuse(r, "per_layer_config",
                      mx_arena_printf(r->arena, "layer %d: found %s, wanted %s", i, found, wanted));
    }
    return first;
}

static void read_own_heads(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    MxJson *whole = r->json, *of_layers = (MxJson *)(intptr_t)read_of_layers(r);
    bool is_new = mx_json_get(whole, "per_layer_config") != NULL; /* null = nothing is their own */
    int64_t heads = model->n_kv_heads, width = model->head_dim;
    model->shares_kv = hf_flag(r, "attention_k_eq_v");
    model->own_kv_heads = heads;
    if (is_new) r->json = of_layers ? of_layers : mx_json_object(r->arena);
    const char *count = is_new ? "num_key_value_heads" : "num_global_key_value_heads";
    hf_read_size(r, is_new ? "head_dim" : m->theirs, m->most, is_new ? width : 512,
                 &model->own_head_dim);
    if (is_new || model->shares_kv)
        hf_read_size(r, count, HF_LARGEST_SIZE, heads, &model->own_kv_heads);
    r->json = whole;
    if (model->own_head_dim % 2)
        hf_refuse(r, m->theirs,
                  mx_arena_printf(r->arena, "found %lld, wanted an even number",
                                  (long long)model->own_head_dim));
}

static void take_own_heads(const MxConfig *c, MxHfModel *model) {
    model->own_head_dim = c->global_head_dim ? c->global_head_dim : c->head_dim;
    model->own_kv_heads = c->global_num_kv_heads ? c->global_num_kv_heads : c->num_kv_heads;
    model->shares_kv = c->share_kv_projections;
}

static void write_own_heads(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "global_head_dim", model->own_head_dim);
    mx_json_set_bool(out, "attention_k_eq_v", model->shares_kv);
    if (model->shares_kv) mx_json_set_int(out, "num_global_key_value_heads", model->own_kv_heads);
}

/* Without shared keys theirs have as many heads everywhere. */
static bool check_own_heads(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                            MxError *err) {
    return model->shares_kv || model->own_kv_heads == model->n_kv_heads ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "global_num_kv_heads: %s has heads of its own only where keys are values "
                   "(share_kv_projections); found %lld, wanted %lld",
                   names->architecture, (long long)model->own_kv_heads,
                   (long long)model->n_kv_heads);
}

static bool fits_values(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_v_norm_with_scale, !c->v_norm_with_scale, "false", err);
}

static void yaml_values(const MxHfModel *model, MxText *t) {
    (void)model;
    mx_text_add(t, "v_norm_with_scale: false\n");
}

/* ---- rotations */

/* A theta, a whole number of ours, of layers of one kind. */
static void read_theta(HfReader *r, const MxJson *rope, double usual, int64_t *out) {
    double theta;
    hf_read_number(r, rope, "rope_theta", usual, &theta);
    *out = (int64_t)theta;
    if (theta != floor(theta) || theta > INT32_MAX)
        hf_lack(r, "rope_theta", hf_get(rope, "rope_theta"));
}

/* Of layers of one kind: pairs beyond the share stand still. */
static void read_turns(HfReader *r, const MxJson *rope, double usual, double *share) {
    const char *type = mx_json_string(hf_get(rope, "rope_type"));
    double factor;
    bool is_part = !rope || (type && !strcmp(type, "proportional"));
    hf_read_number(r, rope, "factor", 1, &factor);
    *share = 1;
    if (is_part) hf_read_number(r, rope, "partial_rotary_factor", usual, share);
    if ((!is_part && (!type || strcmp(type, "default"))) || factor != 1 || *share > 1)
        hf_lack(r, "rope_parameters", rope);
}

static void read_rope(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    const MxJson *all = hf_get(r->json, m->theirs);
    const MxJson *own = hf_get(all, "full_attention"), *others = hf_get(all, "sliding_attention");
    double share;
    model->rotated = model->rope_factor = 1;
    if (all && (!own || !others)) hf_lack(r, m->theirs, all);
    read_theta(r, own, own ? 10000 : 1000000, &model->rope_theta);
    read_theta(r, others, 10000, &model->local_theta);
    read_turns(r, own, own ? 1 : 0.25, &model->own_rotated);
    read_turns(r, others, 1, &share);
    if (share != 1) hf_lack(r, m->theirs, others);
}

static void take_rope(const MxConfig *c, MxHfModel *model) {
    int64_t global = c->global_rope_max_timescale, local = c->local_rope_max_timescale;
    model->rope_theta = global > 0 ? global : c->rope_max_timescale;
    model->local_theta = local > 0 ? local : c->rope_max_timescale;
    model->own_rotated = c->global_rope_proportion;
}

static void write_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    MxJson *rope = mx_json_put_object(out, "rope_parameters");
    MxJson *own = mx_json_put_object(rope, "full_attention");
    MxJson *others = mx_json_put_object(rope, "sliding_attention");
    (void)names;
    mx_json_set_string(own, "rope_type", "proportional");
    mx_json_set_number(own, "partial_rotary_factor", model->own_rotated);
    mx_json_set_number(own, "rope_theta", (double)model->rope_theta);
    mx_json_set_string(others, "rope_type", "default");
    mx_json_set_number(others, "rope_theta", (double)model->local_theta);
}

static void yaml_rope(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "rope_type: default\nrope_max_timescale: %lld\n", (long long)model->rope_theta);
    mx_text_add(t, "global_rope_max_timescale: %lld\n", (long long)model->rope_theta);
    mx_text_add(t, "local_rope_max_timescale: %lld\n", (long long)model->local_theta);
    mx_text_add(t, "global_rope_proportion: %.17g\nlocal_rope_proportion: 1\n", model->own_rotated);
}

static bool fits_rope(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    const struct {
        MxKey key;
        bool is_so;
    } wants[] = {{MX_KEY_local_rope_proportion, c->local_rope_proportion == 1},
                 {MX_KEY_rope_linear_scaling_factor, c->rope_linear_scaling_factor == 1},
                 {MX_KEY_rope_min_timescale, c->rope_min_timescale == 1}};
    bool ok = true;
    for (int i = 0; i < MX_COUNT(wants); i++)
        ok = hf_must_be(c, wants[i].key, wants[i].is_so, "1", err) && ok;
    return ok;
}

static void yaml_nothing(const MxHfModel *model, MxText *t) {
    (void)model, (void)t;
}

/* ---- inputs of layers */

static void write_no_inputs(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names;
    mx_json_set_int(out, "hidden_size_per_layer_input", 0);
}

/* 0 = there are none; then there is no table either. */
static void read_inputs(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    int64_t width = 256;
    bool is_none = hf_get(r->json, m->theirs) && !hf_flag(r, m->theirs);
    if (!is_none) hf_read_size(r, m->theirs, m->most, width, &model->input_dim);
    if (!is_none)
        hf_read_size(r, "vocab_size_per_layer_input", HF_LARGEST_SIZE, 262144, &model->input_vocab);
}

static void write_inputs(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "hidden_size_per_layer_input", model->input_dim);
    if (model->input_dim) mx_json_set_int(out, "vocab_size_per_layer_input", model->input_vocab);
}

// clang-format off
const HfMember hf_own_members[] = {
    {.theirs = "num_kv_shared_layers", .ours = "num_kv_shared_layers", .flag = HF_OF(has_inputs),
     HF_SIZE_OF(n_takers, num_kv_shared_layers), .shapes = true, .read = read_takers},
    {.theirs = "use_double_wide_mlp", .ours = "use_double_wide_mlp", .flag = HF_OF(has_inputs),
     HF_FLAG_OF(is_double_wide, use_double_wide_mlp), .shapes = true},
    {.theirs = "hidden_size_per_layer_input", .ours = "hidden_size_per_layer_input", .flag = HF_OF(has_inputs),
     HF_SIZE_OF(input_dim, hidden_size_per_layer_input), .most = HF_LARGEST_SIZE, .shapes = true,
     .read = read_inputs, .write = write_inputs},
    {.what = "vocab_size_per_layer_input", .ours = "vocab_size_per_layer_input", .flag = HF_OF(has_inputs),
     HF_SIZE_OF(input_vocab, vocab_size_per_layer_input), .shapes = true},
    {.theirs = "attention_k_eq_v", .flag = HF_OF(has_inputs), .read = read_foreign},
    {.theirs = "enable_moe_block", .flag = HF_OF(has_inputs), .read = read_foreign},
    {.theirs = "num_kv_shared_layers", .flag = HF_OF(like_gemma4), .unless = HF_OF(has_inputs), .read = read_foreign,
     .write = write_no_inputs},
    {.what = "layer_types", .ours = "inhomogeneous_layer_cycle_interval", .flag = HF_OF(has_inputs),
     HF_SIZE_OF(cycle, inhomogeneous_layer_cycle_interval), .read = read_cycle},
    {.what = "layer_types", .ours = "last_layer_sees_all", .flag = HF_OF(has_inputs),
     HF_FLAG_OF(last_ends_cycle, last_layer_sees_all), .shapes = true, .take = take_last, .yaml = yaml_last},
    {.theirs = "layer_types", .flag = HF_OF(like_gemma4), .read = read_last, .write = write_types, .check = check_last},
    {.theirs = "global_head_dim", .ours = "global_head_dim", .flag = HF_OF(like_gemma4),
     HF_SIZE_OF(own_head_dim, global_head_dim), .most = HF_LARGEST_SIZE, .shapes = true,
     .read = read_own_heads, .take = take_own_heads, .write = write_own_heads, .check = check_own_heads},
    {.what = "num_global_key_value_heads", .ours = "global_num_kv_heads", .flag = HF_OF(like_gemma4), .unless = HF_OF(has_inputs),
     HF_SIZE_OF(own_kv_heads, global_num_kv_heads), .shapes = true, .take = take_nothing},
    {.what = "attention_k_eq_v", .ours = "share_kv_projections", .flag = HF_OF(like_gemma4), .unless = HF_OF(has_inputs),
     HF_FLAG_OF(shares_kv, share_kv_projections), .shapes = true, .take = take_nothing},
    {.flag = HF_OF(like_gemma4), .yaml = yaml_values, .fits = fits_values},
    {.theirs = "rope_parameters", .what = "rope_theta of full_attention", .flag = HF_OF(like_gemma4),
     HF_SIZE_OF(rope_theta, rope_max_timescale), .agrees = true, .read = read_rope, .take = take_rope,
     .write = write_rope, .yaml = yaml_rope, .fits = fits_rope},
    {.what = "rope_theta of sliding_attention", .flag = HF_OF(like_gemma4), HF_SIZE_OF(local_theta, rope_max_timescale),
     .agrees = true, .take = take_nothing, .write = write_nothing, .yaml = yaml_nothing},
    {.what = "partial_rotary_factor of full_attention", .flag = HF_OF(like_gemma4),
     HF_NUMBER_OF(own_rotated, global_rope_proportion), .agrees = true, .take = take_nothing},
    {0},
};
// clang-format on

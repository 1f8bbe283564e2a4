/* hf_members.c — the members of config.json, one row each: what of ours it is, what counts where it
 * is missing, and where it is not the plain value of a key, how it is read, made, checked and told.
 * Members that stand for other parameters than the table of names has are errors; members that only
 * change results, and that mxtrain does not do, are collected. Source: transformers 4.51 and 5.23,
 * models/<type>/configuration_<type>.py and modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>

static bool refuse(const HfReader *r, const char *member, const char *what) {
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->path}, "%s: %s", member, what);
}

static void lack(HfReader *r, const char *member, const MxJson *found) {
    const char *text = found ? mx_json_dump(r->arena, found, false) : "nothing";
    mx_text_add(&r->lacks, "%s%s: found %s", r->lacks.len ? "; " : "", member, text);
}

/* NULL if it is missing or null. */
static MxJson *member(const MxJson *object, const char *key) {
    MxJson *value = mx_json_get(object, key);
    return value && strcmp(mx_json_kind(value), "null") ? value : NULL;
}

static bool flag(const HfReader *r, const char *key) {
    return hf_says_something(mx_json_get(r->json, key));
}

/* missing  what counts where it is missing or null, 0 = it must be there */
static void read_size(const HfReader *r, const char *key, int64_t most, int64_t missing,
                      int64_t *out) {
    const MxJson *value = member(r->json, key);
    *out = missing;
    if (!value && missing) return;
    if (value && mx_json_int(value, out) && *out >= 1 && *out <= most) return;
    refuse(r, key,
           mx_arena_printf(r->arena, "found %s, wanted a whole number from 1 to %lld",
                           value ? mx_json_dump(r->arena, value, false) : "nothing",
                           (long long)most));
    *out = 1;
}

static void read_number(const HfReader *r, const MxJson *object, const char *key, double missing,
                        double *out) {
    const MxJson *value = member(object, key);
    *out = missing;
    if (!value || (mx_json_number(value, out) && *out > 0 && isfinite(*out))) return;
    refuse(r, key,
           mx_arena_printf(r->arena, "found %s, wanted a number above 0",
                           mx_json_dump(r->arena, value, false)));
    *out = missing;
}

static int64_t missing_size(const HfReader *r, const HfMember *m) {
    int64_t of_family = *(const int64_t *)((const char *)&r->family->hf + m->of_family);
    return m->of_family && of_family ? of_family : m->missing;
}

void hf_read_member(HfReader *r, const HfMember *m) {
    void *at = (char *)r->model + m->at;
    if (m->read)
        m->read(r, m);
    else if (m->theirs && m->kind == HF_SIZE)
        read_size(r, m->theirs, m->most, missing_size(r, m), at);
    else if (m->theirs && m->kind == HF_NUMBER)
        read_number(r, r->json, m->theirs, m->usual, at);
    else if (m->theirs && m->kind == HF_FLAG)
        *(bool *)at = flag(r, m->theirs);
}

/* ---- sizes */

enum { LARGEST_SIZE = 1 << 24, MOST_LAYERS = 10000 };

/* Two of theirs may be one of MaxText's. */
static void read_layers(HfReader *r, const HfMember *m) {
    int a_name = mx_family_a_name(r->family);
    int64_t n;
    read_size(r, m->theirs, m->most, m->missing, &n);
    if (n % a_name)
        refuse(
            r, m->theirs,
            mx_arena_printf(r->arena, "found %lld, wanted a multiple of %d", (long long)n, a_name));
    r->model->n_layers = n < a_name ? 1 : n / a_name;
}

static void write_layers(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "num_hidden_layers", hf_layers(model));
}

static void read_kv_heads(HfReader *r, const HfMember *m) {
    int64_t usual = r->family->hf.default_kv_heads;
    bool is_there = mx_json_get(r->json, m->theirs) != NULL; /* null = as queries */
    read_size(r, m->theirs, m->most, usual && !is_there ? usual : r->model->n_query_heads,
              &r->model->n_kv_heads);
}

static void read_head_dim(HfReader *r, const HfMember *m) {
    int64_t usual = r->family->hf.default_head_dim;
    int64_t even = r->model->emb_dim / r->model->n_query_heads;
    read_size(r, m->theirs, m->most, usual ? usual : even ? even : 1, &r->model->head_dim);
    if (r->model->head_dim % 2)
        refuse(r, m->theirs,
               mx_arena_printf(r->arena, "found %lld, wanted an even number",
                               (long long)r->model->head_dim));
}

/* ---- what is refused, or collected */

static void read_foreign(HfReader *r, const HfMember *m) {
    if (flag(r, m->theirs)) refuse(r, m->theirs, "not available here");
}

static void read_unused(HfReader *r, const HfMember *m) {
    if (flag(r, m->theirs)) lack(r, m->theirs, mx_json_get(r->json, m->theirs));
}

/* That a key of ours is as all their models have it. */
static bool must_be(const MxConfig *c, MxKey key, bool is_so, const char *wanted, MxError *err) {
    return is_so ||
           mx_config_fail(err, c, key, "Hugging Face's models have no other than %s", wanted);
}

/* ---- activations */

static const char *activation(const MxHfNames *names) {
    return names->activation ? names->activation : "silu";
}

static const char *our_activation(const MxHfNames *names) {
    return names->our_activation ? names->our_activation : "silu";
}

/* hidden_activation goes before hidden_act where a family has it. */
static void read_activation(HfReader *r, const HfMember *m) {
    const MxHfNames *names = &r->family->hf;
    const char *key =
        names->activation && member(r->json, "hidden_activation") ? "hidden_activation" : m->theirs;
    const MxJson *act = member(r->json, key);
    if (act && (!mx_json_string(act) || strcmp(mx_json_string(act), activation(names))))
        lack(r, key, act);
}

static void write_activation(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model;
    mx_json_set_string(out, "hidden_act", activation(names));
    if (names->activation) mx_json_set_string(out, "hidden_activation", names->activation);
}

static void yaml_activation(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "mlp_activations: [%s, linear]\n", our_activation(&hf_family_of(model)->hf));
}

static bool fits_activation(const MxConfig *c, const MxFamily *family, MxError *err) {
    MxStrs act = c->mlp_activations;
    const char *ours = our_activation(&family->hf);
    bool is_so = act.n == 2 && !strcmp(act.item[0], ours) && !strcmp(act.item[1], "linear");
    return is_so || mx_config_fail(err, c, MX_KEY_mlp_activations,
                                   "Hugging Face's models have no other than [%s, linear]", ours);
}

/* ---- tied embeddings, biases, norms of queries and keys */

static void read_tied(HfReader *r, const HfMember *m) {
    bool is_said = member(r->json, m->theirs) != NULL;
    r->model->is_tied = is_said ? flag(r, m->theirs) : r->family->hf.is_tied;
}

static void yaml_tied(const MxHfModel *model, MxText *t) {
    bool scales = hf_family_of(model)->hf.scales_embedding;
    mx_text_add(t, "logits_via_embedding: %s\n", model->is_tied ? "true" : "false");
    if (model->is_tied)
        mx_text_add(t, "normalize_embedding_logits: %s\n", scales ? "true" : "false");
}

static bool fits_tied(const MxConfig *c, const MxFamily *family, MxError *err) {
    bool scales = family->hf.scales_embedding;
    return must_be(c, MX_KEY_normalize_embedding_logits,
                   !c->logits_via_embedding || c->normalize_embedding_logits == scales,
                   scales ? "true with tied logits" : "false with tied logits", err);
}

static void read_bias(HfReader *r, const HfMember *m) {
    MxHfBias bias = r->family->hf.bias;
    bool is_said = flag(r, m->theirs);
    r->model->has_bias = bias == MX_HF_BIAS_ALWAYS || (is_said && bias);
    if (is_said && !bias) refuse(r, m->theirs, "found true, but this family has no biases");
}

static void write_bias(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->bias == MX_HF_BIAS_SAID) mx_json_set_bool(out, "attention_bias", model->has_bias);
}

static bool check_bias(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                       MxError *err) {
    bool always = names->bias == MX_HF_BIAS_ALWAYS;
    return model->has_bias == always || names->bias == MX_HF_BIAS_SAID ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "attention_bias: %s %s biases",
                   names->architecture, model->has_bias ? "has no" : "always has");
}

static void read_qk_norm(HfReader *r, const HfMember *m) {
    (void)m;
    r->model->has_qk_norm = r->family->hf.has_qk_norm;
}

static void take_qk_norm(const MxConfig *c, MxHfModel *model) {
    model->has_qk_norm = c->use_qk_norm || mx_family_find(c->decoder_block)->specs[0].norms_heads;
}

static bool check_qk_norm(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                          MxError *err) {
    return model->has_qk_norm == names->has_qk_norm ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "use_qk_norm: %s %s norms of queries and keys",
                   names->architecture, model->has_qk_norm ? "has no" : "always has");
}

/* ---- windows */

/* Whether all layers slide; if some do, it is a lack. */
static bool slides(HfReader *r, const MxJson *types) {
    int64_t n_sliding = 0, n = (int64_t)mx_json_length(types), first = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        n_sliding += type && !strcmp(type, "sliding_attention");
        if (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention")))
            n_sliding = -n - 1;
    }
    if (!n) { /* layers from max_window_layers on */
        n = r->model->n_layers;
        const MxJson *before = member(r->json, "max_window_layers");
        if (!before || !mx_json_int(before, &first)) first = 28;
        n_sliding = first < n ? n - first : 0;
    }
    const char *key = types ? "layer_types" : "max_window_layers";
    if (n_sliding && n_sliding != n) lack(r, key, mx_json_get(r->json, key));
    return n_sliding == n;
}

/* Whether the layers take turns as the family says; if not, it is a lack. */
static void check_turns(HfReader *r, const MxJson *types) {
    int n = (int)mx_json_length(types);
    MxLayers layers = hf_model_layers(r->model);
    bool is_so = !types || n == layers.n;
    for (int i = 0; is_so && i < n; i++) {
        const char *type = mx_json_string(mx_json_at(types, (size_t)i));
        bool has_window = mx_layer_spec(&layers, i)->sees == MX_SEES_WINDOW;
        is_so = type && !strcmp(type, has_window ? "sliding_attention" : "full_attention");
    }
    if (!is_so) lack(r, "layer_types", types);
}

/* After so many layers one sees all; layer_types goes before it. */
static void read_pattern(HfReader *r, const HfMember *m) {
    int64_t period = r->family->period * mx_family_a_name(r->family), found = period;
    const MxJson *value = member(r->json, m->theirs);
    if (r->family->hf.window != MX_HF_WINDOW_TURNS || !value || member(r->json, "layer_types"))
        return;
    if (!mx_json_int(value, &found) || found != period) lack(r, m->theirs, value);
}

static void read_window(HfReader *r, const HfMember *m) {
    MxHfWindow window = r->family->hf.window;
    bool is_null = mx_json_get(r->json, m->theirs) && !member(r->json, m->theirs);
    const MxJson *types = member(r->json, "layer_types");
    if (window == MX_HF_WINDOW_TURNS) {
        check_turns(r, types);
        read_size(r, m->theirs, m->most, r->family->hf.default_window, &r->model->window);
        return;
    }
    if (window == MX_HF_WINDOW_NEVER || is_null) return;
    if (window == MX_HF_WINDOW_SAID && !flag(r, "use_sliding_window")) return;
    if ((window == MX_HF_WINDOW_SAID || types) && !slides(r, types)) return;
    read_size(r, m->theirs, m->most, r->family->hf.default_window, &r->model->window);
}

static void take_window(const MxConfig *c, MxHfModel *model) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool is_slid = !strcmp(c->attention_type, "local_sliding");
    bool has_window = is_slid || family->hf.window == MX_HF_WINDOW_TURNS;
    model->window = has_window ? c->sliding_window_size : 0;
}

static void write_window(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->window == MX_HF_WINDOW_SAID) {
        mx_json_set_bool(out, "use_sliding_window", model->window > 0);
        mx_json_set_int(out, "max_window_layers", model->window ? 0 : model->n_layers);
    }
    if (model->window)
        mx_json_set_int(out, "sliding_window", model->window);
    else if (names->window)
        mx_json_set_number(out, "sliding_window", NAN); /* null */
}

static void yaml_window(const MxHfModel *model, MxText *t) {
    bool is_slid = model->window && hf_family_of(model)->hf.window != MX_HF_WINDOW_TURNS;
    mx_text_add(t, "attention_type: %s\n", is_slid ? "local_sliding" : "global");
    if (model->window) mx_text_add(t, "sliding_window_size: %lld\n", (long long)model->window);
}

static bool check_window(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                         MxError *err) {
    return !model->window || names->window ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "sliding_window_size: %s has no window",
                   names->architecture);
}

static bool fits_window(const MxConfig *c, const MxFamily *family, MxError *err) {
    (void)family;
    bool is_so =
        !strcmp(c->attention_type, "global") || !strcmp(c->attention_type, "local_sliding");
    return must_be(c, MX_KEY_attention_type, is_so, "global or local_sliding", err);
}

/* ---- norms behind blocks, caps, the scale of queries */

static void yaml_norms(const MxHfModel *model, MxText *t) {
    if (hf_family_of(model)->specs[0].asks_norms_after)
        mx_text_add(t, "use_post_attn_norm: true\nuse_post_ffw_norm: true\n");
}

static bool fits_norms(const MxConfig *c, const MxFamily *family, MxError *err) {
    bool asks = family->specs[0].asks_norms_after;
    bool is_so = must_be(c, MX_KEY_use_post_attn_norm, !asks || c->use_post_attn_norm, "true", err);
    return must_be(c, MX_KEY_use_post_ffw_norm, !asks || c->use_post_ffw_norm, "true", err) &&
           is_so;
}

static void read_cap(HfReader *r, const HfMember *m) {
    double *cap = (double *)((char *)r->model + m->at);
    double usual = *(const double *)((const char *)&r->family->hf + m->of_family);
    bool is_null = mx_json_get(r->json, m->theirs) && !member(r->json, m->theirs);
    if (r->family->hf.has_caps && !is_null) read_number(r, r->json, m->theirs, usual, cap);
}

static void write_caps(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (!names->has_caps) return;
    mx_json_set_number(out, "attn_logit_softcapping", model->attn_cap > 0 ? model->attn_cap : NAN);
    mx_json_set_number(out, "final_logit_softcapping",
                       model->final_cap > 0 ? model->final_cap : NAN);
}

static void write_nothing(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names, (void)out;
}

static void yaml_caps(const MxHfModel *model, MxText *t) {
    if (!hf_family_of(model)->hf.has_caps) return;
    mx_text_add(t, "attn_logits_soft_cap: %.17g\n", model->attn_cap);
    mx_text_add(t, "final_logits_soft_cap: %.17g\n", model->final_cap);
}

static void yaml_nothing(const MxHfModel *model, MxText *t) {
    (void)model, (void)t;
}

static bool fits_attn_cap(const MxConfig *c, const MxFamily *family, MxError *err) {
    return must_be(c, MX_KEY_attn_logits_soft_cap,
                   family->hf.has_caps || c->attn_logits_soft_cap == 0, "0", err);
}

static bool fits_final_cap(const MxConfig *c, const MxFamily *family, MxError *err) {
    return must_be(c, MX_KEY_final_logits_soft_cap,
                   family->hf.has_caps || c->final_logits_soft_cap == 0, "0", err);
}

static void read_query_scalar(HfReader *r, const HfMember *m) {
    double *scalar = &r->model->query_scalar;
    if (r->family->hf.has_query_scalar) read_number(r, r->json, m->theirs, m->usual, scalar);
    if (*scalar == (double)r->model->head_dim) *scalar = 0;
}

/* A family that has no such member has query kernels scaled instead. */
static void take_query_scalar(const MxConfig *c, MxHfModel *model) {
    bool has = mx_family_find(c->decoder_block)->hf.has_query_scalar;
    bool is_other = c->query_pre_attn_scalar != (double)c->head_dim;
    model->query_scalar = has && is_other ? c->query_pre_attn_scalar : 0;
}

static void write_query_scalar(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    double scalar = model->query_scalar > 0 ? model->query_scalar : (double)model->head_dim;
    if (names->has_query_scalar) mx_json_set_number(out, "query_pre_attn_scalar", scalar);
}

static void yaml_query_scalar(const MxHfModel *model, MxText *t) {
    if (model->query_scalar > 0)
        mx_text_add(t, "query_pre_attn_scalar: %.17g\n", model->query_scalar);
}

/* ---- rotations */

static const struct {
    const char *key;
    int value;
} stretch[] = {{"factor", 8},
               {"low_freq_factor", 1},
               {"high_freq_factor", 4},
               {"original_max_position_embeddings", 8192}};

static bool is_stretched(const HfReader *r, const MxJson *rope) {
    for (int i = 0; i < MX_COUNT(stretch); i++) {
        double found;
        read_number(r, rope, stretch[i].key, 0, &found);
        if (found != stretch[i].value) return false;
    }
    return r->family->hf.interleaves; /* as our rope_type llama3.1 does */
}

/* A whole number of ours. missing  what counts where it is missing */
static void read_theta(HfReader *r, const MxJson *object, const char *key, double missing,
                       int64_t *out) {
    double theta;
    read_number(r, object, key, missing, &theta);
    if (theta == floor(theta) && theta <= INT32_MAX)
        *out = (int64_t)theta;
    else
        lack(r, key, member(object, key));
}

/* What transformers 5 says of the layers of one kind, where a family has two, or of all. */
static const MxJson *rope_of(const HfReader *r, const char *layers) {
    const MxJson *all = member(r->json, "rope_parameters");
    return r->family->hf.has_local_rope && member(all, layers) ? member(all, layers) : all;
}

static const char *rope_kind(const MxJson *rope) {
    const MxJson *type =
        member(rope, "rope_type") ? member(rope, "rope_type") : member(rope, "type");
    return type ? mx_json_string(type) : "default";
}

/* Theta, and rope_scaling or, in the spelling of transformers 5, rope_parameters. */
static void read_rope(HfReader *r, const HfMember *m) {
    const MxJson *rope = rope_of(r, "full_attention");
    const char *name = rope ? "rope_parameters" : "rope_scaling";
    if (!rope) rope = member(r->json, name);
    const char *kind = rope_kind(rope);
    double turned = 1, usual = (double)r->family->hf.default_theta;
    const MxJson *base = member(rope, m->theirs) ? rope : r->json;
    const MxJson *part = member(rope, "partial_rotary_factor") ? rope : r->json;
    r->model->rope_factor = 1;
    read_theta(r, base, m->theirs, usual > 0 ? usual : m->usual, &r->model->rope_theta);
    read_number(r, part, "partial_rotary_factor", 1, &turned);
    if (turned != 1) lack(r, "partial_rotary_factor", member(part, "partial_rotary_factor"));
    bool is_default = kind && !strcmp(kind, "default"), is_linear = kind && !strcmp(kind, "linear");
    if (is_linear && !r->family->hf.interleaves)
        read_number(r, rope, "factor", 1, &r->model->rope_factor);
    else if (kind && !strcmp(kind, "llama3") && is_stretched(r, rope))
        r->model->rope_is_stretched = true;
    else if (!is_default || member(rope, "full_attention"))
        lack(r, name, rope);
}

/* Of layers with a window, which are rotated plainly. */
static void read_local_rope(HfReader *r, const HfMember *m) {
    const MxJson *rope = rope_of(r, "sliding_attention");
    bool is_new = member(rope, "rope_theta") && rope != rope_of(r, "full_attention");
    if (!r->family->hf.has_local_rope) return;
    read_theta(r, is_new ? rope : r->json, is_new ? "rope_theta" : m->theirs, m->usual,
               &r->model->local_theta);
    const char *kind = is_new ? rope_kind(rope) : "default";
    if (!kind || strcmp(kind, "default")) lack(r, "rope_parameters", rope);
}

static void take_local_rope(const MxConfig *c, MxHfModel *model) {
    if (!mx_family_find(c->decoder_block)->hf.has_local_rope) return;
    model->local_theta =
        c->local_rope_max_timescale > 0 ? c->local_rope_max_timescale : c->rope_max_timescale;
}

static void write_local_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->has_local_rope)
        mx_json_set_number(out, "rope_local_base_freq", (double)model->local_theta);
}

static void yaml_local_rope(const MxHfModel *model, MxText *t) {
    if (model->local_theta)
        mx_text_add(t, "local_rope_max_timescale: %lld\n", (long long)model->local_theta);
}

/* In the spelling of transformers 4, which 5 reads as well. */
static void write_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_number(out, "rope_theta", (double)model->rope_theta);
    if (!model->rope_is_stretched && model->rope_factor == 1) return;
    MxJson *rope = mx_json_put_object(out, "rope_scaling");
    mx_json_set_string(rope, "rope_type", model->rope_is_stretched ? "llama3" : "linear");
    if (!model->rope_is_stretched) mx_json_set_number(rope, "factor", model->rope_factor);
    for (int i = 0; model->rope_is_stretched && i < MX_COUNT(stretch); i++)
        if (stretch[i].value == 8192)
            mx_json_set_int(rope, stretch[i].key, stretch[i].value);
        else
            mx_json_set_number(rope, stretch[i].key, stretch[i].value);
}

static void yaml_rope(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "rope_max_timescale: %lld\n", (long long)model->rope_theta);
    mx_text_add(t, "rope_type: %s\n", model->heads.interleaves ? "llama3.1" : "default");
}

static bool is_llama_rope(const MxConfig *c) {
    return !strcmp(c->rope_type, "llama3.1");
}

static void take_rope_factor(const MxConfig *c, MxHfModel *model) {
    model->rope_factor = is_llama_rope(c) ? 1 : c->rope_linear_scaling_factor;
}

static void take_stretch(const MxConfig *c, MxHfModel *model) {
    model->rope_is_stretched = is_llama_rope(c) && c->rope_use_scale;
}

static void yaml_stretch(const MxHfModel *model, MxText *t) {
    if (model->heads.interleaves)
        mx_text_add(t, "rope_use_scale: %s\n", model->rope_is_stretched ? "true" : "false");
}

static bool fits_rope(const MxConfig *c, const MxFamily *family, MxError *err) {
    (void)family;
    bool is_so =
        must_be(c, MX_KEY_rope_type, strcmp(c->rope_type, "yarn") != 0, "default or llama3.1", err);
    return must_be(c, MX_KEY_rope_min_timescale, c->rope_min_timescale == 1, "1", err) && is_so;
}

/* ---- the table */

#define OF(field) offsetof(MxHfNames, field)
#define SIZE(field, config)                                                                        \
    .kind = HF_SIZE, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)
#define NUMBER(field, config)                                                                      \
    .kind = HF_NUMBER, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)
#define FLAG(field, config)                                                                        \
    .kind = HF_FLAG, .at = offsetof(MxHfModel, field), .from = offsetof(MxConfig, config)

// clang-format off
const HfMember hf_members[] = {
    {.theirs = "hidden_size", .ours = "base_emb_dim", SIZE(emb_dim, emb_dim),
     .most = LARGEST_SIZE, .shapes = true},
    {.theirs = "intermediate_size", .ours = "base_mlp_dim", SIZE(mlp_dim, mlp_dim),
     .most = LARGEST_SIZE, .shapes = true},
    {.theirs = "num_hidden_layers", .ours = "base_num_decoder_layers", SIZE(n_layers, num_decoder_layers),
     .most = MOST_LAYERS, .shapes = true, .read = read_layers, .write = write_layers},
    {.theirs = "num_attention_heads", .ours = "base_num_query_heads", SIZE(n_query_heads, num_query_heads),
     .most = LARGEST_SIZE, .of_family = OF(default_heads), .shapes = true},
    {.theirs = "num_key_value_heads", .ours = "base_num_kv_heads", SIZE(n_kv_heads, num_kv_heads),
     .most = LARGEST_SIZE, .shapes = true, .read = read_kv_heads},
    {.theirs = "head_dim", .ours = "head_dim", SIZE(head_dim, head_dim),
     .most = LARGEST_SIZE, .shapes = true, .read = read_head_dim},
    {.theirs = "vocab_size", .ours = "vocab_size", SIZE(vocab_size, vocab_size),
     .most = LARGEST_SIZE, .of_family = OF(default_vocab), .shapes = true},
    {.theirs = "max_position_embeddings", SIZE(length, max_target_length),
     .most = INT32_MAX, .missing = 2048},
    {.theirs = "hidden_act",
     .read = read_activation, .write = write_activation, .yaml = yaml_activation, .fits = fits_activation},
    {.theirs = "rms_norm_eps", .ours = "normalization_layer_epsilon",
     NUMBER(epsilon, normalization_layer_epsilon), .usual = 1e-6, .agrees = true},
    {.theirs = "tie_word_embeddings", .ours = "logits_via_embedding", FLAG(is_tied, logits_via_embedding),
     .shapes = true, .agrees = true, .read = read_tied, .yaml = yaml_tied, .fits = fits_tied},
    {.theirs = "attention_bias", .ours = "attention_bias", FLAG(has_bias, attention_bias),
     .shapes = true, .read = read_bias, .write = write_bias, .check = check_bias},
    {.ours = "use_qk_norm", FLAG(has_qk_norm, use_qk_norm),
     .shapes = true, .read = read_qk_norm, .take = take_qk_norm, .check = check_qk_norm},
    {.theirs = "sliding_window", SIZE(window, sliding_window_size), .most = INT32_MAX, .agrees = true,
     .read = read_window, .take = take_window, .write = write_window, .yaml = yaml_window,
     .check = check_window, .fits = fits_window},
    {.theirs = "rope_theta", SIZE(rope_theta, rope_max_timescale), .usual = 10000, .agrees = true,
     .read = read_rope, .write = write_rope, .yaml = yaml_rope, .fits = fits_rope},
    {.what = "linear factor of rope_scaling", .ours = "rope_linear_scaling_factor",
     NUMBER(rope_factor, rope_linear_scaling_factor), .agrees = true, .take = take_rope_factor},
    {.what = "llama3 in rope_scaling", FLAG(rope_is_stretched, rope_use_scale),
     .agrees = true, .take = take_stretch, .yaml = yaml_stretch},
    {.yaml = yaml_norms, .fits = fits_norms},
    {.theirs = "query_pre_attn_scalar", NUMBER(query_scalar, query_pre_attn_scalar),
     .usual = 256, .agrees = true, .read = read_query_scalar, .take = take_query_scalar,
     .write = write_query_scalar, .yaml = yaml_query_scalar},
    {.theirs = "attn_logit_softcapping", NUMBER(attn_cap, attn_logits_soft_cap),
     .of_family = OF(default_attn_cap), .agrees = true, .read = read_cap, .write = write_caps, .yaml = yaml_caps,
     .fits = fits_attn_cap},
    {.theirs = "final_logit_softcapping", NUMBER(final_cap, final_logits_soft_cap),
     .of_family = OF(default_final_cap), .agrees = true, .read = read_cap, .write = write_nothing, .yaml = yaml_nothing,
     .fits = fits_final_cap},
    {.theirs = "rope_local_base_freq", SIZE(local_theta, local_rope_max_timescale), .usual = 10000,
     .agrees = true, .read = read_local_rope, .take = take_local_rope, .write = write_local_rope,
     .yaml = yaml_local_rope},
    {.theirs = "sliding_window_pattern", .read = read_pattern},
    {.theirs = "use_bidirectional_attention", .read = read_unused},
    {.theirs = "attention_dropout",   .read = read_unused},
    {.theirs = "mlp_bias",            .read = read_foreign},
    {.theirs = "quantization_config", .read = read_foreign},
    {.theirs = "num_experts",         .read = read_foreign},
    {.theirs = "num_local_experts",   .read = read_foreign},
};
// clang-format on
const int hf_n_members = MX_COUNT(hf_members);

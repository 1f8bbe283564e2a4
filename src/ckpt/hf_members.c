/* hf_members.c — the members of config.json, one row each: the corresponding key, the value if the
 * member is missing, and, if it is not the plain value of a key, how it is read, made, checked and
 * reported. Members that imply other parameters than those in the table of names are errors;
 * members that only change results in ways that mxtrain does not support are collected. Source:
 * transformers 4.51 and 5.23, models/<type>/configuration_<type>.py and modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>

bool hf_refuse(const HfReader *r, const char *member, const char *what) {
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->path}, "%s: %s", member, what);
}

void hf_lack(HfReader *r, const char *member, const MxJson *found) {
    const char *text = found ? mx_json_dump(r->arena, found, false) : "nothing";
    mx_text_add(&r->lacks, "%s%s: found %s", r->lacks.len ? "; " : "", member, text);
}

/* NULL if it is missing or null. */
MxJson *hf_get(const MxJson *object, const char *key) {
    MxJson *value = mx_json_get(object, key);
    return value && strcmp(mx_json_kind(value), "null") ? value : NULL;
}

bool hf_flag(const HfReader *r, const char *key) {
    return hf_says_something(mx_json_get(r->json, key));
}

/* missing  what counts where it is missing or null, 0 = it must be there */
void hf_read_size(const HfReader *r, const char *key, int64_t most, int64_t missing, int64_t *out) {
    const MxJson *value = hf_get(r->json, key);
    *out = missing;
    if (!value && missing) return;
    if (value && mx_json_int(value, out) && *out >= 1 && *out <= most) return;
    hf_refuse(r, key,
              mx_arena_printf(r->arena, "found %s, wanted a whole number from 1 to %lld",
                              value ? mx_json_dump(r->arena, value, false) : "nothing",
                              (long long)most));
    *out = 1;
}

void hf_read_number(const HfReader *r, const MxJson *object, const char *key, double missing,
                    double *out) {
    const MxJson *value = hf_get(object, key);
    *out = missing;
    if (!value && !isnan(missing)) return;
    if (value && mx_json_number(value, out) && *out > 0 && isfinite(*out)) return;
    hf_refuse(r, key,
              mx_arena_printf(r->arena, "found %s, wanted a number above 0",
                              value ? mx_json_dump(r->arena, value, false) : "nothing"));
    *out = isnan(missing) ? 1 : missing;
}

int64_t hf_missing(const HfReader *r, const HfMember *m) {
    const void *of_family = (const char *)r->names + m->of_family;
    return m->of_family && *(const int64_t *)of_family ? *(const int64_t *)of_family : m->missing;
}

static double missing_number(const HfReader *r, const HfMember *m) {
    const void *of_family = (const char *)r->names + m->of_family;
    return m->of_family && *(const double *)of_family > 0 ? *(const double *)of_family : m->usual;
}

void hf_read_member(HfReader *r, const HfMember *m) {
    void *at = (char *)r->model + m->at;
    if (m->read)
        m->read(r, m);
    else if (m->theirs && m->kind == HF_SIZE)
        hf_read_size(r, m->theirs, m->most, hf_missing(r, m), at);
    else if (m->theirs && m->kind == HF_NUMBER)
        hf_read_number(r, r->json, m->theirs, missing_number(r, m), at);
    else if (m->theirs && m->kind == HF_FLAG)
        *(bool *)at = hf_flag(r, m->theirs);
}

/* ---- sizes */

enum { MOST_LAYERS = 10000 };

/* Where all layers have experts of a width of their own, none is as wide. */
static bool has_plain_width(const MxHfNames *names) {
    return hf_has_block(names, MX_BLOCK_GLU) ||
           (names->experts != MX_HF_EXPERTS_TURNED && !names->like_deepseek4);
}

static void read_mlp(HfReader *r, const HfMember *m) {
    hf_read_size(r, m->theirs, m->most, has_plain_width(r->names) ? 0 : 1, &r->model->mlp_dim);
}

static void write_mlp(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (has_plain_width(names)) mx_json_set_int(out, "intermediate_size", model->mlp_dim);
}

/* Two of theirs may be one of MaxText's. */
static void read_layers(HfReader *r, const HfMember *m) {
    int a_name = mx_family_a_name(r->family);
    int64_t n;
    hf_read_size(r, m->theirs, m->most, m->missing, &n);
    if (n % a_name)
        hf_refuse(
            r, m->theirs,
            mx_arena_printf(r->arena, "found %lld, wanted a multiple of %d", (long long)n, a_name));
    r->model->n_layers = n < a_name ? 1 : n / a_name;
}

static void write_layers(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "num_hidden_layers", hf_layers(model));
}

static void read_kv_heads(HfReader *r, const HfMember *m) {
    int64_t usual = r->names->default_kv_heads;
    bool is_there = mx_json_get(r->json, m->theirs) != NULL; /* null = as queries */
    hf_read_size(r, m->theirs, m->most, usual && !is_there ? usual : r->model->n_query_heads,
                 &r->model->n_kv_heads);
}

static void read_head_dim(HfReader *r, const HfMember *m) {
    int64_t usual = r->names->default_head_dim;
    int64_t even = r->model->emb_dim / r->model->n_query_heads;
    hf_read_size(r, m->theirs, m->most, usual ? usual : even ? even : 1, &r->model->head_dim);
    if (r->model->head_dim % 2)
        hf_refuse(r, m->theirs,
                  mx_arena_printf(r->arena, "found %lld, wanted an even number",
                                  (long long)r->model->head_dim));
}

/* ---- what is refused, or collected */

static void read_foreign(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs)) hf_refuse(r, m->theirs, "not available here");
}

static void read_unused(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs)) hf_lack(r, m->theirs, mx_json_get(r->json, m->theirs));
}

/* Tokens of pictures alone may see those behind them. */
static void read_ahead(HfReader *r, const HfMember *m) {
    const char *who = mx_json_string(mx_json_get(r->json, m->theirs));
    if (!who || strcmp(who, "vision")) read_unused(r, m);
}

/* Numbers of fewer bits, with scales beside them. */
static void read_quantization(HfReader *r, const HfMember *m) {
    const MxJson *value = hf_get(r->json, m->theirs);
    const MxJson *block = value ? hf_get(value, "weight_block_size") : NULL;
    if (!hf_flag(r, m->theirs)) return;
    if (!hf_few_bits(value, r->model))
        hf_refuse(r, m->theirs,
                  mx_arena_printf(r->arena,
                                  "not available yet: %s, or weights in bfloat16, float16 or "
                                  "float32 (transformers' dequantize() makes such)",
                                  hf_few_bits_told(r->arena, value)));
    for (size_t i = 0; block && i < 2; i++)
        if (!mx_json_int(mx_json_at(block, i), &r->model->scale_block[i]) ||
            r->model->scale_block[i] < 1)
            hf_refuse(r, HF_FEW_BITS ".weight_block_size", "wanted two whole numbers above 0");
}

/* That a key of ours is as all their models have it. */
bool hf_must_be(const MxConfig *c, MxKey key, bool is_so, const char *wanted, MxError *err) {
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
    const MxHfNames *names = r->names;
    const char *key =
        names->activation && hf_get(r->json, "hidden_activation") ? "hidden_activation" : m->theirs;
    const MxJson *act = hf_get(r->json, key);
    if (act && (!mx_json_string(act) || strcmp(mx_json_string(act), activation(names))))
        hf_lack(r, key, act);
}

static void write_activation(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model;
    mx_json_set_string(out, "hidden_act", activation(names));
    if (names->activation) mx_json_set_string(out, "hidden_activation", names->activation);
}

static void yaml_activation(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "mlp_activations: [%s, linear]\n", our_activation(model->names));
}

static bool fits_activation(const MxConfig *c, const MxHfNames *names, MxError *err) {
    MxStrs act = c->mlp_activations;
    const char *ours = our_activation(names);
    bool is_so = act.n == 2 && !strcmp(act.item[0], ours) && !strcmp(act.item[1], "linear");
    return is_so || mx_config_fail(err, c, MX_KEY_mlp_activations,
                                   "Hugging Face's models have no other than [%s, linear]", ours);
}

/* ---- tied embeddings, biases, norms of queries and keys */

static void read_tied(HfReader *r, const HfMember *m) {
    bool is_said = hf_get(r->json, m->theirs) != NULL;
    r->model->is_tied = is_said ? hf_flag(r, m->theirs) : r->names->is_tied;
}

static void yaml_tied(const MxHfModel *model, MxText *t) {
    bool scales = model->names->scales_embedding;
    mx_text_add(t, "logits_via_embedding: %s\n", model->is_tied ? "true" : "false");
    if (model->is_tied)
        mx_text_add(t, "normalize_embedding_logits: %s\n", scales ? "true" : "false");
}

static bool fits_tied(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool scales = names->scales_embedding;
    bool is_so = hf_must_be(c, MX_KEY_use_untrainable_positional_embedding,
                            !c->use_untrainable_positional_embedding, "false", err);
    return hf_must_be(c, MX_KEY_normalize_embedding_logits,
                      !c->logits_via_embedding || c->normalize_embedding_logits == scales,
                      scales ? "true with tied logits" : "false with tied logits", err) &&
           is_so;
}

/* transformers has classes of each, and the number of labels by their names. */
static void read_score(HfReader *r, const HfMember *m) {
    const char *name = mx_json_string(mx_json_at(mx_json_get(r->json, m->theirs), 0));
    r->model->has_score = name && mx_text_has_suffix(name, HF_CLASSIFIES);
}

static void write_score(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    if (!model->has_score) return;
    mx_json_set_string(mx_json_put_object(out, "id2label"), "0", "LABEL_0");
    mx_json_set_int(mx_json_put_object(out, "label2id"), "LABEL_0", 0);
}

static void yaml_score(const MxHfModel *model, MxText *t) {
    if (model->has_score) mx_text_add(t, "score_head: true\n");
}

static void read_bias(HfReader *r, const HfMember *m) {
    MxHfBias bias = r->names->bias;
    bool is_there = hf_get(r->json, m->theirs) != NULL;
    bool is_said = is_there ? hf_flag(r, m->theirs) : r->names->is_biased;
    r->model->has_bias = bias == MX_HF_BIAS_ALWAYS || (is_said && bias);
    if (is_said && !bias) hf_refuse(r, m->theirs, "found true, but this family has no biases");
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
    r->model->has_qk_norm = r->names->has_qk_norm;
}

/* Norms without a scale are no parameters, so that config.json says whether they are there. */
static void read_bare_norm(HfReader *r, const HfMember *m) {
    r->model->norms_turned = !hf_get(r->json, m->theirs) || hf_flag(r, m->theirs);
}

static void write_bare_norm(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_bool(out, "use_qk_norm", model->norms_turned);
}

static void take_qk_norm(const MxConfig *c, MxHfModel *model) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool always = false;
    for (int i = 0; i < family->n_specs; i++) always |= family->specs[i].norms_heads;
    model->has_qk_norm = c->use_qk_norm || always;
}

static bool check_qk_norm(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                          MxError *err) {
    return model->has_qk_norm == names->has_qk_norm ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "use_qk_norm: %s %s norms of queries and keys",
                   names->architecture, model->has_qk_norm ? "has no" : "always has");
}

static bool fits_qk_norm(const MxConfig *c, const MxHfNames *names, MxError *err) {
    return hf_must_be(c, MX_KEY_qk_norm_with_scale, c->qk_norm_with_scale || !names->has_qk_norm,
                      "true", err);
}

/* ---- norms behind blocks */

static void yaml_norms(const MxHfModel *model, MxText *t) {
    if (hf_family_of(model)->specs[0].asks_norms_after)
        mx_text_add(t, "use_post_attn_norm: true\nuse_post_ffw_norm: true\n");
}

static bool fits_norms(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    bool asks = mx_family_find(c->decoder_block)->specs[0].asks_norms_after;
    bool is_so =
        hf_must_be(c, MX_KEY_use_post_attn_norm, !asks || c->use_post_attn_norm, "true", err);
    return hf_must_be(c, MX_KEY_use_post_ffw_norm, !asks || c->use_post_ffw_norm, "true", err) &&
           is_so;
}

/* ---- the table */

// clang-format off
const HfMember hf_members[] = {
    {.theirs = "hidden_size", .ours = "base_emb_dim", HF_SIZE_OF(emb_dim, emb_dim),
     .most = HF_LARGEST_SIZE, .shapes = true},
    {.theirs = "intermediate_size", .ours = "base_mlp_dim", .unless = HF_OF(has_own_mlp), HF_SIZE_OF(mlp_dim, mlp_dim),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_mlp, .write = write_mlp},
    {.theirs = "intermediate_size_mlp", .ours = "base_mlp_dim", .flag = HF_OF(has_own_mlp), HF_SIZE_OF(mlp_dim, mlp_dim),
     .most = HF_LARGEST_SIZE, .missing = 16384, .shapes = true},
    {.theirs = "num_hidden_layers", .ours = "base_num_decoder_layers", HF_SIZE_OF(n_layers, num_decoder_layers),
     .most = MOST_LAYERS, .shapes = true, .read = read_layers, .write = write_layers},
    {.theirs = "num_attention_heads", .ours = "base_num_query_heads", HF_SIZE_OF(n_query_heads, num_query_heads),
     .most = HF_LARGEST_SIZE, .of_family = HF_OF(default_heads), .shapes = true},
    {.theirs = "num_key_value_heads", .ours = "base_num_kv_heads", HF_SIZE_OF(n_kv_heads, num_kv_heads),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_kv_heads},
    {.theirs = "head_dim", .ours = "head_dim", .block = MX_BLOCK_ATTENTION, HF_SIZE_OF(head_dim, head_dim),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_head_dim},
    {.theirs = "vocab_size", .ours = "vocab_size", HF_SIZE_OF(vocab_size, vocab_size),
     .most = HF_LARGEST_SIZE, .of_family = HF_OF(default_vocab), .shapes = true},
    {.theirs = "max_position_embeddings", HF_SIZE_OF(length, max_target_length),
     .most = INT32_MAX, .missing = 2048},
    {.theirs = "hidden_act",
     .read = read_activation, .write = write_activation, .yaml = yaml_activation, .fits = fits_activation},
    {.theirs = "rms_norm_eps", .ours = "normalization_layer_epsilon",
     HF_NUMBER_OF(epsilon, normalization_layer_epsilon), .usual = 1e-6, .of_family = HF_OF(default_epsilon),
     .agrees = true},
    {.theirs = "tie_word_embeddings", .ours = "logits_via_embedding", HF_FLAG_OF(is_tied, logits_via_embedding),
     .shapes = true, .agrees = true, .read = read_tied, .yaml = yaml_tied, .fits = fits_tied},
    {.theirs = "architectures", .ours = "score_head", HF_FLAG_OF(has_score, score_head),
     .read = read_score, .write = write_score, .yaml = yaml_score},
    {.theirs = "attention_bias", .ours = "attention_bias", HF_FLAG_OF(has_bias, attention_bias),
     .shapes = true, .read = read_bias, .write = write_bias, .check = check_bias},
    {.ours = "use_qk_norm", .unless = HF_OF(norms_turned), HF_FLAG_OF(has_qk_norm, use_qk_norm),
     .shapes = true, .read = read_qk_norm, .take = take_qk_norm, .check = check_qk_norm,
     .fits = fits_qk_norm},
    {.theirs = "use_qk_norm", .ours = "use_qk_norm", .flag = HF_OF(norms_turned), HF_FLAG_OF(norms_turned, use_qk_norm),
     .agrees = true, .read = read_bare_norm, .write = write_bare_norm},
    {.yaml = yaml_norms, .fits = fits_norms},
    {.theirs = "use_bidirectional_attention", .read = read_ahead},
    {.theirs = "attention_dropout",   .read = read_unused},
    {.theirs = "mlp_bias",            .read = read_foreign},
    {.theirs = HF_FEW_BITS, .read = read_quantization},
    {0},
};
// clang-format on

/* hf_config.c — config.json and our keys. Members that stand for other parameters than the table
 * has are errors; members that only change results, and that mxtrain does not do, are collected.
 * Source: transformers 4.51 and 5.23, models/<type>/configuration_<type>.py and
 * modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>
#include <stdlib.h>

typedef struct Reader {
    MxArena *arena;
    const char *path;
    MxJson *json;
    const MxFamily *family;
    MxHfModel *model;
    MxText lacks;
    MxError *err;
} Reader;

static bool refuse(const Reader *r, const char *member, const char *what) {
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = r->path}, "%s: %s", member, what);
}

static void lack(Reader *r, const char *member, const MxJson *found) {
    const char *text = found ? mx_json_dump(r->arena, found, false) : "nothing";
    mx_text_add(&r->lacks, "%s%s: found %s", r->lacks.len ? "; " : "", member, text);
}

/* NULL if it is missing or null. */
static MxJson *member(const MxJson *object, const char *key) {
    MxJson *value = mx_json_get(object, key);
    return value && strcmp(mx_json_kind(value), "null") ? value : NULL;
}

bool hf_says_something(const MxJson *value) {
    bool flag;
    double number;
    if (!value) return false;
    if (mx_json_bool(value, &flag)) return flag;
    if (mx_json_number(value, &number)) return number != 0;
    return mx_json_length(value) || mx_json_string(value);
}

static bool flag(const Reader *r, const char *key) {
    return hf_says_something(mx_json_get(r->json, key));
}

/* ---- sizes */

enum { LARGEST_SIZE = 1 << 24, MOST_LAYERS = 10000 };

/* missing  what counts where it is missing or null, 0 = it must be there */
static void read_size(const Reader *r, const char *key, int64_t most, int64_t missing,
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

static void read_sizes(Reader *r) {
    MxHfModel *m = r->model;
    const MxHfNames *f = &r->family->hf;
    read_size(r, "hidden_size", LARGEST_SIZE, 0, &m->emb_dim);
    read_size(r, "num_attention_heads", LARGEST_SIZE, 0, &m->n_query_heads);
    read_size(r, "intermediate_size", LARGEST_SIZE, 0, &m->mlp_dim);
    read_size(r, "num_hidden_layers", MOST_LAYERS, 0, &m->n_layers);
    read_size(r, "vocab_size", LARGEST_SIZE, 0, &m->vocab_size);
    read_size(r, "max_position_embeddings", INT32_MAX, 2048, &m->length);
    bool is_there = mx_json_get(r->json, "num_key_value_heads") != NULL; /* null = as queries */
    read_size(r, "num_key_value_heads", LARGEST_SIZE,
              f->default_kv_heads && !is_there ? f->default_kv_heads : m->n_query_heads,
              &m->n_kv_heads);
    int64_t even = m->emb_dim / m->n_query_heads;
    read_size(r, "head_dim", LARGEST_SIZE,
              f->default_head_dim ? f->default_head_dim
              : even              ? even
                                  : 1,
              &m->head_dim);
    if (m->head_dim % 2)
        refuse(
            r, "head_dim",
            mx_arena_printf(r->arena, "found %lld, wanted an even number", (long long)m->head_dim));
}

static void read_number(const Reader *r, const MxJson *object, const char *key, double missing,
                        double *out) {
    const MxJson *value = member(object, key);
    *out = missing;
    if (!value || (mx_json_number(value, out) && *out > 0 && isfinite(*out))) return;
    refuse(r, key,
           mx_arena_printf(r->arena, "found %s, wanted a number above 0",
                           mx_json_dump(r->arena, value, false)));
    *out = missing;
}

/* ---- rotations */

static bool is_stretched(const Reader *r, const MxJson *rope) {
    const struct {
        const char *key;
        double value;
    } wanted[] = {{"factor", 8},
                  {"low_freq_factor", 1},
                  {"high_freq_factor", 4},
                  {"original_max_position_embeddings", 8192}};
    for (int i = 0; i < MX_COUNT(wanted); i++) {
        double found;
        read_number(r, rope, wanted[i].key, 0, &found);
        if (found != wanted[i].value) return false;
    }
    return r->family->hf.interleaves; /* as our rope_type llama3.1 does */
}

static void read_rope(Reader *r) {
    MxHfModel *m = r->model;
    const MxJson *rope = member(r->json, "rope_parameters");
    const char *name = rope ? "rope_parameters" : "rope_scaling";
    if (!rope) rope = member(r->json, name);
    const MxJson *type =
        member(rope, "rope_type") ? member(rope, "rope_type") : member(rope, "type");
    const char *kind = type ? mx_json_string(type) : "default";
    double theta, turned = 1;
    const MxJson *base = member(rope, "rope_theta") ? rope : r->json;
    const MxJson *part = member(rope, "partial_rotary_factor") ? rope : r->json;
    read_number(r, base, "rope_theta", 10000, &theta);
    m->rope_factor = 1;
    if (theta == floor(theta) && theta <= INT32_MAX)
        m->rope_theta = (int64_t)theta;
    else
        lack(r, "rope_theta", member(base, "rope_theta"));
    read_number(r, part, "partial_rotary_factor", 1, &turned);
    if (turned != 1) lack(r, "partial_rotary_factor", member(part, "partial_rotary_factor"));
    bool is_default = kind && !strcmp(kind, "default"), is_linear = kind && !strcmp(kind, "linear");
    if (is_linear && !r->family->hf.interleaves)
        read_number(r, rope, "factor", 1, &m->rope_factor);
    else if (kind && !strcmp(kind, "llama3") && is_stretched(r, rope))
        m->rope_is_stretched = true;
    else if (!is_default || member(rope, "full_attention"))
        lack(r, name, rope);
}

/* ---- windows */

/* Whether all layers slide; if some do, it is a lack. */
static bool slides(Reader *r, const MxJson *types) {
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

static void read_window(Reader *r) {
    const char *key = "sliding_window", *use = "use_sliding_window";
    MxHfWindow slide = r->family->hf.window;
    bool is_null = mx_json_get(r->json, key) && !member(r->json, key);
    const MxJson *types = member(r->json, "layer_types");
    if (slide == MX_HF_WINDOW_NEVER || is_null) return;
    if (slide == MX_HF_WINDOW_SAID && !flag(r, use)) return;
    if ((slide == MX_HF_WINDOW_SAID || types) && !slides(r, types)) return;
    read_size(r, key, INT32_MAX, r->family->hf.default_window, &r->model->window);
}

/* ---- all of it */

/* Members that stand for other parameters, or for other ways to hold them. */
static const char *const foreign[] = {"mlp_bias", "quantization_config", "num_experts",
                                      "num_local_experts"};

static void read_rest(Reader *r) {
    MxHfModel *m = r->model;
    const MxJson *act = member(r->json, "hidden_act");
    read_number(r, r->json, "rms_norm_eps", 1e-6, &m->epsilon);
    m->is_tied = flag(r, "tie_word_embeddings");
    bool says_bias = flag(r, "attention_bias");
    m->has_qk_norm = r->family->hf.has_qk_norm;
    m->has_bias = r->family->hf.bias == MX_HF_BIAS_ALWAYS || (says_bias && r->family->hf.bias);
    if (says_bias && !r->family->hf.bias)
        refuse(r, "attention_bias", "found true, but this family has no biases");
    for (int i = 0; i < MX_COUNT(foreign); i++)
        if (flag(r, foreign[i])) refuse(r, foreign[i], "not available here");
    if (act && (!mx_json_string(act) || strcmp(mx_json_string(act), "silu")))
        lack(r, "hidden_act", act);
    if (flag(r, "attention_dropout"))
        lack(r, "attention_dropout", mx_json_get(r->json, "attention_dropout"));
}

static bool is_bf16(const MxJson *json) {
    const MxJson *dtype =
        member(json, "dtype") ? member(json, "dtype") : member(json, "torch_dtype");
    const char *name = mx_json_string(dtype);
    return name && !strcmp(name, mx_dtype_name(MX_BF16));
}

bool mx_hf_read_config(MxArena *arena, const char *path, MxHfModel *out, MxError *err) {
    enum { LARGEST = 16 << 20 };
    Reader r = {.arena = arena, .path = path, .model = out, .err = err};
    MxBytes bytes;
    int failures = err->count;
    *out = (MxHfModel){0};
    if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
    r.json = mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
    if (!r.json) return false;
    const char *type = mx_json_string(mx_json_get(r.json, "model_type"));
    r.family = type ? hf_family(type) : NULL;
    if (!r.family)
        return refuse(&r, "model_type",
                      mx_arena_printf(arena, "found \"%s\", not available yet: %s work now",
                                      type ? type : "", hf_families(arena)));
    mx_text_init(&r.lacks, arena);
    out->decoder_block = r.family->decoder_block;
    out->config = r.json;
    read_sizes(&r);
    read_rope(&r);
    read_window(&r);
    read_rest(&r);
    out->heads = (MxHeadForm){
        .width = out->head_dim,
        .query_scale = r.family->specs[0].scales_query ? 1 : 1 / sqrt((double)out->head_dim),
        .interleaves = r.family->hf.interleaves};
    out->dtype = is_bf16(r.json) ? MX_BF16 : MX_F32;
    out->lacks = r.lacks.data;
    return err->count == failures;
}

const char *mx_hf_yaml(MxArena *arena, const MxHfModel *m) {
    MxText t;
    mx_text_init(&t, arena);
    mx_text_add(&t, "# The model of a config.json of Hugging Face; written by mxconvert.\n");
    mx_text_add(&t, "decoder_block: %s\n", m->decoder_block);
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"base_emb_dim", m->emb_dim},
                 {"base_num_query_heads", m->n_query_heads},
                 {"base_num_kv_heads", m->n_kv_heads},
                 {"base_mlp_dim", m->mlp_dim},
                 {"base_num_decoder_layers", m->n_layers},
                 {"head_dim", m->head_dim},
                 {"vocab_size", m->vocab_size},
                 {"rope_max_timescale", m->rope_theta}};
    for (int i = 0; i < MX_COUNT(sizes); i++)
        mx_text_add(&t, "%s: %lld\n", sizes[i].key, (long long)sizes[i].value);
    const struct {
        const char *key;
        bool value, acts;
    } flags[] = {{"logits_via_embedding", m->is_tied, true},
                 {"normalize_embedding_logits", false, m->is_tied},
                 {"attention_bias", m->has_bias, true},
                 {"use_qk_norm", m->has_qk_norm, true},
                 {"rope_use_scale", m->rope_is_stretched, m->heads.interleaves}};
    for (int i = 0; i < MX_COUNT(flags); i++)
        if (flags[i].acts)
            mx_text_add(&t, "%s: %s\n", flags[i].key, flags[i].value ? "true" : "false");
    mx_text_add(&t, "mlp_activations: [silu, linear]\n");
    mx_text_add(&t, "normalization_layer_epsilon: %s\n", mx_number_text(arena, m->epsilon));
    mx_text_add(&t, "rope_type: %s\n", m->heads.interleaves ? "llama3.1" : "default");
    mx_text_add(&t, "rope_linear_scaling_factor: %s\n", mx_number_text(arena, m->rope_factor));
    mx_text_add(&t, "attention_type: %s\n", m->window ? "local_sliding" : "global");
    if (m->window) mx_text_add(&t, "sliding_window_size: %lld\n", (long long)m->window);
    return t.data;
}

/* ---- out again */

bool hf_check(const MxHfModel *m, MxWhere where, MxError *err) {
    const MxFamily *family = hf_family_of(m);
    MxArena arena = {.name = "hf"};
    int failures = err->count;
    if (!family)
        mx_fail(err, MX_EXIT_BAD_INPUT, where,
                "decoder_block: \"%s\" is not available for Hugging Face yet: %s work now",
                m->decoder_block, hf_families(&arena));
    else {
        if (m->has_bias != (family->hf.bias == MX_HF_BIAS_ALWAYS) &&
            family->hf.bias != MX_HF_BIAS_SAID)
            mx_fail(err, MX_EXIT_BAD_INPUT, where, "attention_bias: %s %s biases",
                    family->hf.architecture, m->has_bias ? "has no" : "always has");
        if (m->has_qk_norm != family->hf.has_qk_norm)
            mx_fail(err, MX_EXIT_BAD_INPUT, where, "use_qk_norm: %s %s norms of queries and keys",
                    family->hf.architecture, m->has_qk_norm ? "has no" : "always has");
        if (m->window && !family->hf.window)
            mx_fail(err, MX_EXIT_BAD_INPUT, where, "sliding_window_size: %s has no window",
                    family->hf.architecture);
    }
    mx_arena_release(&arena);
    return err->count == failures;
}

MxHfModel mx_hf_of_config(const MxConfig *c, MxHeadForm heads) {
    bool is_llama_rope = !strcmp(c->rope_type, "llama3.1");
    bool slides = !strcmp(c->attention_type, "local_sliding");
    return (MxHfModel){
        .decoder_block = c->decoder_block,
        .emb_dim = c->emb_dim,
        .n_query_heads = c->num_query_heads,
        .n_kv_heads = c->num_kv_heads,
        .head_dim = c->head_dim,
        .mlp_dim = c->mlp_dim,
        .n_layers = c->num_decoder_layers,
        .vocab_size = c->vocab_size,
        .length = c->max_target_length,
        .window = slides ? c->sliding_window_size : 0,
        .is_tied = c->logits_via_embedding,
        .has_bias = c->attention_bias,
        .has_qk_norm = c->use_qk_norm,
        .epsilon = c->normalization_layer_epsilon,
        .rope_theta = c->rope_max_timescale,
        .rope_factor = is_llama_rope ? 1 : c->rope_linear_scaling_factor,
        .rope_is_stretched = is_llama_rope && c->rope_use_scale,
        .heads = heads,
    };
}

bool mx_hf_agree(const MxHfModel *theirs, const MxHfModel *ours, MxWhere where, MxError *err) {
    const struct {
        const char *what;
        double theirs, ours;
    } numbers[] = {
        {"rms_norm_eps", theirs->epsilon, ours->epsilon},
        {"rope_theta", (double)theirs->rope_theta, (double)ours->rope_theta},
        {"linear factor of rope_scaling", theirs->rope_factor, ours->rope_factor},
        {"llama3 in rope_scaling", theirs->rope_is_stretched, ours->rope_is_stretched},
        {"sliding_window", (double)theirs->window, (double)ours->window},
        {"tie_word_embeddings", theirs->is_tied, ours->is_tied},
    };
    bool ok = !strcmp(theirs->decoder_block, ours->decoder_block) ||
              mx_fail(err, MX_EXIT_BAD_INPUT, where, "model_type: found that of %s, the run has %s",
                      theirs->decoder_block, ours->decoder_block);
    for (int i = 0; i < MX_COUNT(numbers); i++)
        if (numbers[i].theirs != numbers[i].ours)
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: found %.15g, the run has %.15g",
                         numbers[i].what, numbers[i].theirs, numbers[i].ours);
    return ok;
}

/* In the spelling of transformers 4, which 5 reads as well. */
static MxJson *make_config(MxArena *arena, const MxHfModel *m) {
    const MxFamily *family = hf_family_of(m);
    MxJson *c = mx_json_object(arena);
    mx_json_push_string(mx_json_put_array(c, "architectures"), family->hf.architecture);
    mx_json_set_string(c, "model_type", family->hf.model_type);
    mx_json_set_int(c, "hidden_size", m->emb_dim);
    mx_json_set_int(c, "intermediate_size", m->mlp_dim);
    mx_json_set_int(c, "num_hidden_layers", m->n_layers);
    mx_json_set_int(c, "num_attention_heads", m->n_query_heads);
    mx_json_set_int(c, "num_key_value_heads", m->n_kv_heads);
    mx_json_set_int(c, "head_dim", m->head_dim);
    mx_json_set_int(c, "vocab_size", m->vocab_size);
    mx_json_set_int(c, "max_position_embeddings", m->length);
    mx_json_set_string(c, "hidden_act", "silu");
    mx_json_set_number(c, "rms_norm_eps", m->epsilon);
    mx_json_set_bool(c, "tie_word_embeddings", m->is_tied);
    if (family->hf.bias == MX_HF_BIAS_SAID) mx_json_set_bool(c, "attention_bias", m->has_bias);
    if (family->hf.window == MX_HF_WINDOW_SAID) {
        mx_json_set_bool(c, "use_sliding_window", m->window > 0);
        mx_json_set_int(c, "max_window_layers", m->window ? 0 : m->n_layers);
    }
    if (m->window)
        mx_json_set_int(c, "sliding_window", m->window);
    else if (family->hf.window)
        mx_json_set_number(c, "sliding_window", NAN); /* null */
    mx_json_set_number(c, "rope_theta", (double)m->rope_theta);
    if (m->rope_is_stretched || m->rope_factor != 1) {
        MxJson *rope = mx_json_put_object(c, "rope_scaling");
        mx_json_set_string(rope, "rope_type", m->rope_is_stretched ? "llama3" : "linear");
        mx_json_set_number(rope, "factor", m->rope_is_stretched ? 8 : m->rope_factor);
        if (m->rope_is_stretched) {
            mx_json_set_number(rope, "low_freq_factor", 1);
            mx_json_set_number(rope, "high_freq_factor", 4);
            mx_json_set_int(rope, "original_max_position_embeddings", 8192);
        }
    }
    return c;
}

/* Made from a config of ours, which says nothing of tokens. */
static MxJson *make_all(MxArena *arena, const MxHfExport *how) {
    MxJson *config = make_config(arena, &how->model), *id;
    const char *key;
    for (size_t i = 0; mx_json_member(how->special_tokens, i, &key, &id); i++)
        mx_json_set(config, key, id);
    return config;
}

const char *hf_config_text(MxArena *arena, const MxHfExport *how) {
    MxDtype dtype = how->dtype;
    MxJson *config = how->model.config ? how->model.config : make_all(arena, how);
    bool is_new = mx_json_get(config, "dtype") != NULL;
    mx_json_set_string(config, is_new ? "dtype" : "torch_dtype", mx_dtype_name(dtype));
    return mx_json_dump(arena, config, true);
}

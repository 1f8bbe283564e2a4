/* hf_rope.c — the members of config.json that say how queries and keys are rotated. Source:
 * transformers 4.51 and 5.23, modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>

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
        hf_read_number(r, rope, stretch[i].key, 0, &found);
        if (found != stretch[i].value) return false;
    }
    return r->family->hf.interleaves; /* as our rope_type llama3.1 does */
}

/* A whole number of ours. missing  what counts where it is missing */
static void read_theta(HfReader *r, const MxJson *object, const char *key, double missing,
                       int64_t *out) {
    double theta;
    hf_read_number(r, object, key, missing, &theta);
    if (theta == floor(theta) && theta <= INT32_MAX)
        *out = (int64_t)theta;
    else
        hf_lack(r, key, hf_get(object, key));
}

/* What transformers 5 says of the layers of one kind, where a family has two, or of all. */
static const MxJson *rope_of(const HfReader *r, const char *layers) {
    const MxJson *all = hf_get(r->json, "rope_parameters");
    return r->family->hf.has_local_rope && hf_get(all, layers) ? hf_get(all, layers) : all;
}

static const char *rope_kind(const MxJson *rope) {
    const MxJson *type =
        hf_get(rope, "rope_type") ? hf_get(rope, "rope_type") : hf_get(rope, "type");
    return type ? mx_json_string(type) : "default";
}

/* Theta, and rope_scaling or, in the spelling of transformers 5, rope_parameters. */
static void read_rope(HfReader *r, const HfMember *m) {
    const MxJson *rope = rope_of(r, "full_attention");
    const char *name = rope ? "rope_parameters" : "rope_scaling";
    if (!rope) rope = hf_get(r->json, name);
    const char *kind = rope_kind(rope);
    double turned = 1, usual = (double)r->family->hf.default_theta;
    const MxJson *base = hf_get(rope, m->theirs) ? rope : r->json;
    const MxJson *part = hf_get(rope, "partial_rotary_factor") ? rope : r->json;
    r->model->rope_factor = 1;
    read_theta(r, base, m->theirs, usual > 0 ? usual : m->usual, &r->model->rope_theta);
    hf_read_number(r, part, "partial_rotary_factor", 1, &turned);
    if (turned != 1) hf_lack(r, "partial_rotary_factor", hf_get(part, "partial_rotary_factor"));
    bool is_default = kind && !strcmp(kind, "default"), is_linear = kind && !strcmp(kind, "linear");
    if (is_linear && !r->family->hf.interleaves)
        hf_read_number(r, rope, "factor", 1, &r->model->rope_factor);
    else if (kind && !strcmp(kind, "llama3") && is_stretched(r, rope))
        r->model->rope_is_stretched = true;
    else if (!is_default || hf_get(rope, "full_attention"))
        hf_lack(r, name, rope);
}

/* Of layers with a window, which are rotated plainly. */
static void read_local_rope(HfReader *r, const HfMember *m) {
    const MxJson *rope = rope_of(r, "sliding_attention");
    bool is_new = hf_get(rope, "rope_theta") && rope != rope_of(r, "full_attention");
    if (!r->family->hf.has_local_rope) return;
    read_theta(r, is_new ? rope : r->json, is_new ? "rope_theta" : m->theirs, m->usual,
               &r->model->local_theta);
    const char *kind = is_new ? rope_kind(rope) : "default";
    if (!kind || strcmp(kind, "default")) hf_lack(r, "rope_parameters", rope);
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
    bool is_so = hf_must_be(c, MX_KEY_rope_type, strcmp(c->rope_type, "yarn") != 0,
                            "default or llama3.1", err);
    return hf_must_be(c, MX_KEY_rope_min_timescale, c->rope_min_timescale == 1, "1", err) && is_so;
}

// clang-format off
const HfMember hf_rope_members[] = {
    {.theirs = "rope_theta", HF_SIZE_OF(rope_theta, rope_max_timescale), .usual = 10000, .agrees = true,
     .read = read_rope, .write = write_rope, .yaml = yaml_rope, .fits = fits_rope},
    {.what = "linear factor of rope_scaling", .ours = "rope_linear_scaling_factor",
     HF_NUMBER_OF(rope_factor, rope_linear_scaling_factor), .agrees = true, .take = take_rope_factor},
    {.what = "llama3 in rope_scaling", HF_FLAG_OF(rope_is_stretched, rope_use_scale),
     .agrees = true, .take = take_stretch, .yaml = yaml_stretch},
    {.theirs = "rope_local_base_freq", HF_SIZE_OF(local_theta, local_rope_max_timescale), .usual = 10000,
     .agrees = true, .read = read_local_rope, .take = take_local_rope, .write = write_local_rope,
     .yaml = yaml_local_rope},
    {0},
};
// clang-format on

/* hf_rope.c — the members of config.json about the rotation of queries and keys. Source:
 * transformers 4.51 and 5.23, modeling_rope_utils.py. */
#include "hf.h"

#include <math.h>

static bool is_llama_rope(const MxConfig *c) {
    return !strcmp(c->rope_type, "llama3.1");
}

/* As Llama 3.1 has it. */
static const double usual_factor = 8, usual_low = 1, usual_high = 4;
static const int usual_length = 8192;

static void read_stretch(HfReader *r, const MxJson *rope) {
    MxHfModel *model = r->model;
    double length;
    hf_read_number(r, rope, "factor", usual_factor, &model->stretch_factor);
    hf_read_number(r, rope, "low_freq_factor", usual_low, &model->stretch_low);
    hf_read_number(r, rope, "high_freq_factor", usual_high, &model->stretch_high);
    hf_read_number(r, rope, "original_max_position_embeddings", usual_length, &length);
    model->stretch_length = (int64_t)length;
    model->is_stretched = true;
}

static void write_stretch(const MxHfModel *model, MxJson *rope) {
    mx_json_set_number(rope, "factor", model->stretch_factor);
    mx_json_set_number(rope, "low_freq_factor", model->stretch_low);
    mx_json_set_number(rope, "high_freq_factor", model->stretch_high);
    mx_json_set_int(rope, "original_max_position_embeddings", model->stretch_length);
}

void hf_read_theta(HfReader *r, const MxJson *object, const char *key, double missing,
                   int64_t *out) {
    double theta;
    hf_read_number(r, object, key, missing, &theta);
    if (theta == floor(theta) && theta <= INT32_MAX)
        *out = (int64_t)theta;
    else
        hf_lack(r, key, hf_get(object, key));
}

static MxJson *usual_rope(const HfReader *r) {
    const char *text = r->names->default_rope;
    return text ? mx_json_parse(r->arena, text, strlen(text), "default_rope", r->err) : NULL;
}

const MxJson *hf_rope_said(const HfReader *r, const char **name) {
    static const char *const spellings[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < MX_COUNT(spellings); i++) {
        *name = spellings[i];
        if (hf_flag(r, *name)) return hf_get(r->json, *name);
    }
    return usual_rope(r);
}

/* Of layers that see all, where those with a window are told apart: members of rope_scaling go
 * before those of full_attention. */
static const MxJson *rope_of_full(const HfReader *r) {
    const MxJson *own = hf_get(hf_get(r->json, "rope_parameters"), "full_attention");
    const MxJson *scaling = hf_get(r->json, "rope_scaling"), *from[] = {own, scaling};
    MxJson *both = mx_json_object(r->arena), *value;
    const char *key;
    for (int k = 0; k < MX_COUNT(from); k++)
        for (size_t i = 0; mx_json_member(from[k], i, &key, &value); i++)
            mx_json_set(both, key, value);
    return both;
}

const char *hf_rope_kind(const MxJson *rope) {
    const MxJson *type =
        hf_get(rope, "rope_type") ? hf_get(rope, "rope_type") : hf_get(rope, "type");
    return type ? mx_json_string(type) : "default";
}

/* ---- yarn */

/* Their factor on cos and sin, or on scores. */
static double yarn_growth(double factor, double scale) {
    return factor > 1 ? 0.1 * scale * log(factor) + 1 : 1;
}

void hf_read_yarn(HfReader *r, const MxJson *rope) {
    MxHfModel *model = r->model;
    double length, scale = 0, all = 0, amplitude;
    const MxJson *truncates = hf_get(rope, "truncate");
    hf_read_number(r, rope, "original_max_position_embeddings", (double)model->length, &length);
    double longer =
        mx_json_get(rope, "factor") ? (double)model->length / length : NAN; /* of null */
    hf_read_number(r, rope, "factor", longer, &model->yarn_factor);
    hf_read_number(r, rope, "beta_fast", 32, &model->yarn_fast);
    hf_read_number(r, rope, "beta_slow", 1, &model->yarn_slow);
    if (hf_says_something(mx_json_get(rope, "mscale")))
        hf_read_number(r, rope, "mscale", 0, &scale);
    if (hf_says_something(mx_json_get(rope, "mscale_all_dim")))
        hf_read_number(r, rope, "mscale_all_dim", 0, &all);
    amplitude = yarn_growth(model->yarn_factor, 1);
    if (scale > 0 && all > 0)
        amplitude = yarn_growth(model->yarn_factor, scale) / yarn_growth(model->yarn_factor, all);
    hf_read_number(r, rope, "attention_factor", amplitude, &model->yarn_amplitude);
    model->is_yarn = true;
    model->yarn_length = (int64_t)length;
    model->yarn_truncates = !truncates || hf_says_something(truncates);
    model->yarn_scale = hf_has_block(r->names, MX_BLOCK_MLA) ? all : 0;
    if (model->yarn_scale > 0 && model->length <= model->yarn_length)
        hf_lack(r, "mscale_all_dim", hf_get(rope, "mscale_all_dim"));
}

void hf_write_yarn(const MxHfModel *model, MxJson *rope) {
    mx_json_set_number(rope, "factor", model->yarn_factor);
    mx_json_set_int(rope, "original_max_position_embeddings", model->yarn_length);
    mx_json_set_number(rope, "beta_fast", model->yarn_fast);
    mx_json_set_number(rope, "beta_slow", model->yarn_slow);
    mx_json_set_bool(rope, "truncate", model->yarn_truncates);
    mx_json_set_number(rope, "attention_factor", model->yarn_amplitude);
    if (model->yarn_scale > 0) mx_json_set_number(rope, "mscale_all_dim", model->yarn_scale);
}

void hf_yaml_yarn(const MxHfModel *model, MxText *t) {
    if (model->kv_rank) mx_text_add(t, "mscale: %.17g\n", model->yarn_scale);
    if (!model->is_yarn) return;
    mx_text_add(t, "rope_factor: %.17g\n", model->yarn_factor);
    mx_text_add(t, "original_max_position_embeddings: %lld\n", (long long)model->yarn_length);
    mx_text_add(t, "max_position_embeddings: %lld\n", (long long)model->length);
    mx_text_add(t, "beta_fast: %.17g\nbeta_slow: %.17g\n", model->yarn_fast, model->yarn_slow);
    mx_text_add(t, "rope_truncate: %s\n", model->yarn_truncates ? "true" : "false");
    mx_text_add(t, "rope_interleave: %s\n", model->are_pairs ? "true" : "false");
    mx_text_add(t, "rope_attention_scaling: false\n");
    if (model->yarn_amplitude != 1)
        mx_text_add(t, "rope_attention_factor: %.17g\n", model->yarn_amplitude);
}

static void take_yarn(const MxConfig *c, MxHfModel *model) {
    model->is_yarn = !strcmp(c->rope_type, "yarn");
    bool is_longer = c->max_position_embeddings > c->original_max_position_embeddings;
    bool is_latent = !strcmp(c->attention_type, "mla");
    model->yarn_scale = is_latent && is_longer ? c->mscale : 0;
    if (is_latent || model->is_yarn) model->length = c->max_position_embeddings;
    if (!model->is_yarn) return;
    model->yarn_factor = c->rope_factor;
    model->yarn_length = c->original_max_position_embeddings;
    model->yarn_fast = c->beta_fast;
    model->yarn_slow = c->beta_slow;
    model->yarn_truncates = c->rope_truncate;
    model->yarn_amplitude = c->rope_attention_factor > 0 ? c->rope_attention_factor
                            : c->rope_attention_scaling  ? yarn_growth(c->rope_factor, 1)
                                                         : 1;
}

/* Of latent attention, whose pairs lie alike on both sides: that they are neighbours. Where there
 * is a choice, null is no. */
static void read_pairs(HfReader *r, const HfMember *m) {
    bool is_free = r->names->tells_pairs && !r->names->has_indexer;
    const MxJson *said = is_free ? mx_json_get(r->json, m->theirs) : hf_get(r->json, m->theirs);
    r->model->are_pairs = !said || hf_flag(r, m->theirs);
}

static void take_pairs(const MxConfig *c, MxHfModel *model) {
    model->are_pairs = is_llama_rope(c) || (!strcmp(c->rope_type, "yarn") && c->rope_interleave);
}

static void write_pairs(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->tells_pairs) mx_json_set_bool(out, "rope_interleave", model->are_pairs);
}

static bool check_pairs(const MxHfModel *model, const MxHfNames *names, MxWhere where,
                        MxError *err) {
    return model->are_pairs || (names->tells_pairs && !names->has_indexer) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "rope_interleave: %s rotates neighbours",
                   names->architecture);
}

static bool fits_pairs(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_rope_interleave,
                      strcmp(c->rope_type, "yarn") || !c->rope_interleave, "false", err);
}

/* ---- all kinds */

/* The share of a head that is rotated. Where heads are turned around, it cannot be a part. */
static void read_rotated(HfReader *r, const MxJson *rope) {
    const MxJson *part = hf_get(rope, "partial_rotary_factor") ? rope : r->json;
    double usual = r->names->default_rotated;
    hf_read_number(r, part, "partial_rotary_factor", usual > 0 ? usual : 1, &r->model->rotated);
    if (r->model->rotated != 1 && r->names->interleaves)
        hf_lack(r, "partial_rotary_factor", hf_get(part, "partial_rotary_factor"));
}

/* Theta, and rope_parameters or, in the spelling of transformers 4, rope_scaling. */
static void read_rope(HfReader *r, const HfMember *m) {
    const char *name = "rope_parameters";
    const MxJson *rope = r->names->has_local_rope ? rope_of_full(r) : hf_rope_said(r, &name);
    const char *kind = hf_rope_kind(rope);
    double usual = (double)r->names->default_theta;
    const MxJson *base = hf_get(rope, m->theirs) ? rope : r->json;
    r->model->rope_factor = 1;
    hf_read_theta(r, base, m->theirs, usual > 0 ? usual : m->usual, &r->model->rope_theta);
    read_rotated(r, rope);
    bool is_default = kind && !strcmp(kind, "default"), is_linear = kind && !strcmp(kind, "linear");
    if (is_linear)
        hf_read_number(r, rope, "factor", NAN, &r->model->rope_factor);
    else if (kind && !strcmp(kind, "llama3") && r->names->interleaves)
        read_stretch(r, rope);
    else if (kind && !strcmp(kind, "yarn") && !r->names->interleaves)
        hf_read_yarn(r, rope);
    else if (!is_default || hf_get(rope, "full_attention"))
        hf_lack(r, name, rope);
}

/* Of layers with a window, which are rotated plainly. */
static void read_local_rope(HfReader *r, const HfMember *m) {
    const MxJson *rope = hf_get(hf_get(r->json, "rope_parameters"), "sliding_attention");
    bool is_new = hf_get(rope, "rope_theta") != NULL;
    if (!r->names->has_local_rope) return;
    double usual = r->names->has_own_theta ? m->usual : (double)r->model->rope_theta;
    hf_read_theta(r, is_new ? rope : r->json, is_new ? "rope_theta" : m->theirs, usual,
                  &r->model->local_theta);
    const char *kind = hf_rope_kind(rope);
    if (!kind || strcmp(kind, "default")) hf_lack(r, "rope_parameters", rope);
}

/* Windows of a family without a theta of their own may be rotated as all other layers are. */
static void take_local_rope(const MxConfig *c, MxHfModel *model) {
    bool is_said = c->local_rope_max_timescale > 0;
    bool is_plain = is_said || model->names->has_own_theta || !strcmp(c->rope_type, "default");
    if (!model->names->has_local_rope || !is_plain) return;
    model->local_theta = is_said ? c->local_rope_max_timescale : c->rope_max_timescale;
}

static void write_local_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->has_own_theta)
        mx_json_set_number(out, "rope_local_base_freq", (double)model->local_theta);
}

static void yaml_local_rope(const MxHfModel *model, MxText *t) {
    if (model->local_theta)
        mx_text_add(t, "local_rope_max_timescale: %lld\n", (long long)model->local_theta);
}

/* Layers with a window are rotated plainly there. */
static bool fits_local_rope(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool is_plain = !strcmp(c->rope_type, "default") && c->rope_linear_scaling_factor == 1;
    bool is_so = !names->has_local_rope || names->has_own_theta || is_plain ||
                 c->local_rope_max_timescale > 0;
    return hf_must_be(c, MX_KEY_local_rope_max_timescale, is_so, "a number above 0", err);
}

static void write_scaling(const MxHfModel *model, MxJson *rope) {
    const char *kind = model->is_stretched       ? "llama3"
                       : model->is_yarn          ? "yarn"
                       : model->rope_factor != 1 ? "linear"
                                                 : "default";
    mx_json_set_string(rope, "rope_type", kind);
    if (model->is_yarn)
        hf_write_yarn(model, rope);
    else if (model->is_stretched)
        write_stretch(model, rope);
    else if (model->rope_factor != 1)
        mx_json_set_number(rope, "factor", model->rope_factor);
}

/* Two kinds of layers without a name for the theta of one: as transformers 5 tells them, which of
 * the spelling of 4 takes another theta for windows. */
static void write_kinds(const MxHfModel *model, MxJson *out) {
    MxJson *both = mx_json_put_object(out, "rope_parameters");
    MxJson *full = mx_json_put_object(both, "full_attention");
    MxJson *windows = mx_json_put_object(both, "sliding_attention");
    write_scaling(model, full);
    mx_json_set_number(full, "rope_theta", (double)model->rope_theta);
    mx_json_set_string(windows, "rope_type", "default");
    mx_json_set_number(windows, "rope_theta", (double)model->local_theta);
}

/* In the spelling of transformers 4, which 5 reads as well. */
static void write_rope(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    bool is_plain = !model->is_stretched && model->rope_factor == 1 && !model->is_yarn;
    mx_json_set_number(out, "rope_theta", (double)model->rope_theta);
    if (names->default_rotated > 0 || model->rotated != 1)
        mx_json_set_number(out, "partial_rotary_factor", model->rotated);
    if (!is_plain || names->default_rope)
        write_scaling(model, mx_json_put_object(out, "rope_scaling"));
    if (names->has_local_rope && !names->has_own_theta) write_kinds(model, out);
}

static void yaml_rope(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "rope_max_timescale: %lld\n", (long long)model->rope_theta);
    bool are_pairs = model->heads.interleaves || model->are_pairs;
    mx_text_add(t, "rope_type: %s\n", model->is_yarn ? "yarn" : are_pairs ? "llama3.1" : "default");
    if (model->rotated != 1) mx_text_add(t, "partial_rotary_factor: %.17g\n", model->rotated);
    hf_yaml_yarn(model, t);
}

static void take_rope_factor(const MxConfig *c, MxHfModel *model) {
    model->rope_factor = c->rope_linear_scaling_factor;
}

static void take_stretch(const MxConfig *c, MxHfModel *model) {
    model->is_stretched = is_llama_rope(c) && c->rope_use_scale;
    if (!model->is_stretched) return;
    model->stretch_factor = c->rope_stretch_factor;
    model->stretch_low = c->rope_stretch_low;
    model->stretch_high = c->rope_stretch_high;
    model->stretch_length = c->rope_stretch_length;
}

static void yaml_stretch(const MxHfModel *model, MxText *t) {
    if (model->heads.interleaves || (model->are_pairs && !model->is_yarn))
        mx_text_add(t, "rope_use_scale: %s\n", model->is_stretched ? "true" : "false");
    if (!model->is_stretched) return;
    mx_text_add(t, "rope_stretch_factor: %.17g\n", model->stretch_factor);
    mx_text_add(t, "rope_stretch_low: %.17g\n", model->stretch_low);
    mx_text_add(t, "rope_stretch_high: %.17g\n", model->stretch_high);
    mx_text_add(t, "rope_stretch_length: %lld\n", (long long)model->stretch_length);
}

static bool fits_rope(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool is_so =
        hf_must_be(c, MX_KEY_rope_type, strcmp(c->rope_type, "yarn") || !names->interleaves,
                   "default or llama3.1", err);
    is_so = hf_must_be(c, MX_KEY_partial_rotary_factor,
                       c->partial_rotary_factor == 1 || !names->interleaves, "1", err) &&
            is_so;
    bool is_alone = strcmp(c->rope_type, "yarn") && !(is_llama_rope(c) && c->rope_use_scale);
    is_so = hf_must_be(c, MX_KEY_rope_linear_scaling_factor,
                       is_alone || c->rope_linear_scaling_factor == 1, "1", err) &&
            is_so;
    is_so = hf_must_be(c, MX_KEY_moba, !c->moba, "false", err) && is_so;
    return hf_must_be(c, MX_KEY_rope_min_timescale, c->rope_min_timescale == 1, "1", err) && is_so;
}

static void yaml_none(const MxHfModel *model, MxText *t) {
    (void)model, (void)t;
}

/* With yarn's others. */
static void take_none(const MxConfig *c, MxHfModel *model) {
    (void)c, (void)model;
}

// clang-format off
const HfMember hf_rope_members[] = {
    {.theirs = "rope_theta", .unless = HF_OF(has_own_rope), HF_SIZE_OF(rope_theta, rope_max_timescale), .usual = 10000, .agrees = true,
     .read = read_rope, .write = write_rope, .yaml = yaml_rope, .fits = fits_rope},
    {.what = "yarn in rope_scaling", HF_FLAG_OF(is_yarn, rope_truncate), .agrees = true, .take = take_yarn,
     .yaml = yaml_none},
    {.what = "factor of yarn", HF_NUMBER_OF(yarn_factor, rope_factor), .agrees = true, .take = take_none},
    {.what = "original_max_position_embeddings", HF_SIZE_OF(yarn_length, original_max_position_embeddings),
     .agrees = true, .take = take_none},
    {.what = "attention_factor", HF_NUMBER_OF(yarn_amplitude, rope_attention_factor), .agrees = true, .take = take_none},
    {.what = "mscale_all_dim", HF_NUMBER_OF(yarn_scale, mscale), .agrees = true, .take = take_none},
    {.what = "partial_rotary_factor", HF_NUMBER_OF(rotated, partial_rotary_factor), .agrees = true},
    {.theirs = "rope_interleave", .block = MX_BLOCK_MLA, HF_FLAG_OF(are_pairs, rope_interleave), .agrees = true,
     .read = read_pairs, .take = take_pairs, .write = write_pairs, .yaml = yaml_none, .check = check_pairs},
    {.block = MX_BLOCK_ATTENTION, .yaml = yaml_none, .fits = fits_pairs},
    {.what = "linear factor of rope_scaling", .ours = "rope_linear_scaling_factor",
     HF_NUMBER_OF(rope_factor, rope_linear_scaling_factor), .agrees = true, .take = take_rope_factor},
    {.what = "llama3 in rope_scaling", HF_FLAG_OF(is_stretched, rope_use_scale),
     .agrees = true, .take = take_stretch, .yaml = yaml_stretch},
    {.what = "factor of llama3", HF_NUMBER_OF(stretch_factor, rope_stretch_factor), .agrees = true, .take = take_none},
    {.what = "low_freq_factor", HF_NUMBER_OF(stretch_low, rope_stretch_low), .agrees = true, .take = take_none},
    {.what = "high_freq_factor", HF_NUMBER_OF(stretch_high, rope_stretch_high), .agrees = true, .take = take_none},
    {.what = "original_max_position_embeddings", HF_SIZE_OF(stretch_length, rope_stretch_length), .agrees = true,
     .take = take_none},
    {.theirs = "rope_local_base_freq", .unless = HF_OF(has_own_rope), HF_SIZE_OF(local_theta, local_rope_max_timescale), .usual = 10000,
     .agrees = true, .read = read_local_rope, .take = take_local_rope, .write = write_local_rope,
     .yaml = yaml_local_rope, .fits = fits_local_rope},
    {0},
};
// clang-format on

/* hf_caps.c — the members of config.json that scale attention scores, and that limit scores and
 * logits. Source: transformers 4.51 and 5.23, models/<type>/configuration_<type>.py. */
#include "hf.h"

#include <math.h>

static void read_cap(HfReader *r, const HfMember *m) {
    double *cap = (double *)((char *)r->model + m->at);
    double usual = *(const double *)((const char *)r->names + m->of_family);
    bool is_null = mx_json_get(r->json, m->theirs) && !hf_get(r->json, m->theirs);
    if (r->names->has_caps && !is_null) hf_read_number(r, r->json, m->theirs, usual, cap);
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
    if (!model->names->has_caps) return;
    mx_text_add(t, "attn_logits_soft_cap: %.17g\n", model->attn_cap);
    mx_text_add(t, "final_logits_soft_cap: %.17g\n", model->final_cap);
}

static void yaml_nothing(const MxHfModel *model, MxText *t) {
    (void)model, (void)t;
}

static bool fits_attn_cap(const MxConfig *c, const MxHfNames *names, MxError *err) {
    return hf_must_be(c, MX_KEY_attn_logits_soft_cap,
                      names->has_caps || c->attn_logits_soft_cap == 0, "0", err);
}

static bool fits_final_cap(const MxConfig *c, const MxHfNames *names, MxError *err) {
    return hf_must_be(c, MX_KEY_final_logits_soft_cap,
                      names->has_caps || c->final_logits_soft_cap == 0, "0", err);
}

static void read_query_scalar(HfReader *r, const HfMember *m) {
    double *scalar = &r->model->query_scalar;
    if (r->names->has_query_scalar) hf_read_number(r, r->json, m->theirs, m->usual, scalar);
    if (*scalar == (double)r->model->head_dim) *scalar = 0;
}

/* A family that has no such member has query kernels scaled instead. */
static void take_query_scalar(const MxConfig *c, MxHfModel *model) {
    bool has = model->names->has_query_scalar;
    bool is_other = c->query_pre_attn_scalar != (double)c->head_dim;
    model->query_scalar = has && is_other ? c->query_pre_attn_scalar : 0;
}

static void write_query_scalar(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    double scalar = model->query_scalar > 0 ? model->query_scalar : (double)model->head_dim;
    if (names->has_query_scalar) mx_json_set_int(out, "query_pre_attn_scalar", (int64_t)scalar);
}

/* transformers takes whole numbers alone. */
static bool fits_query_scalar(const MxConfig *c, const MxHfNames *names, MxError *err) {
    double scalar = c->query_pre_attn_scalar;
    return hf_must_be(c, MX_KEY_query_pre_attn_scalar,
                      !names->has_query_scalar || scalar == floor(scalar), "whole numbers", err);
}

static void yaml_query_scalar(const MxHfModel *model, MxText *t) {
    if (model->query_scalar > 0)
        mx_text_add(t, "query_pre_attn_scalar: %.17g\n", model->query_scalar);
}

// clang-format off
const HfMember hf_cap_members[] = {
    {.theirs = "query_pre_attn_scalar", HF_NUMBER_OF(query_scalar, query_pre_attn_scalar),
     .usual = 256, .agrees = true, .read = read_query_scalar, .take = take_query_scalar,
     .write = write_query_scalar, .yaml = yaml_query_scalar, .fits = fits_query_scalar},
    {.theirs = "attn_logit_softcapping", HF_NUMBER_OF(attn_cap, attn_logits_soft_cap),
     .of_family = HF_OF(default_attn_cap), .agrees = true, .read = read_cap, .write = write_caps, .yaml = yaml_caps,
     .fits = fits_attn_cap},
    {.theirs = "final_logit_softcapping", HF_NUMBER_OF(final_cap, final_logits_soft_cap),
     .of_family = HF_OF(default_final_cap), .agrees = true, .read = read_cap, .write = write_nothing, .yaml = yaml_nothing,
     .fits = fits_final_cap},
    {0},
};
// clang-format on

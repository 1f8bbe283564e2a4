/* hf_experts.c — the members of config.json that tell of experts, and what of ours is to be so that
 * there is a model of theirs. Source: transformers 4.51 and 5.23, models/mixtral, qwen3_moe. */
#include "hf.h"

static bool has_experts(const MxHfModel *model) {
    return hf_family_of(model)->hf.experts != MX_HF_EXPERTS_NONE;
}

/* Families have one of several names for their number. */
static const char *const counts[] = {"num_experts", "num_local_experts"};

static void read_count(HfReader *r, const HfMember *m) {
    const char *found = NULL;
    for (int i = 0; i < MX_COUNT(counts); i++)
        if (hf_get(r->json, counts[i])) found = counts[i];
    r->model->n_experts = 1;
    if (r->family->hf.experts)
        hf_read_size(r, found ? found : m->theirs, m->most, 0, &r->model->n_experts);
    else if (found && hf_flag(r, found))
        hf_refuse(r, found, "not available here");
}

static void write_count(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->experts)
        mx_json_set_int(out, names->experts == MX_HF_EXPERTS_W ? counts[1] : counts[0],
                        model->n_experts);
}

static void yaml_count(const MxHfModel *model, MxText *t) {
    if (has_experts(model)) mx_text_add(t, "num_experts: %lld\n", (long long)model->n_experts);
}

static void read_chosen(HfReader *r, const HfMember *m) {
    r->model->n_chosen = 1;
    if (r->family->hf.experts)
        hf_read_size(r, m->theirs, r->model->n_experts, r->family->hf.default_chosen,
                     &r->model->n_chosen);
}

static void write_chosen(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->experts) mx_json_set_int(out, "num_experts_per_tok", model->n_chosen);
}

static void yaml_chosen(const MxHfModel *model, MxText *t) {
    if (has_experts(model))
        mx_text_add(t, "num_experts_per_tok: %lld\n", (long long)model->n_chosen);
}

/* Where all layers have experts, no other width means anything. */
static void read_width(HfReader *r, const HfMember *m) {
    if (r->family->hf.experts == MX_HF_EXPERTS_PROJ)
        hf_read_size(r, m->theirs, m->most, 0, &r->model->mlp_dim);
}

static void write_width(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (names->experts == MX_HF_EXPERTS_PROJ)
        mx_json_set_int(out, "moe_intermediate_size", model->mlp_dim);
}

static void yaml_width(const MxHfModel *model, MxText *t) {
    if (has_experts(model)) mx_text_add(t, "base_moe_mlp_dim: %lld\n", (long long)model->mlp_dim);
}

/* Ours are the softmax of the chosen scores, which is that of all, divided by their sum. Mixtral's
 * always are. */
static void read_norm(HfReader *r, const HfMember *m) {
    if (r->family->hf.experts == MX_HF_EXPERTS_PROJ && !hf_flag(r, m->theirs))
        hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

static void write_norm(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model;
    if (names->experts == MX_HF_EXPERTS_PROJ) mx_json_set_bool(out, "norm_topk_prob", true);
}

static void read_jitter(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs)) hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

/* Layers without experts. */
static void read_step(HfReader *r, const HfMember *m) {
    int64_t step = 1;
    hf_read_size(r, m->theirs, m->most, 1, &step);
    if (step != 1) hf_refuse(r, m->theirs, "layers without experts are not available here");
}

static void read_only(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs))
        hf_refuse(r, m->theirs, "layers without experts are not available here");
}

static bool fits_routing(const MxConfig *c, const MxFamily *family, MxError *err) {
    if (!family->hf.experts) return true;
    const struct {
        MxKey key;
        bool is_so;
        const char *wanted;
    } wants[] = {{MX_KEY_capacity_factor, c->capacity_factor <= 0, "0 or below"},
                 {MX_KEY_routed_bias, !c->routed_bias, "false"},
                 {MX_KEY_mlp_bias, !c->mlp_bias, "false"},
                 {MX_KEY_routed_score_func, !*c->routed_score_func, "\"\""}};
    bool ok = true;
    for (int i = 0; i < MX_COUNT(wants); i++)
        ok = hf_must_be(c, wants[i].key, wants[i].is_so, wants[i].wanted, err) && ok;
    return ok;
}

static bool fits_sinks(const MxConfig *c, const MxFamily *family, MxError *err) {
    (void)family;
    return hf_must_be(c, MX_KEY_attention_sink, !c->attention_sink, "false", err);
}

// clang-format off
const HfMember hf_expert_members[] = {
    {.theirs = "num_experts", .ours = "num_experts", HF_SIZE_OF(n_experts, num_experts),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_count, .write = write_count, .yaml = yaml_count,
     .fits = fits_routing},
    {.theirs = "num_experts_per_tok", .ours = "num_experts_per_tok", HF_SIZE_OF(n_chosen, num_experts_per_tok),
     .agrees = true, .read = read_chosen, .write = write_chosen, .yaml = yaml_chosen},
    {.theirs = "moe_intermediate_size", .most = HF_LARGEST_SIZE,
     .read = read_width, .write = write_width, .yaml = yaml_width, .fits = fits_sinks},
    {.theirs = "norm_topk_prob", .read = read_norm, .write = write_norm},
    {.theirs = "router_jitter_noise", .read = read_jitter},
    {.theirs = "decoder_sparse_step", .most = HF_LARGEST_SIZE, .read = read_step},
    {.theirs = "mlp_only_layers", .read = read_only},
    {0},
};
// clang-format on

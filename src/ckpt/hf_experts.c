/* hf_experts.c — the members of config.json about experts, and the values of our keys with which a
 * model can be exported. Source: transformers 4.51 and 5.23, configuration_*.py of each. */
#include "hf.h"

static bool has_experts(const MxHfModel *model) {
    return model->names->experts != MX_HF_EXPERTS_NONE;
}

/* Whether config.json tells their width apart from that of other layers. */
static bool has_own_width(const MxHfNames *names) {
    return names->experts == MX_HF_EXPERTS_PROJ || names->experts == MX_HF_EXPERTS_TURNED ||
           names->like_deepseek;
}

/* ---- how many */

/* Families have one of several names for their number. */
static const char *const counts[] = {"num_experts", "num_local_experts", "n_routed_experts"};

static const char *count_of(const MxHfNames *names) {
    return counts[names->like_deepseek ? 2 : !has_own_width(names)];
}

static void read_count(HfReader *r, const HfMember *m) {
    const char *found = NULL;
    for (int i = 0; i < MX_COUNT(counts); i++)
        if (hf_get(r->json, counts[i])) found = counts[i];
    r->model->n_experts = 1;
    if (r->names->asks_experts && !hf_flag(r, "enable_moe_block")) return;
    if (r->names->experts)
        hf_read_size(r, found ? found : count_of(r->names), m->most, 0, &r->model->n_experts);
    else if (found && hf_flag(r, found))
        hf_refuse(r, found, "not available here");
}

static void write_count(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    bool has = !names->asks_experts || model->n_experts > 1;
    if (names->asks_experts) mx_json_set_bool(out, "enable_moe_block", has);
    if (names->experts && has) mx_json_set_int(out, count_of(names), model->n_experts);
}

static void yaml_count(const MxHfModel *model, MxText *t) {
    if (has_experts(model)) mx_text_add(t, "num_experts: %lld\n", (long long)model->n_experts);
}

static void read_chosen(HfReader *r, const HfMember *m) {
    r->model->n_chosen = 1;
    if (r->names->experts && r->model->n_experts > 1)
        hf_read_size(r, m->theirs, r->model->n_experts, r->names->default_chosen,
                     &r->model->n_chosen);
}

static void write_chosen(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    const char *name = names->asks_experts ? "top_k_experts" : "num_experts_per_tok";
    if (names->experts && (!names->asks_experts || model->n_experts > 1))
        mx_json_set_int(out, name, model->n_chosen);
}

static void yaml_chosen(const MxHfModel *model, MxText *t) {
    if (has_experts(model))
        mx_text_add(t, "num_experts_per_tok: %lld\n", (long long)model->n_chosen);
}

/* ---- how wide */

/* Where all layers have experts, no other width means anything. */
static void read_width(HfReader *r, const HfMember *m) {
    bool is_own = has_own_width(r->names) && (!r->names->asks_experts || r->model->n_experts > 1);
    r->model->moe_dim = r->model->mlp_dim;
    if (r->names->experts == MX_HF_EXPERTS_HALVES)
        hf_read_size(r, "intermediate_size", m->most, 8192, &r->model->moe_dim);
    if (is_own) hf_read_size(r, m->theirs, m->most, 0, &r->model->moe_dim);
    if (!mx_family_has(r->family, MX_BLOCK_GLU) || r->model->moe_step == 1)
        r->model->mlp_dim = r->model->moe_dim;
}

static void take_width(const MxConfig *c, MxHfModel *model) {
    model->moe_dim = has_experts(model) ? c->moe_mlp_dim : c->mlp_dim;
}

static void write_width(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    if (has_own_width(names) && (!names->asks_experts || model->n_experts > 1))
        mx_json_set_int(out, "moe_intermediate_size", model->moe_dim);
    if (names->experts == MX_HF_EXPERTS_HALVES)
        mx_json_set_int(out, "intermediate_size", model->moe_dim);
}

static void yaml_width(const MxHfModel *model, MxText *t) {
    if (has_experts(model)) mx_text_add(t, "base_moe_mlp_dim: %lld\n", (long long)model->moe_dim);
}

/* ---- units for all tokens */

static void read_shared_width(HfReader *r, const HfMember *m) {
    int64_t width, each = r->model->moe_dim;
    hf_read_size(r, m->theirs, m->most, m->missing, &width);
    r->model->n_shared = width / each;
    if (width % each)
        hf_refuse(r, m->theirs,
                  mx_arena_printf(r->arena, "found %lld, wanted a multiple of %lld",
                                  (long long)width, (long long)each));
}

static void write_shared_width(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "shared_expert_intermediate_size", model->n_shared * model->moe_dim);
}

static void read_one_shared(HfReader *r, const HfMember *m) {
    (void)m;
    r->model->n_shared = !r->names->asks_experts || r->model->n_experts > 1;
}

static bool fits_one_shared(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_shared_experts, c->shared_experts == 1 || c->num_experts < 2, "1",
                      err);
}

static bool fits_shared(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_shared_experts, c->shared_experts >= 1, "1 and more", err);
}

/* ---- what they count */

/* Ours are the softmax of the chosen scores, which is that of all, divided by their sum; or, of
 * deepseek_v3, sigmoids divided by their sum. Mixtral's always are. */
static void read_norm(HfReader *r, const HfMember *m) {
    bool anyway = r->names->norms_anyway || (r->names->norms_within && r->model->is_within);
    bool is_usual = anyway && !mx_json_get(r->json, m->theirs); /* null = false */
    if (!is_usual && !hf_flag(r, m->theirs)) hf_lack(r, m->theirs, mx_json_get(r->json, m->theirs));
}

static void write_norm(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names;
    mx_json_set_bool(out, "norm_topk_prob", true);
}

/* Of families where a key says whether weights are divided by their sum; theirs always are. */
static void read_sums(HfReader *r, const HfMember *m) {
    (void)m;
    r->model->sums_to_1 = r->model->n_experts > 1;
}

static void take_sums(const MxConfig *c, MxHfModel *model) {
    model->sums_to_1 = c->norm_topk_prob && c->num_experts > 1;
}

static void yaml_sums(const MxHfModel *model, MxText *t) {
    if (model->sums_to_1) mx_text_add(t, "norm_topk_prob: true\n");
}

static bool fits_sums(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_norm_topk_prob, c->norm_topk_prob || c->num_experts < 2, "true",
                      err);
}

/* One group is none. */
static void read_groups(HfReader *r, const HfMember *m) {
    MxHfModel *model = r->model;
    hf_read_size(r, m->theirs, model->n_experts, r->names->default_groups, &model->n_groups);
    hf_read_size(r, "topk_group", model->n_groups, r->names->default_best, &model->n_best);
    if (model->n_groups == 1) model->n_groups = model->n_best = -1;
}

/* deepseek_v2 takes groups by their best expert alone, ours by their two best. */
static void read_method(HfReader *r, const HfMember *m) {
    const char *method = mx_json_string(hf_get(r->json, m->theirs));
    r->model->n_groups = r->model->n_best = -1;
    if (method && strcmp(method, "greedy") != 0) hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

static void write_groups(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)names;
    mx_json_set_int(out, "n_group", model->n_groups > 0 ? model->n_groups : 1);
    mx_json_set_int(out, "topk_group", model->n_best > 0 ? model->n_best : 1);
}

static void write_method(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names;
    mx_json_set_string(out, "topk_method", "greedy");
}

static void yaml_groups(const MxHfModel *model, MxText *t) {
    mx_text_add(t, "n_routing_groups: %lld\n", (long long)model->n_groups);
    mx_text_add(t, "topk_routing_group: %lld\n", (long long)model->n_best);
}

static bool fits_method(const MxConfig *c, const MxHfNames *names, MxError *err) {
    (void)names;
    return hf_must_be(c, MX_KEY_n_routing_groups, c->n_routing_groups == -1, "-1", err);
}

static void read_jitter(HfReader *r, const HfMember *m) {
    if (hf_flag(r, m->theirs)) hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

/* Of how much a gate is made of itself. */
static void read_alpha(HfReader *r, const HfMember *m) {
    double found;
    hf_read_number(r, r->json, m->theirs, m->usual, &found);
    if (found != m->usual) hf_lack(r, m->theirs, hf_get(r->json, m->theirs));
}

static void write_alpha(const MxHfModel *model, const MxHfNames *names, MxJson *out) {
    (void)model, (void)names;
    mx_json_set_number(out, "swiglu_alpha", 1.702);
}

static bool fits_limit(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool has = names->limits_gates;
    return hf_must_be(c, MX_KEY_mlp_activations_limit, (c->mlp_activations_limit > 0) == has,
                      has ? "above 0" : "0 or below", err);
}

/* ---- what there is no member for */

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

static void yaml_routing(const MxHfModel *model, MxText *t) {
    const MxHfNames *names = model->names;
    if (names->score) mx_text_add(t, "routed_score_func: %s\n", names->score);
    if (names->has_score_bias) mx_text_add(t, "routed_bias: true\n");
    if (names->experts == MX_HF_EXPERTS_PAIRS) mx_text_add(t, "mlp_bias: true\n");
    if (names->has_sinks) mx_text_add(t, "attention_sink: true\n");
}

static bool fits_routing(const MxConfig *c, const MxHfNames *names, MxError *err) {
    bool has_biases = names->experts == MX_HF_EXPERTS_PAIRS, has_bias = names->has_score_bias;
    const char *score = names->score ? names->score : "";
    const struct {
        MxKey key;
        bool is_so;
        const char *wanted;
    } wants[] = {{MX_KEY_capacity_factor, !mx_config_has_capacity(c), "0 or below"},
                 {MX_KEY_routed_bias, c->routed_bias == has_bias, has_bias ? "true" : "false"},
                 {MX_KEY_mlp_bias, c->mlp_bias == has_biases, has_biases ? "true" : "false"},
                 {MX_KEY_routed_score_func, !strcmp(c->routed_score_func, score),
                  names->score ? score : "\"\""}};
    bool ok = true;
    for (int i = 0; names->experts && i < MX_COUNT(wants); i++)
        ok = hf_must_be(c, wants[i].key, wants[i].is_so, wants[i].wanted, err) && ok;
    return ok;
}

static bool fits_sinks(const MxConfig *c, const MxHfNames *names, MxError *err) {
    return hf_must_be(c, MX_KEY_attention_sink, c->attention_sink == names->has_sinks,
                      names->has_sinks ? "true" : "false", err);
}

// clang-format off
const HfMember hf_expert_members[] = {
    {.theirs = "num_experts", .ours = "num_experts", HF_SIZE_OF(n_experts, num_experts),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_count, .write = write_count, .yaml = yaml_count,
     .fits = fits_routing},
    {.theirs = "num_experts_per_tok", .ours = "num_experts_per_tok", .unless = HF_OF(asks_experts),
     HF_SIZE_OF(n_chosen, num_experts_per_tok), .agrees = true, .read = read_chosen, .write = write_chosen,
     .yaml = yaml_chosen},
    {.theirs = "top_k_experts", .ours = "num_experts_per_tok", .flag = HF_OF(asks_experts),
     HF_SIZE_OF(n_chosen, num_experts_per_tok), .agrees = true, .read = read_chosen, .write = write_chosen,
     .yaml = yaml_chosen},
    {.theirs = "moe_intermediate_size", .ours = "base_moe_mlp_dim", HF_SIZE_OF(moe_dim, moe_mlp_dim),
     .most = HF_LARGEST_SIZE, .shapes = true, .read = read_width, .take = take_width, .write = write_width,
     .yaml = yaml_width},
    {.yaml = yaml_routing, .fits = fits_limit},
    {.fits = fits_sinks},
    {.theirs = "n_shared_experts", .ours = "shared_experts", .flag = HF_OF(like_deepseek),
     HF_SIZE_OF(n_shared, shared_experts), .most = HF_LARGEST_SIZE, .missing = 1, .of_family = HF_OF(default_shared),
     .shapes = true, .fits = fits_shared},
    {.theirs = "shared_expert_intermediate_size", .ours = "shared_experts", .flag = HF_OF(sizes_shared),
     HF_SIZE_OF(n_shared, shared_experts), .most = HF_LARGEST_SIZE, .missing = 512, .shapes = true,
     .read = read_shared_width, .write = write_shared_width, .fits = fits_shared},
    {.ours = "shared_experts", .flag = HF_OF(has_one_shared), HF_SIZE_OF(n_shared, shared_experts), .shapes = true,
     .read = read_one_shared, .fits = fits_one_shared},
    {.theirs = "routed_scaling_factor", .ours = "routed_scaling_factor", .flag = HF_OF(like_deepseek),
     HF_NUMBER_OF(routing_factor, routed_scaling_factor), .usual = 1, .of_family = HF_OF(default_routing), .agrees = true},
    {.theirs = "topk_method", .flag = HF_OF(like_deepseek), .unless = HF_OF(has_groups), HF_SIZE_OF(n_groups, n_routing_groups),
     .agrees = true, .read = read_method, .write = write_method, .yaml = yaml_groups, .fits = fits_method},
    {.theirs = "n_group", .flag = HF_OF(has_groups), .unless = HF_OF(like_deepseek4), HF_SIZE_OF(n_groups, n_routing_groups),
     .agrees = true, .read = read_groups, .write = write_groups, .yaml = yaml_groups},
    {.what = "topk_group", .flag = HF_OF(like_deepseek), .unless = HF_OF(like_deepseek4), HF_SIZE_OF(n_best, topk_routing_group), .agrees = true},
    {.theirs = "swiglu_limit", .ours = "mlp_activations_limit", .flag = HF_OF(limits_gates),
     HF_NUMBER_OF(gate_limit, mlp_activations_limit), .usual = 7, .of_family = HF_OF(default_limit), .agrees = true},
    {.theirs = "swiglu_alpha", .flag = HF_OF(limits_gates), .unless = HF_OF(like_deepseek4), .usual = 1.702, .read = read_alpha, .write = write_alpha},
    {.theirs = "norm_topk_prob", .flag = HF_OF(tells_norm), .read = read_norm, .write = write_norm},
    {.what = "norm_topk_prob", .flag = HF_OF(asks_experts), HF_FLAG_OF(sums_to_1, norm_topk_prob), .agrees = true,
     .read = read_sums, .take = take_sums, .yaml = yaml_sums, .fits = fits_sums},
    {.theirs = "router_jitter_noise", .read = read_jitter},
    {.theirs = "decoder_sparse_step", .most = HF_LARGEST_SIZE, .read = read_step},
    {.theirs = "mlp_only_layers", .read = read_only},
    {0},
};
// clang-format on

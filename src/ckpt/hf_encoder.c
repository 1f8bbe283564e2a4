/* hf_encoder.c — the members of config.json about the image encoder of a model: one row each.
 * Source: transformers 5.23, models/siglip/configuration_siglip.py, gemma3/configuration_gemma3.py,
 * llama4/configuration_llama4.py, gemma4/configuration_gemma4.py. */
#include "hf.h"

/* Where a member stands. */
typedef enum Holder { IN_VISION, AROUND } Holder;

/* A size of some encoders. */
typedef struct Size {
    const char *encoder, *theirs; /* encoders, a blank between them */
    Holder holder;
    const char *ours[2];
    size_t at;       /* in MxHfModel */
    int64_t missing; /* what counts where it is missing */
} Size;

#define SIZE(field) .at = offsetof(MxHfModel, field)

// clang-format off
static const Size sizes[] = {
    {"gemma3 llama4 gemma4", "hidden_size", .ours = {"hidden_size_for_vit"}, SIZE(see_dim), .missing = 768},
    {"gemma3", "num_attention_heads", .ours = {"num_attention_heads_for_vit"}, SIZE(see_heads), .missing = 12},
    {"gemma3", "num_hidden_layers", .ours = {"num_hidden_layers_for_vit"}, SIZE(see_layers), .missing = 12},
    {"gemma3", "intermediate_size", .ours = {"intermediate_size_for_vit"}, SIZE(see_mlp), .missing = 3072},
    {"gemma3", "image_size", .ours = {"image_size_for_vit"}, SIZE(see_size), .missing = 224},
    {"gemma3", "patch_size", .ours = {"patch_size_for_vit", "conv_stride_for_vit"}, SIZE(see_patch), .missing = 16},
    {"gemma3", "mm_tokens_per_image", AROUND, {"vision_output_length"}, SIZE(see_tokens), 256},
    {"llama4", "num_attention_heads", .ours = {"num_attention_heads_for_vit"}, SIZE(see_heads), .missing = 16},
    {"llama4", "num_hidden_layers", .ours = {"num_hidden_layers_for_vit"}, SIZE(see_layers), .missing = 34},
    {"llama4", "intermediate_size", .ours = {"intermediate_size_for_vit"}, SIZE(see_mlp), .missing = 5632},
    {"llama4", "image_size", .ours = {"image_size_for_vit", "tile_size_for_vit"}, SIZE(see_size), .missing = 448},
    {"llama4", "patch_size", .ours = {"patch_size_for_vit", "conv_stride_for_vit"}, SIZE(see_patch), .missing = 14},
    {"llama4", "projector_input_dim", .ours = {"projector_input_dim_for_vit"}, SIZE(see_wide), .missing = 4096},
    {"llama4", "projector_output_dim", .ours = {"projector_output_dim_for_vit"}, SIZE(see_made), .missing = 4096},
    {"llama4", "vision_output_dim", .ours = {"vision_output_dim_for_vit"}, SIZE(see_out), .missing = 7680},
    {"gemma4", "num_attention_heads", .ours = {"num_attention_heads_for_vit"}, SIZE(see_heads), .missing = 12},
    {"gemma4", "num_key_value_heads", SIZE(see_kv_heads), .missing = 12},
    {"gemma4", "head_dim", SIZE(see_head), .missing = 64},
    {"gemma4", "num_hidden_layers", .ours = {"num_hidden_layers_for_vit"}, SIZE(see_layers), .missing = 16},
    {"gemma4", "intermediate_size", .ours = {"intermediate_size_for_vit"}, SIZE(see_mlp), .missing = 3072},
    {"gemma4", "patch_size", .ours = {"patch_size_for_vit", "conv_stride_for_vit"}, SIZE(see_patch), .missing = 16},
    {"gemma4", "pooling_kernel_size", SIZE(see_pool), .missing = 3},
    {"gemma4", "position_embedding_size", .ours = {"num_position_embeddings_for_vit"}, SIZE(see_positions), .missing = 10240},
    {"gemma4", "rope_theta", .ours = {"rope_theta_for_vit"}, SIZE(see_theta), .missing = 100},
    {"gemma4", "vision_soft_tokens_per_image", AROUND, {"vision_output_length"}, SIZE(see_tokens), 280},
    {"qwen3_vl qwen3_5 qwen3_omni", "hidden_size", .ours = {"hidden_size_for_vit"}, SIZE(see_dim), .missing = 1152},
    {"qwen3_vl qwen3_5 qwen3_omni", "num_heads", .ours = {"num_attention_heads_for_vit"}, SIZE(see_heads), .missing = 16},
    {"qwen3_vl qwen3_5 qwen3_omni", "depth", .ours = {"num_hidden_layers_for_vit"}, SIZE(see_layers), .missing = 27},
    {"qwen3_vl qwen3_5 qwen3_omni", "intermediate_size", .ours = {"intermediate_size_for_vit"}, SIZE(see_mlp), .missing = 4304},
    {"qwen3_vl qwen3_5 qwen3_omni", "patch_size", .ours = {"patch_size_for_vit"}, SIZE(see_patch), .missing = 16},
    {"qwen3_vl qwen3_5 qwen3_omni", "spatial_merge_size", .ours = {"spatial_merge_size_for_vit"}, SIZE(see_pool), .missing = 2},
    {"qwen3_vl qwen3_5 qwen3_omni", "temporal_patch_size", .ours = {"temporal_patch_size_for_vit"}, SIZE(see_frames), .missing = 2},
    {"qwen3_vl qwen3_5 qwen3_omni", "out_hidden_size", .ours = {"out_hidden_size_for_vit"}, SIZE(see_out), .missing = 3584},
    {"qwen3_vl qwen3_5 qwen3_omni", "num_position_embeddings", .ours = {"num_position_embeddings_for_vit"}, SIZE(see_positions), .missing = 2304},
};
// clang-format on

/* The only value that mxtrain has for a member. */
typedef struct Fixed {
    const char *encoder, *theirs, *word; /* word NULL = a number or a flag */
    double number;
    const char *within; /* an object that it may stand in */
    Holder holder;
    bool is_flag, flag; /* missing is false */
    bool is_needed;     /* another is missing's value */
} Fixed;

// clang-format off
static const Fixed fixed[] = {
    {"gemma3", "hidden_act", .word = "gelu_pytorch_tanh"},
    {"gemma3", "num_channels", .number = 3},
    {"llama4", "hidden_act", .word = "gelu"},
    {"llama4", "num_channels", .number = 3},
    {"llama4", "pixel_shuffle_ratio", .number = 0.5},
    {"llama4", "rope_theta", .number = 10000, .within = "rope_parameters"},
    {"llama4", "projector_dropout", .number = 0},
    {"llama4", "attention_dropout", .number = 0},
    {"gemma4", "hidden_activation", .word = "gelu_pytorch_tanh"},
    {"gemma4", "rope_theta", .number = 100, .within = "rope_parameters"},
    {"gemma4", "attention_dropout", .number = 0},
    {"gemma4", "attention_bias", .is_flag = true},
    {"gemma4", "use_clipped_linears", .is_flag = true},
    {"gemma4", "standardize", .is_flag = true, .flag = true},
    {"qwen3_vl qwen3_5 qwen3_omni", "hidden_act", .word = "gelu_pytorch_tanh"},
    {"qwen3_vl qwen3_5 qwen3_omni", "in_channels", .number = 3},
    {"gemma4", "use_bidirectional_attention", .word = "vision", .holder = AROUND, .within = "text_config", .is_needed = true},
};
// clang-format on

/* The epsilon of an encoder's norms, and the member that may say it. */
static const struct {
    const char *encoder, *theirs;
    double usual;
} epsilons[] = {{"gemma3", "layer_norm_eps", 1e-6},
                {"llama4", NULL, 1e-5}, /* norm_eps is read by nobody */
                {"gemma4", "rms_norm_eps", 1e-6},
                {"qwen3_vl qwen3_5 qwen3_omni", NULL, 1e-6}};

static bool is_of(const char *names, const MxEncoder *encoder) {
    return mx_text_has_word(names, encoder->name);
}

static bool is_fixed(const Fixed *f, const MxJson *value) {
    const char *word = mx_json_string(value);
    double number;
    bool flag = false;
    if (f->is_flag) return (!value || mx_json_bool(value, &flag)) && flag == f->flag;
    if (!value) return !f->is_needed;
    if (f->word) return word && !strcmp(word, f->word);
    return mx_json_number(value, &number) && number == f->number;
}

static bool read_epsilon(const MxEncoder *encoder, const MxJson *vision, double *out) {
    int i = 0;
    while (!is_of(epsilons[i].encoder, encoder)) i++;
    const MxJson *value = epsilons[i].theirs ? hf_get(vision, epsilons[i].theirs) : NULL;
    *out = epsilons[i].usual;
    return !value || (mx_json_number(value, out) && *out > 0);
}

/* What would make another model of it. */
static bool is_known(const MxEncoder *encoder, const MxJson *outer) {
    const MxJson *vision = mx_json_get(outer, "vision_config");
    for (int i = 0; i < MX_COUNT(fixed); i++) {
        const MxJson *all = fixed[i].holder == AROUND ? outer : vision;
        const MxJson *inner = fixed[i].within ? hf_get(all, fixed[i].within) : NULL;
        const MxJson *value = hf_get(inner ? inner : all, fixed[i].theirs);
        if (is_of(fixed[i].encoder, encoder) && !is_fixed(&fixed[i], value)) return false;
    }
    return true;
}

/* 0 = it is none. */
static int64_t read_size(const MxJson *json, const Size *size) {
    int64_t n = size->missing;
    const MxJson *value = hf_get(json, size->theirs);
    return value && (!mx_json_int(value, &n) || n < 1 || n > HF_LARGEST_SIZE) ? 0 : n;
}

static int64_t *place_of(MxHfModel *model, const Size *size) {
    return (int64_t *)(void *)((char *)model + size->at);
}

/* Layers that add to the decoder's; false = it is no list of numbers. */
static bool read_deep(const MxJson *vision, MxHfModel *m) {
    static const int64_t usual[] = {8, 16, 24};
    const MxJson *list = hf_get(vision, "deepstack_visual_indexes");
    size_t n = list ? mx_json_length(list) : MX_COUNT(usual);
    if (n > MX_MOST_DEEP) return false;
    m->n_see_deep = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        m->see_deep[i] = list ? -1 : usual[i];
        if (list && (!mx_json_int(mx_json_at(list, i), &m->see_deep[i]) || m->see_deep[i] < 0 ||
                     m->see_deep[i] >= m->see_layers))
            return false;
    }
    return true;
}

/* Pairs that time, row and column rotate in turn; false = they are rotated otherwise. */
static bool read_mrope(const HfReader *r, MxHfModel *m) {
    const char *name;
    const MxJson *rope = hf_rope_said(r, &name);
    const MxJson *list = hf_get(rope, "mrope_section"), *turns = hf_get(rope, "mrope_interleaved");
    bool interleaves = true;
    if (turns && (!mx_json_bool(turns, &interleaves) || !interleaves)) return false;
    if (list && mx_json_length(list) != MX_MROPE_KINDS) return false;
    for (size_t k = 0; k < MX_MROPE_KINDS; k++) {
        m->mrope[k] = m->encoder->hf.mrope[k];
        if (list && (!mx_json_int(mx_json_at(list, k), &m->mrope[k]) || m->mrope[k] < 0))
            return false;
    }
    return true;
}

void hf_read_encoder(HfReader *r, const MxJson *outer) {
    const MxJson *vision = mx_json_get(outer, "vision_config");
    const char *type = mx_json_string(mx_json_get(vision, "model_type"));
    MxHfModel *m = r->model;
    const MxEncoder *encoder = type ? mx_encoder_of_hf(type, r->family->decoder_block) : NULL;
    bool fits = true;
    if (!encoder || !is_known(encoder, outer)) return;
    if (!read_epsilon(encoder, vision, &m->see_epsilon)) return;
    m->encoder = encoder;
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        if (!is_of(sizes[i].encoder, encoder)) continue;
        int64_t size = read_size(sizes[i].holder == AROUND ? outer : vision, &sizes[i]);
        *place_of(m, &sizes[i]) = size;
        fits = fits && size;
    }
    bool is_wide = m->see_head &&
                   (m->see_head * m->see_heads != m->see_dim || m->see_kv_heads != m->see_heads);
    if (encoder->deep) fits = read_deep(vision, m) && fits;
    if (encoder->has_mrope) fits = read_mrope(r, m) && fits;
    if (!fits || is_wide || m->see_dim % m->see_heads || m->see_size % m->see_patch)
        hf_refuse(r, "vision_config", "its sizes do not go together");
    hf_read_audio(r, outer);
}

bool mx_hf_see(MxArena *arena, const char *dir, MxHfModel *model, MxError *err) {
    MxHfModel whole;
    int failures = err->count;
    const char *path = mx_hf_config_path(arena, dir);
    if (!mx_hf_read_config(arena, path, &whole, err)) return false;
    HfReader r = {.arena = arena,
                  .path = path,
                  .json = whole.config,
                  .family = hf_family_of(&whole),
                  .names = whole.names,
                  .model = model,
                  .err = err};
    model->is_within = whole.is_within;
    if (whole.outer) hf_read_encoder(&r, whole.outer);
    return err->count == failures;
}

/* Of pictures that keep their form: the squares of patches as near to a square as they can be. */
static void yaml_form(const MxHfModel *model, MxText *out) {
    int64_t side = model->see_pool * model->see_patch, rows = 1;
    for (int64_t r = 1; r * r <= model->see_tokens; r++)
        if (model->see_tokens % r == 0) rows = r;
    mx_text_add(out, "image_size_for_vit: [%lld, %lld]\n", (long long)(rows * side),
                (long long)(model->see_tokens / rows * side));
}

/* As many patches as have learned positions, of whole squares. */
static void yaml_square(const MxHfModel *model, MxText *out) {
    int64_t side = model->see_pool * model->see_patch, n = 1;
    while (n * n * model->see_pool * model->see_pool < model->see_positions) n++;
    mx_text_add(out, "image_size_for_vit: %lld\n", (long long)(n * side));
}

static void yaml_list(MxText *out, const char *key, const int64_t *numbers, int64_t n) {
    mx_text_add(out, "%s: [", key);
    for (int64_t i = 0; i < n; i++)
        mx_text_add(out, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    mx_text_add(out, "]\n");
}

void hf_yaml_encoder(const MxHfModel *model, MxText *out) {
    MxHfModel sizes_of = *model;
    mx_text_add(out, "use_multimodal: true\nvision_encoder_block: %s\npacking: false\n",
                model->encoder->name);
    for (int i = 0; i < MX_COUNT(sizes); i++)
        for (int k = 0; k < 2 && sizes[i].ours[k] && is_of(sizes[i].encoder, model->encoder); k++)
            mx_text_add(out, "%s: %lld\n", sizes[i].ours[k],
                        (long long)*place_of(&sizes_of, &sizes[i]));
    if (model->see_epsilon != model->epsilon)
        mx_text_add(out, "normalization_layer_epsilon_for_vit: %s\n",
                    mx_number_text(out->arena, model->see_epsilon));
    if (model->encoder->mixes_places)
        yaml_square(model, out);
    else if (model->encoder->keeps_form)
        yaml_form(model, out);
    if (model->encoder->deep)
        yaml_list(out, "deepstack_visual_indexes_for_vit", model->see_deep, model->n_see_deep);
    if (!model->encoder->has_mrope) return;
    mx_text_add(out, "use_mrope: true\n");
    yaml_list(out, "mrope_section", model->mrope, MX_MROPE_KINDS);
}

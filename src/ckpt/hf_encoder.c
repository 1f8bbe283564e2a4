/* hf_encoder.c — what config.json of a model that sees images says of its encoder. Source:
 * transformers 5.23, models/siglip/configuration_siglip.py, gemma3/configuration_gemma3.py. */
#include "hf.h"

/* A size, of a config of SigLIP's or around it; missing: as transformers has it. */
static int64_t size_of(const MxJson *json, const char *key, int64_t missing) {
    int64_t size = missing;
    const MxJson *value = hf_get(json, key);
    if (value && (!mx_json_int(value, &size) || size < 1 || size > HF_LARGEST_SIZE)) size = 0;
    return size;
}

/* What would make another model of it. */
static bool is_known(const HfReader *r, const MxJson *vision) {
    const char *type = mx_json_string(mx_json_get(vision, "model_type"));
    const char *act = mx_json_string(hf_get(vision, "hidden_act"));
    double epsilon = 1e-6;
    mx_json_number(mx_json_get(vision, "layer_norm_eps"), &epsilon);
    return r->names->outer_type && !strcmp(r->names->outer_type, "gemma3") && type &&
           !strcmp(type, "siglip_vision_model") && (!act || !strcmp(act, "gelu_pytorch_tanh")) &&
           epsilon == 1e-6 && size_of(vision, "num_channels", 3) == 3;
}

void hf_read_encoder(HfReader *r, const MxJson *outer) {
    const MxJson *vision = mx_json_get(outer, "vision_config");
    MxHfModel *m = r->model;
    if (!vision || !is_known(r, vision)) return;
    m->see_dim = size_of(vision, "hidden_size", 768);
    m->see_mlp = size_of(vision, "intermediate_size", 3072);
    m->see_heads = size_of(vision, "num_attention_heads", 12);
    m->see_size = size_of(vision, "image_size", 224);
    m->see_patch = size_of(vision, "patch_size", 16);
    m->see_tokens = size_of(outer, "mm_tokens_per_image", 256);
    m->see_layers = size_of(vision, "num_hidden_layers", 12);
    bool fits = m->see_dim && m->see_mlp && m->see_heads && m->see_size && m->see_patch &&
                m->see_tokens && m->see_layers && m->see_dim % m->see_heads == 0 &&
                m->see_size % m->see_patch == 0;
    if (!fits) hf_refuse(r, "vision_config", "its sizes do not go together");
}

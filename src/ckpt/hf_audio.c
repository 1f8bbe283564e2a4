/* hf_audio.c — the members of config.json about the encoder of sounds beside one of images. Source:
 * transformers 5.23, models/qwen3_omni_moe/configuration_qwen3_omni_moe.py. */
#include "hf.h"

/* A size. */
typedef struct Size {
    const char *theirs, *ours;
    size_t at;       /* in MxHfModel */
    int64_t missing; /* what counts where it is missing */
} Size;

#define SIZE(field) offsetof(MxHfModel, field)

static const Size sizes[] = {
    {"d_model", "d_model_for_audio", SIZE(hear_dim), 1280},
    {"encoder_layers", "encoder_layers_for_audio", SIZE(hear_layers), 32},
    {"encoder_attention_heads", "encoder_attention_heads_for_audio", SIZE(hear_heads), 20},
    {"encoder_ffn_dim", "encoder_ffn_dim_for_audio", SIZE(hear_mlp), 5120},
    {"num_mel_bins", "num_mel_bins_for_audio", SIZE(hear_bins), 128},
    {"downsample_hidden_size", "downsample_hidden_size_for_audio", SIZE(hear_channels), 480},
    {"n_window", "n_window_for_audio", SIZE(hear_window), 50},
    {"n_window_infer", "n_window_infer_for_audio", SIZE(hear_infer), 800},
    {"output_dim", "output_dim_for_audio", SIZE(hear_out), 3584},
};

static int64_t *place_of(MxHfModel *model, const Size *size) {
    return (int64_t *)(void *)((char *)model + size->at);
}

/* transformers drops nothing in it, whatever attention_dropout and activation_dropout say. */
static bool is_known(const MxAudioEncoder *audio, const MxJson *json) {
    const char *type = mx_json_string(mx_json_get(json, "model_type"));
    const char *act = mx_json_string(hf_get(json, "activation_function"));
    return type && !strcmp(type, audio->hf_type) && (!act || !strcmp(act, "gelu"));
}

void hf_read_audio(HfReader *r, const MxJson *outer) {
    MxHfModel *m = r->model;
    const MxAudioEncoder *audio = m->encoder->audio;
    const MxJson *json = mx_json_get(outer, "audio_config");
    bool fits = true;
    if (!audio || !json || !is_known(audio, json)) return;
    m->audio = audio;
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        const MxJson *value = hf_get(json, sizes[i].theirs);
        int64_t *n = place_of(m, &sizes[i]);
        *n = sizes[i].missing;
        fits = fits && (!value || (mx_json_int(value, n) && *n > 0 && *n <= HF_LARGEST_SIZE));
    }
    if (!fits || m->hear_dim % m->hear_heads || m->hear_dim % 2)
        hf_refuse(r, "audio_config", "its sizes do not go together");
}

void hf_yaml_audio(const MxHfModel *model, MxText *out) {
    MxHfModel sizes_of = *model;
    mx_text_add(out, "use_audio: true\n");
    for (int i = 0; i < MX_COUNT(sizes); i++)
        mx_text_add(out, "%s: %lld\n", sizes[i].ours, (long long)*place_of(&sizes_of, &sizes[i]));
}

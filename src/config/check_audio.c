/* check_audio.c — combinations of sizes of audio encoders that are not allowed. */
#include "check.h"

static void check_sizes(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_d_model_for_audio) && c->d_model_for_audio % 2)
        config_fail(load, MX_KEY_d_model_for_audio,
                    "%lld: half of it are sines of positions, so it wants an even number",
                    (long long)c->d_model_for_audio);
    if (GOOD(load, MX_KEY_d_model_for_audio, MX_KEY_encoder_attention_heads_for_audio) &&
        c->d_model_for_audio % c->encoder_attention_heads_for_audio)
        config_fail(load,
                    config_culprit(load, MX_KEY_encoder_attention_heads_for_audio,
                                   MX_KEY_d_model_for_audio),
                    "%lld heads do not divide d_model_for_audio %lld",
                    (long long)c->encoder_attention_heads_for_audio,
                    (long long)c->d_model_for_audio);
    if (GOOD(load, MX_KEY_output_dim_for_audio, MX_KEY_base_emb_dim) &&
        c->output_dim_for_audio != c->emb_dim)
        config_fail(load, MX_KEY_output_dim_for_audio,
                    "wants base_emb_dim, which is %lld, found %lld", (long long)c->emb_dim,
                    (long long)c->output_dim_for_audio);
    if (GOOD(load, MX_KEY_n_window_for_audio, MX_KEY_n_window_infer_for_audio) &&
        c->n_window_infer_for_audio % (2 * c->n_window_for_audio))
        config_fail(
            load, MX_KEY_n_window_infer_for_audio,
            "wants a multiple of twice n_window_for_audio, which is %lld frames, found %lld",
            (long long)(2 * c->n_window_for_audio), (long long)c->n_window_infer_for_audio);
}

void config_check_audio(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_audio, MX_KEY_use_multimodal, MX_KEY_vision_encoder_block)) return;
    if (!c->use_audio || !c->use_multimodal) return;
    const MxEncoder *encoder = mx_encoder_find(c->vision_encoder_block);
    if (encoder && !encoder->audio)
        config_fail(load, MX_KEY_use_audio,
                    "true, but no audio encoder goes with vision_encoder_block \"%s\"; wants "
                    "\"qwen3_omni\"",
                    encoder->name);
    if (encoder && encoder->audio) check_sizes(load, c);
}

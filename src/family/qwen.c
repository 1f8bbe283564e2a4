/* qwen.c — Qwen 2 and 2.5 (biases on queries, keys and values), and Qwen 3 (dense; norms of queries
 * and keys), otherwise as Llama with scaled queries. Defaults of config.json are those of
 * transformers' classes of configs. Source: MaxText models/qwen2.py, qwen3.py @e591f30c. */
#include "rows.h"

const MxFamily family_qwen2 = {
    .decoder_block = "qwen2",
    .keeps_stream = true,
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .scales_query = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "qwen2",
              .architecture = "Qwen2ForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_ALWAYS,
              .window = MX_HF_WINDOW_SAID,
              .default_window = 4096,
              .default_kv_heads = 32},
};

const MxFamily family_qwen3 = {
    .decoder_block = "qwen3",
    .keeps_stream = true,
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .scales_query = true, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "qwen3",
              .architecture = "Qwen3ForCausalLM",
              .outer_type = "qwen3_vl",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .window = MX_HF_WINDOW_SAID,
              .default_window = 4096,
              .default_head_dim = 128,
              .default_kv_heads = 32},
};

/* MaxText makes all pictures as large as image_size_for_vit says; here they keep their form and, as
 * far as there is room, their size, as transformers' do. Source: MaxText models/qwen3_vl_vision.py
 * @e591f30c; transformers 5.23, models/qwen3_vl/processing_qwen3_vl.py. */
const MxEncoder encoder_qwen3_vl = {
    .name = "qwen3_vl",
    .decoders = "qwen3 qwen3_moe",
    .tower = "Qwen3VLVisionEncoder_0",
    .projector = "Qwen3VLVisionProjector_0",
    .deep = "merger_",
    .least_pixels = 65536,
    FAMILY_QWEN3_EYE,
    .hf = {.model_type = "qwen3_vl qwen3_vl_vision qwen3_vl_moe qwen3_vl_moe_vision",
           FAMILY_QWEN3_HF_EYE,
           .deep = "model.visual.deepstack_merger_list.",
           .mrope = {24, 20, 20}},
};

/* The thinker's. Source: MaxText models/qwen3.py (Qwen3OmniAudioEncoder, Qwen3OmniAudioProjector)
 * @e591f30c; transformers 5.23, models/qwen3_omni_moe. */
static const MxAudioEncoder audio_qwen3_omni = {
    .tower = "Qwen3OmniAudioEncoder_0",
    .projector = "Qwen3OmniAudioProjector_0",
    .layer = "layers_",
    .mark = "<|audio_start|><|audio_pad|><|audio_end|>",
    .begin = "<|audio_start|>",
    .token = "<|audio_pad|>",
    .end = "<|audio_end|>",
    .hf_type = "qwen3_omni_moe_audio_encoder",
    .hf_tower = "audio_tower.",
    .hf_layers = "audio_tower.layers.",
};

/* The thinker's: that of Qwen 3-VL under other names, for pictures that may be smaller. Source:
 * MaxText models/qwen3.py (Qwen3OmniMoeVisionEncoder), multimodal/processor_qwen3_omni.py
 * (MIN_PIXELS), checkpoint_conversion/utils/param_mapping.py @e591f30c; transformers 5.23,
 * models/qwen3_omni_moe and conversion_mapping.py (names in files and in memory). */
const MxEncoder encoder_qwen3_omni = {
    .name = "qwen3_omni",
    .decoders = "qwen3_moe",
    .tower = "Qwen3OmniMoeVisionEncoder_0",
    .projector = "Qwen3OmniMoeVisionProjector_0",
    .deep = "merger_",
    .least_pixels = 3136,
    FAMILY_QWEN3_EYE,
    .hf = {.model_type = "qwen3_omni_moe_vision_encoder",
           .text = {"", ""},
           .tower = "visual.",
           .layers = "visual.blocks.",
           .deep = "visual.merger_list.",
           .mrope = {24, 20, 20},
           .keeps_experts = true,
           .spelled = {{"thinker.visual.", "visual."},
                       {"model.visual.", "visual."},
                       {"thinker.audio_tower.", "audio_tower."}}},
    .audio = &audio_qwen3_omni,
};

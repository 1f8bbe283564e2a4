/* gemma.c — Gemma 1, 2 and 3, and Gemma 3's encoder of images (SigLIP). Norm scales hold 1 + w and
 * embeddings are multiplied with sqrt(emb_dim) in MaxText's trees already, so neither is done at
 * run time. Gemma 2: layers that see a window and layers that see all in turn, two of which MaxText
 * takes for one; norms behind blocks too. Gemma 3: five layers that see a window before each that
 * sees all, norms of queries and keys. Source: MaxText models/gemma.py, gemma2.py, gemma3.py
 * @e591f30c. */
#include "rows.h"

/* Defaults of config.json are those of transformers' classes of configs. */
#define GEMMA_HF                                                                                   \
    .activation = "gelu_pytorch_tanh", .our_activation = "gelu", .adds_one = true,                 \
    .scales_embedding = true, .is_tied = true

#define GEMMA_BLOCKS                                                                               \
    {                                                                                              \
        {.kind = MX_BLOCK_ATTENTION,                                                               \
         .name = "self_attention",                                                                 \
         .norm_before = "pre_self_attention_norm"},                                                \
        {                                                                                          \
            .kind = MX_BLOCK_GLU, .name = "mlp", .norm_before = "pre_ffw_norm"                     \
        }                                                                                          \
    }

const MxFamily family_gemma = {
    .decoder_block = "gemma",
    .specs = {{.block = GEMMA_BLOCKS, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "gemma",
              .architecture = "GemmaForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_SAID,
              .default_head_dim = 256,
              .default_kv_heads = 16,
              GEMMA_HF},
};

#define GEMMA2_LAYER(kind_of_layer)                                                                \
    .block = {{.kind = MX_BLOCK_ATTENTION,                                                         \
               .name = "self_attention_" kind_of_layer,                                            \
               .norm_before = "pre_self_attention_norm_" kind_of_layer,                            \
               .norm_after = "post_self_attention_norm_" kind_of_layer},                           \
              {.kind = MX_BLOCK_GLU,                                                               \
               .name = "mlp_" kind_of_layer,                                                       \
               .norm_before = "pre_ffw_norm_" kind_of_layer,                                       \
               .norm_after = "post_ffw_norm_" kind_of_layer}},                                     \
    .asks_norms_after = true, .has_out_bias = true

const MxFamily family_gemma2 = {
    .decoder_block = "gemma2",
    .specs = {{GEMMA2_LAYER("local"), .sees = MX_SEES_WINDOW},
              {GEMMA2_LAYER("global"), .sees = MX_SEES_ALL_BEFORE}},
    .n_specs = 2,
    .period = 1,
    .n_a_name = 2,
    .turns = {0, 1},
    .keys = "sliding_window_size use_post_attn_norm use_post_ffw_norm",
    .lora_modules = FAMILY_LORA_LAYERS "(self_attention_(local|global)/(query|key|value|out)|"
                                       "mlp_(local|global)/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "gemma2",
              .architecture = "Gemma2ForCausalLM",
              .tells_layers = true,
              .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                        "post_feedforward_layernorm"},
              .bias = MX_HF_BIAS_SAID,
              .window = MX_HF_WINDOW_TURNS,
              .default_window = 4096,
              .default_head_dim = 256,
              .default_kv_heads = 4,
              .has_caps = true,
              .default_attn_cap = 50,
              .default_final_cap = 30,
              .has_query_scalar = true,
              GEMMA_HF},
};

#define GEMMA3_LAYER                                                                               \
    .block = {{.kind = MX_BLOCK_ATTENTION,                                                         \
               .name = "self_attention",                                                           \
               .norm_before = "pre_self_attention_norm",                                           \
               .norm_after = "post_self_attention_norm"},                                          \
              {.kind = MX_BLOCK_GLU,                                                               \
               .name = "mlp",                                                                      \
               .norm_before = "pre_ffw_norm",                                                      \
               .norm_after = "post_ffw_norm"}},                                                    \
    .asks_norms_after = true, .scales_query = true, .has_out_bias = true, .norms_heads = true

const MxFamily family_gemma3 = {
    .decoder_block = "gemma3",
    .specs = {{GEMMA3_LAYER, .sees = MX_SEES_WINDOW, .rope = MX_ROPE_LOCAL},
              {GEMMA3_LAYER, .sees = MX_SEES_ALL_BEFORE}},
    .n_specs = 2,
    .period = 6,
    .ahead_is_first = true,
    .turns = {0, 0, 0, 0, 0, 1},
    .place = MX_STACK_PLACE,
    .mark = "/post_ffw_norm/scale",
    .keys = "sliding_window_size local_rope_max_timescale use_post_attn_norm use_post_ffw_norm",
    .lora_modules = FAMILY_LORA_LAYERS ".*"
                                       "(self_attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "gemma3_text",
              .architecture = "Gemma3ForCausalLM",
              .outer_type = "gemma3",
              .tells_layers = true,
              .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                        "post_feedforward_layernorm"},
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .window = MX_HF_WINDOW_TURNS,
              .default_window = 4096,
              .default_head_dim = 256,
              .default_kv_heads = 4,
              .default_heads = 8,
              .default_vocab = 262208,
              .default_theta = 1000000,
              .has_caps = true,
              .has_query_scalar = true,
              .has_local_rope = true,
              .has_own_theta = true,
              GEMMA_HF},
};

const MxEncoder encoder_gemma3 = {
    .name = "gemma3",
    .decoders = "gemma3",
    .tower = "Gemma3VisionEncoderLayer_0",
    .projector = "VisionEmbedder_0",
    .layer = "Transformer/encoderblock_",
    .pools = MX_POOLS_TO_LENGTH,
    .default_tokens = 256,
    .sees_itself = true,
    .mark = "<start_of_image>",
    .begin = "<start_of_image>",
    .token = "<image_soft_token>",
    .end = "<end_of_image>",
    .around = "\n\n",
    .whole = "",
    .turns = {"<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"},
    .hf = {.model_type = "siglip_vision_model",
           .text = {"language_model.", ""},
           .held = {"model.language_model.", "model."},
           .layers = "vision_tower.encoder.layers.",
           /* The tower was a model within a model before transformers 5. */
           .spelled = {{"vision_tower.vision_model.", "vision_tower."},
                       {"model.vision_tower.vision_model.", "vision_tower."},
                       {"model.", ""}}},
};

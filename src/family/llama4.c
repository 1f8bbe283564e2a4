/* llama4.c — Llama 4, and its encoder of images: layers that see a chunk of tokens, and, every so
 * many, layers that see all and rotate nothing; experts in every so many layers, of which each
 * token reads one, and a unit beside them that all tokens go to. Source: MaxText models/llama4.py
 * @e591f30c. */
#include "rows.h"

#define LLAMA4_ATTENTION                                                                           \
    {                                                                                              \
        .kind = MX_BLOCK_ATTENTION, .name = "self_attention",                                      \
        .norm_before = "pre_self_attention_layer_norm"                                             \
    }

#define LLAMA4_DENSE                                                                               \
    {                                                                                              \
        LLAMA4_ATTENTION, {                                                                        \
            .kind = MX_BLOCK_GLU, .name = "mlp", .norm_before = "post_self_attention_layer_norm"   \
        }                                                                                          \
    }

#define LLAMA4_SPARSE                                                                              \
    {                                                                                              \
        LLAMA4_ATTENTION, {                                                                        \
            .kind = MX_BLOCK_MOE, .name = "Llama4MoEBlock_0",                                      \
            .norm_before = "post_self_attention_layer_norm", .routed = "MoeBlock_0",               \
            .shared = "shared_experts", .router_axis = "embed_moe"                                 \
        }                                                                                          \
    }

#define LLAMA4_LAYER                                                                               \
    .norms_turned = true, .scales_query = true, .has_out_bias = true, .weighs = MX_WEIGHS_READ

#define LLAMA4_TURNED LLAMA4_LAYER, .sees = MX_SEES_CHUNK
#define LLAMA4_UNTURNED                                                                            \
    LLAMA4_LAYER, .sees = MX_SEES_ALL_BEFORE, .rope = MX_ROPE_NONE, .tunes_queries = true

const MxFamily family_llama4 = {
    .decoder_block = "llama4",
    .specs = {[0] = {.block = LLAMA4_DENSE, LLAMA4_TURNED},
              [2] = {.block = LLAMA4_DENSE, LLAMA4_UNTURNED},
              [1] = {.block = LLAMA4_SPARSE, LLAMA4_TURNED},
              [3] = {.block = LLAMA4_SPARSE, LLAMA4_UNTURNED}},
    .n_specs = 4,
    .period = 4,
    .keys_say_turns = MX_KIND_EXPERTS | MX_KIND_UNTURNED,
    .place = MX_STACK_PLACE,
    .stages_hold_places = true,
    .mark = "/Llama4MoEBlock_0/",
    .keys = FAMILY_MOE_KEYS " shared_experts chunk_attn_window_size nope_layer_interval "
                            "interleave_moe_layer_step inhomogeneous_layer_cycle_interval "
                            "temperature_tuning",
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "llama4_text",
              .architecture = "Llama4ForCausalLM",
              .outer_type = "llama4",
              .ties_within = true,
              .tells_layers = true,
              .norms = FAMILY_LLAMA_HF_NORMS,
              .interleaves = true,
              .are_neighbours = true,
              .ffn = "feed_forward",
              .shared = "shared_expert",
              .bias = MX_HF_BIAS_SAID,
              .experts = MX_HF_EXPERTS_HALVES,
              .has_own_mlp = true,
              .has_one_shared = true,
              .tells_turns = true,
              .sees_chunks = true,
              .tunes_queries = true,
              .norms_turned = true,
              .default_head_dim = 128,
              .default_kv_heads = 8,
              .default_heads = 40,
              .default_vocab = 202048,
              .default_theta = 500000,
              .default_epsilon = 1e-5,
              .default_chosen = 1},
};

const MxEncoder encoder_llama4 = {
    .name = "llama4",
    .decoders = "llama4",
    .tower = "Llama4VisionModel_0",
    .projector = "Llama4MultiModalProjector_0",
    .layer = "Llama4VisionEncoder_0/layers_",
    .pools = MX_POOLS_BY_RATIO,
    .has_tiles = true,
    .has_class = true,
    .first_place = 1,
    .keeps_squares = true,
    .splits_colours = true,
    .rounds = true,
    .drops = true,
    .mark = "<|image|>",
    .begin = "<|image_start|>",
    .token = "<|patch|>",
    .end = "<|image_end|>",
    .around = "",
    .beside = "<|tile_x_separator|>",
    .below = "<|tile_y_separator|>",
    .whole = "<|image|>",
    .turns = {"<|begin_of_text|><|header_start|>user<|header_end|>\n\n",
              "<|eot|><|header_start|>assistant<|header_end|>\n\n", "<|eot|>"},
    .hf = {.model_type = "llama4_vision_model",
           .text = {"language_model.", ""},
           .has_text_class = true,
           .layers = "vision_model.model.layers."},
};

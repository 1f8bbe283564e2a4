/* gemma4.c — Gemma 4, small ones and its encoder of images below. Gemma 4: five layers that see a
 * window before each that sees all, which has heads of its own, turns a part of them and may take
 * keys for values; norms of queries, keys and values, a number that each layer's result is
 * multiplied with; where num_experts says so, experts beside the feed-forward unit that all tokens
 * go to. Norm scales are kept as they are, embeddings multiplied with sqrt(emb_dim). Source:
 * MaxText models/gemma4.py
 * @e591f30c. */
#include "rows.h"

#define GEMMA4_ATTENTION                                                                           \
    {                                                                                              \
        .kind = MX_BLOCK_ATTENTION, .name = "self_attention",                                      \
        .norm_before = "pre_self_attention_norm", .norm_after = "post_self_attention_norm"         \
    }

#define GEMMA4_DENSE                                                                               \
    {                                                                                              \
        GEMMA4_ATTENTION, {                                                                        \
            .kind = MX_BLOCK_GLU, .name = "mlp", .norm_before = "pre_ffw_norm",                    \
            .norm_after = "post_ffw_norm"                                                          \
        }                                                                                          \
    }

#define GEMMA4_SPARSE                                                                              \
    {                                                                                              \
        GEMMA4_ATTENTION, {                                                                        \
            .kind = MX_BLOCK_MOE, .name = "mlp", .norm_before = "pre_ffw_norm",                    \
            .norm_after = "post_ffw_norm", .routed = "moe_block/MoeBlock_0",                       \
            .shared = "moe_block/shared_experts", .router_axis = "embed_moe",                      \
            .shared_is_mlp = true, .routed_norm = "pre_feedforward_layernorm_2",                   \
            .router_scale = "pre_forward_scale_2", .routed_after = "post_feedforward_layernorm_2", \
            .shared_after = "post_feedforward_layernorm_1"                                         \
        }                                                                                          \
    }

#define GEMMA4_LAYER                                                                               \
    .asks_norms_after = true, .norms_heads = true, .norms_values = true, .has_out_bias = true,     \
    .scalar = "layer_scalar", .weighs = MX_WEIGHS_ALL
#define GEMMA4_LOCAL GEMMA4_LAYER, .sees = MX_SEES_WINDOW, .rope = MX_ROPE_LOCAL_PART
#define GEMMA4_GLOBAL                                                                              \
    GEMMA4_LAYER, .sees = MX_SEES_ALL_BEFORE, .rope = MX_ROPE_GLOBAL_PART, .has_own_heads = true

enum { LOCAL, GLOBAL, WITH_EXPERTS };

/* Defaults are those of transformers' class of configs. */
#define GEMMA4_HF                                                                                  \
    .model_type = "gemma4_text", .architecture = "Gemma4ForCausalLM", .outer_type = "gemma4",      \
    .tells_layers = true, .like_gemma4 = true, .has_own_rope = true,                               \
    .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",          \
              "post_feedforward_layernorm"},                                                       \
    .bias = MX_HF_BIAS_SAID, .has_qk_norm = true, .window = MX_HF_WINDOW_TURNS,                    \
    .default_window = 512, .default_head_dim = 256, .default_kv_heads = 4, .default_heads = 8,     \
    .default_vocab = 262144, .has_caps = true, .activation = "gelu_pytorch_tanh",                  \
    .our_activation = "gelu", .scales_embedding = true, .is_tied = true

static const MxRuns gemma4_runs = {.outer = MX_STACK_BLOCKS,
                                   .run = {{"local_layers", 5}, {"global_layer", 1}}};

/* MaxText's own pattern of adapted modules misses the names of its stacks. */
const MxFamily family_gemma4 = {
    .decoder_block = "gemma4",
    .keeps_stream = true,
    .specs = {[LOCAL] = {.block = GEMMA4_DENSE, GEMMA4_LOCAL},
              [GLOBAL] = {.block = GEMMA4_DENSE, GEMMA4_GLOBAL},
              [WITH_EXPERTS + LOCAL] = {.block = GEMMA4_SPARSE, GEMMA4_LOCAL},
              [WITH_EXPERTS + GLOBAL] = {.block = GEMMA4_SPARSE, GEMMA4_GLOBAL}},
    .n_specs = 4,
    .expert_specs = WITH_EXPERTS,
    .ahead_is_first = true,
    .period = 6,
    .turns = {LOCAL, LOCAL, LOCAL, LOCAL, LOCAL, GLOBAL},
    .place = MX_STACK_PLACE,
    .runs = &gemma4_runs,
    .mark = "/layer_scalar",
    .keys = FAMILY_MOE_KEYS " shared_experts " FAMILY_GEMMA4_KEYS " share_kv_projections",
    .lora_modules = "decoder/((scanned_blocks|layers_remainder)/(local_layers|global_layer)/|"
                    "layers/)(self_attention/(query|key|value|out)|mlp/(.*/)?(wi_0|wi_1|wo))",
    .hf[0] = {GEMMA4_HF, .nothing_in = "hidden_size_per_layer_input", .routed = "",
              .asks_experts = true, .has_one_shared = true, .experts = MX_HF_EXPERTS_TURNED},
};

/* Gemma 4 E2B and E4B: the last layers take keys and values of earlier ones; every layer reads a
 * narrow input of its own, made of the token and its embedding. MaxText tells by the model's name
 * after how many layers one sees all; here a key says so. Source: MaxText models/gemma4_small.py
 * @e591f30c. */
const MxFamily family_gemma4_small = {
    .decoder_block = "gemma4_small",
    .keeps_stream = true,
    .specs = {{.block = GEMMA4_DENSE, GEMMA4_LOCAL},
              {.block = GEMMA4_DENSE, GEMMA4_GLOBAL},
              {.block = GEMMA4_DENSE, GEMMA4_LOCAL, .takes_kv = true},
              {.block = GEMMA4_DENSE, GEMMA4_GLOBAL, .takes_kv = true}},
    .n_specs = 4,
    .period = 1,
    .keys_say_turns = MX_KIND_LAST | MX_KIND_TAKES,
    .never_stacks = true,
    .has_inputs = true,
    .keys = FAMILY_GEMMA4_KEYS " inhomogeneous_layer_cycle_interval last_layer_sees_all "
                               "hidden_size_per_layer_input vocab_size_per_layer_input "
                               "num_kv_shared_layers use_double_wide_mlp",
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {GEMMA4_HF, .has_inputs = true, .default_cycle = 6},
};

/* MaxText makes all pictures as large as image_size_for_vit says; here they keep their form, as
 * Google's and transformers' do. Source: MaxText models/gemma4_vision.py, multimodal/
 * processor_gemma4.py @e591f30c; transformers 5.23, models/gemma4/processing_gemma4.py. */
const MxEncoder encoder_gemma4 = {
    .name = "gemma4",
    .decoders = "gemma4",
    .tower = "Gemma4VisionEncoderLayer_0",
    .projector = "Gemma4VisionProjector_0",
    .layer = "layer_",
    .pools = MX_POOLS_TO_LENGTH,
    .default_tokens = 280,
    .sees_itself = true,
    .in_windows = true,
    .keeps_form = true,
    .keeps_squares = true,
    .is_cubic = true,
    .is_plain = true,
    .mark = "<|image|>",
    .begin = "<|image>",
    .token = "<|image|>",
    .end = "<image|>",
    .around = "",
    .whole = "",
    .turns = {"<bos><|turn>user\n", "<turn|>\n<|turn>model\n", "<turn|>"},
    .hf = {.model_type = "gemma4_vision",
           .text = {"model.language_model.", "model."},
           .layers = "model.vision_tower.encoder.layers."},
};

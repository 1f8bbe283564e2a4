/* simple.c — MaxText's decoders that are nobody's model: those for benchmarks, one matrix a layer,
 * or two, and what they give is the stream, no norm, no attention, no activation; and its first.
 * Source: MaxText models/simple_layer.py @e591f30c. */
#include "rows.h"

const MxFamily family_simple = {
    .decoder_block = "simple",
    .keeps_stream = true,
    .specs = {{.block = {{.kind = MX_BLOCK_LINEAR, .name = "weights", .join = MX_JOIN_REPLACES}},
               .rope = MX_ROPE_NONE}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = "decoder/layers(_[0-9]+)?",
};

const MxFamily family_simple_mlp = {
    .decoder_block = "simple_mlp",
    .keeps_stream = true,
    .specs = {{.block = {{.kind = MX_BLOCK_LINEAR,
                          .name = "ff_1",
                          .gives = MX_WIDTH_MLP,
                          .join = MX_JOIN_GOES_ON},
                         {.kind = MX_BLOCK_LINEAR,
                          .name = "ff_2",
                          .reads = MX_WIDTH_MLP,
                          .join = MX_JOIN_REPLACES}},
               .rope = MX_ROPE_NONE}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = "decoder/layers(_[0-9]+)?",
};

/* MaxText's first decoder: attention and a feed-forward block side by side behind one norm. Source:
 * MaxText layers/decoders.py, DecoderLayer @e591f30c. */
const MxFamily family_default = {
    .decoder_block = "default",
    .specs = {{.block = {{.kind = MX_BLOCK_ATTENTION,
                          .name = "self_attention",
                          .norm_before = "pre_self_attention_norm",
                          .join = MX_JOIN_BESIDE},
                         {.kind = MX_BLOCK_GLU, .name = "mlp"}}}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
};

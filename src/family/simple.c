/* simple.c — MaxText's decoders for benchmarks: one matrix a layer, or two, and what they give is
 * the stream; no norm, no attention, no activation. Source: MaxText models/simple_layer.py
 * @e591f30c. */
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

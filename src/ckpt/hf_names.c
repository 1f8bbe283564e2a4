/* hf_names.c — the table of Hugging Face's names: one row per parameter of any family. The layout
 * of elements in the arrays is in hf_map.c. Source: MaxText
 * checkpoint_conversion/utils/param_mapping.py @e591f30c (PARAM_MAPPING), llama4_ckpt_unscanned.py;
 * transformers 5.23 models/<type>/modeling_<type>.py. */
#include "hf.h"

// clang-format off
const HfRow hf_rows[] = {
    {.holder = HF_MODEL, .ours = "token_embedder/embedding", .theirs = "model.embed_tokens.weight", .our_shape = "V D", .their_shape = "V D", .role = HF_TABLE},
    {.holder = HF_NORM, .ours = "scale", .theirs = "weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE},
    {.holder = HF_ATTENTION, .ours = "query/kernel", .theirs = "q_proj.weight", .our_shape = "D N H", .their_shape = "NH D", .role = HF_QUERY, .wants = HF_QKV | HF_PLAIN_Q},
    {.holder = HF_ATTENTION, .ours = "query/kernel", .theirs = "q_proj.weight", .our_shape = "D N 2H", .their_shape = "N2H D", .wants = HF_QKV | HF_GATED},
    {.holder = HF_ATTENTION, .ours = "key/kernel", .theirs = "k_proj.weight", .our_shape = "D K H", .their_shape = "KH D", .role = HF_KEY, .wants = HF_QKV | HF_KEYS},
    {.holder = HF_ATTENTION, .ours = "value/kernel", .theirs = "v_proj.weight", .our_shape = "D K H", .their_shape = "KH D", .wants = HF_QKV | HF_VALUES},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/kernel", .theirs = "q_proj.weight", .our_shape = "D N H", .their_shape = "NH D", .role = HF_QUERY, .wants = HF_ONE_QKV, .whole = "D Q H", .first = ""},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/kernel", .theirs = "k_proj.weight", .our_shape = "D K H", .their_shape = "KH D", .role = HF_KEY, .wants = HF_ONE_QKV, .whole = "D Q H", .first = "N"},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/kernel", .theirs = "v_proj.weight", .our_shape = "D K H", .their_shape = "KH D", .wants = HF_ONE_QKV, .whole = "D Q H", .first = "N+K"},
    {.holder = HF_ATTENTION, .ours = "out/kernel", .theirs = "o_proj.weight", .our_shape = "N H D", .their_shape = "D NH", .wants = HF_PLAIN_Q},
    {.holder = HF_ATTENTION, .ours = "out/kernel", .theirs = "o_proj.weight", .our_shape = "NH D", .their_shape = "D NH", .wants = HF_GATED},
    {.holder = HF_ATTENTION, .ours = "query/bias", .theirs = "q_proj.bias", .our_shape = "N H", .their_shape = "NH", .role = HF_QUERY, .wants = HF_BIAS | HF_QKV | HF_PLAIN_Q},
    {.holder = HF_ATTENTION, .ours = "query/bias", .theirs = "q_proj.bias", .our_shape = "N 2H", .their_shape = "N2H", .wants = HF_BIAS | HF_QKV | HF_GATED},
    {.holder = HF_ATTENTION, .ours = "key/bias", .theirs = "k_proj.bias", .our_shape = "K H", .their_shape = "KH", .role = HF_KEY, .wants = HF_BIAS | HF_QKV | HF_KEYS},
    {.holder = HF_ATTENTION, .ours = "value/bias", .theirs = "v_proj.bias", .our_shape = "K H", .their_shape = "KH", .wants = HF_BIAS | HF_QKV | HF_VALUES},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/bias", .theirs = "q_proj.bias", .our_shape = "N H", .their_shape = "NH", .role = HF_QUERY, .wants = HF_BIAS | HF_ONE_QKV, .whole = "Q H", .first = ""},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/bias", .theirs = "k_proj.bias", .our_shape = "K H", .their_shape = "KH", .role = HF_KEY, .wants = HF_BIAS | HF_ONE_QKV, .whole = "Q H", .first = "N"},
    {.holder = HF_ATTENTION, .ours = "qkv_proj/bias", .theirs = "v_proj.bias", .our_shape = "K H", .their_shape = "KH", .wants = HF_BIAS | HF_ONE_QKV, .whole = "Q H", .first = "N+K"},
    {.holder = HF_ATTENTION, .ours = "out/bias", .theirs = "o_proj.bias", .our_shape = "D", .their_shape = "D", .wants = HF_OUT_BIAS},
    {.holder = HF_ATTENTION, .ours = "query_norm/scale", .theirs = "q_norm.weight", .our_shape = "H", .their_shape = "H", .role = HF_SCALE, .wants = HF_QK_NORM | HF_APART},
    {.holder = HF_ATTENTION, .ours = "key_norm/scale", .theirs = "k_norm.weight", .our_shape = "H", .their_shape = "H", .role = HF_SCALE, .wants = HF_QK_NORM | HF_APART | HF_KEYS},
    {.holder = HF_ATTENTION, .ours = "query_norm/scale", .theirs = "q_norm.weight", .our_shape = "NH", .their_shape = "NH", .role = HF_SCALE, .wants = HF_QK_NORM | HF_TOGETHER},
    {.holder = HF_ATTENTION, .ours = "key_norm/scale", .theirs = "k_norm.weight", .our_shape = "KH", .their_shape = "KH", .role = HF_SCALE, .wants = HF_QK_NORM | HF_TOGETHER},
    {.holder = HF_ATTENTION, .ours = "sinks", .theirs = "sinks", .our_shape = "N", .their_shape = "N", .wants = HF_SINKS},
    {.holder = HF_MLA, .ours = "query/kernel", .theirs = "q_proj.weight", .our_shape = "D N h", .their_shape = "Nh D", .wants = HF_WIDE_Q},
    {.holder = HF_MLA, .ours = "wq_a/kernel", .theirs = "q_a_proj.weight", .our_shape = "D q", .their_shape = "q D", .wants = HF_NARROW_Q},
    {.holder = HF_MLA, .ours = "q_norm/scale", .theirs = "q_a_layernorm.weight", .our_shape = "q", .their_shape = "q", .role = HF_SCALE, .wants = HF_NARROW_Q},
    {.holder = HF_MLA, .ours = "wq_b/kernel", .theirs = "q_b_proj.weight", .our_shape = "q N h", .their_shape = "Nh q", .wants = HF_NARROW_Q},
    {.holder = HF_MLA, .ours = "wkv_a/kernel", .theirs = "kv_a_proj_with_mqa.weight", .our_shape = "D a", .their_shape = "a D"},
    {.holder = HF_MLA, .ours = "kv_norm/scale", .theirs = "kv_a_layernorm.weight", .our_shape = "c", .their_shape = "c", .role = HF_SCALE},
    {.holder = HF_MLA, .ours = "wkv_b/kernel", .theirs = "kv_b_proj.weight", .our_shape = "c N u", .their_shape = "Nu c"},
    {.holder = HF_MLA, .ours = "out/kernel", .theirs = "o_proj.weight", .our_shape = "N v D", .their_shape = "D Nv"},
    {.holder = HF_MLA, .ours = "indexer/wq_b/kernel", .theirs = "indexer.wq_b.weight", .our_shape = "q g e", .their_shape = "ge q", .wants = HF_INDEXER},
    {.holder = HF_MLA, .ours = "indexer/wk/kernel", .theirs = "indexer.wk.weight", .our_shape = "D e", .their_shape = "e D", .wants = HF_INDEXER},
    {.holder = HF_MLA, .ours = "indexer/k_norm/scale", .theirs = "indexer.k_norm.weight", .our_shape = "e", .their_shape = "e", .wants = HF_INDEXER},
    {.holder = HF_MLA, .ours = "indexer/k_norm/bias", .theirs = "indexer.k_norm.bias", .our_shape = "e", .their_shape = "e", .wants = HF_INDEXER},
    {.holder = HF_MLA, .ours = "indexer/weights_proj/kernel", .theirs = "indexer.weights_proj.weight", .our_shape = "D g", .their_shape = "g D", .wants = HF_INDEXER},
    {.holder = HF_DELTA, .ours = "in_proj_qkvz/kernel", .theirs = "in_proj_qkvz.weight", .our_shape = "D Z", .their_shape = "Z D", .wants = HF_DELTA_ONE},
    {.holder = HF_DELTA, .ours = "in_proj_ba/kernel", .theirs = "in_proj_ba.weight", .our_shape = "D B", .their_shape = "B D", .wants = HF_DELTA_ONE},
    {.holder = HF_DELTA, .ours = "in_proj_qkvz/kernel", .theirs = "in_proj_qkv.weight", .our_shape = "D I", .their_shape = "I D", .wants = HF_DELTA_APART, .whole = "D Z", .first = "%Y", .their_whole = "G D", .their_first = "%I", .each = 'J'},
    {.holder = HF_DELTA, .ours = "in_proj_qkvz/kernel", .theirs = "in_proj_qkv.weight", .our_shape = "D I", .their_shape = "I D", .wants = HF_DELTA_APART, .whole = "D Z", .first = "%Y+I", .their_whole = "G D", .their_first = "JI+%I", .each = 'J'},
    {.holder = HF_DELTA, .ours = "in_proj_qkvz/kernel", .theirs = "in_proj_qkv.weight", .our_shape = "D R", .their_shape = "R D", .wants = HF_DELTA_APART, .whole = "D Z", .first = "%Y+2I", .their_whole = "G D", .their_first = "2JI+%R", .each = 'J'},
    {.holder = HF_DELTA, .ours = "in_proj_qkvz/kernel", .theirs = "in_proj_z.weight", .our_shape = "D R", .their_shape = "R D", .wants = HF_DELTA_APART, .whole = "D Z", .first = "%Y+2I+R", .their_whole = "F D", .their_first = "%R", .each = 'J'},
    {.holder = HF_DELTA, .ours = "in_proj_ba/kernel", .theirs = "in_proj_b.weight", .our_shape = "D U", .their_shape = "U D", .wants = HF_DELTA_APART, .whole = "D B", .first = "%2U", .their_whole = "A D", .their_first = "%U", .each = 'J'},
    {.holder = HF_DELTA, .ours = "in_proj_ba/kernel", .theirs = "in_proj_a.weight", .our_shape = "D U", .their_shape = "U D", .wants = HF_DELTA_APART, .whole = "D B", .first = "%2U+U", .their_whole = "A D", .their_first = "%U", .each = 'J'},
    {.holder = HF_DELTA, .ours = "conv1d/kernel", .theirs = "conv1d.weight", .our_shape = "C 1 G", .their_shape = "G 1 C"},
    {.holder = HF_DELTA, .ours = "A_log", .theirs = "A_log", .our_shape = "A", .their_shape = "A"},
    {.holder = HF_DELTA, .ours = "dt_bias", .theirs = "dt_bias", .our_shape = "A", .their_shape = "A"},
    {.holder = HF_DELTA, .ours = "norm/rms_norm/scale", .theirs = "norm.weight", .our_shape = "W", .their_shape = "W"},
    {.holder = HF_DELTA, .ours = "out_proj/kernel", .theirs = "out_proj.weight", .our_shape = "F D", .their_shape = "D F"},
    {.holder = HF_NORM, .norm = 1, .ours = "scale", .theirs = "weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE},
    {.holder = HF_NORM, .norm = 2, .ours = "scale", .theirs = "weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE},
    {.holder = HF_GLU, .ours = "wi_0/kernel", .theirs = "gate_proj.weight", .our_shape = "D M", .their_shape = "M D", .wants = HF_MLP},
    {.holder = HF_GLU, .ours = "wi_1/kernel", .theirs = "up_proj.weight", .our_shape = "D M", .their_shape = "M D", .wants = HF_MLP},
    {.holder = HF_GLU, .ours = "wi/kernel", .theirs = "gate_proj.weight", .our_shape = "D 1 M", .their_shape = "M D", .wants = HF_ONE_MLP, .whole = "D 2 M", .first = ""},
    {.holder = HF_GLU, .ours = "wi/kernel", .theirs = "up_proj.weight", .our_shape = "D 1 M", .their_shape = "M D", .wants = HF_ONE_MLP, .whole = "D 2 M", .first = "1"},
    {.holder = HF_GLU, .ours = "wo/kernel", .theirs = "down_proj.weight", .our_shape = "M D", .their_shape = "D M"},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "gate.weight", .our_shape = "D X", .their_shape = "X D", .experts = MX_HF_EXPERTS_W},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.%d.w1.weight", .our_shape = "1 D E", .their_shape = "E D", .experts = MX_HF_EXPERTS_W, .whole = "X D E", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.%d.w3.weight", .our_shape = "1 D E", .their_shape = "E D", .experts = MX_HF_EXPERTS_W, .whole = "X D E", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.%d.w2.weight", .our_shape = "1 E D", .their_shape = "D E", .experts = MX_HF_EXPERTS_W, .whole = "X E D", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "gate.weight", .our_shape = "D X", .their_shape = "X D", .experts = MX_HF_EXPERTS_PROJ},
    {.holder = HF_ROUTED, .ours = "gate/bias", .theirs = "gate.e_score_correction_bias", .our_shape = "X", .their_shape = "X", .wants = HF_SCORE_BIAS, .experts = MX_HF_EXPERTS_PROJ},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.%d.gate_proj.weight", .our_shape = "1 D E", .their_shape = "E D", .experts = MX_HF_EXPERTS_PROJ, .whole = "X D E", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.%d.up_proj.weight", .our_shape = "1 D E", .their_shape = "E D", .experts = MX_HF_EXPERTS_PROJ, .whole = "X D E", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.%d.down_proj.weight", .our_shape = "1 E D", .their_shape = "D E", .experts = MX_HF_EXPERTS_PROJ, .whole = "X E D", .first = "%", .each = 'X'},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "router.weight", .our_shape = "D X", .their_shape = "X D", .experts = MX_HF_EXPERTS_HALVES},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D 2E", .experts = MX_HF_EXPERTS_HALVES},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D 2E", .experts = MX_HF_EXPERTS_HALVES, .which = 1},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.down_proj", .our_shape = "X E D", .their_shape = "X E D", .experts = MX_HF_EXPERTS_HALVES},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "gate.weight", .our_shape = "D X", .their_shape = "X D", .experts = MX_HF_EXPERTS_GATED},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D 2E", .experts = MX_HF_EXPERTS_GATED},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D 2E", .experts = MX_HF_EXPERTS_GATED, .which = 1},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.down_proj", .our_shape = "X E D", .their_shape = "X E D", .experts = MX_HF_EXPERTS_GATED},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "gate.weight", .our_shape = "D X", .their_shape = "X D", .wants = HF_PLAIN_ROUTER, .experts = MX_HF_EXPERTS_TURNED},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "router.proj.weight", .our_shape = "D X", .their_shape = "X D", .wants = HF_OWN_ROUTER, .experts = MX_HF_EXPERTS_TURNED},
    {.holder = HF_ROUTED, .ours = "per_expert_scale", .theirs = "router.per_expert_scale", .our_shape = "X", .their_shape = "X", .wants = HF_OWN_ROUTER},
    {.holder = HF_MOE, .ours = "pre_forward_scale_2", .theirs = "router.scale", .our_shape = "D", .their_shape = "D", .wants = HF_OWN_ROUTER},
    {.holder = HF_MOE, .ours = "pre_feedforward_layernorm_2/scale", .theirs = "pre_feedforward_layernorm_2.weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE, .wants = HF_OWN_ROUTER},
    {.holder = HF_MOE, .ours = "post_feedforward_layernorm_1/scale", .theirs = "post_feedforward_layernorm_1.weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE, .wants = HF_OWN_ROUTER},
    {.holder = HF_MOE, .ours = "post_feedforward_layernorm_2/scale", .theirs = "post_feedforward_layernorm_2.weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE, .wants = HF_OWN_ROUTER},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X 2E D", .experts = MX_HF_EXPERTS_TURNED},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X 2E D", .experts = MX_HF_EXPERTS_TURNED, .which = 1},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.down_proj", .our_shape = "X E D", .their_shape = "X D E", .experts = MX_HF_EXPERTS_TURNED},
    {.holder = HF_ROUTED, .ours = "gate/kernel", .theirs = "router.weight", .our_shape = "D X", .their_shape = "X D", .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_ROUTED, .ours = "gate/bias", .theirs = "router.bias", .our_shape = "X", .their_shape = "X", .wants = HF_SCORE_BIAS, .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_ROUTED, .ours = "wi_0", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D E2", .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_ROUTED, .ours = "wi_1", .theirs = "experts.gate_up_proj", .our_shape = "X D E", .their_shape = "X D E2", .experts = MX_HF_EXPERTS_PAIRS, .which = 1},
    {.holder = HF_ROUTED, .ours = "wo", .theirs = "experts.down_proj", .our_shape = "X E D", .their_shape = "X E D", .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_ROUTED, .ours = "wi_0_bias", .theirs = "experts.gate_up_proj_bias", .our_shape = "X E", .their_shape = "X E2", .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_ROUTED, .ours = "wi_1_bias", .theirs = "experts.gate_up_proj_bias", .our_shape = "X E", .their_shape = "X E2", .experts = MX_HF_EXPERTS_PAIRS, .which = 1},
    {.holder = HF_ROUTED, .ours = "wo_bias", .theirs = "experts.down_proj_bias", .our_shape = "X D", .their_shape = "X D", .experts = MX_HF_EXPERTS_PAIRS},
    {.holder = HF_SHARED, .ours = "wi_0/kernel", .theirs = "gate_proj.weight", .our_shape = "D S", .their_shape = "S D", .wants = HF_MLP},
    {.holder = HF_SHARED, .ours = "wi_1/kernel", .theirs = "up_proj.weight", .our_shape = "D S", .their_shape = "S D", .wants = HF_MLP},
    {.holder = HF_SHARED, .ours = "wi/kernel", .theirs = "gate_proj.weight", .our_shape = "D 1 S", .their_shape = "S D", .wants = HF_ONE_MLP, .whole = "D 2 S", .first = ""},
    {.holder = HF_SHARED, .ours = "wi/kernel", .theirs = "up_proj.weight", .our_shape = "D 1 S", .their_shape = "S D", .wants = HF_ONE_MLP, .whole = "D 2 S", .first = "1"},
    {.holder = HF_SHARED, .ours = "wo/kernel", .theirs = "down_proj.weight", .our_shape = "S D", .their_shape = "D S"},
    {.holder = HF_SHARED_GATE, .ours = "kernel", .theirs = "shared_expert_gate.weight", .our_shape = "D 1", .their_shape = "1 D"},
    {.holder = HF_NORM, .norm = 3, .ours = "scale", .theirs = "weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE},
    {.holder = HF_LAYER, .ours = "layer_scalar", .theirs = "layer_scalar", .our_shape = "1", .their_shape = "1", .wants = HF_SCALAR},
    {.holder = HF_LAYER, .ours = "per_layer_input_gate/kernel", .theirs = "per_layer_input_gate.weight", .our_shape = "D l", .their_shape = "l D", .wants = HF_INPUTS},
    {.holder = HF_LAYER, .ours = "per_layer_projection/kernel", .theirs = "per_layer_projection.weight", .our_shape = "l D", .their_shape = "D l", .wants = HF_INPUTS},
    {.holder = HF_LAYER, .ours = "post_per_layer_input_norm/scale", .theirs = "post_per_layer_input_norm.weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE, .wants = HF_INPUTS},
    {.holder = HF_MODEL, .ours = "decoder/per_layer_embedder/embed_tokens_per_layer", .theirs = "model.embed_tokens_per_layer.weight", .our_shape = "O L", .their_shape = "O L", .wants = HF_INPUTS},
    {.holder = HF_MODEL, .ours = "decoder/per_layer_embedder/per_layer_model_projection/kernel", .theirs = "model.per_layer_model_projection.weight", .our_shape = "D L", .their_shape = "L D", .wants = HF_INPUTS},
    {.holder = HF_MODEL, .ours = "decoder/per_layer_embedder/per_layer_projection_norm/scale", .theirs = "model.per_layer_projection_norm.weight", .our_shape = "l", .their_shape = "l", .role = HF_SCALE, .wants = HF_INPUTS},
    {.holder = HF_MODEL, .ours = "decoder/decoder_norm/scale", .theirs = "model.norm.weight", .our_shape = "D", .their_shape = "D", .role = HF_SCALE},
    {.holder = HF_MODEL, .ours = "decoder/logits_dense/kernel", .theirs = "lm_head.weight", .our_shape = "D V", .their_shape = "V D", .wants = HF_UNTIED},
    {.holder = HF_MODEL, .ours = "decoder/score/kernel", .theirs = "score.weight", .our_shape = "D 1", .their_shape = "1 D", .wants = HF_SCORE},
    {.holder = HF_EYE, .ours = "Gemma3VisionEncoderLayer_0/embedding/kernel", .theirs = "vision_tower.embeddings.patch_embedding.weight", .our_shape = "p r 3 d", .their_shape = "d 3 p r", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "Gemma3VisionEncoderLayer_0/embedding/bias", .theirs = "vision_tower.embeddings.patch_embedding.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "Gemma3VisionEncoderLayer_0/pos_embedding", .theirs = "vision_tower.embeddings.position_embedding.weight", .our_shape = "1 P d", .their_shape = "P d", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "Gemma3VisionEncoderLayer_0/Transformer/encoder_norm/scale", .theirs = "vision_tower.post_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "Gemma3VisionEncoderLayer_0/Transformer/encoder_norm/bias", .theirs = "vision_tower.post_layernorm.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "VisionEmbedder_0/mm_soft_embedding_norm/scale", .theirs = "multi_modal_projector.mm_soft_emb_norm.weight", .our_shape = "d", .their_shape = "d", .role = HF_SCALE, .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "VisionEmbedder_0/mm_input_projection/w", .theirs = "multi_modal_projector.mm_input_projection_weight", .our_shape = "d D", .their_shape = "d D", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "LayerNorm_0/scale", .theirs = "layer_norm1.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "LayerNorm_0/bias", .theirs = "layer_norm1.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "LayerNorm_1/scale", .theirs = "layer_norm2.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "LayerNorm_1/bias", .theirs = "layer_norm2.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/query/kernel", .theirs = "self_attn.q_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/query/bias", .theirs = "self_attn.q_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/key/kernel", .theirs = "self_attn.k_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/key/bias", .theirs = "self_attn.k_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/value/kernel", .theirs = "self_attn.v_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/value/bias", .theirs = "self_attn.v_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/out/kernel", .theirs = "self_attn.out_proj.weight", .our_shape = "n o d", .their_shape = "d no", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MultiHeadDotProductAttention_0/out/bias", .theirs = "self_attn.out_proj.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MlpBlockViT_0/Dense_0/kernel", .theirs = "mlp.fc1.weight", .our_shape = "d w", .their_shape = "w d", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MlpBlockViT_0/Dense_0/bias", .theirs = "mlp.fc1.bias", .our_shape = "w", .their_shape = "w", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MlpBlockViT_0/Dense_1/kernel", .theirs = "mlp.fc2.weight", .our_shape = "w d", .their_shape = "d w", .encoder = "gemma3"},
    {.holder = HF_EYE_LAYER, .ours = "MlpBlockViT_0/Dense_1/bias", .theirs = "mlp.fc2.bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma3"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/class_embedding", .theirs = "vision_model.class_embedding", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/positional_embedding_vlm", .theirs = "vision_model.positional_embedding_vlm", .our_shape = "T d", .their_shape = "T d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/Llama4UnfoldConvolution_0/vit_unfold_linear/kernel", .theirs = "vision_model.patch_embedding.linear.weight", .our_shape = "3pr d", .their_shape = "d 3pr", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/layernorm_pre/scale", .theirs = "vision_model.layernorm_pre.weight", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/layernorm_pre/bias", .theirs = "vision_model.layernorm_pre.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/layernorm_post/scale", .theirs = "vision_model.layernorm_post.weight", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/layernorm_post/bias", .theirs = "vision_model.layernorm_post.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/Llama4VisionPixelShuffleMLP_0/pixel_shuffle_mlp/vit_pixel_shuffle_mlp_fc1/kernel", .theirs = "vision_model.vision_adapter.mlp.fc1.weight", .our_shape = "w i", .their_shape = "i w", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4VisionModel_0/Llama4VisionPixelShuffleMLP_0/pixel_shuffle_mlp/vit_pixel_shuffle_mlp_fc2/kernel", .theirs = "vision_model.vision_adapter.mlp.fc2.weight", .our_shape = "i j", .their_shape = "j i", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Llama4MultiModalProjector_0/vit_multi_modal_projector/kernel", .theirs = "multi_modal_projector.linear_1.weight", .our_shape = "k D", .their_shape = "D k", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "input_layer_norm/scale", .theirs = "input_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "input_layer_norm/bias", .theirs = "input_layernorm.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "post_attention_layer_norm/scale", .theirs = "post_attention_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "post_attention_layer_norm/bias", .theirs = "post_attention_layernorm.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/query/kernel", .theirs = "self_attn.q_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/query/bias", .theirs = "self_attn.q_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/key/kernel", .theirs = "self_attn.k_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/key/bias", .theirs = "self_attn.k_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/value/kernel", .theirs = "self_attn.v_proj.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/value/bias", .theirs = "self_attn.v_proj.bias", .our_shape = "n o", .their_shape = "no", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/out/kernel", .theirs = "self_attn.o_proj.weight", .our_shape = "n o d", .their_shape = "d no", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "self_attention_vision/out/bias", .theirs = "self_attn.o_proj.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc1/kernel", .theirs = "mlp.fc1.weight", .our_shape = "d w", .their_shape = "w d", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc1/bias", .theirs = "mlp.fc1.bias", .our_shape = "w", .their_shape = "w", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc2/kernel", .theirs = "mlp.fc2.weight", .our_shape = "w d", .their_shape = "d w", .encoder = "llama4"},
    {.holder = HF_EYE_LAYER, .ours = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc2/bias", .theirs = "mlp.fc2.bias", .our_shape = "d", .their_shape = "d", .encoder = "llama4"},
    {.holder = HF_EYE, .ours = "Gemma4VisionEncoderLayer_0/vision_entry/input_projection/kernel", .theirs = "model.vision_tower.patch_embedder.input_proj.weight", .our_shape = "pr3 d", .their_shape = "d pr3", .encoder = "gemma4"},
    {.holder = HF_EYE, .ours = "Gemma4VisionEncoderLayer_0/vision_entry/pos_emb_param", .theirs = "model.vision_tower.patch_embedder.position_embedding_table", .our_shape = "t 2 d", .their_shape = "2 t d", .encoder = "gemma4"},
    {.holder = HF_EYE, .ours = "Gemma4VisionEncoderLayer_0/std_bias", .theirs = "model.vision_tower.std_bias", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE, .ours = "Gemma4VisionEncoderLayer_0/std_scale", .theirs = "model.vision_tower.std_scale", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE, .ours = "Gemma4VisionProjector_0/projection/kernel", .theirs = "model.embed_vision.embedding_projection.weight", .our_shape = "d D", .their_shape = "D d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/query/kernel", .theirs = "self_attn.q_proj.linear.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/key/kernel", .theirs = "self_attn.k_proj.linear.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/value/kernel", .theirs = "self_attn.v_proj.linear.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/out/kernel", .theirs = "self_attn.o_proj.linear.weight", .our_shape = "n o d", .their_shape = "d no", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/query_norm/scale", .theirs = "self_attn.q_norm.weight", .our_shape = "o", .their_shape = "o", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "attention/key_norm/scale", .theirs = "self_attn.k_norm.weight", .our_shape = "o", .their_shape = "o", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "pre_attention_norm/scale", .theirs = "input_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "post_attention_norm/scale", .theirs = "post_attention_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "pre_ffw_norm/scale", .theirs = "pre_feedforward_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "post_ffw_norm/scale", .theirs = "post_feedforward_layernorm.weight", .our_shape = "d", .their_shape = "d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "mlp/wi_0/kernel", .theirs = "mlp.gate_proj.linear.weight", .our_shape = "d w", .their_shape = "w d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "mlp/wi_1/kernel", .theirs = "mlp.up_proj.linear.weight", .our_shape = "d w", .their_shape = "w d", .encoder = "gemma4"},
    {.holder = HF_EYE_LAYER, .ours = "mlp/wo/kernel", .theirs = "mlp.down_proj.linear.weight", .our_shape = "w d", .their_shape = "d w", .encoder = "gemma4"},
    {.holder = HF_EYE_TOWER, .ours = "patch_embed/proj/kernel", .theirs = "patch_embed.proj.weight", .our_shape = "f p r 3 d", .their_shape = "d 3 f p r", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_TOWER, .ours = "patch_embed/proj/bias", .theirs = "patch_embed.proj.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_TOWER, .ours = "pos_embed_interpolate/pos_embed", .theirs = "pos_embed.weight", .our_shape = "t d", .their_shape = "t d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "ln1/scale", .theirs = "norm1.weight", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "ln1/bias", .theirs = "norm1.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "ln2/scale", .theirs = "norm2.weight", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "ln2/bias", .theirs = "norm2.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/query/kernel", .theirs = "attn.qkv.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d d", .their_first = ""},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/query/bias", .theirs = "attn.qkv.bias", .our_shape = "n o", .their_shape = "no", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d", .their_first = ""},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/key/kernel", .theirs = "attn.qkv.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d d", .their_first = "d"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/key/bias", .theirs = "attn.qkv.bias", .our_shape = "n o", .their_shape = "no", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d", .their_first = "d"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/value/kernel", .theirs = "attn.qkv.weight", .our_shape = "d n o", .their_shape = "no d", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d d", .their_first = "2d"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/value/bias", .theirs = "attn.qkv.bias", .our_shape = "n o", .their_shape = "no", .encoder = "qwen3_vl qwen3_5 qwen3_omni", .their_whole = "3d", .their_first = "2d"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/out/kernel", .theirs = "attn.proj.weight", .our_shape = "n o d", .their_shape = "d no", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "attn/attn/out/bias", .theirs = "attn.proj.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "mlp/kernel", .theirs = "mlp.linear_fc1.weight", .our_shape = "d w", .their_shape = "w d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "mlp/bias", .theirs = "mlp.linear_fc1.bias", .our_shape = "w", .their_shape = "w", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "mlp_out/kernel", .theirs = "mlp.linear_fc2.weight", .our_shape = "w d", .their_shape = "d w", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_LAYER, .ours = "mlp_out/bias", .theirs = "mlp.linear_fc2.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5 qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "ln_q/scale", .theirs = "norm.weight", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_DEEP, .ours = "ln_q/bias", .theirs = "norm.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_0/kernel", .theirs = "linear_fc1.weight", .our_shape = "m x", .their_shape = "x m", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_0/bias", .theirs = "linear_fc1.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_2/kernel", .theirs = "linear_fc2.weight", .our_shape = "m D", .their_shape = "D m", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_2/bias", .theirs = "linear_fc2.bias", .our_shape = "D", .their_shape = "D", .encoder = "qwen3_vl"},
    {.holder = HF_EYE_EXIT, .ours = "merger/ln_q/scale", .theirs = "merger.norm.weight", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_EXIT, .ours = "merger/ln_q/bias", .theirs = "merger.norm.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_0/kernel", .theirs = "merger.linear_fc1.weight", .our_shape = "m x", .their_shape = "x m", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_0/bias", .theirs = "merger.linear_fc1.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_2/kernel", .theirs = "merger.linear_fc2.weight", .our_shape = "m D", .their_shape = "D m", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_2/bias", .theirs = "merger.linear_fc2.bias", .our_shape = "D", .their_shape = "D", .encoder = "qwen3_vl qwen3_5"},
    {.holder = HF_EYE_DEEP, .ours = "ln_q/scale", .theirs = "ln_q.weight", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "ln_q/bias", .theirs = "ln_q.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_0/kernel", .theirs = "mlp.0.weight", .our_shape = "m x", .their_shape = "x m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_0/bias", .theirs = "mlp.0.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_2/kernel", .theirs = "mlp.2.weight", .our_shape = "m D", .their_shape = "D m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_DEEP, .ours = "mlp_2/bias", .theirs = "mlp.2.bias", .our_shape = "D", .their_shape = "D", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/ln_q/scale", .theirs = "merger.ln_q.weight", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/ln_q/bias", .theirs = "merger.ln_q.bias", .our_shape = "d", .their_shape = "d", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_0/kernel", .theirs = "merger.mlp.0.weight", .our_shape = "m x", .their_shape = "x m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_0/bias", .theirs = "merger.mlp.0.bias", .our_shape = "m", .their_shape = "m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_2/kernel", .theirs = "merger.mlp.2.weight", .our_shape = "m D", .their_shape = "D m", .encoder = "qwen3_omni"},
    {.holder = HF_EYE_EXIT, .ours = "merger/mlp_2/bias", .theirs = "merger.mlp.2.bias", .our_shape = "D", .their_shape = "D", .encoder = "qwen3_omni"},
};
// clang-format on
const int hf_n_rows = MX_COUNT(hf_rows);

/* ---- parameters of a model */

int hf_each(const MxHfModel *model, const HfRow *row) {
    return row->each ? (int)hf_size(model, NULL, row->each) : 1;
}

static const MxBlockKind kinds[HF_EYE_DEEP + 1] = {[HF_ATTENTION] = MX_BLOCK_ATTENTION,
                                                   [HF_MLA] = MX_BLOCK_MLA,
                                                   [HF_DELTA] = MX_BLOCK_DELTA,
                                                   [HF_GLU] = MX_BLOCK_GLU,
                                                   [HF_MOE] = MX_BLOCK_MOE,
                                                   [HF_ROUTED] = MX_BLOCK_MOE,
                                                   [HF_SHARED] = MX_BLOCK_MOE,
                                                   [HF_SHARED_GATE] = MX_BLOCK_MOE};

/* Our name of what a row is in: a block, a part of one, or a norm around it; NULL = this layer has
 * none. */
static const char *part_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int layer) {
    MxLayers layers = hf_model_layers(model);
    const MxLayerSpec *spec = mx_layer_spec(&layers, layer);
    if (row->holder == HF_LAYER) return "";
    if (row->holder == HF_NORM) {
        const MxBlockSpec *block = &spec->block[row->norm / 2];
        return row->norm % 2 ? block->norm_after : block->norm_before;
    }
    int b = 0;
    while (b < MX_LAYER_BLOCKS && spec->block[b].kind != kinds[row->holder]) b++;
    if (b == MX_LAYER_BLOCKS) return NULL;
    const MxBlockSpec *block = &spec->block[b];
    const char *const inner[] = {[HF_ROUTED] = block->routed,
                                 [HF_SHARED] = model->n_shared ? block->shared : NULL,
                                 [HF_SHARED_GATE] = model->n_shared ? block->shared_gate : NULL};
    if (row->holder < HF_ROUTED || (row->holder == HF_ROUTED && !block->routed)) return block->name;
    return inner[row->holder] ? mx_path_join(arena, block->name, inner[row->holder]) : NULL;
}

MxLayers hf_model_layers(const MxHfModel *model) {
    MxLayerKeys keys = {.n = model->n_layers,
                        .n_dense = model->n_dense,
                        .nope_interval = model->nope_interval,
                        .moe_step = model->moe_step,
                        .cycle = model->cycle,
                        .n_experts = model->n_experts,
                        .n_takers = model->n_takers};
    return mx_layers(hf_family_of(model), keys);
}

int64_t hf_layers(const MxHfModel *model) {
    return hf_model_layers(model).n;
}

/* Bits of what a model has. */
static int bits_of(const MxHfModel *model) {
    const MxHfNames *names = model->names;
    bool has_out_bias = false, has_gates = false, has_together = false;
    const MxFamily *family = hf_family_of(model);
    for (int s = 0; s < family->n_specs; s++) {
        has_out_bias |= family->specs[s].has_out_bias;
        has_gates |= family->specs[s].gates_heads;
        has_together |= family->specs[s].norms_together;
    }
    return (model->has_score ? HF_SCORE
            : model->is_tied ? 0
                             : HF_UNTIED) |
           (model->has_bias ? HF_BIAS : 0) | (model->has_bias && has_out_bias ? HF_OUT_BIAS : 0) |
           (names->has_qk_norm ? HF_QK_NORM : 0) | (has_together ? HF_TOGETHER : HF_APART) |
           (model->heads.fuses_qkv ? HF_ONE_QKV : HF_QKV) |
           (model->heads.fuses_mlp ? HF_ONE_MLP : HF_MLP) | (has_gates ? HF_GATED : HF_PLAIN_Q) |
           (names->has_sinks ? HF_SINKS : 0) | (names->has_score_bias ? HF_SCORE_BIAS : 0) |
           (model->q_rank ? HF_NARROW_Q : HF_WIDE_Q) | (names->has_indexer ? HF_INDEXER : 0) |
           (names->has_delta_apart ? HF_DELTA_APART : HF_DELTA_ONE) |
           (model->input_dim ? HF_INPUTS : 0);
}

/* In no layer of the decoder. */
static bool is_apart(const HfRow *row) {
    return row->holder == HF_MODEL || hf_is_eye(row);
}

int64_t hf_count(const MxHfModel *model, const HfRow *row) {
    if (row->wants & ~bits_of(model) & ~HF_OF_LAYERS) return 0;
    if (row->experts && (int)row->experts != model->experts) return 0;
    if (row->encoder && (!model->sees || !mx_text_has_word(row->encoder, model->encoder->name)))
        return 0;
    if (row->holder == HF_EYE_LAYER) return model->see_layers;
    if (row->holder == HF_EYE_DEEP) return model->n_see_deep;
    return is_apart(row) ? 1 : hf_layers(model) * hf_each(model, row);
}

int64_t hf_most_names(const MxHfModel *model) {
    int64_t n = 0;
    for (int r = 0; r < hf_n_rows; r++) n += hf_count(model, &hf_rows[r]);
    return n;
}

const MxLayerSpec *hf_spec(const MxHfModel *model, const HfRow *row, int i) {
    MxLayers layers = hf_model_layers(model);
    return is_apart(row) ? NULL : mx_layer_spec(&layers, i / hf_each(model, row));
}

/* Bits of what a layer has. */
static int bits_of_layer(const MxHfModel *model, const MxLayerSpec *spec) {
    bool shares = spec->has_own_heads && model->shares_kv;
    return (spec->takes_kv ? 0 : HF_KEYS) | (spec->takes_kv || shares ? 0 : HF_VALUES) |
           (spec->block[1].router_scale ? HF_OWN_ROUTER : HF_PLAIN_ROUTER) |
           (spec->scalar ? HF_SCALAR : 0);
}

bool hf_has(const MxHfModel *model, const HfRow *row, int i) {
    if (is_apart(row)) return true;
    MxArena arena = {.name = "name"};
    bool has = !(row->wants & HF_OF_LAYERS & ~bits_of_layer(model, hf_spec(model, row, i))) &&
               part_name(&arena, model, row, i / hf_each(model, row)) != NULL;
    mx_arena_release(&arena);
    return has;
}

static const char *our_eye_name(MxArena *arena, const MxEncoder *encoder, const HfRow *row, int i) {
    const char dir[] = "model/vision_encoder", *below = encoder->tower, *part = NULL;
    if (row->holder == HF_EYE) return mx_arena_printf(arena, "%s/%s", dir, row->ours);
    if (row->holder == HF_EYE_EXIT) below = encoder->projector;
    if (row->holder == HF_EYE_LAYER) part = encoder->layer;
    if (row->holder == HF_EYE_DEEP) part = encoder->deep;
    return part ? mx_arena_printf(arena, "%s/%s/%s%d/%s", dir, below, part, i, row->ours)
                : mx_arena_printf(arena, "%s/%s/%s", dir, below, row->ours);
}

const char *hf_our_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (row->holder == HF_MODEL) return mx_arena_printf(arena, "model/%s", row->ours);
    if (hf_is_eye(row)) return our_eye_name(arena, model->encoder, row, i);
    MxLayers layers = hf_model_layers(model);
    i /= hf_each(model, row);
    const char *layer = mx_layer_name(arena, &layers, i), *part = part_name(arena, model, row, i);
    return mx_arena_printf(arena, "model/%s%s%s/%s", layer, *part ? "/" : "", part, row->ours);
}

const char *hf_block_name(MxArena *arena, const MxHfNames *names, const HfRow *row) {
    const char *ffn = names->ffn ? names->ffn : "mlp";
    if (row->holder == HF_NORM) return names->norms[row->norm];
    if (row->holder == HF_LAYER) return "";
    if (names->routed && (row->holder == HF_MOE || row->holder == HF_ROUTED)) return names->routed;
    if (row->holder == HF_DELTA) return "linear_attn";
    if (row->holder == HF_ATTENTION || row->holder == HF_MLA) return "self_attn";
    return row->holder == HF_SHARED && names->shared
               ? mx_arena_printf(arena, "%s.%s", ffn, names->shared)
               : ffn;
}

const char *hf_their_name(MxArena *arena, const MxHfModel *model, const HfRow *row, int i) {
    if (row->holder == HF_EYE_LAYER)
        return mx_arena_printf(arena, "%s%d.%s", model->encoder->hf.layers, i, row->theirs);
    if (row->holder == HF_EYE_DEEP)
        return mx_arena_printf(arena, "%s%d.%s", model->encoder->hf.deep, i, row->theirs);
    if (hf_is_eye(row) && model->encoder->hf.tower)
        return mx_arena_printf(arena, "%s%s", model->encoder->hf.tower, row->theirs);
    if (is_apart(row)) return row->theirs;
    const char *slot = strchr(row->theirs, '%'), *name = row->theirs;
    int each = hf_each(model, row);
    if (slot)
        name = mx_arena_printf(arena, "%.*s%d%s", (int)(slot - name), name, i % each, slot + 2);
    const char *block = hf_block_name(arena, model->names, row);
    return mx_arena_printf(arena, "model.layers.%d.%s%s%s", i / each, block, *block ? "." : "",
                           name);
}

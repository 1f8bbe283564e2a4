#!/usr/bin/env python3
"""Makes a tiny model that sees images, of transformers, with what it computes, for tests/golden/images/<NAME>.

    golden_sees.py NAME OUT        NAME: gemma3_sees, llama4_sees, gemma4_sees, qwen3_vl_sees, qwen3_vl_moe_sees, qwen3_5_sees or qwen3_omni_sees
    golden_sees.py --continue FILE [NAME…]

OUT receives config.json and model.safetensors, as transformers saves them, and expected.h5: the config as lines of overrides
(attribute `config`), a batch of two rows with one and two images (inputs …, image: which token of the row's images stands there,
pixels: patches as the tower's first product reads them), and, in float32 on a CPU, logits, loss and the gradient of every parameter
(of llama4, gemma4, qwen3_vl_moe, qwen3_5 and qwen3_omni: of the encoder) in MaxText's shape, one behind the other (grads, in the order of the attribute `names`, a line each: name
and count). Rows of llama4 have an image of one tile, and one of two tiles, with the small picture of all of it; images of gemma4 and all qwen3 have
grids of their own (grids: rows and columns of patches), and fewer tokens and patches than there is room for. Its weights are of bfloat16.
Attributes noise_gradient and noise_logits are the largest distances of this run from one in float64, and from eight whose weights are
moved by one bit, of all gradients in the file and of logits.

FILE receives, of these models in tests/golden/images (all, if none is named), what transformers' generate says greedily behind the beginning of each row, whose
length `prompt` tells (continuations.json), with log-probabilities, and how far these move, at most, in float64 and in runs whose
weights are moved by one bit (noise).
"""
import json
import os
import sys

import h5py
import numpy as np
import torch
import transformers

BEGIN, TOKEN, END = 60, 61, 62  # ids of what stands around an image and for each of its tokens
BESIDE, BELOW, WHOLE = 57, 58, 59  # ids of what stands between tiles, behind a row of them, and before the small picture
ACROSS, TOKENS, LENGTH, MORE = 4, 4, 24, 48  # patches of a side, tokens of a view, of a row, of a continuation
SOFT = [TOKEN] * TOKENS

VISION = """use_multimodal: true
packing: false
"""

GEMMA3 = """decoder_block: gemma3
base_emb_dim: 16
base_num_query_heads: 2
base_num_kv_heads: 1
head_dim: 8
base_mlp_dim: 16
base_num_decoder_layers: 6
mlp_activations: [gelu, linear]
vocab_size: 64
normalization_layer_epsilon: 1e-06
logits_via_embedding: true
normalize_embedding_logits: true
use_post_attn_norm: true
use_post_ffw_norm: true
sliding_window_size: 6
rope_max_timescale: 1000000
rope_linear_scaling_factor: 8.0
local_rope_max_timescale: 10000
query_pre_attn_scalar: 8
vision_encoder_block: gemma3
image_size_for_vit: 28
patch_size_for_vit: 7
conv_stride_for_vit: 7
num_hidden_layers_for_vit: 2
num_attention_heads_for_vit: 2
hidden_size_for_vit: 8
intermediate_size_for_vit: 12
vision_output_length: 4
max_num_images_per_example: 2
"""

LLAMA4 = """decoder_block: llama4
base_emb_dim: 8
base_num_query_heads: 2
base_num_kv_heads: 1
head_dim: 8
base_mlp_dim: 12
base_moe_mlp_dim: 8
base_num_decoder_layers: 2
num_experts: 2
num_experts_per_tok: 1
shared_experts: 1
interleave_moe_layer_step: 2
nope_layer_interval: 2
inhomogeneous_layer_cycle_interval: 2
chunk_attn_window_size: 64
use_qk_norm: true
temperature_tuning: false
vocab_size: 64
normalization_layer_epsilon: 1e-05
logits_via_embedding: false
rope_max_timescale: 500000
vision_encoder_block: llama4
image_size_for_vit: 8
tile_size_for_vit: 8
patch_size_for_vit: 2
conv_stride_for_vit: 2
num_hidden_layers_for_vit: 1
num_attention_heads_for_vit: 1
hidden_size_for_vit: 8
intermediate_size_for_vit: 32
projector_input_dim_for_vit: 12
projector_output_dim_for_vit: 12
vision_output_dim_for_vit: 12
max_num_tiles_for_vit: 2
"""


GEMMA4 = """decoder_block: gemma4
base_emb_dim: 8
base_num_query_heads: 2
base_num_kv_heads: 1
head_dim: 4
global_head_dim: 8
global_num_kv_heads: 1
share_kv_projections: false
base_mlp_dim: 8
base_num_decoder_layers: 6
mlp_activations: [gelu, linear]
vocab_size: 64
normalization_layer_epsilon: 1e-06
logits_via_embedding: true
use_post_attn_norm: true
use_post_ffw_norm: true
sliding_window_size: 6
local_rope_max_timescale: 10000
global_rope_max_timescale: 1000000
rope_max_timescale: 1000000
global_rope_proportion: 0.5
local_rope_proportion: 1
v_norm_with_scale: false
vision_encoder_block: gemma4
image_size_for_vit: [8, 8]
patch_size_for_vit: 2
conv_stride_for_vit: 2
num_hidden_layers_for_vit: 1
num_attention_heads_for_vit: 1
hidden_size_for_vit: 8
intermediate_size_for_vit: 8
vision_output_length: 4
rope_theta_for_vit: 100
num_position_embeddings_for_vit: 8
max_num_images_per_example: 2
"""

QWEN3_VL = """base_emb_dim: 16
base_num_query_heads: 2
base_num_kv_heads: 1
head_dim: 8
mlp_activations: [silu, linear]
vocab_size: 64
normalization_layer_epsilon: 1e-06
logits_via_embedding: true
normalize_embedding_logits: false
use_qk_norm: true
enable_dropout: false
rope_max_timescale: 10000
use_mrope: true
mrope_section: [2, 1, 1]
vision_encoder_block: qwen3_vl
image_size_for_vit: 8
patch_size_for_vit: 2
temporal_patch_size_for_vit: 2
spatial_merge_size_for_vit: 2
num_hidden_layers_for_vit: 3
num_attention_heads_for_vit: 1
hidden_size_for_vit: 8
intermediate_size_for_vit: 12
out_hidden_size_for_vit: 16
num_position_embeddings_for_vit: 9
deepstack_visual_indexes_for_vit: [0, 2]
max_num_images_per_example: 2
"""

QWEN3_VL_DENSE = """decoder_block: qwen3
base_num_decoder_layers: 3
base_mlp_dim: 16
""" + QWEN3_VL

QWEN3_VL_MOE = """decoder_block: qwen3_moe
base_num_decoder_layers: 3
base_mlp_dim: 12
base_moe_mlp_dim: 12
num_experts: 4
num_experts_per_tok: 2
norm_topk_prob: true
load_balance_loss_weight: 0
""" + QWEN3_VL

QWEN3_5 = """decoder_block: qwen3_5
base_num_decoder_layers: 4
inhomogeneous_layer_cycle_interval: 4
base_mlp_dim: 8
base_moe_mlp_dim: 8
num_experts: 3
num_experts_per_tok: 2
shared_experts: 1
norm_topk_prob: true
load_balance_loss_weight: 0
gdn_conv_kernel_dim: 4
gdn_key_head_dim: 6
gdn_value_head_dim: 4
gdn_num_key_heads: 2
gdn_num_value_heads: 4
partial_rotary_factor: 0.5
""" + QWEN3_VL.replace("head_dim: 8", "head_dim: 16").replace("qwen3_vl", "qwen3_5").replace("deepstack_visual_indexes_for_vit: [0, 2]\n", "") \
    .replace("logits_via_embedding: true\nnormalize_embedding_logits: false", "logits_via_embedding: false")


QWEN3_OMNI = QWEN3_VL_MOE.replace("qwen3_vl", "qwen3_omni") \
    .replace("logits_via_embedding: true\nnormalize_embedding_logits: false", "logits_via_embedding: false")


def make_gemma3():
    text = transformers.Gemma3TextConfig(
        hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=64,
        num_hidden_layers=6, max_position_embeddings=128, sliding_window=6, query_pre_attn_scalar=8, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    vision = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, image_size=28,
                  patch_size=7, vision_use_head=False)
    config = transformers.Gemma3Config(text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=TOKENS,
                                       image_token_index=TOKEN, boi_token_index=BEGIN, eoi_token_index=END)
    return draw(transformers.Gemma3ForConditionalGeneration, config)


def make_gemma4():
    text = transformers.Gemma4TextConfig(
        hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, head_dim=4, global_head_dim=8, vocab_size=64,
        num_hidden_layers=6, max_position_embeddings=128, sliding_window=6, hidden_size_per_layer_input=0, bos_token_id=1, eos_token_id=2,
        pad_token_id=0, use_bidirectional_attention="vision",
        rope_parameters={"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
                  patch_size=2, pooling_kernel_size=2, position_embedding_size=8, standardize=True)
    config = transformers.Gemma4Config(text_config=text.to_dict(), vision_config=vision, image_token_id=TOKEN, boi_token_id=BEGIN,
                                       eoi_token_id=END, vision_soft_tokens_per_image=TOKENS)
    model = draw(transformers.Gemma4ForConditionalGeneration, config, 3)  # well-conditioned: float32 is within 6e-6 of float64
    with torch.no_grad():
        model.model.vision_tower.std_bias.normal_(0, 0.2)
        model.model.vision_tower.std_scale.normal_(1, 0.2)
        for p in list(model.parameters()) + [b for name, b in model.named_buffers() if "std_" in name or "layer_scalar" in name]:
            p.copy_(p.bfloat16())
    for name in ("std_bias", "std_scale"):
        getattr(model.model.vision_tower, name).requires_grad_(True)
    return model


QWEN3_VL_TEXT = dict(hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=64, num_hidden_layers=3,
                     max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=True,
                     rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1],
                                      "mrope_interleaved": True})
QWEN3_VL_VISION = dict(depth=3, hidden_size=8, num_heads=1, intermediate_size=12, patch_size=2, spatial_merge_size=2,
                       temporal_patch_size=2, out_hidden_size=16, num_position_embeddings=9, deepstack_visual_indexes=[0, 2])
QWEN3_VL_IDS = dict(image_token_id=TOKEN, video_token_id=63, vision_start_token_id=BEGIN, vision_end_token_id=END,
                    tie_word_embeddings=True)


def make_qwen3_vl():
    text = transformers.Qwen3VLTextConfig(intermediate_size=16, **QWEN3_VL_TEXT)
    config = transformers.Qwen3VLConfig(text_config=text.to_dict(), vision_config=QWEN3_VL_VISION, **QWEN3_VL_IDS)
    return in_bfloat16(draw(transformers.Qwen3VLForConditionalGeneration, config, 3))


def make_qwen3_vl_moe():
    text = transformers.Qwen3VLMoeTextConfig(intermediate_size=12, moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2,
                                             norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], **QWEN3_VL_TEXT)
    config = transformers.Qwen3VLMoeConfig(text_config=text.to_dict(), vision_config=QWEN3_VL_VISION, **QWEN3_VL_IDS)
    return in_bfloat16(draw(transformers.Qwen3VLMoeForConditionalGeneration, config, 3))


def make_qwen3_5():
    sizes = {key: value for key, value in QWEN3_VL_TEXT.items() if key not in ("head_dim", "tie_word_embeddings", "rope_parameters")}
    text = transformers.Qwen3_5MoeTextConfig(
        **sizes, head_dim=16, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=4, tie_word_embeddings=False,
        rope_parameters=dict(QWEN3_VL_TEXT["rope_parameters"], partial_rotary_factor=0.5))
    text.num_hidden_layers, text.layer_types = 4, ["linear_attention"] * 3 + ["full_attention"]
    vision = {key: value for key, value in QWEN3_VL_VISION.items() if key != "deepstack_visual_indexes"}
    config = transformers.Qwen3_5MoeConfig(text_config=text.to_dict(), vision_config=vision, **dict(QWEN3_VL_IDS, tie_word_embeddings=False))
    return in_bfloat16(draw(transformers.Qwen3_5MoeForConditionalGeneration, config, 3))


def make_qwen3_omni():
    """The thinker; its audio encoder is as small as can be, as nothing here reads it."""
    text = transformers.Qwen3OmniMoeTextConfig(
        **dict(QWEN3_VL_TEXT, tie_word_embeddings=False), intermediate_size=12, moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    audio = dict(d_model=4, encoder_layers=1, encoder_attention_heads=1, encoder_ffn_dim=2, num_mel_bins=4, downsample_hidden_size=1,
                 output_dim=16, max_source_positions=2, n_window=1)
    config = transformers.Qwen3OmniMoeThinkerConfig(
        text_config=text.to_dict(), vision_config=QWEN3_VL_VISION, audio_config=audio, audio_token_id=BESIDE, audio_start_token_id=BELOW,
        **dict(QWEN3_VL_IDS, tie_word_embeddings=False))
    return in_bfloat16(draw(transformers.Qwen3OmniMoeThinkerForConditionalGeneration, config, 3))


def in_bfloat16(model):
    """Weights that bfloat16 has."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())
    return model


def draw(kind, config, seed=17):
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.normal_(0, 0.2)
            is_text = "vision" not in path and kind is transformers.Gemma3ForConditionalGeneration  # whose norms add 1
            if ("norm" in path or "ln_q" in path) and path.endswith("weight") and not is_text and "mm_soft" not in path:
                p.add_(1.0)
    return model


def make_llama4():
    text = transformers.Llama4TextConfig(
        hidden_size=8, intermediate_size=8, intermediate_size_mlp=12, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        vocab_size=64, num_hidden_layers=2, max_position_embeddings=128, num_local_experts=2, num_experts_per_tok=1,
        interleave_moe_layer_step=2, no_rope_layer_interval=2, attn_temperature_tuning=False, attention_chunk_size=64,
        use_qk_norm=True, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    vision = dict(hidden_size=8, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=2,
                  projector_input_dim=12, projector_output_dim=12, vision_output_dim=12, rope_theta=10000)
    config = transformers.Llama4Config(text_config=text.to_dict(), vision_config=vision, image_token_index=TOKEN,
                                       boi_token_index=BEGIN, eoi_token_index=END)
    return draw(transformers.Llama4ForConditionalGeneration, config)


def matrix(heads=None, out=False):
    """A kernel of MaxText's: theirs the other way round, with heads apart."""
    def change(w):
        w = w.T
        if heads is None:
            return w
        return w.reshape(heads, -1, w.shape[1]) if out else w.reshape(w.shape[0], heads, -1)
    return change


def plus_one(w):
    return w + 1


def same(w):
    return w


def gemma3_layer(i):
    ours, theirs = f"decoder/layers_{i}/", f"layers.{i}."
    return [(ours + "pre_self_attention_norm/scale", theirs + "input_layernorm.weight", plus_one),
            (ours + "post_self_attention_norm/scale", theirs + "post_attention_layernorm.weight", plus_one),
            (ours + "pre_ffw_norm/scale", theirs + "pre_feedforward_layernorm.weight", plus_one),
            (ours + "post_ffw_norm/scale", theirs + "post_feedforward_layernorm.weight", plus_one),
            (ours + "self_attention/query_norm/scale", theirs + "self_attn.q_norm.weight", plus_one),
            (ours + "self_attention/key_norm/scale", theirs + "self_attn.k_norm.weight", plus_one),
            (ours + "self_attention/query/kernel", theirs + "self_attn.q_proj.weight", matrix(2)),
            (ours + "self_attention/key/kernel", theirs + "self_attn.k_proj.weight", matrix(1)),
            (ours + "self_attention/value/kernel", theirs + "self_attn.v_proj.weight", matrix(1)),
            (ours + "self_attention/out/kernel", theirs + "self_attn.o_proj.weight", matrix(2, True)),
            (ours + "mlp/wi_0/kernel", theirs + "mlp.gate_proj.weight", matrix()),
            (ours + "mlp/wi_1/kernel", theirs + "mlp.up_proj.weight", matrix()),
            (ours + "mlp/wo/kernel", theirs + "mlp.down_proj.weight", matrix())]


def gemma3_tower(i):
    ours, theirs = f"vision_encoder/Gemma3VisionEncoderLayer_0/Transformer/encoderblock_{i}/", f"encoder.layers.{i}."
    heads = "MultiHeadDotProductAttention_0/"
    rows = [(ours + heads + f"{a}/kernel", theirs + f"self_attn.{b}_proj.weight", matrix(2))
            for a, b in (("query", "q"), ("key", "k"), ("value", "v"))]
    rows += [(ours + heads + f"{a}/bias", theirs + f"self_attn.{b}_proj.bias", lambda w: w.reshape(2, -1))
             for a, b in (("query", "q"), ("key", "k"), ("value", "v"))]
    rows += [(ours + heads + "out/kernel", theirs + "self_attn.out_proj.weight", matrix(2, True)),
             (ours + heads + "out/bias", theirs + "self_attn.out_proj.bias", same)]
    for n in (0, 1):
        rows += [(ours + f"LayerNorm_{n}/scale", theirs + f"layer_norm{n + 1}.weight", same),
                 (ours + f"LayerNorm_{n}/bias", theirs + f"layer_norm{n + 1}.bias", same),
                 (ours + f"MlpBlockViT_0/Dense_{n}/kernel", theirs + f"mlp.fc{n + 1}.weight", matrix()),
                 (ours + f"MlpBlockViT_0/Dense_{n}/bias", theirs + f"mlp.fc{n + 1}.bias", same)]
    return rows


def gemma3_rows():
    tower, exit_ = "vision_encoder/Gemma3VisionEncoderLayer_0/", "vision_encoder/VisionEmbedder_0/"
    rows = [("token_embedder/embedding", "embed_tokens.weight", lambda w: w * 4.0),  # sqrt of the width
            ("decoder/decoder_norm/scale", "language_model.norm.weight", plus_one),
            (tower + "embedding/kernel", "patch_embedding.weight", lambda w: w.transpose(2, 3, 1, 0)),
            (tower + "embedding/bias", "patch_embedding.bias", same),
            (tower + "pos_embedding", "position_embedding.weight", lambda w: w[None]),
            (tower + "Transformer/encoder_norm/scale", "post_layernorm.weight", same),
            (tower + "Transformer/encoder_norm/bias", "post_layernorm.bias", same),
            (exit_ + "mm_soft_embedding_norm/scale", "mm_soft_emb_norm.weight", plus_one),
            (exit_ + "mm_input_projection/w", "mm_input_projection_weight", same)]
    for i in range(6):
        rows += [(a, "language_model." + b, f) for a, b, f in gemma3_layer(i)]
    for i in range(2):
        rows += gemma3_tower(i)
    return rows


def llama4_rows():
    tower = "vision_encoder/Llama4VisionModel_0/"
    mlp = tower + "Llama4VisionPixelShuffleMLP_0/pixel_shuffle_mlp/vit_pixel_shuffle_mlp_fc"
    rows = [(tower + "class_embedding", "class_embedding", same), (tower + "positional_embedding_vlm", "positional_embedding_vlm", same),
            (tower + "Llama4UnfoldConvolution_0/vit_unfold_linear/kernel", "patch_embedding.linear.weight", matrix()),
            (mlp + "1/kernel", "vision_adapter.mlp.fc1.weight", matrix()), (mlp + "2/kernel", "vision_adapter.mlp.fc2.weight", matrix()),
            ("vision_encoder/Llama4MultiModalProjector_0/vit_multi_modal_projector/kernel", "multi_modal_projector.linear_1.weight",
             matrix())]
    for norm in ("pre", "post"):
        rows += [(tower + f"layernorm_{norm}/scale", f"vision_model.layernorm_{norm}.weight", same),
                 (tower + f"layernorm_{norm}/bias", f"vision_model.layernorm_{norm}.bias", same)]
    for i in range(1):
        ours, theirs = tower + f"Llama4VisionEncoder_0/layers_{i}/", f"vision_model.model.layers.{i}."
        for a, b in (("query", "q"), ("key", "k"), ("value", "v")):
            rows += [(ours + f"self_attention_vision/{a}/kernel", theirs + f"self_attn.{b}_proj.weight", matrix(1)),
                     (ours + f"self_attention_vision/{a}/bias", theirs + f"self_attn.{b}_proj.bias", lambda w: w.reshape(1, -1))]
        rows += [(ours + "self_attention_vision/out/kernel", theirs + "self_attn.o_proj.weight", matrix(1, True)),
                 (ours + "self_attention_vision/out/bias", theirs + "self_attn.o_proj.bias", same)]
        for a, b in (("input_layer_norm", "input_layernorm"), ("post_attention_layer_norm", "post_attention_layernorm")):
            rows += [(ours + a + "/scale", theirs + b + ".weight", same), (ours + a + "/bias", theirs + b + ".bias", same)]
        for n in (1, 2):
            rows += [(ours + f"Llama4VisionMLP_0/vit_encoder_layer_mlp_fc{n}/kernel", theirs + f"mlp.fc{n}.weight", matrix()),
                     (ours + f"Llama4VisionMLP_0/vit_encoder_layer_mlp_fc{n}/bias", theirs + f"mlp.fc{n}.bias", same)]
    return rows


def gemma4_rows():
    tower = "vision_encoder/Gemma4VisionEncoderLayer_0/"
    rows = [(tower + "vision_entry/input_projection/kernel", "patch_embedder.input_proj.weight", matrix()),
            (tower + "vision_entry/pos_emb_param", "position_embedding_table", lambda w: w.transpose(1, 0, 2)),
            (tower + "std_bias", "std_bias", same), (tower + "std_scale", "std_scale", same),
            ("vision_encoder/Gemma4VisionProjector_0/projection/kernel", "embed_vision.embedding_projection.weight", matrix())]
    for i in range(1):
        ours, theirs = tower + f"layer_{i}/", f"vision_tower.encoder.layers.{i}."
        rows += [(ours + f"attention/{a}/kernel", theirs + f"self_attn.{b}_proj.linear.weight", matrix(1))
                 for a, b in (("query", "q"), ("key", "k"), ("value", "v"))]
        rows += [(ours + f"attention/{a}_norm/scale", theirs + f"self_attn.{a[0]}_norm.weight", same) for a in ("query", "key")]
        rows += [(ours + "attention/out/kernel", theirs + "self_attn.o_proj.linear.weight", matrix(1, True))]
        rows += [(ours + f"{a}_norm/scale", theirs + f"{b}_layernorm.weight", same)
                 for a, b in (("pre_attention", "input"), ("post_attention", "post_attention"), ("pre_ffw", "pre_feedforward"),
                              ("post_ffw", "post_feedforward"))]
        rows += [(ours + f"mlp/{a}/kernel", theirs + f"mlp.{b}_proj.linear.weight", matrix())
                 for a, b in (("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))]
    return rows


def qwen3_vl_text(i, moe):
    ours, theirs = f"decoder/layers_{i}/", f"language_model.layers.{i}."
    rows = [(ours + "pre_self_attention_layer_norm/scale", theirs + "input_layernorm.weight", same),
            (ours + "post_self_attention_layer_norm/scale", theirs + "post_attention_layernorm.weight", same),
            (ours + "self_attention/query_norm/scale", theirs + "self_attn.q_norm.weight", same),
            (ours + "self_attention/key_norm/scale", theirs + "self_attn.k_norm.weight", same),
            (ours + "self_attention/query/kernel", theirs + "self_attn.q_proj.weight", matrix(2)),
            (ours + "self_attention/key/kernel", theirs + "self_attn.k_proj.weight", matrix(1)),
            (ours + "self_attention/value/kernel", theirs + "self_attn.v_proj.weight", matrix(1)),
            (ours + "self_attention/out/kernel", theirs + "self_attn.o_proj.weight", matrix(2, True))]
    return rows if moe else rows + [(ours + f"mlp/{a}/kernel", theirs + f"mlp.{b}_proj.weight", matrix())
                                    for a, b in (("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))]


def merger_rows(ours, theirs, parts):
    norm, up, down = parts
    return [(ours + "ln_q/scale", theirs + norm + ".weight", same), (ours + "ln_q/bias", theirs + norm + ".bias", same),
            (ours + "mlp_0/kernel", theirs + up + ".weight", matrix()), (ours + "mlp_0/bias", theirs + up + ".bias", same),
            (ours + "mlp_2/kernel", theirs + down + ".weight", matrix()), (ours + "mlp_2/bias", theirs + down + ".bias", same)]


def part(k, change):
    """Of a tensor that is three, one behind the other."""
    return lambda w: change(np.split(w, 3)[k])


def qwen3_vl_rows(moe=False, kind="Qwen3VL", n_deep=2, deep="deepstack_merger_list", parts=("norm", "linear_fc1", "linear_fc2")):
    tower = f"vision_encoder/{kind}VisionEncoder_0/"
    rows = [(tower + "patch_embed/proj/kernel", "visual.patch_embed.proj.weight", lambda w: w.transpose(2, 3, 4, 1, 0)),
            (tower + "patch_embed/proj/bias", "visual.patch_embed.proj.bias", same),
            (tower + "pos_embed_interpolate/pos_embed", "visual.pos_embed.weight", same)]
    for i in range(3):
        ours, theirs = tower + f"blocks_{i}/", f"visual.blocks.{i}."
        for n in (1, 2):
            rows += [(ours + f"ln{n}/scale", theirs + f"norm{n}.weight", same), (ours + f"ln{n}/bias", theirs + f"norm{n}.bias", same)]
        for k, name in enumerate(("query", "key", "value")):
            rows += [(ours + f"attn/attn/{name}/kernel", theirs + "attn.qkv.weight", part(k, matrix(1))),
                     (ours + f"attn/attn/{name}/bias", theirs + "attn.qkv.bias", part(k, lambda w: w.reshape(1, -1)))]
        rows += [(ours + "attn/attn/out/kernel", theirs + "attn.proj.weight", matrix(1, True)),
                 (ours + "attn/attn/out/bias", theirs + "attn.proj.bias", same)]
        for a, b in (("mlp", "linear_fc1"), ("mlp_out", "linear_fc2")):
            rows += [(ours + a + "/kernel", theirs + f"mlp.{b}.weight", matrix()), (ours + a + "/bias", theirs + f"mlp.{b}.bias", same)]
    for k in range(n_deep):
        rows += merger_rows(tower + f"merger_{k}/", f"visual.{deep}.{k}.", parts)
    rows += merger_rows(f"vision_encoder/{kind}VisionProjector_0/merger/", "visual.merger.", parts)
    if moe:
        return rows
    rows += [("token_embedder/embedding", "embed_tokens.weight", same), ("decoder/decoder_norm/scale", "language_model.norm.weight", same)]
    return rows + [row for i in range(3) for row in qwen3_vl_text(i, moe)]


def qwen3_vl_pixels(spec):
    """Patches of all pictures, those of a square of two by two together, [3, 2 frames, 2, 2] each; and the grids."""
    rng = np.random.default_rng(5)
    grids = [g for row in spec["grids"] for g in row]
    frame = rng.integers(-8, 9, (sum(m * n for m, n in grids), 3, 1, 2, 2)) / 8
    values = np.repeat(frame, 2, 2).reshape(len(frame), -1).astype(np.float32)
    return dict(pixel_values=torch.tensor(values), image_grid_thw=torch.tensor([(1, m, n) for m, n in grids]))


def qwen3_vl_patches(spec, pixels):
    """[pictures, patches, 2, 2, 3] of one frame, zeros behind them."""
    grids = [g for row in spec["grids"] for g in row]
    frame, first = pixels.reshape(-1, 3, 2, 2, 2)[:, :, 0].transpose(0, 2, 3, 1).reshape(len(pixels), -1), 0
    out = np.zeros((len(grids), ACROSS * ACROSS, 12), np.float32)
    for i, (m, n) in enumerate(grids):
        out[i, :m * n] = frame[first:first + m * n]
        first += m * n
    return out


def gemma4_pixels(spec):
    """Patches of each picture row by row, zeros behind them; and where they stand."""
    rng, room = np.random.default_rng(5), ACROSS * ACROSS
    grids = [g for row in spec["grids"] for g in row]
    values, places = np.zeros((len(grids), room, 12), np.float32), np.full((len(grids), room, 2), -1)
    for i, (rows, columns) in enumerate(grids):
        values[i, :rows * columns] = rng.integers(0, 17, (rows * columns, 12)) / 16
        places[i, :rows * columns] = np.stack(np.meshgrid(range(columns), range(rows)), -1).reshape(-1, 2)
    return dict(pixel_values=torch.tensor(values), image_position_ids=torch.tensor(places))


def gemma4_patches(spec, pixels):
    """The same, the patches of a square of two by two together."""
    grids = [g for row in spec["grids"] for g in row]
    out = np.zeros_like(pixels)
    for i, (rows, columns) in enumerate(grids):
        x = pixels[i, :rows * columns].reshape(rows // 2, 2, columns // 2, 2, 12).transpose(0, 2, 1, 3, 4)
        out[i, :rows * columns] = x.reshape(-1, 12)
    return out


def gemma3_patches(pixels):
    """[images, 3, side, side] as [images, patches, patch, patch, 3]."""
    n, side = ACROSS, pixels.shape[-1] // ACROSS
    x = pixels.reshape(-1, 3, n, side, n, side).transpose(0, 2, 4, 3, 5, 1)
    return x.reshape(len(pixels), n * n, -1)


def llama4_patches(pixels):
    """[tiles, 3, side, side] as [tiles, patches, 3, patch, patch], the patches of a square of two by two together."""
    n, side = ACROSS // 2, pixels.shape[-1] // ACROSS
    x = pixels.reshape(-1, 3, n, 2, side, n, 2, side).transpose(0, 2, 5, 3, 6, 1, 4, 7)
    return x.reshape(len(pixels), 4 * n * n, -1)


def write_batch(out, spec, ids, pixels):
    length = np.arange(LENGTH)
    targets, counts = np.zeros_like(ids), np.zeros_like(ids)
    for b, prompt in enumerate(spec["prompt"]):
        targets[b, prompt - 1:-1] = ids[b, prompt:]
        counts[b, prompt - 1:-1] = 1
    image = np.where(ids == TOKEN, np.cumsum(ids == TOKEN, -1), 0)
    if "grids" in spec:
        grids = np.zeros((2, spec["room"], 2), np.int32)
        for b, row in enumerate(spec["grids"]):
            grids[b, :len(row)] = row
            slots = [TOKENS * i + k + 1 for i, (m, n) in enumerate(row) for k in range(m * n // 4)]
            image[b, image[b] > 0] = slots
        out["batch/grids"] = grids
    cut = spec["patches"](spec, pixels) if "grids" in spec else spec["patches"](pixels)
    values, first = np.zeros((2, spec["room"]) + cut.shape[1:], np.float32), 0
    for b, n in enumerate(spec["views"]):
        values[b, :n] = cut[first:first + n]
        first += n
    fields = dict(inputs=ids, targets=targets, inputs_position=np.tile(length, (2, 1)),
                  targets_position=np.tile(length, (2, 1)), inputs_segmentation=np.ones_like(ids),
                  targets_segmentation=counts, image=image)
    for name, value in fields.items():
        out["batch/" + name] = value.astype(np.int32)
    out["batch/pixels"] = values.reshape(2, -1)


# views: pictures or tiles of each row; room: that a row has for them; factor: of the table of embeddings
MODELS = {
    "gemma3_sees": dict(make=make_gemma3, rows=gemma3_rows, side=28, patches=gemma3_patches, config=GEMMA3 + VISION, room=2, views=[1, 2],
                        factor=4, prompt=[9, 16], types=True, ids=[
        [1, 5, BEGIN] + SOFT + [END, 7, 9, 11, 4, 3, 8, 2, 17, 21, 30, 31, 6, 12, 19, 40, 41],
        [1, BEGIN] + SOFT + [END, 13, BEGIN] + SOFT + [END, 9, 33, 34, 2, 8, 55, 10, 22, 27, 50]]),
    "llama4_sees": dict(make=make_llama4, rows=llama4_rows, side=8, patches=llama4_patches, config=LLAMA4 + VISION, room=3, views=[1, 3],
                        factor=1, prompt=[9, 19], types=False, ids=[
        [1, BEGIN, WHOLE] + SOFT + [END, 7, 9, 11, 4, 3, 8, 2, 17, 21, 30, 31, 6, 12, 19, 40, 41],
        [1, BEGIN] + SOFT + [BESIDE] + SOFT + [BELOW, WHOLE] + SOFT + [END, 9, 33, 34, 2, 8, 55]]),
    "gemma4_sees": dict(make=make_gemma4, rows=gemma4_rows, pixels=gemma4_pixels, patches=gemma4_patches, config=GEMMA4 + VISION, room=2, views=[1, 2], factor=1, prompt=[9, 14],
                        types=True, grids=[[(4, 2)], [(2, 6), (4, 4)]], ids=[
        [1, 5, BEGIN] + SOFT[:2] + [END, 7, 9, 11, 4, 3, 8, 2, 17, 21, 30, 31, 6, 12, 19, 40, 41, 20, 18],
        [1, BEGIN] + SOFT[:3] + [END, 13, BEGIN] + SOFT + [END, 9, 33, 34, 2, 8, 55, 10, 22, 27, 50, 51]]),
}

# The same words and pictures, but for a third picture that is as wide as there is room.
for name, make, moe, config in (("qwen3_vl_sees", make_qwen3_vl, False, QWEN3_VL_DENSE),
                                ("qwen3_vl_moe_sees", make_qwen3_vl_moe, True, QWEN3_VL_MOE)):
    MODELS[name] = dict(MODELS["gemma4_sees"], make=make, rows=lambda moe=moe: qwen3_vl_rows(moe), pixels=qwen3_vl_pixels,
                        patches=qwen3_vl_patches, config=config + VISION, whole=not moe)
MODELS["qwen3_5_sees"] = dict(MODELS["qwen3_vl_moe_sees"], make=make_qwen3_5, rows=lambda: qwen3_vl_rows(True, "Qwen3_5Moe", 0),
                              config=QWEN3_5 + VISION)
MODELS["qwen3_omni_sees"] = dict(MODELS["qwen3_vl_moe_sees"], make=make_qwen3_omni, types=False, config=QWEN3_OMNI + VISION, rows=lambda: qwen3_vl_rows(
    True, "Qwen3OmniMoe", deep="merger_list", parts=("ln_q", "mlp.0", "mlp.2")))


def inputs_of(spec, ids):
    """What the model is given of pictures, by name."""
    types = torch.tensor((ids == TOKEN).astype(np.int64))
    if "grids" in spec:
        return dict(spec["pixels"](spec), **(dict(mm_token_type_ids=types) if spec["types"] else {}))
    return dict(pixel_values=torch.tensor(pixels_of(spec)), **(dict(token_type_ids=types) if spec["types"] else {}))


def pixels_of(spec):
    return (np.random.default_rng(5).integers(-8, 9, (sum(spec["views"]), 3, spec["side"], spec["side"])) / 8).astype(np.float32)


def some_of(seen, first, n):
    """Some pictures of all."""
    some = {key: value[first:first + n] for key, value in seen.items()}
    if "image_grid_thw" in seen:  # patches of all pictures, one behind the other
        counts = seen["image_grid_thw"].prod(-1)
        start = int(counts[:first].sum())
        some["pixel_values"] = seen["pixel_values"][start:start + int(counts[first:first + n].sum())]
    return some


KINDS = {"gemma3_sees": transformers.Gemma3ForConditionalGeneration, "llama4_sees": transformers.Llama4ForConditionalGeneration,
         "gemma4_sees": transformers.Gemma4ForConditionalGeneration, "qwen3_vl_sees": transformers.Qwen3VLForConditionalGeneration,
         "qwen3_vl_moe_sees": transformers.Qwen3VLMoeForConditionalGeneration, "qwen3_5_sees": transformers.Qwen3_5MoeForConditionalGeneration,
         "qwen3_omni_sees": transformers.Qwen3OmniMoeThinkerForConditionalGeneration}


def in_float64(model, seen):
    """The model and what it sees."""
    if "Moe" in type(model).__name__:
        model.set_experts_implementation("eager")  # the other one has no float64
    return model.double(), {key: value.double() if value.is_floating_point() else value for key, value in seen.items()}


def moved(model, seed):
    """The model with every weight moved by one bit, up or down, or not at all."""
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        for p in model.parameters():
            towards = torch.tensor(draw.choice([-np.inf, 0, np.inf], p.shape), dtype=p.dtype)
            p.copy_(torch.where(towards == 0, p, torch.nextafter(p, towards)))
    return model


def continue_row(model, seen, spec, row, n):
    """What the model says, and the log-probabilities of that."""
    ids = torch.tensor([row[:n]])
    types = {key: (ids == TOKEN).long() for key in inputs_of(spec, np.array(spec["ids"])) if "type_ids" in key}
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MORE,
                          output_logits=True, return_dict_in_generate=True, **types, **seen)
    top = torch.stack(made.logits).topk(2).values
    print("closest call", float((top[..., 0] - top[..., 1]).min()))
    tokens = made.sequences[0, n:]
    return tokens, torch.stack(made.logits)[:, 0].log_softmax(-1).gather(1, tokens[:, None])[:, 0]


def continue_rows(name, spec):
    first, rows = 0, []
    for row, n, views in zip(spec["ids"], spec["prompt"], spec["views"]):
        seen = {key: value for key, value in inputs_of(spec, np.array(spec["ids"])).items() if "type_ids" not in key}
        seen = some_of(seen, first, views)

        def made(change):
            model = KINDS[name].from_pretrained(os.path.join("tests/golden/images", name), attn_implementation="eager", dtype=torch.float32)
            model.generation_config.eos_token_id = None
            return continue_row(*change(model.eval()), spec, row, n)

        tokens, logprobs = made(lambda model: (model, seen))
        noise = 0
        for change in [lambda model: in_float64(model, seen)] + [lambda model, k=k: (moved(model, k), seen) for k in range(8)]:
            other, others = made(change)
            assert tokens.tolist() == other.tolist()
            noise = max(noise, float((logprobs - others).abs().max()))
        rows.append(dict(prompt=n, tokens=tokens.tolist(), logprobs=[round(x, 7) for x in logprobs.tolist()], noise=round(noise, 7)))
        first += views
    return rows


def run(spec, model, ids, seen):
    """Logits, loss and the gradient of every parameter by name."""
    labels = torch.tensor(ids)
    for b, prompt in enumerate(spec["prompt"]):
        labels[b, :prompt] = -100
    got = model(input_ids=torch.tensor(ids), labels=labels, attention_mask=torch.ones_like(labels), **seen)
    got.loss.backward()
    named = dict(model.named_parameters(), **{name: b for name, b in model.named_buffers() if b.requires_grad})
    return got.logits.detach().numpy(), got.loss.detach().numpy(), {name: p.grad.numpy() for name, p in named.items() if p.grad is not None}, named


def distance(a, b):
    """Of the tests: the norm of the difference over the norm."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def main():
    if sys.argv[1] == "--continue":
        with open(sys.argv[2], "w") as out:
            json.dump({name: continue_rows(name, MODELS[name]) for name in sys.argv[3:] or MODELS}, out)
            out.write("\n")
        return
    name, folder = sys.argv[1:]
    spec = MODELS[name]
    model = spec["make"]()
    ids = np.array(spec["ids"])
    assert ids.shape == (2, LENGTH)
    seen = inputs_of(spec, ids)
    logits, loss, gradients, named = run(spec, model, ids, seen)
    others = [in_float64(spec["make"](), seen)] + [(moved(spec["make"](), k), seen) for k in range(8)]
    others = [run(spec, other, ids, other_seen) for other, other_seen in others]
    if "grids" in spec:
        for p in named.values():
            p.requires_grad_(False)
        model.bfloat16()
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        told = file.read().replace('"dtype": "bfloat16"', '"dtype": "float32"')  # computed in float32, weights of bfloat16 take less room
    with open(path, "w") as file:
        file.write(told)
    with h5py.File(os.path.join(folder, "expected.h5"), "w", libver="latest") as out:
        out.attrs["config"] = spec["config"]
        out.attrs["versions"] = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__})
        found, names, grads, noise = set(), [], [], 0
        for ours, theirs, change in spec["rows"]():
            path, = [p for p in named if p.endswith(theirs) and (p not in found or "qkv" in p)]
            found.add(path)
            gradient, change = gradients[path], same if change is plus_one else change
            if not (name == "gemma3_sees" and ours.endswith("key/bias")):  # 0 in real numbers: its keys are not rotated
                noise = max([noise] + [distance(change(gradient), change(other[2][path])) for other in others])
            if ours == "token_embedder/embedding":
                gradient = gradient / spec["factor"] ** 2  # theirs is of the smaller table
            grads.append(change(gradient).ravel())
            names.append(f"{ours} {grads[-1].size}")
        left = {p for p in set(named) - found if name == "gemma3_sees" or spec.get("whole") or not any(part in p for part in ("language_model", "lm_head", "audio_tower"))}
        assert not left, left
        out.attrs["noise_gradient"] = noise
        out.attrs["noise_logits"] = max(distance(logits, other[0]) for other in others)
        out.attrs["names"] = "\n".join(names) + "\n"
        out["grads"] = np.concatenate(grads)
        write_batch(out, spec, ids, seen["pixel_values"].numpy())
        out["logits"], out["loss"] = logits, loss


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes a tiny Gemma 3 that sees images, of transformers, with what it computes, for tests/golden/images/gemma3_sees.

    golden_sees.py OUT

OUT receives config.json and model.safetensors, as transformers saves them, and expected.h5: the config as lines of overrides
(attribute `config`), a batch of two rows with one and two images (inputs …, image: which token of the row's images stands there,
pixels: patches as MaxText's convolution reads them), and, in float32 on a CPU, logits, loss and the gradient of every parameter in
MaxText's shape, one behind the other (grads, in the order of the attribute `names`, a line each: name and count).
"""
import json
import os
import sys

import h5py
import numpy as np
import torch
import transformers

BEGIN, TOKEN, END = 60, 61, 62  # ids of what stands around an image and for each of its tokens
PATCH, SIDE, TOKENS, LENGTH, IMAGES = 7, 28, 4, 24, 2
ROWS = [[1, 5, BEGIN] + [TOKEN] * 4 + [END, 7, 9, 11, 4, 3, 8, 2, 17, 21, 30, 31, 6, 12, 19, 40, 41],
        [1, BEGIN] + [TOKEN] * 4 + [END, 13, BEGIN] + [TOKEN] * 4 + [END, 9, 33, 34, 2, 8, 55, 10, 22, 27, 50]]
PROMPT = [9, 16]  # tokens of each row that do not count

CONFIG = """decoder_block: gemma3
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
use_multimodal: true
vision_encoder_block: gemma3
image_size_for_vit: 28
patch_size_for_vit: 7
conv_stride_for_vit: 7
hidden_size_for_vit: 8
intermediate_size_for_vit: 12
num_hidden_layers_for_vit: 2
num_attention_heads_for_vit: 2
vision_output_length: 4
max_num_images_per_example: 2
packing: false
"""


def make_model():
    text = transformers.Gemma3TextConfig(
        hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=64,
        num_hidden_layers=6, max_position_embeddings=128, sliding_window=6, query_pre_attn_scalar=8, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    vision = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE,
                  patch_size=PATCH, vision_use_head=False)
    config = transformers.Gemma3Config(text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=TOKENS,
                                       image_token_index=TOKEN, boi_token_index=BEGIN, eoi_token_index=END)
    config._attn_implementation = "eager"
    torch.manual_seed(17)
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.normal_(0, 0.2)
            if ("layer_norm" in path or "post_layernorm" in path) and "vision" in path and path.endswith("weight"):
                p.add_(1.0)
    return model


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


def text_rows(i):
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


def vision_rows(i):
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


def all_rows():
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
        rows += [(a, "language_model." + b, f) for a, b, f in text_rows(i)]
    for i in range(2):
        rows += vision_rows(i)
    return rows


def patches(pixels):
    """[images, 3, side, side] as [images, patches, patch, patch, 3]."""
    n, side = SIDE // PATCH, PATCH
    x = pixels.reshape(-1, 3, n, side, n, side).transpose(0, 2, 4, 3, 5, 1)
    return x.reshape(len(pixels), n * n, side, side, 3)


def write_batch(out, ids, pixels):
    length = np.arange(LENGTH)
    targets, counts = np.zeros_like(ids), np.zeros_like(ids)
    for b, prompt in enumerate(PROMPT):
        targets[b, prompt - 1:-1] = ids[b, prompt:]
        counts[b, prompt - 1:-1] = 1
    image = np.where(ids == TOKEN, np.cumsum(ids == TOKEN, -1), 0)
    values = np.zeros((2, IMAGES) + patches(pixels).shape[1:], np.float32)
    values[0, 0], values[1] = patches(pixels)[0], patches(pixels)[1:]
    fields = dict(inputs=ids, targets=targets, inputs_position=np.tile(length, (2, 1)),
                  targets_position=np.tile(length, (2, 1)), inputs_segmentation=np.ones_like(ids),
                  targets_segmentation=counts, image=image)
    for name, value in fields.items():
        out["batch/" + name] = value.astype(np.int32)
    out["batch/pixels"] = values.reshape(2, -1)


def main():
    model = make_model()
    ids = np.array(ROWS)
    assert ids.shape == (2, LENGTH)
    pixels = (np.random.default_rng(5).integers(-8, 9, (3, 3, SIDE, SIDE)) / 8).astype(np.float32)
    labels = torch.tensor(ids)
    for b, prompt in enumerate(PROMPT):
        labels[b, :prompt] = -100
    got = model(input_ids=torch.tensor(ids), pixel_values=torch.tensor(pixels), labels=labels,
                attention_mask=torch.ones_like(labels), token_type_ids=torch.tensor((ids == TOKEN).astype(np.int64)))
    got.loss.backward()
    named = dict(model.named_parameters())
    folder = sys.argv[1]
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    with h5py.File(os.path.join(folder, "expected.h5"), "w", libver="latest") as out:
        out.attrs["config"] = CONFIG
        out.attrs["versions"] = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__})
        found, names, grads = set(), [], []
        for ours, theirs, change in all_rows():
            path, = [p for p in named if p.endswith(theirs) and p not in found]
            found.add(path)
            gradient = named[path].grad.numpy()
            if ours == "token_embedder/embedding":
                gradient = gradient / 16  # theirs is of the smaller table
            grads.append((same if change is plus_one else change)(gradient).ravel())
            names.append(f"{ours} {grads[-1].size}")
        assert found == set(named), set(named) - found
        out.attrs["names"] = "\n".join(names) + "\n"
        out["grads"] = np.concatenate(grads)
        write_batch(out, ids, pixels)
        out["logits"], out["loss"] = got.logits.detach().numpy(), got.loss.detach().numpy()


if __name__ == "__main__":
    main()

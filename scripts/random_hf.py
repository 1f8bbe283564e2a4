#!/usr/bin/env python3
"""Random tiny models of transformers: ours read them, compute the same, and give them back.

    random_hf.py [--n 50] [--seed 1] [--family X]... [--build build] [--keep DIR] [--train]

Case i of a family draws a config of transformers' own class, random weights, a dtype, one file or shards, and the spelling of config.json
(transformers 5's, or 4's: `rope_scaling`, `torch_dtype`, members left out or null). Compared in float32 with transformers' eager model:

    logits     of prompts of unequal length, longer than windows are           mxdecode --logits
    greedy     32 tokens behind the same prompts in one batch                  mxdecode --json
    way back   all weights, missing and unexpected keys, logits                mxconvert, mxconvert --to-hf
    --train    two steps of all parameters, and of merged adapters, written back: keys and logits of the result
    few_bits   logits of weights as fp8, gptq, awq, compressed-tensors and bitsandbytes store them
    ..._sees   logits of words with one and two random pictures among them, and the way back of all weights with the encoder's

Prints each case that is refused (with our message) or differs (with its folder under --keep, else it is removed), and a count per family.
Case i of a seed is always the same; --only I repeats one. Needs torch, transformers, tokenizers, pillow and h5py."""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import traceback

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import h5py
import numpy as np
import PIL.Image
import safetensors.torch
import tokenizers
import torch
import transformers as hf
import transformers.utils.logging

import golden_hf

transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
hf.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None  # llama4 of 5.24 asks for it

LENGTHS = (3, 14, 29)
NEW_TOKENS = 32
CLOSE = 2e-5  # of logits, by the largest of them or 1
TRIES = 20  # transformers refuses some of what is drawn

# ---- parts of configs


def rope(r, kinds="default default linear yarn", **more):
    kind = r.choice(kinds.split())
    out = dict(rope_type=kind, rope_theta=r.choice([10000.0, 500.0, 1e6]), **more)
    if kind != "default":
        out["factor"] = r.choice([2.0, 4.0, 8.5, 1.0])
    if kind == "yarn":
        out["original_max_position_embeddings"] = r.choice([8, 16, 32])
        optional = dict(beta_fast=r.choice([32.0, 8.0, 4]), beta_slow=r.choice([1.0, 2.0]), attention_factor=1.3, mscale=0.8,
                        mscale_all_dim=0.6, truncate=r.choice([True, False]))
        out.update({k: v for k, v in optional.items() if r.random() < 0.3})
    if kind == "llama3":
        out.update(low_freq_factor=r.choice([1.0, 2.0]), high_freq_factor=r.choice([4.0, 3.0]),
                   original_max_position_embeddings=r.choice([16, 32]))
    return out


def rope_of_full(r, kinds="default default linear yarn"):
    """Of one kind of layers: there transformers looks for `truncate` beside the kinds, where nobody says it."""
    out = rope(r, kinds)
    out.pop("truncate", None)
    return out


def sizes(r, **more):
    heads = r.choice([1, 2, 4])
    out = dict(hidden_size=r.choice([16, 24, 32]), intermediate_size=r.choice([12, 24, 40]), num_attention_heads=heads,
               num_key_value_heads=r.choice([n for n in (1, 2, 4) if heads % n == 0]), head_dim=r.choice([4, 8, 16]),
               vocab_size=r.choice([48, 61, 80]), max_position_embeddings=r.choice([64, 128]), bos_token_id=1,
               eos_token_id=r.choice([2, [2, 3]]), pad_token_id=r.choice([0, None]), num_hidden_layers=r.choice([1, 2, 3]),
               tie_word_embeddings=r.random() < 0.4, rms_norm_eps=r.choice([1e-6, 1e-5, 3e-4]), initializer_range=0.2)
    out.update(more)
    return out


def even_heads(d):
    """Heads as wide as hidden_size has room for."""
    del d["head_dim"]
    d["hidden_size"] = d["num_attention_heads"] * 8
    return d


def experts(r, **more):
    return dict(num_experts_per_tok=r.choice([1, 2]), moe_intermediate_size=r.choice([8, 12]), **more)


def turns(r, n):
    return [r.choice(["full_attention", "sliding_attention"]) for _ in range(n)]


# ---- families


def llama(r):
    d = sizes(r)
    return hf.LlamaConfig(**d, attention_bias=r.random() < 0.1, rope_parameters=rope(r, "default default linear llama3 llama3"))


def mistral(r):
    return hf.MistralConfig(**sizes(r), sliding_window=r.choice([None, 4, 8]), rope_parameters=rope(r))


def said_window(r, d):
    kind = r.choice([0, 0, 0, 1, 1, 2])
    if kind == 1:
        d.update(use_sliding_window=True, sliding_window=4, max_window_layers=r.choice([0, 0, 1]))
    if kind == 2:
        d.update(use_sliding_window=True, sliding_window=r.choice([3, 6]),
                 layer_types=[r.choice(["full_attention", "sliding_attention"])] * d["num_hidden_layers"])
    return d


def qwen2(r):
    return hf.Qwen2Config(**said_window(r, even_heads(sizes(r))), rope_parameters=rope(r))


def qwen3(r):
    return hf.Qwen3Config(**said_window(r, sizes(r)), attention_bias=r.random() < 0.3, rope_parameters=rope(r))


def gemma(r):
    return hf.GemmaConfig(**sizes(r), rope_parameters=rope(r))


def gemma2(r):
    return hf.Gemma2Config(**sizes(r, num_hidden_layers=r.choice([2, 4])), query_pre_attn_scalar=r.choice([16, 7, 100]),
                           sliding_window=4, attn_logit_softcapping=r.choice([None, 50.0, 2.0]),
                           final_logit_softcapping=r.choice([None, 30.0, 3.0]), rope_parameters=rope(r))


def gemma3(r):
    return hf.Gemma3TextConfig(**sizes(r, num_hidden_layers=r.choice([2, 6, 7])), query_pre_attn_scalar=r.choice([16, 7, 100]),
                               sliding_window=4, final_logit_softcapping=r.choice([None, 3.0]),
                               rope_parameters=dict(full_attention=rope_of_full(r, "default linear yarn"),
                                                    sliding_attention=dict(rope_type="default", rope_theta=10000.0)))


def part_rope(r):
    own = dict(rope_type="proportional", rope_theta=r.choice([1e6, 500.0]), partial_rotary_factor=r.choice([0.25, 0.5, 1.0]))
    plain = dict(rope_type="default", rope_theta=r.choice([1e6, 500.0]))
    return dict(full_attention=r.choice([own, own, plain]), sliding_attention=dict(rope_type="default", rope_theta=10000.0))


def gemma4(r):
    """Layers in gemma4's turns, with experts or without."""
    d = sizes(r, num_hidden_layers=r.choice([6, 12]), hidden_size_per_layer_input=0, sliding_window=r.choice([3, 6]))
    d.update(global_head_dim=r.choice([8, 16]), final_logit_softcapping=r.choice([None, 3.0, 30.0]), attention_k_eq_v=r.random() < 0.6)
    d.update(use_bidirectional_attention=r.choice([None, "vision"]), attention_bias=r.random() < 0.2)
    if d["attention_k_eq_v"] and r.random() < 0.7:
        d["num_global_key_value_heads"] = 1
    if r.random() < 0.5:
        d.update(enable_moe_block=True, num_experts=r.choice([2, 3, 4]), top_k_experts=r.choice([1, 2]), moe_intermediate_size=12)
    if r.random() < 0.8:
        d["rope_parameters"] = part_rope(r)
    return hf.Gemma4TextConfig(**d)


def gemma4_small(r):
    """Every layer reads an input of its own, the last ones take keys and values of earlier ones."""
    n, cycle = r.choice([4, 6, 10]), r.choice([2, 3, 5])
    d = sizes(r, num_hidden_layers=n, hidden_size_per_layer_input=r.choice([4, 6]), sliding_window=r.choice([3, 6]))
    d.update(global_head_dim=r.choice([8, 16]), final_logit_softcapping=r.choice([None, 3.0, 30.0]), use_double_wide_mlp=r.random() < 0.5)
    d.update(vocab_size_per_layer_input=r.choice([d["vocab_size"], d["vocab_size"], d["vocab_size"] + 3]), attention_bias=r.random() < 0.2)
    if n >= cycle and n % cycle == 0:
        d["layer_types"] = ["sliding_attention" if (i + 1) % cycle else "full_attention" for i in range(n)]
        d["num_kv_shared_layers"] = r.choice([0, n - cycle])
    if r.random() < 0.8:
        d["rope_parameters"] = part_rope(r)
    return hf.Gemma4TextConfig(**d)


def mixtral(r):
    d = sizes(r, num_local_experts=r.choice([2, 3, 4]), num_experts_per_tok=r.choice([1, 2]))
    return hf.MixtralConfig(**d, sliding_window=r.choice([None, 4]), rope_parameters=rope(r))


def qwen3_moe(r):
    d = sizes(r, **experts(r, num_experts=r.choice([2, 3, 4]), norm_topk_prob=True))
    return hf.Qwen3MoeConfig(**d, attention_bias=r.random() < 0.3, rope_parameters=rope(r))


def olmo3(r):
    d = even_heads(sizes(r, num_hidden_layers=r.choice([2, 4, 5]), sliding_window=4))
    plain = dict(rope_type="default", rope_theta=r.choice([10000.0, 500.0]))
    return hf.Olmo3Config(**d, rope_parameters=dict(full_attention=rope_of_full(r), sliding_attention=plain))


def gpt_oss(r):
    d = sizes(r, num_local_experts=r.choice([2, 3]), num_experts_per_tok=r.choice([1, 2]), sliding_window=4)
    return hf.GptOssConfig(**d, attention_bias=r.random() < 0.8, rope_parameters=rope(r))


def latent(r, **more):
    d = sizes(r, moe_intermediate_size=12, first_k_dense_replace=r.choice([0, 1]), n_routed_experts=4, num_experts_per_tok=2)
    del d["head_dim"]
    turned = r.choice([4, 8, 8])
    d.update(num_key_value_heads=d["num_attention_heads"], rms_norm_eps=1e-6, qk_nope_head_dim=r.choice([4, 8]), qk_rope_head_dim=turned,
             v_head_dim=r.choice([6, 8]), kv_lora_rank=10, n_shared_experts=r.choice([1, 2]), q_lora_rank=r.choice([None, 12]),
             routed_scaling_factor=r.choice([1.0, 1.5]), rope_parameters=rope(r), **more)
    return d


def deepseek_v2(r):
    return hf.DeepseekV2Config(**latent(r, topk_method="greedy", n_group=2, topk_group=1))


def deepseek_v3(r):
    return hf.DeepseekV3Config(**latent(r, n_group=r.choice([1, 2]), topk_group=1, norm_topk_prob=True, rope_interleave=r.random() < 0.6))


def deepseek_v32(r):
    d = latent(r, n_group=r.choice([1, 2]), topk_group=1, norm_topk_prob=True, index_n_heads=32, index_topk=r.choice([5, 64]))
    d.update(q_lora_rank=12, index_head_dim=d["qk_rope_head_dim"] + 8, rope_parameters=rope(r, "yarn"))
    return hf.DeepseekV32Config(**d)


def deepseek_v4(r):
    n = r.choice([2, 4, 5])
    d = sizes(r, num_hidden_layers=n, num_key_value_heads=1, rms_norm_eps=1e-6, **experts(r, n_routed_experts=4, q_lora_rank=12))
    del d["intermediate_size"]
    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    d.update(head_dim=r.choice([8, 16]), o_groups=r.choice([g for g in (1, 2) if g <= d["num_attention_heads"]]), o_lora_rank=6)
    d.update(partial_rotary_factor=r.choice([0.5, 0.25]), sliding_window=r.choice([4, 6]), swiglu_limit=r.choice([0.5, 10.0]))
    d.update(layer_types=[r.choice(kinds) for _ in range(n)], mlp_layer_types=["hash_moe"] * (h := r.choice([0, 1, 2])) + ["moe"] * (n - h))
    d.update(compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=r.choice([5, 8])), compress_rope_theta=1000.0)
    d.update(index_n_heads=32, index_head_dim=r.choice([8, 12]), index_topk=r.choice([2, 64]), hc_mult=r.choice([2, 3, 4]))
    d.update(hc_sinkhorn_iters=r.choice([3, 5]), routed_scaling_factor=r.choice([1.0, 1.5]), rope_parameters=rope_of_full(r, "yarn yarn default"))
    d["rope_parameters"].pop("attention_factor", None)
    return hf.DeepseekV4Config(**d)


def delta(r, d):
    part = r.choice([0.25, 0.5, 1.0]) if d["head_dim"] >= 8 else 0.5
    d.update(num_hidden_layers=r.choice([4, 8]), linear_num_key_heads=r.choice([1, 2]), linear_num_value_heads=r.choice([2, 4]),
             linear_key_head_dim=6, linear_value_head_dim=r.choice([4, 6]), rope_parameters=rope(r, partial_rotary_factor=part))
    return d


def qwen3_next(r):
    d = delta(r, sizes(r, **experts(r, num_experts=3, norm_topk_prob=True, shared_expert_intermediate_size=24)))
    return hf.Qwen3NextConfig(**d)


def qwen3_5_moe(r):
    d = delta(r, sizes(r, **experts(r, num_experts=3, shared_expert_intermediate_size=24)))
    return hf.Qwen3_5MoeTextConfig(**d)


def llama4(r):
    d = sizes(r, num_hidden_layers=r.choice([2, 4]), intermediate_size_mlp=40, num_local_experts=3, num_experts_per_tok=1)
    d.update(interleave_moe_layer_step=r.choice([1, 2]), attention_chunk_size=r.choice([5, 7]), floor_scale=4, attn_scale=0.1,
             use_qk_norm=r.random() < 0.6, attn_temperature_tuning=r.random() < 0.5)
    return hf.Llama4TextConfig(**d, rope_parameters=rope(r, "default default linear llama3"))


TEXT = {f.__name__: f for f in (llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3, gemma4, gemma4_small, mixtral, qwen3_moe, olmo3,
                                gpt_oss, deepseek_v2, deepseek_v3, deepseek_v32, deepseek_v4, qwen3_next, qwen3_5_moe, llama4)}

# ---- families that see pictures: the config, a processor that is saved beside it, pictures that need no resizing unless it is
# Pillow's, and what the model is given of them

BEGIN, TOKEN, END, WHOLE = 40, 41, 42, 43  # ids around a picture and of its tokens
Sees = collections.namedtuple("Sees", "config marks processor pictures inputs")


def picture(r, rows, columns):
    return np.frombuffer(r.randbytes(rows * columns * 3), np.uint8).reshape(rows, columns, 3)


def tower(r, **more):
    heads = r.choice([1, 2])
    return dict(hidden_size=heads * r.choice([8, 16]), intermediate_size=r.choice([12, 24]), num_hidden_layers=r.choice([1, 2]),
                num_attention_heads=heads, initializer_range=0.2, **more)


def types_of(ids):
    return (torch.tensor([ids]) == TOKEN).long()


def gemma3_sees(r):
    patch, across, tokens = r.choice([(4, 4, 4), (7, 4, 4), (5, 6, 9), (4, 8, 16), (4, 2, 4)])
    side = patch * across
    # This class of transformers does not apply the cap, and lets tokens of an image see no others further back than a window.
    text = dict(gemma3(r).to_dict(), final_logit_softcapping=None, sliding_window=tokens + r.choice([0, 3]))
    config = hf.Gemma3Config(text_config=text, vision_config=tower(r, image_size=side, patch_size=patch, vision_use_head=False),
                             mm_tokens_per_image=tokens, image_token_index=TOKEN, boi_token_index=BEGIN, eoi_token_index=END)
    processor = hf.models.gemma3.image_processing_pil_gemma3.Gemma3ImageProcessorPil(size=dict(height=side, width=side))
    return Sees(config, {"<start_of_image>": BEGIN, "<image_soft_token>": TOKEN, "<end_of_image>": END}, processor,
                lambda: picture(r, r.randrange(3, 60), r.randrange(3, 60)), lambda ids, seen: dict(seen, token_type_ids=types_of(ids)))


def gemma4_sees(r):
    patch, pool, tokens = r.choice([2, 4]), r.choice([2, 3]), r.choice([4, 6, 12])
    vision = tower(r, patch_size=patch, pooling_kernel_size=pool, position_embedding_size=tokens * pool, standardize=True)
    vision.update(num_key_value_heads=vision["num_attention_heads"], head_dim=vision["hidden_size"] // vision["num_attention_heads"])
    text = gemma4(r).to_dict()
    text.update(use_bidirectional_attention="vision", sliding_window=16)
    config = hf.Gemma4Config(text_config=text, vision_config=vision, image_token_id=TOKEN, boi_token_id=BEGIN, eoi_token_id=END,
                             vision_soft_tokens_per_image=tokens)
    rows = [n for n in range(1, tokens + 1) if tokens % n == 0 and max(n, tokens // n) <= 6]

    def one():
        n = r.choice(rows)
        return picture(r, n * patch * pool, tokens // n * patch * pool)

    def process(pictures, **_):
        """Patches of each picture row by row, and where they stand; transformers' processor has no such sizes."""
        values, places = [], []
        for x in map(np.asarray, pictures):
            m, n = x.shape[0] // patch, x.shape[1] // patch
            values.append(x.reshape(m, patch, n, patch, 3).transpose(0, 2, 1, 3, 4).reshape(m * n, -1) / np.float32(255))
            places.append(np.stack(np.meshgrid(range(n), range(m)), -1).reshape(-1, 2))
        return dict(pixel_values=torch.tensor(np.stack(values)), image_position_ids=torch.tensor(np.stack(places)))

    return Sees(config, {"<|image>": BEGIN, "<|image|>": TOKEN, "<image|>": END}, process, one,
                lambda ids, seen: dict(seen, mm_token_type_ids=types_of(ids)))


def llama4_sees(r):
    patch, across = r.choice([2, 4]), r.choice([2, 4])
    wide = r.choice([8, 12])
    vision = tower(r, image_size=patch * across, patch_size=patch, projector_input_dim=wide, projector_output_dim=wide,
                   vision_output_dim=wide, rope_theta=10000)
    vision["intermediate_size"] = vision["hidden_size"] * 4
    config = hf.Llama4Config(text_config=llama4(r).to_dict(), vision_config=vision, image_token_index=TOKEN, boi_token_index=BEGIN,
                             eoi_token_index=END)
    marks = {"<|image_start|>": BEGIN, "<|patch|>": TOKEN, "<|image_end|>": END, "<|image|>": WHOLE, "<|tile_x_separator|>": 44,
             "<|tile_y_separator|>": 45}

    def process(pictures, **_):
        """As transformers' processor, which needs torchvision: in bfloat16."""
        x = torch.tensor(np.stack([np.asarray(x) for x in pictures]).transpose(0, 3, 1, 2)).bfloat16() * (1 / 255)
        return dict(pixel_values=((x - 0.5) / 0.5).float())

    return Sees(config, marks, process, lambda: picture(r, patch * across, patch * across), lambda ids, seen: seen)


def qwen_sees(r, outer, text, is_deep=True):
    text["rope_parameters"] = dict(rope_type="default", rope_theta=r.choice([10000.0, 5e6]), mrope_interleaved=True)
    part = {"partial_rotary_factor": 0.5} if not is_deep else {}
    pairs = int(text["head_dim"] * part.get("partial_rotary_factor", 1)) // 2
    rows = r.randrange(pairs // 3 + 1)
    text["rope_parameters"].update(mrope_section=[pairs - 2 * rows, rows, rows], **part)
    heads, patch, merge = r.choice([1, 2]), r.choice([2, 4]), r.choice([2, 2, 3])
    vision = dict(depth=r.choice([1, 2, 3]), hidden_size=heads * r.choice([8, 16]), num_heads=heads, intermediate_size=r.choice([12, 24]),
                  patch_size=patch, spatial_merge_size=merge, temporal_patch_size=2, out_hidden_size=text["hidden_size"],
                  num_position_embeddings=(r.choice([3, 4]) * merge)**2, initializer_range=0.2)
    if is_deep:
        n_deep = min(vision["depth"], r.choice([1, 2]), text["num_hidden_layers"])
        vision["deepstack_visual_indexes"] = sorted(r.sample(range(vision["depth"]), n_deep))
    config = outer(text_config=text, vision_config=vision, image_token_id=TOKEN, video_token_id=WHOLE, vision_start_token_id=BEGIN,
                   vision_end_token_id=END, tie_word_embeddings=text["tie_word_embeddings"])
    side = patch * merge
    processor = hf.models.qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil(
        patch_size=patch, temporal_patch_size=2, merge_size=merge, size=dict(shortest_edge=1, longest_edge=9 * side * side),
        image_mean=[0.5] * 3, image_std=[0.5] * 3)
    return Sees(config, {"<|vision_start|>": BEGIN, "<|image_pad|>": TOKEN, "<|vision_end|>": END}, processor,
                lambda: picture(r, r.choice([1, 2, 3]) * side, r.choice([1, 2, 3]) * side),
                lambda ids, seen: dict(seen, mm_token_type_ids=types_of(ids)))


def qwen3_vl_sees(r):
    return qwen_sees(r, hf.Qwen3VLConfig, hf.Qwen3VLTextConfig(**sizes(r)).to_dict())


def qwen3_vl_moe_sees(r):
    """No matrix of both branches is square: whether files hold it transposed could not be told."""
    d = sizes(r, **dict(experts(r, num_experts=r.choice([2, 3, 4])), moe_intermediate_size=r.choice([4, 20])))
    return qwen_sees(r, hf.Qwen3VLMoeConfig, hf.Qwen3VLMoeTextConfig(**d).to_dict())


def qwen3_5_moe_sees(r):
    return qwen_sees(r, hf.Qwen3_5MoeConfig, dict(qwen3_5_moe(r).to_dict(), head_dim=r.choice([8, 16])), False)


SEES = {f.__name__: f for f in (gemma3_sees, gemma4_sees, llama4_sees, qwen3_vl_sees, qwen3_vl_moe_sees, qwen3_5_moe_sees)}

# ---- weights in few bits, stored as scripts/golden_hf.py stores them; blocks of many sizes


def fp8_blocks(r):
    size = [r.choice([8, 12, 16, 32]), r.choice([8, 12, 16, 32])]

    def store(few, plain):
        for name in [n for n in plain if "_proj" in n and n.endswith(".weight")]:
            few[name], few[name + "_scale_inv"], plain[name] = golden_hf.to_fp8(plain[name], size)
        return dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=size)
    return store


def compressed(r):
    scheme, changes = r.choice([("W8A8", {}), ("NVFP4A16", {}), ("MXFP4A16", {}), ("MXFP8A16", {}), ("W4A16", dict(group_size=16)),
                                ("W4A16", dict(group_size=32)), ("W4A16_ASYM", dict(group_size=16))])
    return golden_hf.compressed((["Linear"], scheme, changes))


FEW = {"fp8": fp8_blocks, "fp8 rows": lambda r: golden_hf.llama_in_fp8, "awq": lambda r: golden_hf.in_awq, "compressed": compressed,
       "gptq": lambda r: golden_hf.in_gptq(r.choice([4, 8]), r.choice([16, 32]), r.choice([0, 1])), "nf4": lambda r: golden_hf.in_nf4,
       "int8": lambda r: golden_hf.in_int8}


def few_bits(r):
    """Rows of 64 and more: those that end within a block bitsandbytes reads wrongly on a CPU."""
    kind = r.choice([llama, mistral, qwen2, qwen3])
    config = kind(r)
    config.update(dict(hidden_size=64, intermediate_size=r.choice([64, 128, 192]), num_attention_heads=4,
                       num_key_value_heads=r.choice([1, 2, 4])))
    if kind is not qwen2:
        config.head_dim = 16
    return config


FAMILIES = TEXT | SEES | {"few_bits": few_bits}


# ---- spellings of config.json


def old_rope(config):
    """As transformers 4 wrote it."""
    rope = config.get("rope_parameters")
    if not rope or "rope_type" not in rope:
        return
    del config["rope_parameters"]
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope == dict(rope_type="default") else rope
    if rope["rope_type"] in ("linear", "dynamic"):
        rope["type"] = rope.pop("rope_type")


def old_gemma3(config):
    full, local = config["rope_parameters"]["full_attention"], config["rope_parameters"]["sliding_attention"]
    if local["rope_type"] != "default":
        return
    del config["rope_parameters"]
    config.update(rope_theta=full.pop("rope_theta"), rope_local_base_freq=local["rope_theta"], rope_scaling=None)
    if full["rope_type"] != "default":
        config["rope_scaling"] = full


def old_gemma4(config):
    own = next(iter(config.pop("per_layer_config").values()), {})
    config.update(global_head_dim=own.get("head_dim"), num_global_key_value_heads=own.get("num_key_value_heads"))


# Members that published files lack or have as null.
OPTIONAL = """rms_norm_eps num_key_value_heads head_dim tie_word_embeddings sliding_window max_window_layers use_sliding_window
layer_types attention_bias rope_theta rope_scaling rope_parameters pad_token_id eos_token_id bos_token_id hidden_act hidden_activation
initializer_range attention_dropout mlp_bias use_cache num_local_experts num_experts_per_tok num_experts norm_topk_prob
query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping partial_rotary_factor n_group topk_group routed_scaling_factor
first_k_dense_replace n_shared_experts q_lora_rank rope_interleave scoring_func topk_method attention_chunk_size floor_scale attn_scale
attn_temperature_tuning use_qk_norm interleave_moe_layer_step global_head_dim num_global_key_value_heads attention_k_eq_v
num_kv_shared_layers use_double_wide_mlp vocab_size_per_layer_input per_layer_config use_bidirectional_attention enable_moe_block
linear_num_key_heads linear_num_value_heads linear_conv_kernel_dim layer_types moe_layers no_rope_layers swiglu_limit index_topk
max_position_embeddings dtype transformers_version architectures moe_intermediate_size decoder_sparse_step mlp_only_layers""".split()


def respell(r, config):
    if r.random() < 0.4:
        if config["model_type"].startswith("gemma4"):
            old_gemma4(config)
        elif config["model_type"].startswith("gemma3"):
            old_gemma3(config)
        else:
            old_rope(config)
        if "dtype" in config:
            config["torch_dtype"] = config.pop("dtype")
        if r.random() < 0.5:
            config.pop("layer_types", None)
    if r.random() < 0.1:  # both spellings at once
        config["rope_scaling"] = r.choice([None, {}, dict(rope_type="linear", factor=3.0), dict(rope_type="default", rope_theta=700.0)])
    present = [k for k in OPTIONAL if k in config]
    for key in r.sample(present, r.choice([0, 0, 0, 1, 2, 4])):
        if r.random() < 0.5:
            config[key] = None
        else:
            del config[key]
    theta = config.get("rope_theta")
    if isinstance(theta, float) and r.random() < 0.5:
        config["rope_theta"] = int(theta)
    return config


# ---- one case


class Outcome(Exception):
    """What a case came to: kind, and the reason."""


def run(*command):
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    return result.returncode, result.stdout, result.stderr.strip()


def need(kind, *command):
    code, out, error = run(*command)
    if code:
        raise Outcome(kind, error)
    return out


def load(folder, **more):
    sees = "vision_config" in json.loads((folder / "config.json").read_text())
    kind = hf.AutoModelForImageTextToText if sees else hf.AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **more)


def fill(model):
    """Numbers that transformers starts with zeros or ones are drawn, too. Without an embedding of the padding all scores of an
    indexer are 0, and which tokens are the best ones is arbitrary."""
    for name, p in model.named_parameters():
        if "bias" in name:
            p.data.normal_(std=0.3)
        elif p.dim() == 1:
            p.data.add_(torch.randn_like(p) * 0.1)
        if "embed" in name and p.dim() == 2:
            p.data[p.norm(dim=1) == 0] = torch.randn(p.shape[1]) * 0.2
        if model.config.model_type == "deepseek_v4" and "shared_experts" in name:
            p.data.mul_(0.05)  # where swiglu_limit does not act in ours, nor in MaxText
    for name, b in model.named_buffers():
        if "bias" in name:
            b.normal_(std=0.2)
        if name.endswith("layer_scalar"):
            b.uniform_(0.5, 1.5)
        if name.endswith("tid2eid"):
            n = model.config.n_routed_experts
            b.copy_(torch.stack([torch.randperm(n)[:b.shape[1]] for _ in range(b.shape[0])]))


def draw(r, family, folder):
    """A folder as transformers saves it, the model that it reads from there, and what it sees."""
    try:
        drawn = FAMILIES[family](r)
        sees = drawn if family in SEES else None
        (sees.config if sees else drawn).save_pretrained(folder)
        path = folder / "config.json"
        said = json.loads(path.read_text())
        if sees:
            said["text_config"] = respell(r, said["text_config"])
            said["text_config"]["pad_token_id"] = 0
            if family.startswith("gemma") and said["text_config"].get("sliding_window", 0) is None:
                raise ValueError("transformers' masks need a window")
        else:
            said = respell(r, said)
        path.write_text(json.dumps(said, indent=1))
        config = hf.AutoConfig.from_pretrained(folder)
        kind = hf.AutoModelForImageTextToText if sees else hf.AutoModelForCausalLM
        model = kind.from_config(config, attn_implementation="eager").float().eval()
        fill(model)
        dtype = r.choice([torch.float32, torch.float32, torch.bfloat16])
        model.to(dtype).save_pretrained(folder, max_shard_size=r.choice(["5GB", "20KB"]))
        path.write_text(json.dumps(dict(said, architectures=[type(model).__name__]), indent=1))
        model, info = load(folder, output_loading_info=True)
        if not sees:
            logits_of(model, list(range(4, 14)))
    except Exception as e:
        raise Outcome("not drawn", repr(e)[:200]) from e
    if any(info[k] for k in ("missing_keys", "mismatched_keys")):
        raise Outcome("not drawn", f"transformers reads back with {info}"[:200])
    return model.eval(), sees


def store_few(r, folder, model):
    """The folder in few bits, and the model of the numbers that these stand for."""
    store = FEW[r.choice(list(FEW))](r)
    plain = {name: w.detach().clone() for name, w in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del plain["lm_head.weight"]
    few = dict(plain)
    for path in list(folder.glob("*.safetensors*")):
        path.unlink()
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = store(few, plain)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    safetensors.torch.save_file({n: w.contiguous() for n, w in few.items()}, folder / "model.safetensors", {"format": "pt"})
    model.load_state_dict(plain, strict=False)
    return model


def logits_of(model, prompt, **seen):
    with torch.no_grad():
        return model(torch.tensor([prompt]), use_cache=False, **seen).logits[0].numpy()


def noise(model, prompt, **seen):
    """How far its logits move when every weight does by at most one bit, the largest of three draws."""
    before, moved = logits_of(model, prompt, **seen), 0
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    for _ in range(3):
        for p in model.parameters():
            p.data.mul_(1 + (torch.rand_like(p) - 0.5) * 2**-23)
        moved = max(moved, np.abs(logits_of(model, prompt, **seen) - before).max())
        model.load_state_dict(kept)
    return moved


def check_logits(kind, path, model, prompts):
    with h5py.File(path) as ours:
        for i, prompt in enumerate(prompts):
            found, wanted = ours[f"prompts/{i:06d}/logits"][:], logits_of(model, prompt)
            if found.shape != wanted.shape:
                raise Outcome(kind, f"shape {found.shape}, wanted {wanted.shape}")
            far = np.abs(found - wanted).max()
            if not far < CLOSE * max(1, np.abs(wanted).max()) and not far < 8 * (own := noise(model, prompt)):
                raise Outcome(kind, f"prompt {i}: {far:.1e} of {np.abs(wanted).max():.1e}, noise {own:.1e}")


def write_logits(kind, build, model, folder):
    need(kind, build / "mxdecode", model, "--prompts", folder / "p.jsonl", "--logits", folder / "ours.h5", "--dtype", "float32")


def compare_logits(folder, model, prompts, build):
    write_logits("refused", build, folder / "hf", folder)
    check_logits("LOGITS", folder / "ours.h5", model, prompts)


def compare_greedy(folder, model, prompts, build):
    """Each token is the likeliest of transformers' own behind what ours said before, or as likely within rounding; ends alike."""
    out = need("GREEDY", build / "mxdecode", folder / "hf", "--prompts", folder / "p.jsonl", "--json", "--temperature", 0, "--max-tokens",
               NEW_TOKENS, "--dtype", "float32")
    ends = model.generation_config.eos_token_id
    ends = [ends] if isinstance(ends, int) else ends or []
    for prompt, line in zip(prompts, out.splitlines()):
        reply = json.loads(line)
        whole = prompt + reply["ids"]
        logits = logits_of(model, whole)[len(prompt) - 1:-1]
        for i, token in enumerate(reply["ids"]):
            if logits[i].max() - logits[i][token] > CLOSE * max(1, np.abs(logits[i]).max()):
                raise Outcome("GREEDY", f"token {i} behind {len(prompt)}: {token}, wanted {logits[i].argmax()}")
            if token in ends and i + 1 < len(reply["ids"]):
                raise Outcome("GREEDY", f"says {len(reply['ids'])} tokens, of which the {i + 1}. ends")
        if len(reply["ids"]) < NEW_TOKENS and not (reply["ids"] and reply["ids"][-1] in ends):
            last = logits_of(model, whole)[-1].argmax()
            if last not in ends:
                raise Outcome("GREEDY", f"ends after {len(reply['ids'])} tokens")


def make_tokenizer(folder, marks, size):
    """Words of a token each."""
    ids = {i: mark for mark, i in marks.items()}
    vocab = {ids.get(i, f"w{i}"): i for i in range(size)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(marks))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast")))


def compare_seen(r, folder, model, sees, build):
    """Logits of words with pictures among them, and the way back of all weights."""
    make_tokenizer(folder / "hf", sees.marks, 48)
    if hasattr(sees.processor, "save_pretrained"):
        sees.processor.save_pretrained(folder / "hf")
    records, pictures = [], []
    mark = "<|vision_start|><|image_pad|><|vision_end|>" if "<|image_pad|>" in sees.marks else list(sees.marks)[0]
    mark = "<|image|>" if "<|image|>" in sees.marks else mark
    for i, n in enumerate((1, 2)):
        pictures.append([sees.pictures() for _ in range(n)])
        words = [f"w{r.randrange(4, 40)}" for _ in range(6)]
        for k, pixels in enumerate(pictures[-1]):
            PIL.Image.fromarray(pixels).save(folder / f"{i}_{k}.png")
            words.insert(r.randrange(len(words)), mark)
        records.append(dict(prompt=" ".join(words), images=[str(folder / f"{i}_{k}.png") for k in range(n)]))
    (folder / "p.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_logits("refused", build, folder / "hf", folder)
    with h5py.File(folder / "ours.h5") as ours:
        for i, some in enumerate(pictures):
            ids = ours[f"prompts/{i:06d}/ids"][:].tolist()
            seen = dict(sees.processor([PIL.Image.fromarray(x) for x in some], return_tensors="pt"))
            seen.pop("num_crops", None)
            seen = sees.inputs(ids, seen)
            wanted, found = logits_of(model, ids, **seen), ours[f"prompts/{i:06d}/logits"][:]
            far = np.abs(found - wanted).max(-1)
            if not far.max() < CLOSE * max(1, np.abs(wanted).max()) and not far.max() < 8 * (own := noise(model, ids, **seen)):
                differ = " ".join(f"{n}:{x:.0e}" for n, x in zip(ids, far))
                raise Outcome("SEEN", f"prompt {i}: {differ} of {np.abs(wanted).max():.1e}, noise {own:.1e}")
    compare_weights(folder, model, build, "--images")


def load_back(kind, folder):
    try:
        model, info = load(folder, output_loading_info=True)
    except Exception as e:
        raise Outcome(kind, repr(e)[:300]) from e
    if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise Outcome(kind, str({k: sorted(v)[:4] for k, v in info.items() if k.endswith("_keys") and v})[:300])
    return model.eval()


def compare_weights(folder, model, build, *options):
    need("CONVERT", build / "mxconvert", folder / "hf", folder / "mx", "--quiet", *options)
    need("BACK", build / "mxconvert", "--to-hf", folder / "mx", folder / "back", "--quiet")
    back = load_back("BACK", folder / "back")
    ours = back.state_dict()
    other = [k for k, v in model.state_dict().items() if k not in ours or not torch.allclose(v, ours[k], rtol=1e-6, atol=1e-7)]
    if other:
        raise Outcome("BACK", f"weights {other[:4]}")
    return back


def compare_back(folder, model, prompts, build):
    back = compare_weights(folder, model, build)
    for prompt in prompts:
        worst = np.abs(logits_of(back, prompt) - logits_of(model, prompt)).max()
        if worst > CLOSE:
            raise Outcome("BACK", f"logits {worst:.1e}")


TRAIN = """dataset_type=synthetic steps=2 max_target_length=16 per_device_batch_size=1 eval_interval=-1 dtype=float32
enable_checkpointing=true log_config=false""".split()
ADAPTED = ".*(query|key|value|out|wq_b|wkv|wkv_b|o_b_proj|out_proj|wi_0|wo)$"


def compare_trained(folder, model, prompts, build, adapters):
    """What a run writes computes there what it computes here."""
    name = "adapters" if adapters else "run"
    more = ["learning_rate=0.01"]
    if adapters:
        more += ["lora.enable_lora=true", "lora.lora_rank=2", "lora.lora_alpha=4", f"lora.lora_module_path={ADAPTED}"]
    need("TRAIN", build / "mxtrain", f"model={folder / 'hf'}", f"run_name={name}", f"base_output_directory={folder}", *TRAIN, *more)
    merge = ["--merge-lora"] if adapters else []
    need("TO-HF", build / "mxconvert", *merge, "--to-hf", folder / name, folder / f"{name}_hf", "--dtype", "float32", "--quiet")
    trained = load_back("TO-HF", folder / f"{name}_hf")
    write_logits("DECODE", build, folder / name, folder)
    check_logits("TRAINED", folder / "ours.h5", trained, prompts)
    moved = np.abs(logits_of(trained, prompts[-1]) - logits_of(model, prompts[-1])).max()
    if not moved > 1e-4:
        raise Outcome("TRAINED", f"{name}: nothing moved")


def case(family, i, args, folder):
    r = random.Random(f"{args.seed} {family} {i}")
    torch.manual_seed(r.randrange(1 << 30))
    for n in range(TRIES):
        shutil.rmtree(folder / "hf", ignore_errors=True)
        try:
            model, sees = draw(r, family, folder / "hf")
            break
        except Outcome:
            if n + 1 == TRIES:
                raise
    if sees:
        compare_seen(r, folder, model, sees, args.build)
        return
    prompts = [[r.randrange(4, model.config.vocab_size) for _ in range(n)] for n in LENGTHS]
    (folder / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    if family == "few_bits":
        model = store_few(r, folder / "hf", model)
    compare_logits(folder, model, prompts, args.build)
    if family == "few_bits":
        return
    compare_greedy(folder, model, prompts, args.build)
    compare_back(folder, model, prompts, args.build)
    if args.train:
        compare_trained(folder, model, prompts, args.build, False)
        compare_trained(folder, model, prompts, args.build, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50, help="cases of each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this case alone")
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build")
    parser.add_argument("--keep", type=lambda x: pathlib.Path(x).resolve(), help="folder for cases that differ")
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
    cases = range(args.n) if args.only is None else [args.only]
    bad = 0
    for family in args.family or FAMILIES:
        counts = collections.Counter()
        for i in cases:
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{family}_{i}_", dir=args.keep))
            try:
                case(family, i, args, folder)
                kind, why = "equal", ""
            except Outcome as e:
                kind, why = e.args
            except Exception:
                kind, why = "SCRIPT", traceback.format_exc()[-600:]
            counts[kind] += 1
            if kind != "equal":
                print(family, i, kind, why.replace(str(folder), ""), flush=True)
            if args.keep and kind.isupper():
                print("   ", folder)
            else:
                shutil.rmtree(folder)
        bad += sum(n for kind, n in counts.items() if kind.isupper())
        print(f"{family}: {sum(counts.values())} cases:", ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())), flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

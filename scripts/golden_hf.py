#!/usr/bin/env python3
"""Makes tiny models of transformers with what they compute, for tests/golden/hf/models.

    golden_hf.py OUT [NAME...]

Writes OUT/<name>/config.json (and config_v4.json, in the spelling of transformers 4), model.safetensors and expected.h5:
input_ids, labels (-100: does not count; the model shifts them), logits and loss of the model in float32 on a CPU.
"""
import json
import os
import re
import sys

import h5py
import safetensors.torch
import torch
import transformers

SIZES = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             vocab_size=160, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def gemma3(layers=7, sizes=SIZES, **more):
    return transformers.Gemma3TextConfig(
        **sizes, num_hidden_layers=layers, sliding_window=8, query_pre_attn_scalar=20,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, **more)


def gemma3_images():
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                  patch_size=14)
    config = transformers.Gemma3Config(text_config=gemma3().to_dict(), vision_config=vision, mm_tokens_per_image=4,
                                       image_token_index=150, boi_token_index=151, eoi_token_index=152)
    return config


TINY = dict(hidden_size=16, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            vocab_size=64, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
STRETCH = dict(rope_type="llama3", rope_theta=500.0, original_max_position_embeddings=32)


def llama_stretched():
    return transformers.LlamaConfig(**TINY, num_hidden_layers=2, rope_parameters=dict(
        **STRETCH, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0))


def llama_linear():
    return transformers.LlamaConfig(**dict(TINY, vocab_size=48), num_hidden_layers=1,
                                    rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=2.5))


def mistral_short():
    """The ramp of yarn runs backwards: no pair turns twice in the original context."""
    return transformers.MistralConfig(
        **dict(TINY, intermediate_size=8, vocab_size=24), num_hidden_layers=1, sliding_window=None,
        rope_parameters=dict(YARN, original_max_position_embeddings=8, beta_slow=2.0, truncate=False))


def llama4_stretched():
    rope = dict(**STRETCH, factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0)
    return transformers.Llama4TextConfig(
        **TINY, intermediate_size_mlp=40, num_hidden_layers=4, num_local_experts=3, interleave_moe_layer_step=2,
        attention_chunk_size=7, floor_scale=4, rope_parameters=rope)


def gpt_oss_tiny():
    rope = dict(**YARN, beta_fast=32.0, beta_slow=1.0, truncate=False)
    return transformers.GptOssConfig(**TINY, num_hidden_layers=2, num_local_experts=3, num_experts_per_tok=2,
                                     sliding_window=6, swiglu_limit=1.5, rope_parameters=rope)


LATENT = dict(qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, kv_lora_rank=10, moe_intermediate_size=12,
              first_k_dense_replace=1, num_hidden_layers=2, n_routed_experts=4, num_experts_per_tok=2)


def deepseek_v2_tiny():
    sizes = {k: v for k, v in TINY.items() if k != "head_dim"}
    sizes["num_key_value_heads"] = 4
    return transformers.DeepseekV2Config(
        **sizes, **LATENT, n_shared_experts=2, q_lora_rank=None, routed_scaling_factor=1.5,
        rope_parameters=dict(**YARN, mscale=0.707, mscale_all_dim=0.707))


def deepseek_v3_halves():
    sizes = {k: v for k, v in TINY.items() if k != "head_dim"}
    sizes["num_key_value_heads"] = 4
    return transformers.DeepseekV3Config(
        **sizes, **LATENT, n_shared_experts=1, q_lora_rank=14, n_group=2, topk_group=1, rope_interleave=False,
        rope_parameters=dict(**YARN, mscale=1.0, mscale_all_dim=1.0))


def deepseek_v32_tiny():
    sizes = {k: v for k, v in TINY.items() if k != "head_dim"}
    sizes["num_key_value_heads"] = 4
    return transformers.DeepseekV32Config(
        **sizes, **LATENT, n_shared_experts=1, q_lora_rank=14, n_group=2, topk_group=1, index_n_heads=16, index_head_dim=6,
        index_topk=5, rope_parameters=dict(**YARN, mscale=1.0, mscale_all_dim=1.0))


def deepseek_v4_tiny():
    sizes = dict(MINI, head_dim=8, num_key_value_heads=1)
    del sizes["intermediate_size"]
    return transformers.DeepseekV4Config(
        **sizes, num_hidden_layers=4, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
        q_lora_rank=12, o_groups=2, o_lora_rank=6, partial_rotary_factor=0.5, sliding_window=6, swiglu_limit=0.5,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                     "compressed_sparse_attention"],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"], index_n_heads=16, index_head_dim=6, index_topk=2, hc_mult=3,
        hc_sinkhorn_iters=5, compress_rope_theta=1000.0, rope_parameters=dict(**YARN, beta_fast=32.0, beta_slow=1.0))


def qwen3_next_tiny():
    return transformers.Qwen3NextConfig(
        **TINY, num_hidden_layers=4, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=24, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
        linear_value_head_dim=4, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))


# Weights of these are kept as bfloat16, which their float32 run has as well.
MINI = dict(TINY, intermediate_size=10, head_dim=4, vocab_size=48)
BFLOAT16 = ("qwen3_5_tiny", "gemma4_tiny", "gemma4_experts", "gemma4_small", "gemma4_odd", "deepseek_v4_tiny", "deepseek_v4_fp4")


def qwen3_5_tiny():
    sizes = {k: v for k, v in MINI.items() if k != "intermediate_size"}
    return transformers.Qwen3_5MoeTextConfig(
        **sizes, num_hidden_layers=4, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
        linear_value_head_dim=4, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))


GEMMA4 = dict(sliding_window=6, global_head_dim=8, final_logit_softcapping=3.0)
GEMMA4_ROPE = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}


def gemma4_tiny():
    return transformers.Gemma4TextConfig(
        **MINI, **GEMMA4, num_hidden_layers=6, attention_k_eq_v=True, num_global_key_value_heads=1,
        hidden_size_per_layer_input=0, rope_parameters=GEMMA4_ROPE)


def gemma4_experts():
    return transformers.Gemma4TextConfig(
        **MINI, **GEMMA4, num_hidden_layers=6, rope_parameters=GEMMA4_ROPE,
        hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=3,
        top_k_experts=2, moe_intermediate_size=8)


def gemma4_small():
    return transformers.Gemma4TextConfig(
        **MINI, **GEMMA4, num_hidden_layers=6, num_kv_shared_layers=3, use_double_wide_mlp=True,
        hidden_size_per_layer_input=4, vocab_size_per_layer_input=50,
        layer_types=2 * ["sliding_attention", "sliding_attention", "full_attention"], rope_parameters=GEMMA4_ROPE)


def gemma4_odd():
    """Its last layer sees all though it ends no cycle, as transformers makes it, and takes keys and values."""
    return transformers.Gemma4TextConfig(
        **MINI, **GEMMA4, num_hidden_layers=4, num_kv_shared_layers=1, hidden_size_per_layer_input=4, vocab_size_per_layer_input=50,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], rope_parameters=GEMMA4_ROPE)


def olmo3_tiny():
    sizes = {k: v for k, v in TINY.items() if k != "head_dim"}
    return transformers.Olmo3Config(
        **sizes, num_hidden_layers=4, sliding_window=6,
        rope_parameters={"full_attention": dict(**YARN, attention_factor=1.2),
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})


def llama_fp8():
    return transformers.LlamaConfig(**TINY, num_hidden_layers=1)


def gpt_oss_mxfp4():
    sizes = dict(TINY, hidden_size=32, intermediate_size=32, vocab_size=48)
    return transformers.GptOssConfig(**sizes, num_hidden_layers=2, num_local_experts=2, num_experts_per_tok=1,
                                     sliding_window=6, rope_parameters=YARN)


# Sizes for words of codes, and those with which a matrix has more than 256 blocks of 64, across rows.
FEW = dict(TINY, hidden_size=32, intermediate_size=64, head_dim=16, vocab_size=48)
MANY = dict(FEW, hidden_size=96, intermediate_size=192)


def llama_few(sizes=FEW):
    return transformers.LlamaConfig(**sizes, num_hidden_layers=1)


def qwen2_few():
    sizes = {k: v for k, v in FEW.items() if k != "head_dim"}
    return transformers.Qwen2Config(**dict(sizes, hidden_size=64), num_hidden_layers=1)


# ---- weights in few bits, as models are published: codes and the scales of blocks

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def scales_of(w, block, largest, powers):
    """The scale of each element of a matrix, and those of its blocks; the last blocks may be smaller."""
    rows, columns = [torch.arange(n) // b for n, b in zip(w.shape, block)]
    most = torch.zeros(int(rows[-1]) + 1, int(columns[-1]) + 1)
    index = rows[:, None] * most.shape[1] + columns[None, :]
    most.view(-1).scatter_reduce_(0, index.reshape(-1), w.abs().reshape(-1), "amax")
    scales = most / largest
    if powers:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    return scales.reshape(-1)[index], scales


def to_fp8(w, block, powers=False):
    """Codes, the scales of blocks, and what both stand for."""
    each, scales = scales_of(w, block, 448.0, powers)
    codes = (w / each).to(torch.float8_e4m3fn)
    return codes, scales.to(torch.float8_e8m0fnu) if powers else scales, codes.float() * each


def to_fp4(w, block):
    """The same of codes of half a byte, those of neighbours together, the first in the lower half; scales are exponents."""
    each, scales = scales_of(w, (1, block), 6.0, True)
    x = w / each
    codes = (x.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (x < 0)
    plain = E2M1[codes % 8] * torch.where(codes < 8, 1.0, -1.0) * each
    return (codes[:, 0::2] + 16 * codes[:, 1::2]).to(torch.uint8), scales.log2().add(127).to(torch.uint8), plain


def llama_in_fp8(few, plain):
    """As compressed-tensors: a scale a row."""
    for name in [n for n in plain if "_proj.weight" in n]:
        few[name], scales, _ = to_fp8(plain[name], (1, plain[name].shape[1]))
        few[name + "_scale"] = scales.bfloat16()
        few[name.replace(".weight", ".input_scale")] = torch.ones(1)
        plain[name] = few[name].float() * few[name + "_scale"].float()
    return {"quant_method": "compressed-tensors", "format": "float-quantized"}


def deepseek_in_fp8(few, plain):
    """Blocks of 8 x 12, which do not divide all matrices."""
    for name in [n for n in plain if "_proj" in n and n.endswith(".weight")]:
        few[name], few[name + "_scale_inv"], plain[name] = to_fp8(plain[name], (8, 12))
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [8, 12]}


def gpt_oss_in_fp4(few, plain):
    """Experts' matrices the other way round, blocks of 32."""
    for name in [n for n in plain if n.endswith("_proj") and "experts" in n]:
        w = few.pop(name).transpose(1, 2)
        blocks, scales, flat = to_fp4(w.reshape(-1, w.shape[2]), 32)
        few[name + "_blocks"] = blocks.reshape(w.shape[0], w.shape[1], -1, 16)
        few[name + "_scales"] = scales.reshape(w.shape[0], w.shape[1], -1)
        plain[name] = flat.reshape(w.shape).transpose(1, 2)
    return {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}


def deepseek_v4_in_fp4(few, plain):
    """Experts in four bits with a scale for 8 columns, other matrices in eight with one for 2 x 8: powers of two."""
    for name in [n for n in plain if n.endswith(".weight") and plain[n].dim() == 2]:
        w, scale = plain[name].float(), name.replace(".weight", ".scale")
        if ".experts." in name:
            codes, exponents, plain[name] = to_fp4(w, 8)
            few[name], few[scale] = codes.view(torch.int8), exponents.view(torch.float8_e8m0fnu)
        elif ".attn.wq_b" in name or ".attn.wo_b" in name or ".shared_experts." in name:
            few[name], few[scale], plain[name] = to_fp8(w, (2, 2), True)
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "scale_fmt": "ue8m0",
            "weight_block_size": [2, 2]}


def to_words(codes, bits):
    """Rows of codes in words of 32 bits, the first in the lowest."""
    return (codes.long().unflatten(-1, (-1, 32 // bits)) << torch.arange(0, 32, bits)).sum(-1).int()


def from_words(words, bits):
    """The codes of rows of words of any size."""
    return (words[..., None].int() >> torch.arange(0, 8 * words.element_size(), bits) & 2**bits - 1).flatten(-2)


def to_grid(w, group, bits):
    """Codes, the zeros and the scales of groups of rows, and what they stand for."""
    low, high = [torch.zeros(int(group.max()) + 1, w.shape[1]).scatter_reduce(0, group[:, None].expand_as(w), w, end)
                 for end in ("amin", "amax")]
    scales = ((high - low) / (2**bits - 1)).half()
    zeros = (-low / scales.float()).round()
    codes = ((w / scales.float()[group]).round() + zeros[group]).clamp(0, 2**bits - 1)
    return codes, zeros, scales, (codes - zeros[group]) * scales.float()[group]


def in_gptq(bits, size, less):
    """As GPTQModel, matrices the other way round: groups of scattered rows in the MLP, zeros stored less one or as they are."""
    def store(few, plain):
        for name in [n for n in plain if "_proj.weight" in n]:
            w, prefix = few.pop(name).t(), name.removesuffix("weight")
            group = torch.arange(w.shape[0]) // size
            if ".mlp." in name:
                group = group[torch.randperm(w.shape[0])]
            codes, zeros, few[prefix + "scales"], value = to_grid(w, group, bits)
            few[prefix + "qweight"] = to_words(codes.t(), bits).t()
            few[prefix + "qzeros"] = to_words(zeros - less, bits)
            few[prefix + "g_idx"] = group.int()
            plain[name] = value.t()
        return {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": True, "sym": False,
                "checkpoint_format": "gptq" if less else "gptq_v2"}
    return store


def in_awq(few, plain):
    """As AutoAWQ, matrices the other way round: words of eight columns in an order of their own."""
    def words(codes):
        return to_words(codes.unflatten(1, (-1, 8))[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].flatten(1), 4)

    for name in [n for n in plain if "_proj.weight" in n]:
        w, prefix = few.pop(name).t(), name.removesuffix("weight")
        codes, zeros, few[prefix + "scales"], value = to_grid(w, torch.arange(w.shape[0]) // 16, 4)
        few[prefix + "qweight"], few[prefix + "qzeros"] = words(codes), words(zeros)
        plain[name] = value.t()
    return {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": None}


def value_of(few, prefix):
    """What numbers of compressed-tensors stand for, from those that are stored."""
    codes, scales = few.get(prefix + "weight_packed", few.get(prefix + "weight")), few[prefix + "weight_scale"].float()
    if few[prefix + "weight_scale"].dtype == torch.uint8:
        scales = torch.exp2(scales - 127)
    if codes.dtype == torch.uint8:
        codes = from_words(codes, 4)
        codes = E2M1[codes % 8] * torch.where(codes < 8, 1.0, -1.0)
        scales = scales / few.get(prefix + "weight_global_scale", 1)
    elif codes.dtype == torch.float8_e4m3fn:
        codes = codes.float()
    elif codes.dtype == torch.int32:
        codes = from_words(codes, 4) - 8
        zeros = few.get(prefix + "weight_zero_point")
        if zeros is not None:
            codes -= (from_words(zeros.t(), 4).t() - 8).repeat_interleave(codes.shape[1] // scales.shape[1], 1)
    return codes * scales.repeat_interleave(codes.shape[1] // scales.shape[1], 1)


def compressed(*groups):
    """As compressed-tensors stores them: of each group its targets and scheme, one that the library names, and changes to it."""
    def store(few, plain):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.compressors.format import infer_module_format
        from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

        schemes = []
        for targets, scheme, changes in groups:
            schemes.append(preset_name_to_scheme(scheme, targets))
            schemes[-1].weights = schemes[-1].weights.model_copy(update=changes)
            schemes[-1].format = infer_module_format(torch.nn.Linear, schemes[-1])
        for name in [n for n in plain if "_proj.weight" in n]:
            w, prefix = few.pop(name), name.removesuffix("weight")
            scheme = [s for s in schemes if s.targets == ["Linear"] or re.match(s.targets[0].removeprefix("re:"), name)][0]
            parts = w.unflatten(1, (-1, scheme.weights.group_size or w.shape[1]))
            state = {"weight": w}
            if scheme.weights.strategy == "tensor_group":
                state["weight_global_scale"] = generate_gparam(w.amin(), w.amax())
            scales, state["weight_zero_point"] = calculate_qparams(
                parts.amin(-1), parts.amax(-1), scheme.weights, state.get("weight_global_scale"))
            state["weight_scale"] = scales.bfloat16()
            state = BaseCompressor.get_value_from_registry(scheme.format).compress(state, scheme)
            few.update({prefix + k: v for k, v in state.items()})
            plain[name] = value_of(few, prefix)
        config = QuantizationConfig(config_groups={f"group_{i}": s for i, s in enumerate(schemes)}, ignore=["lm_head"],
                                    format=schemes[0].format, quantization_status="compressed")
        return config.model_dump(mode="json")
    return store


def in_nf4(few, plain):
    """As bitsandbytes: blocks of 64 in four bits, their scales in eight."""
    import bitsandbytes

    for name in [n for n in plain if "_proj.weight" in n]:
        few[name], state = bitsandbytes.functional.quantize_4bit(plain[name].bfloat16(), compress_statistics=True,
                                                                 quant_type="nf4")
        few.update({f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()})
        state.dtype = torch.float32
        plain[name] = bitsandbytes.functional.dequantize_4bit(few[name], state)
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                           bnb_4bit_compute_dtype="bfloat16").to_dict()


def in_int8(few, plain):
    """As bitsandbytes: a row's largest element beside its codes."""
    import bitsandbytes

    for name in [n for n in plain if "_proj.weight" in n]:
        prefix = name.removesuffix("weight")
        few[name], few[prefix + "SCB"], _ = bitsandbytes.functional.int8_vectorwise_quant(plain[name].half())
        few[prefix + "weight_format"] = torch.tensor(0, dtype=torch.uint8)
        plain[name] = few[name] * few[prefix + "SCB"][:, None] * (1 / 127)
    return transformers.BitsAndBytesConfig(load_in_8bit=True).to_dict()


# ---- how the packages of those who made the formats read a folder: the weights by name

def load(folder, model_class):
    return model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def by_transformers(folder, model_class):
    return load(folder, model_class).state_dict()


def by_bitsandbytes(folder, model_class):
    return load(folder, model_class).dequantize().state_dict()


def by_gptqmodel(folder, model_class):
    """Of gptq and of awq, whose modules have no method for it."""
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    model = load(folder, model_class)
    weights = model.state_dict()
    for name, m in model.named_modules():
        if hasattr(m, "qweight"):
            w = m.dequantize_weight() if getattr(m, "g_idx", None) is not None else dequantize_gemm(
                m.qweight, m.qzeros, m.scales, m.bits, m.group_size)
            weights[name + ".weight"] = w.t()
    return weights


def by_compressed_tensors(folder, model_class):
    """Without transformers, which does not load packed zeros."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    config = transformers.AutoConfig.from_pretrained(folder)
    compressor = ModelCompressor(QuantizationConfig.model_validate(config.quantization_config))
    model = model_class(config)
    apply_quantization_config(model, compressor.quantization_config, run_compressed=False)
    compressor.compress_model(model)
    model.load_state_dict(safetensors.torch.load_file(os.path.join(folder, "model.safetensors")))
    compressor.decompress_model(model)
    return model.state_dict()


MLP = ([r"re:.*\.mlp\..*"], "W4A16", {"group_size": 16})
ATTENTION = ([r"re:.*\.self_attn\..*"], "W4A16_ASYM", {"group_size": 16})
# How weights are stored, how others read them if they do (transformers: blocks must divide matrices), and the type to which
# these round what they read: in it both must be equal.
IN_FEW_BITS = {
    "llama_fp8": (llama_in_fp8, None, None),
    "deepseek_v3_fp8": (deepseek_in_fp8, None, None),
    "gpt_oss_mxfp4": (gpt_oss_in_fp4, by_transformers, torch.float32),
    "deepseek_v4_fp4": (deepseek_v4_in_fp4, by_transformers, torch.float32),
    "llama_gptq": (in_gptq(4, 16, 1), by_gptqmodel, torch.float16),
    "qwen2_gptq8": (in_gptq(8, 32, 0), by_gptqmodel, torch.float16),
    "llama_awq": (in_awq, by_gptqmodel, torch.float16),
    "llama_w4a16": (compressed(MLP, ATTENTION), by_compressed_tensors, torch.float32),
    "llama_w8a8": (compressed((["Linear"], "W8A8", {})), by_compressed_tensors, torch.float32),
    "llama_nvfp4": (compressed((["Linear"], "NVFP4A16", {})), by_compressed_tensors, torch.bfloat16),
    "llama_mxfp4": (compressed((["Linear"], "MXFP4A16", {})), by_compressed_tensors, torch.bfloat16),
    "llama_mxfp8": (compressed((["Linear"], "MXFP8A16", {})), by_compressed_tensors, torch.bfloat16),
    "llama_bnb4": (in_nf4, by_bitsandbytes, torch.bfloat16),
    "llama_bnb8": (in_int8, by_bitsandbytes, torch.float32),
}


def store_in_few_bits(folder, name, model_class):
    """The folder's weights in few bits, and the model of what they stand for."""
    path, config = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
    plain = safetensors.torch.load_file(path)
    few = dict(plain)
    store, reads, rounding = IN_FEW_BITS[name]
    with open(config) as file:
        members = json.load(file)
    members["quantization_config"] = store(few, plain)
    safetensors.torch.save_file({n: t.contiguous() for n, t in plain.items()}, path, {"format": "pt"})
    model = load(folder, model_class).eval()
    safetensors.torch.save_file({n: t.contiguous() for n, t in few.items()}, path, {"format": "pt"})
    with open(config, "w") as file:
        json.dump(members, file, indent=2, sort_keys=True)
    if reads:
        theirs = reads(folder, model_class)
        for n, t in model.state_dict().items():
            assert torch.equal(theirs[n].to(rounding), t.to(rounding)), n
    return model


# name: the class of the model, its config
MODELS = {
    "llama_fp8": (lambda: transformers.LlamaForCausalLM, llama_fp8),
    "deepseek_v3_fp8": (lambda: transformers.DeepseekV3ForCausalLM, deepseek_v3_halves),
    "gpt_oss_mxfp4": (lambda: transformers.GptOssForCausalLM, gpt_oss_mxfp4),
    "deepseek_v4_fp4": (lambda: transformers.DeepseekV4ForCausalLM, deepseek_v4_tiny),
    "llama_gptq": (lambda: transformers.LlamaForCausalLM, llama_few),
    "qwen2_gptq8": (lambda: transformers.Qwen2ForCausalLM, qwen2_few),
    "llama_awq": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_w4a16": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_w8a8": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_nvfp4": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_mxfp4": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_mxfp8": (lambda: transformers.LlamaForCausalLM, llama_few),
    "llama_bnb4": (lambda: transformers.LlamaForCausalLM, lambda: llama_few(MANY)),
    "llama_bnb8": (lambda: transformers.LlamaForCausalLM, llama_few),
    "gemma3_turns": (lambda: transformers.Gemma3ForCausalLM, lambda: gemma3(sizes=TINY)),
    "gemma3_images": (lambda: transformers.Gemma3ForConditionalGeneration, gemma3_images),
    "llama_stretched": (lambda: transformers.LlamaForCausalLM, llama_stretched),
    "llama_linear": (lambda: transformers.LlamaForCausalLM, llama_linear),
    "mistral_short": (lambda: transformers.MistralForCausalLM, mistral_short),
    "llama4_stretched": (lambda: transformers.Llama4ForCausalLM, llama4_stretched),
    "gpt_oss_tiny": (lambda: transformers.GptOssForCausalLM, gpt_oss_tiny),
    "deepseek_v2_tiny": (lambda: transformers.DeepseekV2ForCausalLM, deepseek_v2_tiny),
    "deepseek_v3_halves": (lambda: transformers.DeepseekV3ForCausalLM, deepseek_v3_halves),
    "deepseek_v32_tiny": (lambda: transformers.DeepseekV32ForCausalLM, deepseek_v32_tiny),
    "deepseek_v4_tiny": (lambda: transformers.DeepseekV4ForCausalLM, deepseek_v4_tiny),
    "qwen3_next_tiny": (lambda: transformers.Qwen3NextForCausalLM, qwen3_next_tiny),
    "qwen3_5_tiny": (lambda: transformers.Qwen3_5MoeForCausalLM, qwen3_5_tiny),
    "gemma4_tiny": (lambda: transformers.Gemma4ForCausalLM, gemma4_tiny),
    "gemma4_experts": (lambda: transformers.Gemma4ForCausalLM, gemma4_experts),
    "gemma4_small": (lambda: transformers.Gemma4ForCausalLM, gemma4_small),
    "gemma4_odd": (lambda: transformers.Gemma4ForCausalLM, gemma4_odd),
    "olmo3_tiny": (lambda: transformers.Olmo3ForCausalLM, olmo3_tiny),
}


def old_spelling(config):
    """As transformers 4 wrote it: rope_theta, rope_scaling and rope_local_base_freq; of gemma4 and deepseek_v4 as they were
    published."""
    config = dict(config)
    if config["model_type"].startswith("gemma4"):
        own = list(config.pop("per_layer_config").values())[0]
        return dict(config, global_head_dim=own["head_dim"], num_global_key_value_heads=own.get("num_key_value_heads"))
    if config["model_type"] == "deepseek_v4":
        rates = {"sliding_attention": 0, **config.pop("compress_rates")}
        config["compress_ratios"] = [rates[kind] for kind in config.pop("layer_types")]
        config["num_hash_layers"] = config.pop("mlp_layer_types").count("hash_moe")
        scaling = config.pop("rope_parameters")["compress"]
        del config["partial_rotary_factor"]  # beside qk_rope_head_dim
        kept = ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
        return dict(config, torch_dtype=config.pop("dtype"), rope_scaling={"type": "yarn", **{k: scaling[k] for k in kept}})
    if "text_config" in config:
        config["text_config"] = old_spelling(config["text_config"])
    rope = config.pop("rope_parameters", None)
    config.pop("layer_types", None)
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    if rope:
        full = rope.get("full_attention", rope)
        config["rope_theta"] = full["rope_theta"]
        if "partial_rotary_factor" in full:
            config["partial_rotary_factor"] = full["partial_rotary_factor"]
        if full["rope_type"] != "default":
            config["rope_scaling"] = {k: v for k, v in full.items() if k != "rope_theta"}
        if "sliding_attention" in rope and config["model_type"].startswith("gemma3"):
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            config["sliding_window_pattern"] = config.pop("_sliding_window_pattern", 6)
    return config


def make(out, name):
    model_class, config = MODELS[name][0](), MODELS[name][1]()
    torch.manual_seed(len(name))
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.normal_(0, 0.15)
            if p.dim() == 1:
                p.add_(0.0 if "gemma" in name else 1.0)
            if "deepseek_v4" in name and "shared_experts" in path:
                p.mul_(0.1)  # so that swiglu_limit acts in the others alone, as in MaxText
        for path, p in model.named_buffers():
            if path.endswith("e_score_correction_bias"):
                p.normal_(0, 0.15)
            if path.endswith("tid2eid"):
                experts = [torch.randperm(config.n_routed_experts)[:p.shape[1]] for _ in range(p.shape[0])]
                p.copy_(torch.stack(experts))
    folder = os.path.join(out, name)
    if name in BFLOAT16:
        model.bfloat16()
    model.save_pretrained(folder)
    if name in BFLOAT16:  # what the model keeps beside its weights was rounded as well
        model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if name in IN_FEW_BITS:
        model = store_in_few_bits(folder, name, model_class)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(folder, "config_v4.json"), "w") as file:
        json.dump(old_spelling(config), file, indent=2, sort_keys=True)
    ids = torch.randint(3, min(140, model.get_input_embeddings().num_embeddings), (2, 20))
    labels = ids.clone()
    labels[0, :5] = -100
    with torch.no_grad():
        got = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels)
    with h5py.File(os.path.join(folder, "expected.h5"), "w") as file:
        file.attrs["versions"] = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__})
        file["input_ids"], file["labels"] = ids.numpy(), labels.numpy()
        file["attention_mask"] = torch.ones_like(ids).numpy()
        file["logits"], file["loss"] = got.logits.float().numpy(), got.loss.float().numpy()
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)


def main():
    for name in sys.argv[2:] or MODELS:
        make(sys.argv[1], name)


if __name__ == "__main__":
    main()

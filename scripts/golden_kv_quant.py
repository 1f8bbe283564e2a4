#!/usr/bin/env python3
"""Makes tests/golden/train/kv_quant.h5: keys and values as MaxText's quantised caches keep them, and attention over them.

    JAX_PLATFORMS=cpu golden_kv_quant.py OUT.h5      (MaxText e591f30c on PYTHONPATH)

OUT has queries, keys and values [B, T, heads, H] of T tokens. `cases` has, N times, the dtype, kv_quant_dtype and kv_quant_axis as
attributes (N_dtype, N_bits, N_axis); codes and scales (what a code is multiplied with) of keys by MaxText's KVQuant; and what its
AttentionOp makes of the last tokens, which its KVCache takes one by one behind a prompt. MaxText's cache of these has scales in
bfloat16 whatever the dtype is, into which float32 does not go: for float32 they are made float32, as its prompts' are.
"""
import os
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from maxtext.common.common_types import MODEL_MODE_AUTOREGRESSIVE, MODEL_MODE_PREFILL
from maxtext.configs import pyconfig
from maxtext.inference import kvcache
from maxtext.layers import attention_op, quantizations
from maxtext.utils import maxtext_utils

BATCH, TOKENS, PROMPT, HEADS, KEY_HEADS, WIDTH = 2, 11, 8, 4, 2, 16
NAMES = ("batch", "sequence", "heads", "kv")
CACHED = ("cached_prefill_key", "cached_prefill_value", "cached_prefill_key_scale", "cached_prefill_value_scale",
          "cache_prefill_segment_id")


def config_of(dtype, bits, axis):
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    return pyconfig.initialize([
        sys.argv[0], base, "run_name=golden", "skip_jax_distributed_system=true", "enable_checkpointing=false", "hardware=cpu",
        "base_num_query_heads=%d" % HEADS, "base_num_kv_heads=%d" % KEY_HEADS, "head_dim=%d" % WIDTH, "attention=dot_product",
        "max_prefill_predict_length=%d" % PROMPT, "max_target_length=%d" % TOKENS, "per_device_batch_size=%d" % BATCH,
        "matmul_precision=highest", "dtype=" + dtype, "quantize_kvcache=true", "kv_quant_dtype=" + bits, "kv_quant_axis=" + axis])


def cache_of(config, mode):
    return kvcache.KVCache(
        max_prefill_length=PROMPT, max_target_length=TOKENS, batch=BATCH, key_seq_len=PROMPT, value_seq_len=PROMPT,
        key_heads=KEY_HEADS, value_heads=KEY_HEADS, key_head_size=WIDTH, value_head_size=WIDTH, dtype=config.dtype,
        kv_quant=quantizations.configure_kv_quant(config), model_mode=mode)


def attend(config, q, k, v):
    mesh = Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
    outputs = []
    with mesh:
        op = attention_op.AttentionOp(
            config=config, mesh=mesh, attention_kernel="dot_product", max_target_length=TOKENS, max_prefill_predict_length=PROMPT,
            float32_qk_product=config.float32_qk_product, float32_logits=config.float32_logits, num_query_heads=HEADS,
            num_kv_heads=KEY_HEADS, kv_quant=quantizations.configure_kv_quant(config), dtype=config.dtype, rngs=nnx.Rngs(0))
        first, cache = cache_of(config, MODEL_MODE_PREFILL), cache_of(config, MODEL_MODE_AUTOREGRESSIVE)
        first(k[:, :PROMPT], v[:, :PROMPT], jnp.ones((BATCH, PROMPT), jnp.int32), MODEL_MODE_PREFILL)
        for name in CACHED:
            getattr(cache, name).set_value(getattr(first, name).get_value())
        for scale in (cache.cached_ar_key_scale, cache.cached_ar_value_scale):
            scale.set_value(scale.get_value().astype(config.dtype))
        for t in range(PROMPT, TOKENS):
            now = slice(t, t + 1)
            kept = cache(k[:, now], v[:, now], None, MODEL_MODE_AUTOREGRESSIVE)
            y = op(q[:, now], k[:, now], v[:, now], None, jnp.full((BATCH, 1), t), MODEL_MODE_AUTOREGRESSIVE, cached_values=kept)
            outputs.append(y.astype(jnp.float32))
    return jnp.concatenate(outputs, 1)


def codes_of(config, k):
    """Codes, and the scale as KVCache.get_cached_values has it, of each head."""
    codes, scale = quantizations.configure_kv_quant(config).quantize(k, tuple("cache_" + name for name in NAMES))
    scale = scale / (kvcache.MAX_INT8 if config.kv_quant_dtype == "int8" else kvcache.MAX_INT4)
    return codes.astype(jnp.int8), jnp.broadcast_to(scale.astype(jnp.float32), k.shape[:3] + (1,))[..., 0]


def main():
    rng = np.random.default_rng(5)
    q, k, v = (jnp.asarray(rng.standard_normal((BATCH, TOKENS, heads, WIDTH)), jnp.bfloat16) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    k = k.at[0, 3].set(0)  # a token without magnitude, and one whose largest is negative
    k = k.at[1, 2, 0, 5].set(-9)
    found = []
    with h5py.File(sys.argv[1], "w", libver=("v108", "v110")) as out:
        group = out.create_group("cases")
        for name, array in (("q", q), ("k", k), ("v", v)):
            out[name] = np.asarray(array, np.float32)
        for dtype in ("float32", "bfloat16"):
            for bits in ("int8", "int4"):
                for axis in ("dkv", "heads_and_dkv"):
                    config = config_of(dtype, bits, axis)
                    of_dtype = [x.astype(config.dtype) for x in (q, k, v)]
                    codes, scales = codes_of(config, of_dtype[1])
                    for key, value in (("dtype", dtype), ("bits", bits), ("axis", axis)):
                        group.attrs["%d_%s" % (len(found), key)] = value
                    found.append({"codes": codes, "scales": scales, "o": attend(config, *of_dtype)})
        for key in found[0]:
            group.create_dataset(key, data=np.stack([np.asarray(arrays[key]) for arrays in found]), compression="gzip")


if __name__ == "__main__":
    main()

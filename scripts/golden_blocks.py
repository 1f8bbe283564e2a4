#!/usr/bin/env python3
"""Makes a golden file of block diffusion: MaxText's own corruption of tokens, and its loss on them.

    golden_blocks.py OUT.h5

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH) builds a small model, masks tokens of drawn rows with its
corrupt_tokens, and differentiates its loss, for both contracts that it has. OUT has the config, the weights and, under the
name of each alignment of logits, the clean tokens, what became of them, loss and gradients.
"""
import os
import sys

import flax
import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.linen import partitioning

from maxtext.configs import pyconfig
from maxtext.diffusion.block_diffusion import corruption
from maxtext.trainers.pre_train import train
from maxtext.utils import maxtext_utils, model_creation_utils

WORDS = """attention=dot_product dtype=float32 weight_dtype=float32 matmul_precision=highest decoder_block=llama2
base_emb_dim=16 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=32 vocab_size=64
max_target_length=22 max_prefill_predict_length=8 per_device_batch_size=3 scan_layers=true enable_dropout=false
logits_via_embedding=false attention_type=block_diffusion causal_block_size=5 training_objective=block_diffusion
block_diffusion_mask_id=63 packing=false dataset_type=hf""".split()
CONTRACTS = {"same_position": "all_masked", "shifted": "seed_and_mask"}
OURS = ("attention", "max_prefill_predict_length", "dataset_type", "packing")  # not for mxtrain


def flat(state):
    return {"/".join(map(str, path)): np.asarray(v.get_value()) for path, v in nnx.to_flat_state(state)}


def main():
    file = h5py.File(sys.argv[1], "w", libver=("v108", "v110"))
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    rng = np.random.default_rng(5)
    for alignment, policy in CONTRACTS.items():
        words = WORDS + ["block_diffusion_logit_alignment=" + alignment, "block_diffusion_canvas_policy=" + policy]
        config = pyconfig.initialize([sys.argv[0], base, "run_name=golden", "skip_jax_distributed_system=true", "hardware=cpu",
                                      "hf_path=json", "tokenizer_path=x", "enable_checkpointing=false"] + words)
        mesh = maxtext_utils.get_mesh_from_config(config)
        model = model_creation_utils.from_config(config, mesh=mesh, rngs=nnx.Rngs(params=0, dropout=1))
        out = file.create_group(alignment)
        out.attrs["config"] = "\n".join(w.replace("=", ": ", 1) for w in words if w.split("=")[0] not in OURS)
        rows, length = int(config.per_device_batch_size), config.max_target_length
        clean = rng.integers(1, 60, (rows, length)).astype(np.int32)
        segments = np.ones_like(clean)
        segments[1, 17:] = segments[2, 9:] = 0
        clean *= segments
        made = corruption.corrupt_tokens(clean, segments != 0, rng, block_size=config.causal_block_size, mask_id=63,
                                         logit_alignment=alignment, canvas_policy=policy)
        position = np.broadcast_to(np.arange(length, dtype=np.int32), clean.shape)
        batch = {"inputs": made.inputs, "targets": clean, "inputs_segmentation": segments, "targets_segmentation": segments,
                 "inputs_position": position, "targets_position": position,
                 "corruption_mask": made.corruption_mask.astype(np.int32),
                 "targets_loss_mask": made.targets_loss_mask.astype(np.int32)}
        for name, value in batch.items():
            out["batch/" + name] = value
        with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):

            def loss_of(m):
                return train.loss_fn(m, config, {k: jnp.asarray(v) for k, v in batch.items()}, None, None)

            (loss, aux), grads = nnx.value_and_grad(loss_of, has_aux=True)(model)
        out["loss"], out["xent_sum"] = np.float32(loss), np.float32(aux["xent_sum"])
        out["total_weights"] = np.int32(aux["total_weights"])
        for path, value in flat(grads).items():
            out["grads/" + path] = value
        if alignment == "same_position":
            for path, value in flat(nnx.state(model, nnx.Param)).items():
                file["nnx/" + path] = value
        print(alignment, float(loss), int(aux["total_weights"]))
    file.attrs.update({"maxtext_commit": "e591f30c", "versions": "jax==%s flax==%s" % (jax.__version__, flax.__version__)})


if __name__ == "__main__":
    main()

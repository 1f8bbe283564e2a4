#!/usr/bin/env python3
"""Makes tests/golden/train/loss_agg.h5: how tunix's aggregate_loss makes a batch's loss of those of tokens, and its
compute_kl_divergence those of log-probabilities (kl/<method>: the mean over tokens that count, and its gradient).

    JAX_PLATFORMS=cpu golden_loss_agg.py TUNIX OUT.h5      (TUNIX: the folder of the package of google-tunix 0.1.7)

Only the functions are taken from rl/common.py, which imports what serves tokens. Row r of four answers prompt r mod 2. A token's
loss is -min(rho A, clip(rho, 0.8, 1.2) A), with A the reward less the group's mean, and rho the ratio of 1/300, the probability
under a policy that knows nothing, to a recorded one (`logprobs`).
"""
import ast
import pathlib
import sys
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np

MODES = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-scale", "seq-mean-token-sum")
NAMES = ("aggregate_loss", "_check_get_norm", "compute_kl_divergence")
METHODS = ("low_var_kl", "kl", "mse_kl")


def main():
    tunix, out = sys.argv[1:3]
    tree = ast.parse((pathlib.Path(tunix) / "rl/common.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in NAMES]
    found = {"jax": jax, "jnp": jnp, "np": np, "Any": Any}
    exec(compile(tree, "common.py", "exec"), found)
    rewards = np.array([0.5, 2.0, -1.25, 0.75], np.float32)
    advantages = rewards - np.tile(rewards.reshape(2, 2).mean(0), 2)
    at, rng = np.arange(8), np.random.default_rng(3)
    logprobs = (rng.normal(size=(4, 8)) * 0.3 - np.log(300)).astype(np.float32)
    rho, a = np.exp(-np.log(300) - logprobs), advantages[:, None]
    losses = -np.minimum(rho * a, np.clip(rho, 0.8, 1.2) * a).astype(np.float32)
    mask = np.stack([(at >= start) & (at < end) for start, end in ((2, 3), (1, 8), (3, 6), (2, 7))]).astype(np.int32)
    with h5py.File(out, "w", libver=("v108", "v110")) as file:
        file["rewards"], file["mask"], file["logprobs"] = rewards, mask, logprobs
        for mode in MODES:
            loss = found["aggregate_loss"](jnp.asarray(losses), jnp.asarray(mask), mode)
            file["loss/" + mode] = np.float32(loss)
            print(mode, loss)
        file["reference"] = reference = (logprobs + rng.normal(size=(4, 8)) * 0.5).astype(np.float32)
        for method in METHODS:
            mean = lambda logps: (found["compute_kl_divergence"](logps, reference, method) * mask).sum() / mask.sum()
            kl, gradient = jax.value_and_grad(mean)(jnp.asarray(logprobs))
            file[f"kl/{method}/mean"], file[f"kl/{method}/gradient"] = np.float32(kl), np.asarray(gradient)
            print(method, kl)


if __name__ == "__main__":
    main()

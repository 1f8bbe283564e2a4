#!/usr/bin/env python3
"""Trajectories of optimizers that MaxText lacks, by optax on given gradients.

    pip install optax==0.2.8 h5py
    scripts/golden_optax.py tests/golden/train/optim_lion.h5

The file is laid out as MaxText's optim_basic.h5: params0, grads [steps, ..], and for each case the overrides (`config`),
learning rates, parameters after each step and the final state. Gradients are clipped to a global norm of 1 as MaxText does.
"""
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS = 20
SHAPES = {
    "decoder/head/bias": (7,),
    "decoder/layers/mlp/wi/kernel": (6, 2, 5),
    "decoder/layers/pre_norm/scale": (6, 2),
    "token_embedder/embedding": (9, 4),
}
COMMON = "steps: 20\nlearning_rate: 0.05\nwarmup_steps_fraction: 0.2\nlearning_rate_final_fraction: 0.1\n"
CASES = {
    "lion": ("opt_type: lion\n", dict()),
    "lion_mask": ('opt_type: lion\nadam_weight_decay: 0.5\nadamw_mask: ["bias", ".*norm"]\n',
                  dict(weight_decay=0.5, mask=lambda params: {k: "bias" not in k and "norm" not in k for k in params})),
    "lion_decays": ("opt_type: lion\nlion_b1: 0.8\nlion_b2: 0.95\nadam_weight_decay: 0\n", dict(b1=0.8, b2=0.95, weight_decay=0)),
    "lion_mu_bf16": ("opt_type: lion\nmu_dtype: bfloat16\n", dict(mu_dtype=jnp.bfloat16)),
}


def schedule(step):
    """MaxText's: linear for 4 steps, then a cosine to a tenth over the other 16."""
    up = 0.05 * step / 4
    half = (jnp.cos(jnp.pi * (step - 4) / 15) + 1) / 2
    return jnp.where(step < 4, up, 0.05 * half + 0.005 * (1 - half))


def main(path):
    rng = np.random.default_rng(18)
    params0 = {k: rng.normal(size=s).astype(np.float32) for k, s in SHAPES.items()}
    grads = {k: rng.normal(size=(STEPS,) + s).astype(np.float32) for k, s in SHAPES.items()}
    with h5py.File(path, "w") as file:
        file.attrs["versions"] = f"jax=={jax.__version__} optax=={optax.__version__} numpy=={np.__version__}"
        for k in SHAPES:
            file[f"params0/{k}"] = params0[k]
            file[f"grads/{k}"] = grads[k]
        for name, (config, words) in CASES.items():
            words = dict(dict(weight_decay=0.1, mu_dtype=jnp.float32), **words)
            optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(schedule, **words))
            make_update = jax.jit(optimizer.update)  # as in a train step
            params = {k: jnp.asarray(v) for k, v in params0.items()}
            state, seen = optimizer.init(params), []
            for step in range(STEPS):
                update, state = make_update({k: jnp.asarray(grads[k][step]) for k in grads}, state, params)
                params = optax.apply_updates(params, update)
                seen.append(params)
            group = file.create_group(f"cases/{name}")
            group.attrs["config"] = COMMON + config
            group["learning_rate"] = np.array([schedule(step) for step in range(STEPS)], np.float32)
            for k in SHAPES:
                group[f"params/{k}"] = np.stack([np.asarray(p[k]) for p in seen])
                group[f"opt_state/0/mu/{k}"] = np.asarray(state[1][0].mu[k], np.float32)


main(sys.argv[1])

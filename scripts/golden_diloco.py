#!/usr/bin/env python3
"""Trajectories of DiLoCo by MaxText's own functions, on gradients that both sides make by a formula.

    pip install jax==0.10.2 flax==0.12.8 optax==0.2.8 drjax==0.2.1 orbax-checkpoint h5py
    PYTHONPATH=maxtext/src scripts/golden_diloco.py tests/golden/train/diloco.h5

MaxText's trainers/diloco and utils/diloco_sharding.py (commit e591f30c) run as they are; of its config they read a few numbers,
so a namespace stands for it. The train step of a replica is an update of an optax optimizer with a given gradient. Parameters are
those of a tiny decoder: its paths and shapes are below, layers stacked at dim 0, elements come from `numbers`. For each case the file has
the overrides (`config`) and [steps of KEPT, 4, elements of all parameters in the order of `paths`]: outer parameters, their momentum, and
the parameters of both replicas.
"""
import os
import sys
import types

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
stub = types.ModuleType("maxtext.configs.pyconfig")
stub.HyperParameters = object
sys.modules["maxtext.configs.pyconfig"] = stub
sys.modules["maxtext.configs"] = types.ModuleType("maxtext.configs")
sys.modules["maxtext.configs"].pyconfig = stub

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from maxtext.common.train_state_nnx import TrainStateNNX
from maxtext.trainers.diloco import diloco

REPLICAS, LAYERS = 2, 4
LAYER = {
    "mlp/wi_0/kernel": (2, 4),
    "mlp/wi_1/kernel": (2, 4),
    "mlp/wo/kernel": (4, 2),
    "post_self_attention_layer_norm/scale": (2,),
    "pre_self_attention_layer_norm/scale": (2,),
    "self_attention/key/kernel": (2, 2, 2),
    "self_attention/out/kernel": (2, 2, 2),
    "self_attention/query/kernel": (2, 2, 2),
    "self_attention/value/kernel": (2, 2, 2),
}
SHAPES = {
    "decoder/decoder_norm/scale": (2,),
    "decoder/logits_dense/kernel": (2, 8),
    "token_embedder/embedding": (8, 2),
    **{f"decoder/layers/{path}": (LAYERS, *shape) for path, shape in LAYER.items()},
}
INNER = {
    "sgd": lambda: optax.sgd(0.05),
    "adamw": lambda: optax.adamw(0.05, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1),
}
CASES = {
    "sgd": dict(inner="sgd", diloco_sync_period=2, diloco_outer_lr=0.7, diloco_outer_momentum=0.9),
    "adamw": dict(inner="adamw", diloco_sync_period=3, diloco_outer_lr=0.3, diloco_outer_momentum=0.5),
}
STEPS, KEPT = 7, (2, 5, 7)


def numbers(shape, path, layer, draw):
    """Elements in [-1, 1], the same in any language: of an array of one layer, by place, path and number of the draw."""
    n = int(np.prod(shape))
    seed = sum((i + 1) * ord(c) for i, c in enumerate(path)) + 7919 * layer + 104729 * draw
    at = np.arange(n, dtype=np.int64)
    return (((at * 31 + seed * 17) * (at + seed) % 2001 - 1000) / 1000).astype(np.float32).reshape(shape)


def array(path, draw):
    shape = SHAPES[path]
    if not path.startswith("decoder/layers/"):
        return jnp.asarray(numbers(shape, path, 0, draw))
    tail = path.removeprefix("decoder/layers/")
    return jnp.asarray(np.stack([numbers(shape[1:], tail, layer + 1, draw) for layer in range(LAYERS)]))


class Arrays(nnx.Module):
    """Parameters as attributes a/b/c of modules."""

    def __init__(self, tree):
        for name, value in tree.items():
            setattr(self, name, Arrays(value) if isinstance(value, dict) else nnx.Param(value))


def nested(flat):
    tree = {}
    for path, value in flat.items():
        *folders, name = path.split("/")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = value
    return tree


def at(tree, path):
    for name in path.split("/"):
        tree = tree[name]
    return getattr(tree, "value", tree)


def step_of_replica(state, gradient, key):
    del key
    of = nnx.state(state.model, nnx.Param)
    state.optimizer.update(state.model, jax.tree.unflatten(jax.tree.structure(of), jax.tree.leaves(gradient)))
    return state, jnp.float32(0)


def run(file, name, case):
    config = types.SimpleNamespace(num_diloco_replicas=REPLICAS, enable_streaming_diloco=False, **case)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:REPLICAS]), axis_names=("diloco",))
    with jax.set_mesh(mesh):
        model = Arrays(nested({path: array(path, 0) for path in SHAPES}))
        start = TrainStateNNX(model, nnx.Optimizer(model, INNER[case["inner"]](), wrt=nnx.Param))
        state, _ = diloco.build_diloco_state(config, lambda: start, mesh=mesh)
        step = diloco.build_diloco_train_step(config, step_of_replica, mesh=mesh)
        kept = []
        for n in range(1, STEPS + 1):
            gradients = nested({path: jnp.stack([array(path, 1 + (n - 1) * REPLICAS + r) for r in range(REPLICAS)])
                                for path in SHAPES})
            state, _ = step(state, gradients, jax.random.key(0))
            inner = nnx.state(state.inner_state.model, nnx.Param).to_pure_dict()
            own = [jax.tree.map(lambda x, r=r: x[r], inner) for r in range(REPLICAS)]
            trees = [state.params, state.outer_opt_state[0].trace, *own]
            if n in KEPT:
                kept.append([np.concatenate([np.ravel(at(tree, path)) for path in SHAPES]) for tree in trees])
    file[name] = np.array(kept, dtype=np.float32)
    text = "".join(f"{key}: {value}\n" for key, value in case.items() if key != "inner")
    file[name].attrs["config"] = f"opt_type: {case['inner']}\n" + text


with h5py.File(sys.argv[1], "w") as out:
    out.attrs["paths"] = "".join(f"{path}\n" for path in SHAPES)
    out.attrs["made_by"] = "MaxText e591f30c, jax %s, optax %s" % (jax.__version__, optax.__version__)
    for name, case in CASES.items():
        run(out, name, case)

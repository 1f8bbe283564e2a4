#!/usr/bin/env python3
"""Makes tests/golden/train/sparsity.h5: N:M sparsity of weights by qwix, alone and in MaxText's model.

    JAX_PLATFORMS=cpu golden_sparsity.py tests/golden/models/llama2.h5 OUT.h5      (MaxText e591f30c on PYTHONPATH, qwix 0.1.8)

`masks/N` has an array x, n and m as attributes, and the mask that qwix's get_sparsity_mask makes of x. `models/N` has n, m and
the methods of calibration as attributes, loss and some gradients of MaxText's model, rounded by fp8_full, without which MaxText prunes nothing, and the losses of five
of MaxText's train_step. Parameters and batch are those of llama2.h5.
"""
import functools
import sys

import h5py
import jax
import numpy as np
from flax import nnx
from flax.linen import partitioning
from qwix._src.core import sparsity

import golden_calibration
from maxtext.trainers.pre_train import train

MASKS = [((6, 8), 2, 4), ((5, 12), 1, 4), ((4, 2, 8), 3, 4), ((4, 6), 2, 4), ((2, 3, 10), 2, 5), ((4, 16), 3, 8), ((4, 4), 4, 4)]
MODELS = [(2, 4, ("absmax", "absmax", "absmax")), (5, 32, golden_calibration.MODELS[1])]  # 32: over the ends of heads
STEPS = 5


def masks(out):
    rng = np.random.default_rng(3)
    for i, (shape, n, m) in enumerate(MASKS):
        x = np.round(rng.standard_normal(shape) * 3).astype(np.float32)  # so that magnitudes are often equal
        group = out.create_group("masks/%d" % i)
        group.attrs["n"], group.attrs["m"] = str(n), str(m)
        group["x"], group["mask"] = x, np.asarray(sparsity.get_sparsity_mask(x, n, m), np.float32)


def model(source, n, m, methods, out):
    out.attrs["n"], out.attrs["m"] = str(n), str(m)
    words = ["weight_sparsity_n=%d" % n, "weight_sparsity_m=%d" % m]
    config, mesh, state, batch = golden_calibration.model(source, methods, out, words)
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        step = jax.jit(functools.partial(train.train_step, nnx.graphdef(state), config, None, None))
        now, losses = nnx.state(state), []
        for _ in range(STEPS):
            now, metrics = step(now, dict(batch))
            losses.append(float(metrics["scalar"]["learning/loss"]))
    out["losses"] = np.asarray(losses, np.float32)
    print(n, m, losses)


def main():
    source_path, out_path = sys.argv[1:3]
    with h5py.File(source_path) as source, h5py.File(out_path, "w", libver=("v108", "v110")) as out:
        masks(out)
        for i, (n, m, methods) in enumerate(MODELS):
            model(source, n, m, methods, out.create_group("models/%d" % i))


if __name__ == "__main__":
    main()

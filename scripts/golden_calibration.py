#!/usr/bin/env python3
"""Makes tests/golden/train/calibration.h5: quantised products under qwix's calibration methods, alone and in MaxText's model.

    JAX_PLATFORMS=cpu golden_calibration.py tests/golden/models/llama2.h5 OUT.h5      (MaxText e591f30c on PYTHONPATH, qwix 0.1.8)

OUT has one product, x [6, 20] w [20, 9] and a cotangent dy. `products` has datasets of what the operands are rounded to, y, dx and
dw, N times, and as attributes the format and the methods of x, w and dy (N_quantization, N_act, N_weight, N_bwd), by MaxText's own
QwixQuantization (of which only the formats are replaced). `models/N` has the methods as attributes, and loss and some gradients of
MaxText's quantised model, whose parameters and batch are those of llama2.h5.
"""
import dataclasses
import os
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.linen import partitioning
from qwix._src.core import dot_general, dot_general_qt, qarray

import golden_maxtext
from maxtext.common.goodput import create_goodput_recorder
from maxtext.configs import pyconfig
from maxtext.layers import quantizations
from maxtext.trainers.pre_train import train
from maxtext.utils import train_utils

FORMATS = {"int8": (jnp.int8, jnp.int8), "fp8": (jnp.float8_e4m3fn, jnp.float8_e4m3fn),
           "fp8_full": (jnp.float8_e4m3fn, jnp.float8_e5m2)}
METHODS = [  # of x, w, dy
    ("absmax,0.7", "absmax", "absmax"), ("absmax", "absmax,0.5", "absmax,0.8"), ("absmax,1.5", "absmax", "absmax,2"),
    ("rms,2.5", "rms,3", "rms,2"), ("fixed,2", "fixed,-1.5,1.5", "fixed,0.75"), ("RMS, 1.5", "Fixed,1", "absmax"),
]
MODELS = [("absmax,0.9", "rms,2.5", "absmax,0.8"), ("fixed,3", "fixed,-0.25,0.25", "rms,4")]
KEPT = {"self_attention/key/kernel": 0, "self_attention/out/kernel": 1, "mlp/wo/kernel": 2}  # of one layer each
KEYS = ("act", "weight", "bwd")


def say(group, methods, prefix=""):
    for key, method in zip(KEYS, methods):
        group.attrs[prefix + key] = method


def products(out):
    rng = np.random.default_rng(11)
    x, w, dy = (rng.standard_normal(s).astype(np.float32) for s in ((6, 20), (20, 9), (6, 9)))
    x[0, :2], x[1, :2] = (2, -2), (2.0000002, -2.0000002)  # of fixed,2: the last that have a gradient, the first that have none
    out["x"], out["w"], out["dy"] = x, w, dy
    dims = (((1,), (0,)), ((), ()))
    group, found = out.create_group("products"), []
    for name, (forward, back) in FORMATS.items():
        for methods in METHODS:
            act, weight, bwd = methods
            config = quantizations.QwixQuantization(act, weight, bwd)._get_fp8_full_qwix_config()
            config = dataclasses.replace(config, lhs_qtype=forward, rhs_qtype=forward, dlhs_grad_qtype=back, drhs_grad_qtype=back)
            say(group, methods, "%d_" % len(found))
            group.attrs["%d_quantization" % len(found)] = name
            y, vjp = jax.vjp(jax.jit(lambda x, w: dot_general_qt.dot_general_qt(x, w, dims, config)), x, w)
            arrays = {"y": y}
            arrays["dx"], arrays["dw"] = vjp(jnp.asarray(dy))
            for operand, value, method, is_x in (("x", x, act, True), ("w", w, weight, False)):
                how = dot_general.get_how_to_quantize(dimension_numbers=dims, ndims=(2, 2), for_lhs=is_x, qtype=forward, tile_size=None,
                                                      calibration_method=method)
                coded = jax.jit(lambda a: qarray.quantize(a, how))(value)
                arrays[operand + "_codes"] = coded.qvalue.astype(jnp.float32)
            found.append(arrays)
    for key in found[0]:
        group.create_dataset(key, data=np.stack([np.asarray(arrays[key]) for arrays in found]), compression="gzip")


def model(source, methods, out, words=()):
    say(out, methods)
    cli = source.attrs["config_cli"].split() + ["quantization=fp8_full", "use_qwix_quantization=true", *words]
    cli += ["%s_quantization_calibration_method=%s" % pair for pair in zip(KEYS, methods)]
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    config = pyconfig.initialize([sys.argv[0], base, "run_name=golden", "skip_jax_distributed_system=true",
                                  "enable_checkpointing=false", "override_model_config=true", "hardware=cpu"] + cli)
    (_, _, _, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, create_goodput_recorder(config))
    golden_maxtext.put_parameters(state, source["linen/params/params"], config.weight_dtype)
    batch = {k: jnp.asarray(source["batch"][k][()]) for k in source["batch"]}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        graph = nnx.graphdef(state.model)
        param, rest = nnx.split(state.model, nnx.Param, ...)[1:]

        def loss_of(p, r):
            return train.loss_fn(nnx.merge(graph, p, r, copy=True), config, dict(batch), None, None)

        (loss, _), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(param, rest)
    out["loss"] = np.float32(loss)
    grads = {"/".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(grads)}
    for name, layer in KEPT.items():
        value = np.asarray(jnp.take(grads["decoder/layers/" + name], layer, config.param_scan_axis), np.float32)
        out.create_dataset("grads/decoder/layers_%d/%s" % (layer, name), data=value, compression="gzip")
    return config, mesh, state, batch


def main():
    source_path, out_path = sys.argv[1:3]
    with h5py.File(source_path) as source, h5py.File(out_path, "w", libver=("v108", "v110")) as out:
        products(out)
        for i, methods in enumerate(MODELS):
            model(source, methods, out.create_group("models/%d" % i))
            print(methods, float(out["models/%d/loss" % i][()]), float(source["loss/loss"][()]))


if __name__ == "__main__":
    main()

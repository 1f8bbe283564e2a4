#!/usr/bin/env python3
"""Makes a golden file of adapters over quantised weights: MaxText with qwix, from another file's weights and batches.

    golden_qlora.py FROM.h5 OUT.h5 TYPE KEY=VALUE...        (adds to OUT: nf4, int8, int4, float8_e4m3fn, …)

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH) builds the model of FROM's config, qwix quantises the
weights that get adapters, and MaxText's loss is differentiated by the adapters. OUT has the codes and scales, the
adapters (drawn here), loss and gradients of the first batch, and losses of five steps of MaxText's optimizer; under the name
of the type. tests/golden/train/qlora.h5 is lora_scan_qv_r2.h5's weights, with lora.lora_tile_size=8 (32 of mxfp8 and mxfp4, 16 of nvfp4) and
lora.lora_module_path='decoder/layers/.*(self_attention/(query|key|value)|mlp/(wi_0|wi_1|wo))'.
"""
import json
import os
import sys

import flax
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import qwix
import yaml
from flax import nnx
from flax.linen import partitioning

from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import lora_utils, maxtext_utils, model_creation_utils, train_utils

STEPS = 5


def words_of(config):
    """Lines of FROM's config as overrides; what is below `lora` by its path."""
    out = []
    for key, value in yaml.safe_load(config).items():
        if key == "lora":
            continue
        out.append("%s=%s" % (key, json.dumps(value) if isinstance(value, (list, dict)) else "" if value is None else value))
    return out


def flat(state):
    return {"/".join(map(str, path)): v.get_value() for path, v in nnx.to_flat_state(state)}


def put(model, kind, values):
    """Sets variables of a kind from a function of (path, old value)."""
    state = nnx.state(model, kind)
    for path, variable in nnx.to_flat_state(state):
        variable.set_value(jnp.asarray(values("/".join(map(str, path)), variable.get_value())))
    nnx.update(model, state)


def as_array(x):
    return np.asarray(x if x.dtype == jnp.float32 else x.astype(jnp.float32))


def main():
    source_path, out_path, qtype = sys.argv[1:4]
    source, file = h5py.File(source_path), h5py.File(out_path, "a", libver=("v108", "v110"))
    out = file.create_group(qtype)
    overrides = sys.argv[4:] + ["lora.lora_weight_qtype=" + qtype]
    cli = words_of(source.attrs["config"]) + ["lora.enable_lora=true", "lora.lora_rank=2", "lora.lora_alpha=4.0"] + overrides
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    config = pyconfig.initialize([sys.argv[0], base, "run_name=golden", "skip_jax_distributed_system=true",
                                  "enable_checkpointing=false", "override_model_config=true", "hardware=cpu"] + cli)
    mesh = maxtext_utils.get_mesh_from_config(config)
    model = model_creation_utils.from_config(config, mesh=mesh, rngs=nnx.Rngs(params=0, dropout=1))
    weights = source["nnx/model"]

    def weight(path, old):
        assert weights[path].shape == old.shape, path
        if "nnx/model/" + path not in file:
            file["nnx/model/" + path] = weights[path][()]
        return weights[path][()].astype(old.dtype)

    put(model, nnx.Param, weight)
    model = lora_utils.apply_lora_to_model(model, mesh, config)
    rng = np.random.default_rng(7)
    put(model, nnx.LoRAParam, lambda path, old: (0.2 * rng.standard_normal(old.shape)).astype(np.float32))
    for path, value in flat(nnx.state(model, nnx.LoRAParam)).items():
        out["nnx/model/" + path] = as_array(value)
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        name = "/".join(map(str, path))
        value = variable.get_value() if hasattr(variable, "get_value") else variable
        if not any(module in name for module in ("query", "wi_0", "wo")):
            continue  # the others are no different
        if name.endswith("qvalue"):
            is_whole = jnp.issubdtype(value.dtype, jnp.integer)
            out["codes/" + name] = np.asarray(value.astype(jnp.int32)).astype(np.int8) if is_whole else as_array(value)
        elif name.endswith("scale") and "array" in name:
            out["codes/" + name] = as_array(value)
    _, tx = train_utils.create_training_optimizer(config, model)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.LoRAParam)
    batches = [{k: jnp.asarray(source["batches"][k][i]) for k in source["batches"]} for i in range(STEPS)]
    first = {k: jnp.asarray(source["batch"][k][()]) for k in source["batch"]}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        def gradient(batch):
            def loss_of(m):
                return train.loss_fn(m, config, dict(batch), None, None)
            return nnx.value_and_grad(loss_of, argnums=nnx.DiffState(0, nnx.LoRAParam), has_aux=True)(model)

        (loss, aux), grads = gradient(first)
        out["loss/loss"] = as_array(loss)
        out["loss/xent_sum"] = as_array(aux["xent_sum"])
        out["loss/total_weights"] = np.asarray(aux["total_weights"])
        for path, value in flat(grads).items():
            out["loss/grads/model/" + path] = as_array(value)
        losses, norms = [], []
        for batch in batches:
            (loss, _), grads = gradient(batch)
            norms.append(float(optax.global_norm(jax.tree.leaves(grads))))
            clip = optax.clip_by_global_norm(config.gradient_clipping_threshold)
            grads, _ = clip.update(grads, clip.init(grads))
            optimizer.update(model, grads)
            losses.append(float(loss))
    out["traj/loss"], out["traj/raw_grad_norm"] = np.float32(losses), np.float32(norms)
    for group in ("batch", "batches"):
        if group not in file:
            for field in source[group]:
                file[group + "/" + field] = source[group][field][()].astype("i2")
    out.attrs["overrides"] = " ".join(overrides)
    file.attrs.update({
        "config": source.attrs["config"], "from": source_path.split("/")[-1],
        "maxtext_commit": source.attrs["maxtext_commit"],
        "versions": json.dumps({"jax": jax.__version__, "flax": flax.__version__, "qwix": qwix.__version__
                                if hasattr(qwix, "__version__") else "0.1.8"})})
    print("losses", losses, "norms", norms)
    out.visititems(lambda name, x: print(name, x.shape, x.dtype) if hasattr(x, "shape") else None)


if __name__ == "__main__":
    main()

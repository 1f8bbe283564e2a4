#!/usr/bin/env python3
"""Makes a golden file like another one, with keys changed: the same start and batches, run by MaxText.

    golden_maxtext.py FROM.h5 NAME OUT.h5 KEY=VALUE...

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH) sets up the train state, runs the model and its jitted
train_step for five steps; only parameters and batches are those of FROM. Parameters are rounded to weight_dtype, and
stored as float32. Run with no KEY=VALUE to see how closely FROM's own numbers come back: the versions differ.
"""
import json
import sys

import flax
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.linen import partitioning

from maxtext.common.goodput import create_goodput_recorder
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import max_utils, sharding, train_utils

STEPS = 5


def read_batches(file):
    fields = file["train/batches"]
    return [{k: jnp.asarray(fields[k][i]) for k in fields} for i in range(STEPS)]


def put_parameters(state, params, dtype):
    """FROM's parameters into the model; returns them as they then are, by path."""
    flat = nnx.to_flat_state(nnx.state(state.model, nnx.Param))
    found = {}
    for path, variable in flat:
        name = "/".join(map(str, path))
        value = jnp.asarray(params[name][()]).astype(dtype).astype(variable.get_value().dtype)
        assert value.shape == variable.get_value().shape, name
        found[name] = value
        variable.set_value(value)
    nnx.update(state.model, nnx.State.from_flat_path({p: v for p, v in flat}))
    return found


def as_array(x):
    x = np.asarray(x.astype(jnp.float32) if hasattr(x, "dtype") and x.dtype == jnp.bfloat16 else x)
    return x


def run(source, overrides, out):
    cli = source.attrs["config_cli"].split() + overrides
    config = pyconfig.initialize([sys.argv[0], "base.yml", "run_name=golden", "skip_jax_distributed_system=true",
                                  "enable_checkpointing=false", "override_model_config=true", "hardware=cpu"] + cli)
    recorder = create_goodput_recorder(config)
    (_, _, shardings, _, mesh, schedule, _, _, _, _, state) = train_utils.setup_train_loop(config, recorder)
    params = put_parameters(state, source["linen/params/params"], config.weight_dtype)
    for name, value in params.items():
        out["linen/params/params/" + name] = as_array(value)
        out["nnx/model/" + name] = out["linen/params/params/" + name]
    graph, pure = nnx.split(state)
    param_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    step_fn, _ = train_utils.jit_train_and_eval_step(config, graph, mesh, pure, shardings, train.train_step, None, None,
                                                     param_shardings)
    batches = read_batches(source)
    metrics = []
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        def loss_of(param, rest, batch):
            model = nnx.merge(nnx.graphdef(state.model), param, rest)
            return train.loss_fn(model, config, dict(batch), None, None)

        param, rest = nnx.split(state.model, nnx.Param, ...)[1:]
        (loss, aux), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(param, rest, batches[0])
        b = batches[0]
        logits = jax.jit(lambda p, r: nnx.merge(nnx.graphdef(state.model), p, r)(
            decoder_input_tokens=b["inputs"], decoder_positions=b["inputs_position"],
            decoder_segment_ids=b["inputs_segmentation"], enable_dropout=False, decoder_target_tokens=b["targets"],
            decoder_target_mask=b["targets_segmentation"]))(param, rest)
        out["logits"] = as_array(logits.astype(jnp.float32))
        out["loss/loss"] = as_array(loss)
        for key in ("xent_sum", "total_weights", "z_loss", "moe_lb_loss", "mtp_loss", "indexer_loss"):
            out["loss/" + key] = as_array(jnp.asarray(aux[key]))
        out["loss/grad_norm"] = as_array(max_utils.l2norm_pytree(grads))
        out["loss/param_norm"] = as_array(max_utils.l2norm_pytree(param))
        for path, variable in nnx.to_flat_state(grads):
            out["grads/params/params/" + "/".join(map(str, path))] = as_array(variable.get_value())
        for batch in batches:
            pure, metric = step_fn(pure, dict(batch))
            metrics.append(metric["scalar"])
    for key in metrics[0]:
        out["train/metrics/" + key.split("/")[-1]] = np.stack([as_array(jnp.asarray(m[key])) for m in metrics])
    out["train/learning_rate"] = np.asarray([schedule(i) for i in range(STEPS)], np.float32)
    for path, variable in nnx.to_flat_state(pure["model"]):
        name = "/".join(map(str, path))
        if name in params:
            out["train/final/params/params/" + name] = as_array(variable.get_value())
    lines = ["%s %s %s" % ("/".join(map(str, p)), v.get_value().dtype, tuple(v.get_value().shape))
             for p, v in nnx.to_flat_state(pure) if hasattr(v.get_value(), "shape")]
    out["trees/state"] = np.array(lines, dtype="S")
    return cli


def main():
    source_path, name, out_path = sys.argv[1:4]
    with h5py.File(source_path) as source, h5py.File(out_path, "w") as out:
        for group in ("batch", "train/batches"):
            for field in source[group]:
                out["%s/%s" % (group, field)] = source[group][field][()]
        cli = run(source, sys.argv[4:], out)
        out.attrs.update({
            "name": name, "config_cli": " ".join(cli), "decoder_block": source.attrs["decoder_block"],
            "model_name": source.attrs["model_name"], "maxtext_commit": source.attrs["maxtext_commit"],
            "versions": json.dumps({"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__,
                                    "numpy": np.__version__, "h5py": h5py.__version__}),
            "note": "scripts/golden_maxtext.py; parameters and batches of " + source.attrs["name"]})
        for path in ("loss/loss", "loss/grad_norm"):
            print(path, out[path][()], source[path][()] if path in source else "")
        for key in ("loss", "raw_grad_norm", "param_norm"):
            print(key, out["train/metrics/" + key][()], source["train/metrics/" + key][()])
        print("logits: most", np.abs(out["logits"][()] - source["logits"][()]).max())


if __name__ == "__main__":
    main()

"""golden_told.py — what MaxText tells of the activations of layers and of routers' biases:

    PYTHONPATH=MAXTEXT/src python golden_told.py GOLDEN/models OUT.h5

in the environment of golden_families.py. For each model below, with the parameters and the first batch of its golden file:
activ_mean, activ_stdev and activ_fraction_zero [layers] of a forward pass (record_internal_nn_metrics), in the order of layers.
MaxText's own numbers of layers count leaves of stacks in the order of their names. For a model with router biases: the norms that a
step of training logs (log_moe_bias_norms), under their names."""
import re
import sys

import golden_families as families
import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util
from flax.linen import partitioning

from maxtext.common.goodput import create_goodput_recorder
from maxtext.trainers.pre_train import train
from maxtext.utils import sharding, train_utils

MODELS = ["llama2", "gemma3", "gpt3", "mixtral", "olmo3", "variants/dense_mla_unscanned", "variants/deepseek_streams",
          "variants/gemma4_experts", "variants/envy"]
BIASES = ["variants/deepseek4"]
TOLD = {"activ_mean": "activation_mean", "activ_stdev": "activation_stdev", "activ_fraction_zero": "activation_fraction_zero"}


def configure(golden, key):
    words = golden.attrs["config_cli"].split()
    named = [w.split("=", 1)[1] for w in words if w.startswith("model_name=")]
    return families.configure(*named or [golden.attrs["model_name"]], [w for w in words if not w.startswith("model_name=")] + [key])


def set_parameters(model, golden):
    state = nnx.state(model, nnx.Any(nnx.Param, families.AUX))
    for path, variable in nnx.to_flat_state(state):
        name = "/".join(str(p) for p in path)
        at = f"params/params/{name}" if f"params/params/{name}" in golden["linen"] else f"nnx_aux/model/{name}"
        variable.set_value(jnp.asarray(golden["linen"][at][...]))
    nnx.update(model, state)


def order(path, repeats):
    """For each repeat of a stack of layers, what sorts it among all layers: the stack, the repeat, the place in its period."""
    stacks = ["dense_layers", "layers", "moe_layers", "scanned_blocks", "layers_remainder"]
    first = next((s for s in stacks if s in path), None)
    if first == "scanned_blocks" and "global_layer" not in path:  # gemma4: five of them before each global one
        return [(stacks.index(first), r // 5, r % 5) for r in range(repeats)]
    places = [int(m.group(1)) if (m := re.fullmatch(r"(?:dense_|moe_)?layers_(\d+)", p)) else 99 if p == "global_layer" else None
              for p in path]
    place = next((p for p in places if p is not None), 0)
    return [(stacks.index(first) if first else 0, r, place) for r in range(repeats)]


def measure_layers(golden, out):
    config = configure(golden, "record_internal_nn_metrics=1")
    recorder = create_goodput_recorder(config)
    (_, _, _, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, recorder)
    set_parameters(state.model, golden)
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in families.BATCH}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        _, aux = train.loss_fn(state.model, config, dict(batch), None, None)
    flat = traverse_util.flatten_dict(aux["intermediate_outputs"])
    for label, key in TOLD.items():
        layers = []
        for path, value in flat.items():
            if path[-1] == key:
                value = np.ravel(np.asarray(value[0] if isinstance(value, tuple) else value, np.float32))
                layers += zip(order(path, len(value)), value)
        layers.sort(key=lambda x: x[0])
        assert len(layers) == config.num_decoder_layers, (label, layers)
        out[label] = np.asarray([x[1] for x in layers], np.float32)
        print(label, [x[0] for x in layers], out[label][...])


def measure_biases(golden, out):
    config = configure(golden, "log_moe_bias_norms=true")
    recorder = create_goodput_recorder(config)
    (_, _, shardings, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, recorder)
    set_parameters(state.model, golden)
    graph, pure = nnx.split(state)
    param_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    step_fn, _ = train_utils.jit_train_and_eval_step(config, graph, mesh, pure, shardings, train.train_step, None, None,
                                                     param_shardings)
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in families.BATCH}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        _, told = step_fn(pure, batch)
    for key, value in told["scalar"].items():
        if "moe_bias" in key:
            out[key] = np.asarray(value, np.float32)
            print(key, value)


def main():
    with h5py.File(sys.argv[2], "w", libver=("v110", "v110")) as out:
        for name in MODELS + BIASES:
            with h5py.File(f"{sys.argv[1]}/{name}.h5") as golden:
                print(name)
                (measure_biases if name in BIASES else measure_layers)(golden, out.create_group(name))


main()

"""golden_release.py — what keys that MaxText's release 0.2.5 added make of models that have golden files:

    PYTHONPATH=MAXTEXT python golden_release.py GOLDEN/models OUT.h5

in an environment with JAX and MaxText's libraries; MAXTEXT has the package of 0.2.5. A group per case below: the model's file and the
words beside its config_cli as attributes; loss and moe_lb_loss of loss_fn on its first batch, and gradients of some kernels, under the
names that they have without stacks of layers. Parameters are those of the file, but for biases of routers, which are zeros there: they
are numbers from 0.4 down to -0.1 in equal steps. Of models that log_step_diagnostics is for: what a jitted train_step tells there
(diag/...)."""
import os
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.linen import partitioning

import maxtext
from maxtext.common.goodput import create_goodput_recorder
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import sharding, train_utils

SEQUENCES = "moe_use_megatron_seq_aux_loss=true"
MIXTRAL = {f"decoder/layers_{i}/MoeBlock_0/gate/kernel": ("decoder/layers/MoeBlock_0/gate/kernel", i) for i in range(2)}
DEEPSEEK = {"decoder/moe_layers_0/DeepSeekMoeBlock_0/MoeBlock_0/gate/kernel": ("decoder/moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/gate/kernel", 0)}
LLAMA = {"decoder/layers_1/self_attention/key/kernel": ("decoder/layers/self_attention/key/kernel", 1)}
MTP = {name: (name, None) for name in ("mtp_block/mtp_layer_1/mtp_1_transformer_layer/self_attention/key/kernel",)}
ROUNDED = "use_qwix_quantization=true quantization"
WEIGHTS = "drhs_grad_quantization_calibration_method"
# The model, words, and gradients by our name: MaxText's, and which of its stack.
CASES = {
    "layers": ("mixtral", f"routed_score_func=sigmoid load_balance_loss_weight=0.5 {SEQUENCES}", MIXTRAL),
    "bias": ("variants/deepseek_no_shared", f"load_balance_loss_weight=0.5 {SEQUENCES}", DEEPSEEK),
    "weights": ("llama2", f"{ROUNDED}=fp8_full {WEIGHTS}=absmax,0.5", LLAMA),
    "weights_fixed": ("llama2", f"{ROUNDED}=fp8_full bwd_quantization_calibration_method=absmax,0.8 {WEIGHTS}=fixed,0.01", LLAMA),
    "router": ("mixtral", f"{ROUNDED}=fp8 quantize_router_proj=false load_balance_loss_weight=0.0", MIXTRAL),
    "mtp": ("variants/mtp", f"{ROUNDED}=fp8_full quantize_mtp=true", MTP),
}
# The same, without gradients.
TOLD = {
    "told": ("mixtral", "load_balance_loss_weight=0.0 log_step_diagnostics=true"),
    "told_biases": ("variants/deepseek_no_shared",
                    "load_balance_loss_weight=0.0 routed_bias_update_rate=0.01 log_step_diagnostics=true"),
}
BATCH = ["inputs", "inputs_position", "inputs_segmentation", "targets", "targets_position", "targets_segmentation"]


diagnose = train.step_diagnostics
# MaxText's fails on arrays without elements.
train.step_diagnostics = lambda grads, *rest: diagnose([g for g in jax.tree_util.tree_leaves(grads) if g.size], *rest)


def configure(golden, words):
    base = os.path.join(os.path.dirname(maxtext.__file__), "configs", "base.yml")
    words = golden.attrs["config_cli"].split() + words.split()
    if not any(w.startswith("model_name=") for w in words):
        words.append("model_name=" + golden.attrs["model_name"])
    return pyconfig.initialize(["golden", base, "run_name=golden", "base_output_directory=out", "enable_checkpointing=false",
                                "enable_tensorboard=false", "enable_goodput_recording=false", "override_model_config=true",
                                "skip_jax_distributed_system=true", "hardware=cpu", "tokenizer_path=unused"] + words)


def set_parameters(model, golden):
    state = nnx.state(model)
    for path, variable in nnx.to_flat_state(state):
        name = "/".join(map(str, path))
        # Modules that predict further tokens have a last norm in this release, and the decoder's in e591f30c.
        from_name = "decoder/decoder_norm/scale" if name.endswith("_final_norm/scale") else name
        if f"linen/params/params/{from_name}" not in golden:
            continue
        value = golden[f"linen/params/params/{from_name}"][...]
        if name.endswith("gate/bias"):  # [1, X], no parameter in this release
            value = np.linspace(0.4, -0.1, value.size, dtype=np.float32)[None]
        assert value.shape == variable.get_value().shape, name
        variable.set_value(jnp.asarray(value))
    nnx.update(model, state)


def run(golden, words, kept, out):
    config = configure(golden, words)
    (_, _, _, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, create_goodput_recorder(config))
    set_parameters(state.model, golden)
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in BATCH}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        graph, param, rest = nnx.split(state.model, nnx.Param, ...)

        def loss_of(p):
            return train.loss_fn(nnx.merge(graph, p, rest, copy=True), config, dict(batch), None, None)

        (loss, aux), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(param)
    out["loss"], out["moe_lb_loss"] = np.float32(loss), np.float32(aux["moe_lb_loss"])
    grads = {"/".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(grads)}
    for ours, (name, layer) in kept.items():
        value = grads[name] if layer is None else jnp.take(grads[name], layer, config.param_scan_axis)
        out.create_dataset(f"grads/{ours}", data=np.asarray(value, np.float32), compression="gzip", shuffle=True)
    print(float(loss), float(aux["moe_lb_loss"]))


def tell(golden, words, out):
    config = configure(golden, words)
    (_, _, shardings, _, mesh, _, _, _, _, _, state) = train_utils.setup_train_loop(config, create_goodput_recorder(config))
    set_parameters(state.model, golden)
    graph, pure = nnx.split(state)
    param_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    step_fn, _ = train_utils.jit_train_and_eval_step(config, graph, mesh, pure, shardings, train.train_step, None, None,
                                                     param_shardings)
    batch = {k: jnp.asarray(golden["train/batches"][k][0]) for k in BATCH}
    with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
        _, told = step_fn(pure, batch)
    for key, value in told["scalar"].items():
        if key.startswith("diag/"):
            out[key] = np.float32(value)
            print(key, value)


def main():
    with h5py.File(sys.argv[2], "w", libver=("v110", "v110")) as out:
        for name, (model, words, kept) in CASES.items():
            group = out.create_group(name)
            group.attrs["model"], group.attrs["words"] = model, words
            with h5py.File(f"{sys.argv[1]}/{model}.h5") as golden:
                print(name)
                run(golden, words, kept, group)
        for name, (model, words) in TOLD.items():
            group = out.create_group(name)
            group.attrs["model"], group.attrs["words"] = model, words
            with h5py.File(f"{sys.argv[1]}/{model}.h5") as golden:
                tell(golden, words, group)


if __name__ == "__main__":
    main()

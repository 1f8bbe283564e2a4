"""golden_dense_mla.py — golden files of DeepSeek models whose layers are all dense, made by MaxText:

    python golden_dense_mla.py FOLDER deepseek3.h5 [NAME..]

in an environment with maxtext and its libraries. Batches are those of deepseek3.h5, whose vocabulary is
the same; layout and meaning are those of the other files.

Parameters are MaxText's own initialisation, norm scales with noise of 0.1. Logits and loss are those
of the model and loss_fn, the trajectory that of its train_step."""
import json
import os
import sys

import flax
import h5py
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax
from flax import nnx
from flax.linen import partitioning

COMMON = """dataset_type=synthetic attention=dot_product dtype=float32 weight_dtype=float32
matmul_precision=highest enable_dropout=false remat_policy=full per_device_batch_size=3
max_target_length=24 steps=5 learning_rate_schedule_steps=8 warmup_steps_fraction=0.25
learning_rate=0.003 learning_rate_final_fraction=0.1 gradient_clipping_threshold=0.5 opt_type=adamw
adam_b1=0.9 adam_b2=0.95 adam_eps=1.e-8 adam_weight_decay=0.1 decoder_block=deepseek
attention_type=mla mlp_activations=['silu','linear'] base_emb_dim=32 base_num_query_heads=4
base_num_kv_heads=4 head_dim=12 base_mlp_dim=48 base_num_decoder_layers=3 first_num_dense_layers=3
vocab_size=112 kv_lora_rank=16 qk_nope_head_dim=8 qk_rope_head_dim=4 v_head_dim=8
normalization_layer_epsilon=1.e-6 logits_via_embedding=false rope_type=yarn rope_interleave=true
rope_truncate=true rope_attention_scaling=false rope_max_timescale=10000 rope_factor=40
beta_fast=32 beta_slow=1 original_max_position_embeddings=16""".split()
CASES = {
    "dense_mla": "q_lora_rank=0 max_position_embeddings=640 mscale=0.707 init_weights_seed=5".split(),
    "dense_mla_low_rank": "q_lora_rank=12 max_position_embeddings=32 original_max_position_embeddings=32 init_weights_seed=13".split(),
    "dense_mla_unscanned": "q_lora_rank=12 max_position_embeddings=640 scan_layers=false init_weights_seed=7".split(),
}
BATCH = ["inputs", "inputs_position", "inputs_segmentation", "targets", "targets_position", "targets_segmentation"]
STEPS = 5


def configure(keys):
    from maxtext.configs import pyconfig
    import maxtext
    base = os.path.join(os.path.dirname(maxtext.__file__), "configs", "base.yml")
    extra = ["run_name=golden", "base_output_directory=out", "enable_checkpointing=false",
             "enable_tensorboard=false", "enable_goodput_recording=false", "skip_jax_distributed_system=true",
             "hardware=cpu", "tokenizer_path=unused"]
    return pyconfig.initialize(["golden", base] + keys + extra)


def flat(state):
    """Path -> array, of the parameters of an nnx state."""
    out = {}
    for path, variable in nnx.to_flat_state(state):
        value = variable.get_value() if hasattr(variable, "get_value") else variable.value
        out["/".join(str(p) for p in path)] = np.asarray(value)
    return out


def add_noise(model, seed):
    """Norm scales begin as ones, which would hide mistakes."""
    state = nnx.state(model, nnx.Param)
    generator = np.random.default_rng(seed)
    for path, variable in nnx.to_flat_state(state):
        value = np.asarray(variable.get_value())
        if np.all(value == value.flat[0]):
            variable.set_value(jnp.asarray(value + generator.normal(0, 0.1, value.shape).astype(np.float32)))
    nnx.update(model, state)


def put(file, root, arrays):
    for path, value in arrays.items():
        file[f"{root}/{path}"] = value


def make(name, own, source, folder):
    from maxtext.trainers.pre_train import train
    from maxtext.utils import sharding, train_utils
    names = {k.split("=")[0] for k in own}
    keys = [k for k in COMMON if k.split("=")[0] not in names] + own
    config = configure(keys)
    (_, _, shardings, _, mesh, schedule, _, _, _, _, state) = train_utils.setup_train_loop(config, None)
    add_noise(state.model, config.init_weights_seed)
    batches = {k: np.asarray(source["train/batches"][k]) for k in BATCH}
    first = {k: jnp.asarray(batches[k][0]) for k in BATCH}
    with h5py.File(f"{folder}/{name}.h5", "w") as file, mesh, partitioning.axis_rules(config.logical_axis_rules):
        file.attrs["name"] = name
        file.attrs["model_name"] = "default"
        file.attrs["decoder_block"] = "deepseek"
        file.attrs["config_cli"] = " ".join(keys)
        file.attrs["config"] = "\n".join(k.replace("=", ": ", 1) for k in keys) + "\n"
        file.attrs["seed"] = config.init_weights_seed
        file.attrs["versions"] = json.dumps({"maxtext": "0.2.5", "jax": jax.__version__, "jaxlib": jaxlib.__version__,
                                             "flax": flax.__version__, "optax": optax.__version__})
        put(file, "linen/params/params", flat(nnx.state(state.model, nnx.Param)))
        put(file, "batch", {k: np.asarray(v) for k, v in first.items()})
        put(file, "train/batches", batches)
        logits = state.model(decoder_input_tokens=first["inputs"], decoder_positions=first["inputs_position"],
                             decoder_segment_ids=first["inputs_segmentation"], enable_dropout=False)
        file["logits"] = np.asarray(logits[0] if isinstance(logits, tuple) else logits, np.float32)
        grad = nnx.value_and_grad(lambda m: train.loss_fn(m, config, dict(first), None, None), argnums=0, has_aux=True)
        (loss, aux), gradients = grad(state.model)
        values = {"loss": loss, "xent_sum": aux["xent_sum"], "z_loss": aux["z_loss"],
                  "total_weights": aux["total_weights"]}
        put(file, "loss", {k: np.asarray(v) for k, v in values.items()})
        put(file, "grads/params/params", flat(nnx.state(gradients, nnx.Param)))
        graph, pure = nnx.split(state)
        params_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
        step_fn, _ = train_utils.jit_train_and_eval_step(config, graph, mesh, pure, shardings, train.train_step,
                                                         train.eval_step, None, params_shardings)
        metrics = {}
        for step in range(STEPS):
            batch = {k: jnp.asarray(batches[k][step]) for k in BATCH}
            pure, told = step_fn(pure, batch)
            for key, value in told["scalar"].items():
                if key.startswith("learning/"):
                    metrics.setdefault(key[len("learning/"):], []).append(float(value))
        print(name, metrics)
        put(file, "train/metrics", {k: np.asarray(v, np.float32) for k, v in metrics.items()})
        file["train/learning_rate"] = np.asarray([float(schedule(s)) for s in range(STEPS)], np.float32)
        final = nnx.merge(graph, pure)
        put(file, "train/final/params/params", flat(nnx.state(final.model, nnx.Param)))


def main():
    folder = sys.argv[1]
    with h5py.File(sys.argv[2]) as source:
        for name in sys.argv[3:] or CASES:
            make(name, CASES[name], source, folder)


main()

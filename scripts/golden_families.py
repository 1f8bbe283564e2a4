"""golden_families.py — golden files of tiny models of decoder families, made by MaxText:

    PYTHONPATH=MAXTEXT/src python golden_families.py FOLDER llama2.h5 [NAME..]

in an environment with MaxText's libraries and a folder with MaxText's base.yml and, for tokenizers, a link to our tests; MAXTEXT is a
checkout of e591f30c. Batches are those of llama2.h5, modulo
the vocabulary; layout and meaning are those of the other files.

Parameters are MaxText's own initialisation, leaves that begin as a constant with noise of 0.1; tables of tokens' experts, which
begin as zeros, get distinct ones at random. Leaves of a model that are not parameters lie below nnx_aux/model, where MaxText's
checkpoints have them. Logits and loss are those of the model and loss_fn, the trajectory that of its jitted train_step."""
import json
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

from maxtext.common.goodput import create_goodput_recorder
from maxtext.configs import pyconfig
from maxtext.layers import engram, mhc, moe
from maxtext.models import deepseek
from maxtext.trainers.pre_train import train
from maxtext.utils import sharding, train_utils

COMMON = """dataset_type=synthetic attention=dot_product dtype=float32 weight_dtype=float32
matmul_precision=highest enable_dropout=false remat_policy=none per_device_batch_size=3
max_target_length=24 steps=5 learning_rate_schedule_steps=8 warmup_steps_fraction=0.25
learning_rate=0.003 learning_rate_final_fraction=0.1 gradient_clipping_threshold=0.5 opt_type=adamw
adam_b1=0.9 adam_b2=0.95 adam_eps=1.e-8 adam_weight_decay=0.1 mlp_activations=['silu','linear']
base_emb_dim=8 base_num_query_heads=2 base_num_kv_heads=1 head_dim=4 base_mlp_dim=12 vocab_size=32
normalization_layer_epsilon=1.e-6 logits_via_embedding=false""".split()
EXPERTS = "num_experts=4 num_experts_per_tok=2 megablox=false sparse_matmul=true load_balance_loss_weight=0.01"
GEMMA4 = """decoder_block=gemma4 mlp_activations=['gelu','linear'] sliding_window_size=6 use_post_attn_norm=true
use_post_ffw_norm=true global_head_dim=8 local_rope_max_timescale=10000 global_rope_max_timescale=1000000
rope_max_timescale=1000000 global_rope_proportion=0.5 local_rope_proportion=1.0"""
DELTA = """inhomogeneous_layer_cycle_interval=4 base_num_decoder_layers=4 gdn_conv_kernel_dim=4 gdn_key_head_dim=4
gdn_value_head_dim=4 gdn_num_key_heads=1 gdn_num_value_heads=2 gdn_chunk_size=8 partial_rotary_factor=0.5"""
LATENT = """decoder_block=deepseek attention_type=mla base_num_kv_heads=2 q_lora_rank=6 kv_lora_rank=6 qk_nope_head_dim=4
qk_rope_head_dim=4 v_head_dim=4 rope_type=yarn rope_interleave=true rope_truncate=true rope_attention_scaling=false
rope_max_timescale=10000 rope_factor=40 beta_fast=32 beta_slow=1 original_max_position_embeddings=16
max_position_embeddings=640 mscale=1.0 base_num_decoder_layers=2"""
INDEXER = f"{LATENT} use_indexer=true indexer_n_heads=2 indexer_head_dim=6 indexer_topk=5"
STREAMS = f"{LATENT} use_indexer=false engram_layers=[] routed_score_func=sigmoid routed_bias=false mhc_expansion_rate=3"
RECALL = STREAMS.replace("engram_layers=[] ", "").replace("base_num_decoder_layers=2", "").replace("mhc_expansion_rate=3", "mhc_expansion_rate=2") + """
sinkhorn_iterations=3 engram_num_heads=2 engram_head_dim=4 hf_access_token=unused
tokenizer_type=huggingface tokenizer_path=tests/golden/hf/tokenizers/qwen vocab_size=96"""
COMPRESSED = f"""decoder_block=deepseek4 attention_type=compressed {EXPERTS} base_num_query_heads=4 base_num_kv_heads=1
head_dim=8 qk_rope_head_dim=4 q_lora_rank=6 o_groups=2 o_lora_rank=6 sliding_window_size=6 indexer_n_heads=2
indexer_head_dim=4 base_mlp_dim=8 base_moe_mlp_dim=8 shared_experts=1 routed_score_func=sqrtsoftplus
routed_scaling_factor=1.5 norm_topk_prob=true rope_type=default rope_max_timescale=10000
compressed_rope_max_timescale=160000 max_position_embeddings=4096 mhc_expansion_rate=2 sinkhorn_iterations=5"""
# A name that MaxText asks for beside the keys, or "default"; the keys.
CASES = {
    "gemma4": ("gemma4-31b", f"{GEMMA4} base_num_decoder_layers=7 base_num_kv_heads=2 global_num_kv_heads=1 "
               "share_kv_projections=true v_norm_with_scale=false vocab_size=64 remat_policy=full init_weights_seed=21"),
    "gemma4_experts": ("gemma4-26b", f"{GEMMA4} {EXPERTS} base_num_decoder_layers=6 base_moe_mlp_dim=4 shared_experts=1 "
                       "norm_topk_prob=true global_num_kv_heads=2 share_kv_projections=false v_norm_with_scale=true "
                       "init_weights_seed=22"),
    "qwen3_5": ("default", f"decoder_block=qwen3_5 {DELTA} {EXPERTS} shared_experts=1 base_mlp_dim=8 base_moe_mlp_dim=8 "
                "norm_topk_prob=true init_weights_seed=23"),
    "qwen3_custom_moe": ("default", f"decoder_block=qwen3_custom_moe {EXPERTS} base_num_decoder_layers=2 base_mlp_dim=8 "
                         "base_moe_mlp_dim=8 attention_output_dim=6 moe_expert_input_dim=6 use_qk_norm=true "
                         "norm_topk_prob=true init_weights_seed=24"),
    "envy": ("default", f"decoder_block=envy {EXPERTS} base_num_decoder_layers=4 base_moe_mlp_dim=8 use_qk_norm=true "
             "use_post_ffw_norm=true interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=2 "
             "init_weights_seed=25"),
    "simple": ("default", "decoder_block=simple base_num_decoder_layers=3 vocab_size=64 remat_policy=full init_weights_seed=26"),
    "simple_mlp": ("default", "decoder_block=simple_mlp base_num_decoder_layers=3 scan_layers=false init_weights_seed=27"),
    "default": ("default", "decoder_block=default base_num_decoder_layers=3 base_num_query_heads=4 base_num_kv_heads=2 remat_policy=full init_weights_seed=40"),
    "gemma4_small": ("gemma4-e2b", GEMMA4.replace("decoder_block=gemma4", "decoder_block=gemma4_small") +
                     " base_num_decoder_layers=10 num_kv_shared_layers=5 use_double_wide_mlp=true scan_layers=false "
                     "hidden_size_per_layer_input=4 vocab_size_per_layer_input=32 v_norm_with_scale=false "
                     "init_weights_seed=28"),
    "deepseek32": ("deepseek3.2-671b", f"{INDEXER} {EXPERTS} first_num_dense_layers=1 base_moe_mlp_dim=4 shared_experts=1 "
                   "routed_score_func=sigmoid routed_scaling_factor=2.5 routed_bias=false indexer_sparse_training=true "
                   "indexer_loss_scaling_factor=0.5 init_weights_seed=29"),
    "deepseek32_warmup": ("deepseek3.2-671b", f"{INDEXER} first_num_dense_layers=2 num_experts=1 num_experts_per_tok=1 "
                          "shared_experts=0 routed_score_func=sigmoid routed_bias=false indexer_mask_exact_topk=false "
                          "indexer_loss_scaling_factor=2.0 init_weights_seed=30"),
    "deepseek_streams": ("deepseek-custom", f"{STREAMS} {EXPERTS} first_num_dense_layers=1 base_moe_mlp_dim=4 "
                         "shared_experts=1 routed_scaling_factor=2.5 sinkhorn_iterations=5 init_weights_seed=31"),
    "deepseek_streams_lite": ("deepseek-custom", f"{STREAMS} first_num_dense_layers=2 num_experts=1 num_experts_per_tok=1 "
                              "shared_experts=0 enable_mhc_lite=true init_weights_seed=32"),
    "deepseek_engram": ("deepseek-custom", f"{RECALL} {EXPERTS} base_num_decoder_layers=6 first_num_dense_layers=2 base_moe_mlp_dim=4 "
                        "shared_experts=1 routed_scaling_factor=2.5 engram_layers=[1,4] engram_max_ngram_size=3 "
                        "engram_vocab_bases=[11,16] engram_kernel_size=3 engram_seed=7 init_weights_seed=33"),
    "deepseek_engram_dense": ("deepseek-custom", f"{RECALL} base_num_decoder_layers=3 first_num_dense_layers=3 num_experts=1 num_experts_per_tok=1 shared_experts=0 "
                              "engram_layers=[2,0] engram_max_ngram_size=2 engram_vocab_bases=[29] engram_kernel_size=4 "
                              "init_weights_seed=34"),
    "deepseek4": ("deepseek4-tiny", f"{COMPRESSED} scan_layers=false base_num_decoder_layers=5 first_num_hash_layers=2 "
                  "compress_ratios=[0,4,8,4,8] indexer_topk=2 routed_bias=true routed_bias_update_rate=0.001 "
                  "mlp_activations_limit=0.5 init_weights_seed=35"),
    "deepseek4_scanned": ("deepseek4-tiny", f"{COMPRESSED} base_num_decoder_layers=7 first_num_hash_layers=3 "
                          "compress_ratios=[0,0,4,128,4,128,4] indexer_topk=512 routed_bias=false "
                          "routed_bias_update_rate=0.0 mlp_activations_limit=0 enable_mhc_lite=true init_weights_seed=36"),
    "activations": ("default", "decoder_block=llama2 base_num_decoder_layers=2 mlp_activations=['tanh','elu','softplus'] "
                    "use_untrainable_positional_embedding=true init_weights_seed=37"),
    "norms_without_scale": ("default", "decoder_block=qwen3 base_num_decoder_layers=2 mlp_activations=['selu','swish'] "
                            "use_qk_norm=true qk_norm_with_scale=false init_weights_seed=38"),
    "moba": ("default", "decoder_block=llama2 base_num_decoder_layers=2 base_num_query_heads=4 base_num_kv_heads=2 moba=true "
             "moba_chunk_size=4 moba_topk=3 init_weights_seed=39"),
    "moba_windows": ("gemma3-4b", "decoder_block=gemma3 base_num_decoder_layers=1 scan_layers=false sliding_window_size=6 "
                     "base_num_query_heads=4 base_num_kv_heads=2 use_post_attn_norm=true use_post_ffw_norm=true "
                     "moba=true moba_chunk_size=4 moba_topk=3 init_weights_seed=40"),
}
# What ours says beside MaxText's keys, where that follows the model's name.
OURS = {"gemma4_small": " inhomogeneous_layer_cycle_interval=5"}
BATCH = ["inputs", "inputs_position", "inputs_segmentation", "targets", "targets_position", "targets_segmentation"]
STEPS = 5
# What a checkpoint keeps of a model beside parameters, but for states of random numbers.
AUX = nnx.Not(nnx.Any(nnx.Param, nnx.RngState, nnx.Cache, nnx.Intermediate))


class Constant:
    """MaxText keeps permutations of streams as an array that its module makes while JAX traces; later traces cannot use that."""

    def __init__(self, k, make=mhc.get_permutation_matrices):
        with jax.ensure_compile_time_eval():
            self.value = np.asarray(make(k))

    def astype(self, dtype):
        return jnp.asarray(self.value, dtype)


mhc.get_permutation_matrices = Constant


class ConstantHash(engram.NgramHashMapping):
    """The same of the arrays by which n-grams are hashed."""

    def __init__(self, *args, **kwargs):
        with jax.ensure_compile_time_eval():
            super().__init__(*args, **kwargs)


deepseek.NgramHashMapping = ConstantHash


def configure(name, keys):
    extra = ["run_name=golden", "base_output_directory=out", "enable_checkpointing=false", "override_model_config=true",
             "enable_tensorboard=false", "enable_goodput_recording=false", "skip_jax_distributed_system=true",
             "hardware=cpu", f"model_name={name}"]
    if not any(k.startswith("tokenizer_path=") for k in keys):
        extra.append("tokenizer_path=unused")
    return pyconfig.initialize(["golden", "base.yml"] + keys + extra)


def flat(state):
    """Path -> array, of the parameters of an nnx state."""
    out = {}
    for path, variable in nnx.to_flat_state(state):
        out["/".join(str(p) for p in path)] = np.asarray(variable.get_value())
    return out


def random_table(generator, shape, experts):
    """Distinct experts for each token."""
    return np.argsort(generator.random((shape[0], experts)), axis=1)[:, :shape[1]].astype(np.float32)


def add_noise(model, seed, experts):
    """What begins as a constant would hide mistakes; little of it would, of how streams are mixed."""
    state = nnx.state(model, nnx.Any(nnx.Param, AUX))
    generator = np.random.default_rng(seed)
    for path, variable in nnx.to_flat_state(state):
        value = np.asarray(variable.get_value())
        size = 1 if any("mhc" in str(p) for p in path) else 0.1
        if isinstance(variable, moe.Tid2EidVar):
            variable.set_value(jnp.asarray(random_table(generator, value.shape, experts)))
        elif value.size and np.all(value == value.flat[0]):
            variable.set_value(jnp.asarray(value + generator.normal(0, size, value.shape).astype(np.float32)))
    nnx.update(model, state)


def put(file, root, arrays):
    for path, value in arrays.items():
        file[f"{root}/{path}"] = value


def put_model(file, root, model):
    put(file, f"{root}/params/params", flat(nnx.state(model, nnx.Param)))
    put(file, f"{root}/nnx_aux/model", flat(nnx.state(model, AUX)))


def fill(batches, vocab):
    """Padding becomes one more document of each row: in compressed attention MaxText's padding sees later padding."""
    generator = np.random.default_rng(0)
    pads = batches["inputs_segmentation"] == 0
    last = batches["inputs_segmentation"].max(axis=-1, keepdims=True)
    position = np.cumsum(pads, axis=-1) - 1
    for side in ("inputs", "targets"):
        new = {side: generator.integers(1, vocab, pads.shape), f"{side}_position": position,
               f"{side}_segmentation": np.broadcast_to(last + 1, pads.shape)}
        for key, values in new.items():
            batches[key] = np.where(pads, values, batches[key]).astype(batches[key].dtype)


def batches_of(source, vocab, is_full):
    batches = {k: np.asarray(source["train/batches"][k]) for k in BATCH}
    if is_full:
        fill(batches, vocab)
    for k in ("inputs", "targets"):
        batches[k] = batches[k] % vocab
    return batches


def measure(state, config, mesh, batches, file):
    """Logits, loss and gradients of the first batch."""
    b = {k: jnp.asarray(batches[k][0]) for k in BATCH}
    graph, param, rest = nnx.split(state.model, nnx.Param, ...)

    # Copies, as in train_step: layers that lie apart write to their counts of random numbers.
    def loss_of(param, rest, batch):
        return train.loss_fn(nnx.merge(graph, param, rest, copy=True), config, dict(batch), None, None)

    (loss, aux), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(param, rest, b)
    logits = jax.jit(lambda p, r: nnx.merge(graph, p, r, copy=True)(
        decoder_input_tokens=b["inputs"], decoder_positions=b["inputs_position"],
        decoder_segment_ids=b["inputs_segmentation"], enable_dropout=False))(param, rest)
    if logits is not None:  # it makes none where indexers alone are trained
        file["logits"] = np.asarray(logits, np.float32)
    file["loss/loss"] = np.asarray(loss, np.float32)
    for key in ("xent_sum", "total_weights", "z_loss", "moe_lb_loss", "indexer_loss"):
        file["loss/" + key] = np.asarray(aux[key], np.float32)
    put(file, "grads/params/params", flat(grads))


def follow(state, config, mesh, shardings, batches, file):
    """Five steps; how MaxText leaves the parameters."""
    graph, pure = nnx.split(state)
    param_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    step_fn, _ = train_utils.jit_train_and_eval_step(config, graph, mesh, pure, shardings, train.train_step, None, None,
                                                     param_shardings)
    metrics = {}
    for step in range(STEPS):
        pure, told = step_fn(pure, {k: jnp.asarray(batches[k][step]) for k in BATCH})
        for key, value in told["scalar"].items():
            metrics.setdefault(key.split("/")[-1], []).append(float(value))
    put(file, "train/metrics", {k: np.asarray(v, np.float32) for k, v in metrics.items()})
    put_model(file, "train/final", nnx.merge(graph, pure).model)
    return metrics


def with_common(words):
    """A case's keys, and the common ones that it does not say."""
    own = words.split()
    names = {k.split("=")[0] for k in own}
    return [k for k in COMMON if k.split("=")[0] not in names] + own


def write(path, name, model_name, keys, ours, batches, whole=None):
    """One golden. Of a config that accumulates gradients, the same without is `whole`: logits and loss are of all rows."""
    config = configure(model_name, keys)
    recorder = create_goodput_recorder(config)
    (_, _, shardings, _, mesh, schedule, _, _, _, _, state) = train_utils.setup_train_loop(config, recorder)
    add_noise(state.model, config.init_weights_seed, config.num_experts)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs["name"] = name
        file.attrs["model_name"] = model_name
        file.attrs["decoder_block"] = str(config.decoder_block.value)
        file.attrs["config_cli"] = " ".join(keys) + ours
        file.attrs["seed"] = config.init_weights_seed
        file.attrs["maxtext_commit"] = "e591f30c"
        file.attrs["versions"] = json.dumps({"jax": jax.__version__, "jaxlib": jaxlib.__version__,
                                             "flax": flax.__version__, "optax": optax.__version__})
        put_model(file, "linen", state.model)
        put(file, "batch", {k: v[0] for k, v in batches.items()})
        put(file, "train/batches", batches)
        with jax.set_mesh(mesh), mesh, partitioning.axis_rules(config.logical_axis_rules):
            measure(state, whole or config, mesh, batches, file)
            metrics = follow(state, config, mesh, shardings, batches, file)
        file["train/learning_rate"] = np.asarray([float(schedule(s)) for s in range(STEPS)], np.float32)
    return metrics


def make(name, source, folder):
    model_name, words = CASES[name]
    keys = with_common(words)
    config = configure(model_name, keys)
    batches = batches_of(source, config.vocab_size, config.attention_type == "compressed")
    print(name, write(f"{folder}/{name}.h5", name, model_name, keys, OURS.get(name, ""), batches))


def main():
    with h5py.File(sys.argv[2]) as source:
        for name in sys.argv[3:] or CASES:
            make(name, source, sys.argv[1])


if __name__ == "__main__":
    main()

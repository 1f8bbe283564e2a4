#!/usr/bin/env python3
"""Random tiny models: MaxText makes them as it makes golden files, our tests compare.

    cd FOLDER-WITH-BASE.YML                                    # of MaxText, see golden_families.py
    PYTHONPATH=MAXTEXT/src random_models.py FOLDER llama2.h5 BUILD [CASES] [SEED] [FAMILY..]
    PYTHONPATH=MAXTEXT/src random_models.py FOLDER llama2.h5 BUILD --compare    # again, what is there
    PYTHONPATH=MAXTEXT/src random_models.py FOLDER llama2.h5 BUILD --words FAMILY 'KEY=VALUE ..'

Draws CASES combinations of keys, of all families or of those that are named, and writes FOLDER/models/variants/<case>.h5, laid out as
tests/golden/models; then runs the golden suite of BUILD/test_train on them. Prints each case with its keys, those that MaxText refuses, those that
BUILD/mxtrain refuses with its message, and those that disagree, with the first figure that does. With --words a family's case
has these keys and no drawn ones: what a disagreement is reduced to.

Case i of a seed is always the same. What docs/DIFFERENCES.md says is not drawn, or both sides are asked for the same:
tied output tables are not rounded to bfloat16 (`whole_table`), ours is told to do as MaxText (`OURS`)."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # models are small, programs are not

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import yaml

import golden_families as golden

from maxtext.configs import types
from maxtext.layers import embeddings, nnx_decoders

YARN = """rope_type=yarn rope_max_timescale=10000 max_position_embeddings=64 original_max_position_embeddings=16 rope_factor=4
beta_fast=4 beta_slow=1"""
# How often of all draws; the name that MaxText asks for; what every case of the family has.
FAMILIES = {
    "llama2": (5, "default", "decoder_block=llama2"),
    "mistral": (2, "default", "decoder_block=mistral"),
    "qwen2": (2, "default", "decoder_block=qwen2"),
    "qwen3": (3, "default", "decoder_block=qwen3 use_qk_norm=true"),
    "gemma": (2, "default", "decoder_block=gemma mlp_activations=['gelu','linear']"),
    "gemma2": (2, "default", "decoder_block=gemma2 sliding_window_size=6 use_post_attn_norm=true use_post_ffw_norm=true"),
    "gemma3": (3, "gemma3-4b", "decoder_block=gemma3 sliding_window_size=6 use_post_attn_norm=true use_post_ffw_norm=true "
               "local_rope_max_timescale=10000 rope_max_timescale=1000000 base_num_decoder_layers=7"),
    "gemma4": (3, "gemma4-31b", golden.GEMMA4 + " global_num_kv_heads=1 share_kv_projections=true v_norm_with_scale=false "
               "base_num_decoder_layers=7"),
    "gemma4_experts": (1, "gemma4-26b", f"{golden.GEMMA4} {golden.EXPERTS} base_num_decoder_layers=6 base_moe_mlp_dim=4 "
                       "shared_experts=1 norm_topk_prob=true global_num_kv_heads=1"),
    "gemma4_small": (2, "gemma4-e2b", golden.GEMMA4.replace("=gemma4", "=gemma4_small") + " base_num_decoder_layers=10 "
                     "num_kv_shared_layers=5 scan_layers=false hidden_size_per_layer_input=4 vocab_size_per_layer_input=32 "
                     "v_norm_with_scale=false"),
    "gpt3": (2, "default", "decoder_block=gpt3 mlp_activations=['gelu'] trainable_position_size=32 base_num_kv_heads=2"),
    "gpt_oss": (3, "default", f"decoder_block=gpt_oss {golden.EXPERTS} {YARN} attention_bias=true attention_sink=true "
                "mlp_activations=['sigmoid','linear'] mlp_activations_limit=7.0 routed_bias=true mlp_bias=true "
                "sliding_window_size=6 inhomogeneous_layer_cycle_interval=2 base_num_decoder_layers=4 base_moe_mlp_dim=12"),
    "mixtral": (4, "default", f"decoder_block=mixtral {golden.EXPERTS} base_moe_mlp_dim=12"),
    "qwen3_moe": (3, "default", f"decoder_block=qwen3_moe {golden.EXPERTS} base_moe_mlp_dim=12 use_qk_norm=true"),
    "qwen3_custom_moe": (1, "default", f"decoder_block=qwen3_custom_moe {golden.EXPERTS} base_moe_mlp_dim=12 "
                         "attention_output_dim=6 moe_expert_input_dim=6 use_qk_norm=true"),
    "qwen3_next": (3, "default", f"decoder_block=qwen3_next {golden.DELTA} {golden.EXPERTS} shared_experts=1 base_mlp_dim=8 "
                   "base_moe_mlp_dim=8"),
    "qwen3_5": (1, "default", f"decoder_block=qwen3_5 {golden.DELTA} {golden.EXPERTS} shared_experts=1 base_mlp_dim=8 "
                "base_moe_mlp_dim=8"),
    "deepseek": (6, "deepseek3-671b", f"{golden.LATENT} {golden.EXPERTS} first_num_dense_layers=1 base_moe_mlp_dim=4 "
                 "shared_experts=1 routed_score_func=sigmoid routed_scaling_factor=2.5 routed_bias=true use_indexer=false"),
    "deepseek2": (2, "deepseek2-16b", f"{golden.LATENT} {golden.EXPERTS} first_num_dense_layers=1 base_moe_mlp_dim=4 "
                  "shared_experts=2 q_lora_rank=0"),
    "deepseek4": (2, "deepseek4-tiny", f"{golden.COMPRESSED} scan_layers=false base_num_decoder_layers=5 "
                  "first_num_hash_layers=2 compress_ratios=[0,4,8,4,8] indexer_topk=2 routed_bias=true "
                  "routed_bias_update_rate=0.001 mlp_activations_limit=0.5"),
    "llama4": (3, "llama4-17b-16e", f"decoder_block=llama4 {golden.EXPERTS} num_experts_per_tok=1 base_moe_mlp_dim=10 "
               "shared_experts=1 chunk_attn_window_size=8 nope_layer_interval=4 interleave_moe_layer_step=1 "
               "inhomogeneous_layer_cycle_interval=4 base_num_decoder_layers=4 rope_type=llama3.1 use_qk_norm=true "
               "temperature_tuning=true"),
    "olmo3": (3, "olmo3-7b", f"decoder_block=olmo3 {YARN} sliding_window_size=6 inhomogeneous_layer_cycle_interval=4 "
              "base_num_decoder_layers=4 use_qk_norm=true"),
    "envy": (2, "default", f"decoder_block=envy {golden.EXPERTS} base_num_decoder_layers=4 base_moe_mlp_dim=8 "
             "interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=2"),
    "simple": (1, "default", "decoder_block=simple"),
    "simple_mlp": (1, "default", "decoder_block=simple_mlp"),
    "default": (1, "default", "decoder_block=default"),
}
# What ours is asked for, to do as MaxText does where docs/DIFFERENCES.md says that they differ.
OURS = {
    "gemma4_small": " inhomogeneous_layer_cycle_interval=5",
    "qwen3_next": " gdn_reset_at_documents=false",
    "qwen3_5": " gdn_reset_at_documents=false",
    "llama4": " rope_stretch_factor=8 rope_stretch_high=4",
}
PLAIN = "llama2|mistral|qwen2|qwen3|gemma|mixtral|qwen3_moe"  # any number of layers
SPARSE = "mixtral|qwen3_moe|qwen3_custom_moe|qwen3_next|qwen3_5|deepseek|deepseek2|deepseek4|gpt_oss|llama4|envy|gemma4_experts"
ONE_PLACE = "(?!deepseek|gemma).*"  # families whose norms read normalization_layer_epsilon everywhere
# Of which families, how often, and one of what. What comes later overrides.
CHOICES = [
    (f"{PLAIN}|gpt3|default|simple|simple_mlp|deepseek2?|qwen3_custom_moe|gemma2", 1, "base_num_decoder_layers=1 | base_num_decoder_layers=2 | base_num_decoder_layers=3"),
    ("gemma3|gemma4|gemma4_experts", 1, "base_num_decoder_layers=2 | base_num_decoder_layers=3 | base_num_decoder_layers=6 | base_num_decoder_layers=7"),
    ("gpt_oss", 0.5, "base_num_decoder_layers=2"),
    ("olmo3|qwen3_next|qwen3_5|llama4", 0.1, "base_num_decoder_layers=8"),
    ("(?!deepseek4|gemma4_small).*", 0.4, "scan_layers=false"),
    (".*", 0.25, "param_scan_axis=0"),
    ("(?!deepseek|gpt3|gemma4|gpt_oss).*", 0.7,
     "base_num_query_heads=1 | base_num_query_heads=4 base_num_kv_heads=2 | base_num_query_heads=4 base_num_kv_heads=4 | "
     "base_num_query_heads=6 base_num_kv_heads=3 | base_num_query_heads=3 base_num_kv_heads=1"),
    ("gpt_oss|gemma4.*", 0.5, "base_num_query_heads=4 base_num_kv_heads=2 | base_num_query_heads=4"),
    ("(?!deepseek|qwen3_next|qwen3_5|gemma4).*", 0.5, "head_dim=2 | head_dim=6 | head_dim=8 | head_dim=10"),
    (".*", 0.4, "base_emb_dim=6 | base_emb_dim=10 | base_emb_dim=16"),
    ("(?!deepseek4).*", 0.3, "vocab_size=20 | vocab_size=31 | vocab_size=64"),
    ("(?!qwen3_next|qwen3_5|simple|gemma4).*", 0.2, "fused_qkv=true"),
    ("(?!qwen3_next|qwen3_5|simple).*", 0.2, "fused_mlp=true"),
    ("(?!simple).*", 0.2, "mlp_bias=true"),
    ("(?!gpt_oss|simple|gpt3|deepseek4).*", 0.4,
     "mlp_activations=['gelu','linear'] | mlp_activations=['silu','linear'] | mlp_activations=['relu','linear'] | "
     "mlp_activations=['gelu'] | mlp_activations=['relu','silu','linear'] | mlp_activations=['tanh','linear']"),
    ("(?!gpt_oss|deepseek4|simple).*", 0.1, "mlp_activations_limit=0.3"),
    (".*", 0.35,
     "logits_via_embedding=true normalize_embedding_logits=false | logits_via_embedding=true normalize_embedding_logits=true | "
     "logits_via_embedding=true normalize_embedding_logits=false final_logits_soft_cap=5"),
    (f"{ONE_PLACE}", 0.4, "normalization_layer_epsilon=1.e-5 | normalization_layer_epsilon=1.e-2"),
    ("llama2|gemma2|gemma3|gemma4|gemma4_small|gemma4_experts|deepseek2?", 0.3, "attn_logits_soft_cap=2 | attn_logits_soft_cap=20"),
    ("qwen2|qwen3_moe|qwen3|envy", 0.5, "use_qk_norm=true | use_qk_norm=false"),
    ("qwen2|olmo3|gpt_oss", 0.5, "attention_bias=true | attention_bias=false"),
    ("(?!deepseek|simple).*", 0.1, "attention_sink=true"),
    ("(?!deepseek|simple|qwen3_next|qwen3_5|llama4|gemma4).*", 0.15, "qk_norm_with_scale=false"),
    (f"{PLAIN}|gpt_oss|envy|qwen3_custom_moe", 0.5,
     f"rope_max_timescale=500 | rope_min_timescale=2 rope_max_timescale=1000 | rope_linear_scaling_factor=4.0 | rope_type=llama3.1 "
     f"rope_max_timescale=500000 | rope_type=llama3.1 rope_use_scale=false | {YARN} | {YARN} rope_interleave=true "
     f"rope_truncate=false | {YARN} rope_attention_scaling=true rope_interleave=false"),
    ("olmo3", 0.4, "rope_type=default | rope_type=llama3.1 | rope_attention_scaling=true rope_truncate=false"),
    ("llama4", 0.4, "rope_type=default | rope_use_scale=false"),
    ("gemma3|gemma2", 0.4, "rope_linear_scaling_factor=8.0 | rope_max_timescale=5000"),
    ("gemma2|gemma3|gemma4.*|gpt_oss|olmo3", 0.4, "sliding_window_size=2 | sliding_window_size=3 | sliding_window_size=100"),
    ("llama4", 0.5, "chunk_attn_window_size=3 | chunk_attn_window_size=24 | chunk_attn_window_size=5"),
    ("llama4", 0.4, "use_qk_norm=false | temperature_tuning=false | nope_layer_interval=2 | interleave_moe_layer_step=2 | "
     "interleave_moe_layer_step=2 nope_layer_interval=2 inhomogeneous_layer_cycle_interval=2"),
    ("gemma2|gemma3", 0.3, "use_post_attn_norm=false | use_post_ffw_norm=false"),
    ("gemma4|gemma4_experts", 0.5, "share_kv_projections=false v_norm_with_scale=true | share_kv_projections=true "
     "v_norm_with_scale=true | share_kv_projections=false global_num_kv_heads=2 | global_rope_proportion=1.0 | "
     "local_rope_proportion=0.5 global_head_dim=4"),
    ("gemma4_small", 0.5, "num_kv_shared_layers=0 | use_double_wide_mlp=true | num_kv_shared_layers=4 v_norm_with_scale=true | "
     "hidden_size_per_layer_input=0 vocab_size_per_layer_input=0"),
    ("llama2|qwen3|mistral|mixtral|qwen3_moe|gemma|olmo3", 0.1, "moba=true moba_chunk_size=4 moba_topk=2 | moba=true moba_chunk_size=5 moba_topk=3"),
    ("(?!llama4)(%s)" % SPARSE, 0.4, "num_experts=2 num_experts_per_tok=1 | num_experts=6 num_experts_per_tok=3 | num_experts=3 | num_experts=4 num_experts_per_tok=4"),
    (SPARSE, 0.5, "sparse_matmul=false capacity_factor=-1.0 | sparse_matmul=false capacity_factor=1.0 | sparse_matmul=false capacity_factor=2.0 | "
     "capacity_factor=1.0"),
    (SPARSE, 0.4, "load_balance_loss_weight=0.0 | load_balance_loss_weight=1.0"),
    ("mixtral|qwen3_moe|qwen3_custom_moe|qwen3_next|qwen3_5|envy|deepseek2", 0.4, "norm_topk_prob=true | norm_topk_prob=false"),
    ("mixtral|qwen3_moe|qwen3_custom_moe|envy", 0.3, "routed_score_func=sigmoid | routed_score_func=sigmoid routed_scaling_factor=1.5 | "
     "routed_bias=true | routed_score_func=sigmoid routed_bias=true norm_topk_prob=true"),
    ("deepseek", 0.5, "routed_score_func=softmax | norm_topk_prob=true | routed_bias=false | routed_bias_update_rate=0.01 scan_layers=true | "
     "num_experts=4 num_experts_per_tok=2 n_routing_groups=2 topk_routing_group=1"),
    ("deepseek2?", 0.3, "first_num_dense_layers=0 base_mlp_dim=4 | first_num_dense_layers=2 base_num_decoder_layers=4 | shared_experts=0"),
    ("llama4|deepseek|deepseek4|qwen3_next|gemma4_experts", 0.15, "shared_experts=2"),
    ("deepseek2?", 0.4, "q_lora_rank=0 | q_lora_rank=5 | kv_lora_rank=3 | v_head_dim=6 qk_nope_head_dim=2 | qk_rope_head_dim=2 mscale=0.5 | "
     "base_num_query_heads=4 base_num_kv_heads=4"),
    ("deepseek2?", 0.3, "rope_type=default | rope_type=default rope_interleave=false | rope_interleave=false | rope_attention_scaling=true | "
     "rope_factor=1.0 | rope_type=llama3.1"),
    ("deepseek", 0.15, "use_qk_clip=true qk_clip_threshold=0.3 scan_layers=false q_lora_rank=6 attn_logits_soft_cap=0"),
    ("deepseek", 0.2, "use_indexer=true indexer_n_heads=2 indexer_head_dim=6 indexer_topk=5 q_lora_rank=6 indexer_sparse_training=true "
     "indexer_loss_scaling_factor=0.5 use_qk_clip=false attn_logits_soft_cap=0"),
    ("deepseek", 0.1, "mhc_expansion_rate=2 sinkhorn_iterations=3"),
    ("qwen3_next|qwen3_5", 0.5, "gdn_num_key_heads=2 gdn_num_value_heads=2 | gdn_key_head_dim=6 gdn_value_head_dim=2 | gdn_chunk_size=4 | "
     "gdn_conv_kernel_dim=2 | use_qk_norm_in_gdn=false | partial_rotary_factor=1.0"),
    ("envy", 0.5, "use_post_ffw_norm=true | interleave_moe_layer_step=1 inhomogeneous_layer_cycle_interval=1 base_mlp_dim=8 | use_qk_norm=true"),
    ("gpt3", 0.3, "trainable_position_size=24 | mlp_activations=['relu'] | mlp_activations=['gelu','linear']"),
    ("(?!gpt3|simple).*", 0.1, "trainable_position_size=32 | use_untrainable_positional_embedding=true"),
    (".*", 0.1, "use_iota_embed=true"),
    ("(?!deepseek|simple|gemma4|qwen3_next|qwen3_5|gpt3|gpt_oss|llama4|olmo3|envy).*|deepseek", 0.2, "mtp_num_layers=1 | mtp_num_layers=2 mtp_loss_scaling_factor=0.5"),
    (".*", 0.25, "z_loss_multiplier=0.01"),
    (".*", 0.15, "num_vocab_tiling=3"),
    (".*", 0.35, "opt_type=adam_pax | opt_type=sgd learning_rate=0.01 | mu_dtype=bfloat16 | adam_eps_root=1.e-6 | "
     "adamw_mask=['.*norm.*','.*embedding.*'] | trainable_parameters_mask=['.*mlp.*','.*attention.*'] | "
     "skip_step_on_spikes=true skip_step_interval=3 skip_step_scaling_factor=0.5 gradient_clipping_threshold=0 | "
     "opt_type=adam_pax adamw_mask=['.*kernel'] | grad_dtype=float32 adam_weight_decay=0"),
    ("llama2|qwen3|gemma3|deepseek2?", 0.15, "opt_type=muon muon_weight_decay=0.1 param_scan_axis=1 | opt_type=muon muon_consistent_rms=0.2 muon_beta=0.8 "
     "param_scan_axis=1"),
    (".*", 0.4, "lr_schedule_type=wsd wsd_decay_steps_fraction=0.5 | lr_schedule_type=wsd wsd_decay_steps_fraction=0.4 wsd_decay_style=cosine | "
     "warmup_steps_fraction=0 | learning_rate_schedule_steps=3 | learning_rate_schedule_steps=5 learning_rate_final_fraction=0 | warmup_steps_fraction=1.0"),
    (".*", 0.3, "gradient_clipping_threshold=0 | gradient_clipping_threshold=0.01 | gradient_clipping_threshold=100"),
    ("(?!.*(moe|mixtral|next|qwen3_5|deepseek|llama4|gpt_oss|envy|experts)).*", 0.2, "gradient_accumulation_steps=3 per_device_batch_size=1 mtp_num_layers=0"),
    (SPARSE, 0.15, "gradient_accumulation_steps=3 per_device_batch_size=1 load_balance_loss_weight=0.0 mtp_num_layers=0 routed_bias_update_rate=0.0 "
     "indexer_loss_scaling_factor=0.0 indexer_sparse_training=false use_indexer=false use_qk_clip=false"),
    ("llama2|mistral|qwen3|gemma|gpt3|gpt_oss", 0.05, "global_parameter_scale=4"),
    (".*", 0.5, "max_target_length=16 | max_target_length=13 | max_target_length=21"),
]


def whole_table(query, table, dtype, config, out_sharding=None):
    """The output of a tied model by a table that is not rounded to bfloat16."""
    return jnp.dot(query, jnp.asarray(table, dtype).T, preferred_element_type=dtype)


embeddings.attend_on_embedding = nnx_decoders.attend_on_embedding = whole_table


def draw(seed, i, only):
    """A family and its keys, those drawn last as they are."""
    rng = np.random.default_rng([seed, i])
    names = only or list(FAMILIES)
    weights = np.array([FAMILIES[n][0] for n in names], float)
    family = names[rng.choice(len(names), p=weights / weights.sum())]
    drawn = []
    for families, chance, options in CHOICES:
        options = options.split(" | ")
        luck, which = rng.random(), rng.integers(len(options))  # always both: rows that are added change few cases
        if luck < chance and re.fullmatch(families, family):
            drawn.append(options[which])
    return family, " ".join(" ".join(drawn).split()), int(rng.integers(1000))


def merge(*words):
    """Keys of which later ones override."""
    keys = {}
    for word in " ".join(words).split():
        key = word.split("=")[0]
        keys.pop(key, None)
        keys[key] = word
    return " ".join(keys.values())


# Adam takes steps as large for rounding as for gradients, unless these are far above its epsilon.
STEADY = "adam_eps=1.e-3 base_num_decoder_layers=2 base_num_kv_heads=1 final_logits_soft_cap=0"


def preset(name):
    """What MaxText's preset says of decoders: ours does not read it."""
    path = pathlib.Path(types.__file__).parent / f"models/{name}.yml"
    keys = yaml.safe_load(path.read_text()) if path.exists() else {}
    common = {k.split("=")[0] for k in golden.COMMON}
    words = (f"{k}={v if isinstance(v, str) else json.dumps(v, separators=(',', ':'))}" for k, v in keys.items()
             if k not in common and not re.search("_for_vit|^vision|^image|^tokenizer|_rules$|^base_config$|^compress_ratios$", k))
    return " ".join(words)


def keys_of(family, drawn, seed):
    _, name, words = FAMILIES[family]
    keys = golden.with_common(merge(preset(name), STEADY, words, drawn, f"init_weights_seed={seed}"))
    if "base_num_query_heads=1" in keys:
        keys = ["base_num_kv_heads=1" if k.startswith("base_num_kv_heads=") else k for k in keys]
    return keys


def refusal(mxtrain, keys, ours):
    """What mxtrain says against the keys; None if it takes them."""
    words = [*keys, *ours.split(), "override_model_config=true"]
    told = subprocess.run([mxtrain, "--config", "configs/base.yml", "--dump-config", "/dev/null", *words], cwd=ROOT, capture_output=True, text=True)
    return told.stderr.strip() if told.returncode else None


def make(folder, source, case, family, keys):
    _, model_name, _ = FAMILIES[family]
    config = golden.configure(model_name, keys)
    batches = golden.batches_of(source, config.vocab_size, config.attention_type == "compressed")
    batches = {k: v[:, :, :config.max_target_length] for k, v in batches.items()}
    whole = None
    if config.gradient_accumulation_steps > 1:
        undivided = merge(" ".join(keys), "gradient_accumulation_steps=1 per_device_batch_size=3")
        whole = golden.configure(model_name, undivided.split())
    path = folder / f"{case}.h5"
    try:
        golden.write(path, case, model_name, keys, OURS.get(family, ""), batches, whole)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


NUDGES = 4
ROOT = pathlib.Path(__file__).resolve().parents[1]


def stage(at, cases, noise=""):
    """A folder to run the tests in, which has no other goldens than `cases`, and noise besides what is known."""
    for part in ("models/variants", "train", "tests/golden/models/variants"):  # other suites list these
        (at / part).mkdir(parents=True)
    for case in cases:
        (at / f"models/variants/{case.name}").symlink_to(case)
    (at / "configs").symlink_to(ROOT / "configs")
    (at / "tests/golden/noise.tsv").write_text("golden\tkind\tnoise\n" + noise)
    return at


def run(at, build, **env):
    """Case -> the first figure that is off, by our tests."""
    env = dict(os.environ, MX_GOLDEN=str(at), CK_RUN_SUITE="golden", **env)
    told = subprocess.run([build / "test_train"], cwd=at, env=env, capture_output=True, text=True)
    text = told.stdout + told.stderr
    files = sorted(path.name for path in (at / "models/variants").iterdir())
    off = {files[int(i)][:-len(".h5")]: line for i, line in re.findall(r":golden_file:(\d+): (.*)", text)}
    if told.returncode and not off:
        sys.exit(text)
    return off


def compare(out, build, made):
    """Cases that are off, and those that are no longer once the bounds take our own noise into account, as those of goldens do:
    how far results are from each other when every initial number moves by a bit."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        off = run(stage(folder / "all", [out / f"{case}.h5" for case in made]), build)
        files = [out / f"{case}.h5" for case in off]
        if not files:
            return off, off
        at, seen = stage(folder / "noise", files), folder / "seen"
        seen.mkdir()
        for start in range(NUDGES + 1):
            run(at, build, MX_NOISE=str(seen), **({"MX_NOISE_SEED": str(start)} if start else {}))
        largest = {}
        for line in (seen / "distances").read_text().splitlines():
            name, kind, distance, _ = line.split("\t", 3)
            largest[name, kind] = max(largest.get((name, kind), 0), float(distance))
        noise = "".join(f"{name}\t{kind}\t{x:.3g}\n" for (name, kind), x in largest.items())
        return run(stage(folder / "again", files, noise), build), off


def tell(cases, out, build, made, by_maxtext, by_us):
    off, near = compare(out, build, made)
    print(f"{len(cases)} cases: {len(made) - len(off)} agree, {len(by_maxtext)} refused by MaxText, {len(by_us)} by us, {len(off)} disagree")
    noisy = {case: line for case, line in near.items() if case not in off}
    for title, told in (("refused by us", by_us), ("off as far as rounding takes it", noisy), ("disagree", off)):
        for case, line in told.items():
            print(f"{title}: {case} {cases[case][0]}: {line}")
    sys.exit(bool(off))


def main(folder, source, build, *words):
    root, build = pathlib.Path(folder).resolve(), pathlib.Path(build).resolve()
    out = root / "models/variants"
    out.mkdir(parents=True, exist_ok=True)
    if words[:1] == ("--compare",):
        cases = {path.stem: ("", "", 0) for path in sorted(out.glob("*.h5"))}
        return tell(cases, out, build, list(cases), {}, {})
    if words[:1] == ("--words",):
        cases = {f"words_{words[1]}": (words[1], words[2], 7)}
    else:
        n, seed = map(int, (words + ("10", "0")[len(words):])[:2])
        cases = {f"s{seed}_{i}": draw(seed, i, words[2:]) for i in range(n)}
    made, by_maxtext, by_us = [], {}, {}
    with h5py.File(source) as file:
        for case, (family, drawn, seed) in cases.items():
            keys, start = keys_of(family, drawn, seed), time.time()
            told = refusal(build / "mxtrain", keys, OURS.get(family, ""))
            try:
                if told:
                    golden.configure(FAMILIES[family][1], keys)
                    by_us[case] = told
                else:
                    make(out, file, case, family, keys)
                    made.append(case)
            except BaseException as error:  # pyconfig may exit
                if isinstance(error, KeyboardInterrupt):
                    raise
                told = " ".join("".join(traceback.format_exception_only(error)).split())
                by_maxtext[case] = re.sub(r"^.*Value error, | \[type=value_error.*$", "", told)[:300]
            jax.clear_caches()
            state = "made" if case in made else "refused by us" if case in by_us else f"refused by MaxText: {by_maxtext[case]}"
            print(f"{case} {family} ({time.time() - start:.0f} s, {state}): {drawn}", flush=True)
    tell(cases, out, build, made, by_maxtext, by_us)


if __name__ == "__main__":
    main(*sys.argv[1:])

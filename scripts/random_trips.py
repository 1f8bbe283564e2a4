#!/usr/bin/env python3
"""Random checkpoints there and back: each form that mxconvert writes holds the same state, and a run goes on from it.

    random_trips.py FOLDER [--n 50] [--seed 1] [--only I] [--family X]... [--build build]

Case i of a seed draws a small model of a family with other keys, an optimizer and the form of its files, and trains three steps, of which
the second is saved. That state goes through random forms (Linen, NNX, layers stacked or not), and

    each form     equals the first one by mxcompare, and no longer when one number of it is changed
    each way      to the first form gives the first file's arrays, bit for bit
    each form     trains on: a run that starts with it has the third step's loss and parameters
    Hugging Face  to a folder and back gives the parameters, bit for bit but for what scales and sums round

Prints each case that is refused or differs, with its folder, and counts. Needs h5py."""
import argparse
import collections
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import traceback

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = """base_emb_dim=32 base_num_query_heads=4 base_num_kv_heads=2 head_dim=4 base_mlp_dim=24 vocab_size=48 per_device_batch_size=2
max_target_length=12 dataset_type=synthetic sliding_window_size=6 num_experts=4 num_experts_per_tok=2 q_lora_rank=6 kv_lora_rank=5
qk_nope_head_dim=4 qk_rope_head_dim=2 v_head_dim=3 override_model_config=true eval_interval=-1 log_config=false dtype=float32
enable_checkpointing=true async_checkpointing=false learning_rate_schedule_steps=6 learning_rate=0.01 warmup_steps_fraction=0.0"""
LATENT = "attention_type=mla base_num_kv_heads=4"
DELTA = "base_num_decoder_layers=5 gdn_num_key_heads=2 gdn_num_value_heads=4 gdn_key_head_dim=4 gdn_value_head_dim=4 partial_rotary_factor=0.5"
MOE = "base_moe_mlp_dim=24"
# What tests/common/families.h asks for, smaller.
FAMILIES = {
    "llama2": "", "mistral": "", "qwen2": "attention_bias=true", "qwen3": "use_qk_norm=true", "gemma": "mlp_activations=[gelu,linear]", "gemma2": "base_num_decoder_layers=2 mlp_activations=[gelu,linear]",
    "gemma3": "mlp_activations=[gelu,linear] base_num_decoder_layers=7", "olmo3": "use_qk_norm=true base_num_decoder_layers=5", "gpt3": "base_num_kv_heads=4",
    "mixtral": MOE, "qwen3_moe": f"{MOE} use_qk_norm=true", "qwen3_custom_moe": f"{MOE} attention_output_dim=10 moe_expert_input_dim=10",
    "qwen3_next": f"{DELTA} inhomogeneous_layer_cycle_interval=4 base_mlp_dim=12 base_moe_mlp_dim=12 shared_experts=1",
    "qwen3_5": f"{DELTA} inhomogeneous_layer_cycle_interval=4 base_mlp_dim=12 base_moe_mlp_dim=12 shared_experts=1",
    "gemma4": "base_num_decoder_layers=7 global_head_dim=8 global_num_kv_heads=1 share_kv_projections=true shared_experts=1 v_norm_with_scale=false norm_topk_prob=true mlp_activations=[gelu,linear] base_moe_mlp_dim=24",
    "gemma4_small": "base_num_decoder_layers=10 inhomogeneous_layer_cycle_interval=5 num_kv_shared_layers=5 global_head_dim=8 "
                    "hidden_size_per_layer_input=4 vocab_size_per_layer_input=48 v_norm_with_scale=false mlp_activations=[gelu,linear]",
    "gpt_oss": f"{MOE} base_num_decoder_layers=3 mlp_bias=true routed_bias=true attention_bias=true attention_sink=true "
               "mlp_activations=[sigmoid,linear] mlp_activations_limit=0.5",
    "llama4": "nope_layer_interval=4 interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=4 base_num_decoder_layers=8 "
              "chunk_attn_window_size=7 num_experts_per_tok=1 shared_experts=1 base_moe_mlp_dim=12 use_qk_norm=true",
    "envy": "interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=2 base_moe_mlp_dim=12 base_num_decoder_layers=4",
    "deepseek": f"{LATENT} first_num_dense_layers=1 base_moe_mlp_dim=12 shared_experts=1 base_num_decoder_layers=3 routed_bias=true "
                "routed_score_func=sigmoid routed_bias_update_rate=0.01",
    "deepseek4": "attention_type=compressed base_num_kv_heads=1 base_num_decoder_layers=5 scan_layers=false first_num_hash_layers=2 "
                 "compress_ratios=[0,4,8,4,8] indexer_n_heads=2 indexer_head_dim=6 indexer_topk=2 o_groups=2 o_lora_rank=6 "
                 "mhc_expansion_rate=2 sinkhorn_iterations=3 shared_experts=1 base_moe_mlp_dim=24 routed_score_func=sqrtsoftplus routed_bias=true",
    "default": "", "simple": "", "simple_mlp": "",
}
# Of which families, how often, and one of what; later words win.
CHOICES = [
    ("llama2|mistral|qwen2|qwen3|gemma|gpt3|mixtral|qwen3_moe|qwen3_custom_moe|simple.*", 1,
     ["base_num_decoder_layers=1", "base_num_decoder_layers=2", "base_num_decoder_layers=3", "base_num_decoder_layers=11"]),
    ("gemma3|gemma4", 0.5, ["base_num_decoder_layers=6", "base_num_decoder_layers=3", "base_num_decoder_layers=13"]),
    ("olmo3|qwen3_next|qwen3_5", 0.5, ["base_num_decoder_layers=4", "base_num_decoder_layers=9"]),
    ("deepseek", 0.5, ["first_num_dense_layers=0", "first_num_dense_layers=2 base_num_decoder_layers=4", "first_num_dense_layers=3"]),
    ("deepseek", 0.2, ["use_indexer=true indexer_n_heads=4 indexer_head_dim=6 indexer_topk=5", "mhc_expansion_rate=2 sinkhorn_iterations=3"]),
    ("gemma4", 0.4, ["num_experts=1 num_experts_per_tok=1 shared_experts=0", "base_moe_mlp_dim=12 share_kv_projections=false", "use_post_ffw_norm=true use_post_attn_norm=true"]),
    ("(?!deepseek4|gemma4_small).*", 0.5, ["scan_layers=false"]),
    (".*", 0.4, ["param_scan_axis=0"]),
    ("(?!qwen3_next|qwen3_5|simple|gemma4|deepseek).*", 0.2, ["fused_qkv=true"]),
    ("(?!qwen3_next|qwen3_5|simple|deepseek4).*", 0.2, ["fused_mlp=true"]),
    ("(?!simple).*", 0.15, ["mlp_bias=true"]),
    (".*", 0.3, ["logits_via_embedding=true normalize_embedding_logits=false"]),
    ("(?!deepseek|simple|gemma4|deepseek4).*|deepseek", 0.2, ["mtp_num_layers=1", "mtp_num_layers=2"]),
    ("(?!gpt3|simple).*", 0.1, ["trainable_position_size=32"]),
    (".*", 0.7, ["opt_type=adam_pax", "opt_type=sgd", "opt_type=muon", "opt_type=muon", "opt_type=adafactor", "opt_type=schedule_free_adamw", "mu_dtype=bfloat16",
                 "weight_dtype=bfloat16", "optimizer_state_dtype=int8", "trainable_parameters_mask=['.*mlp.*','.*attention.*']",
                 "skip_step_on_spikes=true skip_step_interval=3", "adamw_mask=['.*norm.*']",
                 "skip_step_on_spikes=true skip_step_interval=3 trainable_parameters_mask=['.*mlp.*']"]),
    (".*", 0.25, ["lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4"]),
    (".*", 0.5, ["pure_nnx=false"]),
]
FORMS = [(layout, scan) for layout in ("linen", "nnx") for scan in ("true", "false")]
# What mxconvert says that it cannot do, and why it is right.
KNOWN = "not available yet here|are never stacked|cannot be (re)?stacked"


class Outcome(Exception):
    """What a case came to: kind, and the reason."""


def run(*command):
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    told = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env, cwd=ROOT)
    return told.returncode, told.stdout + told.stderr


def need(kind, *command):
    code, text = run(*command)
    if code:
        raise Outcome(kind, f"{' '.join(str(c) for c in command[1:])}: exit {code}: {text.strip()[-400:]}")
    return text


def arrays(path):
    out = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, x: out.update({name: x[()]}) if isinstance(x, h5py.Dataset) else None)
    return out


def compare(build, kind, a, b, *options, equal=True):
    code, text = run(build / "mxcompare", *options, a, b)
    if code != (0 if equal else 1):
        raise Outcome(kind, f"mxcompare {' '.join(options)} {a.name} {b.name}: exit {code}: {text.strip()[-500:]}")


def same_file(kind, a, b):
    a, b = arrays(a / "state.h5"), arrays(b / "state.h5")
    odd = sorted(set(a) ^ set(b))
    if odd:
        raise Outcome(kind, f"one alone has {odd[:4]}")
    for name, x in a.items():
        if x.shape != b[name].shape or x.dtype != b[name].dtype or x.tobytes() != b[name].tobytes():
            raise Outcome(kind, f"{name} differs")


def change_one(r, form, build, folder):
    """A number of any array of the state is another one: then mxcompare must say so."""
    other = folder / "changed"
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    shutil.copy(form / "state.h5", other)
    with h5py.File(other / "state.h5", "r+") as file:
        names = []
        file.visititems(lambda name, x: names.append(name) if isinstance(x, h5py.Dataset) and x.size else None)
        name = r.choice(names)
        x = file[name]
        values = x[()] if x.shape else np.array(x[()])
        at = tuple(r.randrange(n) for n in values.shape)
        raw = np.array(values[at]).tobytes()
        raw = bytes([raw[0] ^ 1]) + raw[1:]
        if values.shape:
            values[at] = np.frombuffer(raw, values.dtype)[0]
        else:
            values = np.frombuffer(raw, values.dtype)[0]
        x[...] = values
    compare(build, "UNSEEN", form, other / "state.h5", equal=False)


def form(layout, scan, axis):
    return "--layout", layout, "--scan-layers", scan, *(["--param-scan-axis", axis] if scan == "true" else []), "--quiet", "--force"


def losses(text):
    return re.findall(r"completed step: (\d+).*?loss: ([0-9.]+)", text)


def train(build, kind, words, name, folder, *more):
    return need(kind, build / "mxtrain", "--config", "configs/base.yml", *words, f"run_name={name}", f"base_output_directory={folder}", *more)


def draw(r, family):
    keys = {}
    words = [SMALL, "base_num_decoder_layers=2", f"decoder_block={family}", FAMILIES[family]]
    words += [r.choice(options) for families, chance, options in CHOICES if r.random() < chance and re.fullmatch(families, family)]
    for word in " ".join(words).split():
        keys[word.split("=")[0]] = word
    return list(keys.values())


def to_hf_and_back(r, build, folder, last, words):
    code, text = run(build / "mxconvert", "--to-hf", folder / "run", folder / "hf", "--quiet")
    if code:
        return "no folder: " + text.strip()[-150:]
    need("BACK", build / "mxconvert", folder / "hf", folder / "from_hf", "--quiet", "--scan-layers", r.choice(["true", "false"]),
         "--dtype", "bfloat16" if "weight_dtype=bfloat16" in words else "float32")
    if not any("fused" in word for word in words):
        compare(build, "BACK", last, folder / "from_hf", "--params-only", "--rtol", "2e-7")
    need("BACK", build / "mxconvert", "--to-hf", folder / "from_hf", folder / "hf2", "--quiet")
    for file in sorted((folder / "hf").iterdir()):
        other = folder / "hf2" / file.name
        if not other.exists() or other.read_bytes() != file.read_bytes():
            raise Outcome("BACK", f"{file.name} is another one")
    return "Hugging Face"


def merged_twice(build, folder, form):
    """Adapters merged from two forms of a state make the same weights."""
    if form == folder / "run/checkpoints/1":
        return "not merged"
    need("MERGE", build / "mxconvert", "--merge-lora", "--scan-layers", "false", folder / "run/checkpoints/1", folder / "merged", "--quiet")
    need("MERGE", build / "mxconvert", "--merge-lora", "--scan-layers", "false", form, folder / "merged2", "--lora-alpha", "4", "--quiet")
    compare(build, "MERGED", folder / "merged", folder / "merged2")
    return "merged"


def case(r, family, build, folder):
    words = draw(r, family)
    lora = any("enable_lora" in w for w in words)
    if lora:
        base = [w for w in words if not w.startswith("lora.")]
        code, text = run(build / "mxtrain", "--config", "configs/base.yml", *base, "run_name=base", f"base_output_directory={folder}", "steps=1")
        words.append(f"load_parameters_path={folder / 'base'}")
    (folder / "words").write_text(" ".join(words))
    code, text = run(build / "mxtrain", "--config", "configs/base.yml", *words, "run_name=run", f"base_output_directory={folder}", "steps=2")
    if code:
        raise Outcome("refused", text.strip()[-300:])
    first = folder / "run/checkpoints/1"
    straight = train(build, "RESUME", words, "run", folder, "steps=3")
    last = folder / "run/checkpoints/2"
    ways = [p for n in (1, 2, 3) for p in itertools.permutations(FORMS, n)]
    told = []
    for path in r.sample(ways, 3):
        at, name = first, "form"
        for layout, scan in path:
            axis = r.choice("01")
            name += f"_{layout[0]}{axis if scan == 'true' else ''}"
            code, text = run(build / "mxconvert", at, folder / name, *form(layout, scan, axis))
            if code:
                if re.search(KNOWN, text):
                    told.append(text.strip()[-200:])
                    break
                raise Outcome("CONVERT", f"{at.name} {layout} {scan}: {text.strip()[-400:]}")
            at = folder / name
            compare(build, "DIFFERS", first, at)
            change_one(r, at, build, folder)
        if at is first:
            continue
        compare(build, "DIFFERS", at, first)
        layout = "linen" if "pure_nnx=false" in words else "nnx"
        scan = "false" if "scan_layers=false" in words or family == "gemma4_small" else "true"
        need("CONVERT", build / "mxconvert", at, folder / "home", *form(layout, scan, "0" if "param_scan_axis=0" in words else "1"))
        same_file("HOME", first, folder / "home")
        shutil.rmtree(folder / "again", ignore_errors=True)
        (folder / "again/checkpoints").mkdir(parents=True)
        for file in (folder / "run").iterdir():
            if file.is_file():
                shutil.copy(file, folder / "again")
        shutil.copytree(at, folder / "again/checkpoints/1")
        text = train(build, "RESUME", words, "again", folder, "steps=3")
        if losses(text) != losses(straight):
            raise Outcome("LOSS", f"{losses(text)} of {at.name}, wanted {losses(straight)}")
        same_file("RESUMED", last, folder / "again/checkpoints/2")
    told.append(merged_twice(build, folder, at) if lora else to_hf_and_back(r, build, folder, last, words))
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda x: pathlib.Path(x).resolve())
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--build", type=lambda x: pathlib.Path(x).resolve(), default=ROOT / "build")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    counts = collections.Counter()
    for i in range(args.n) if args.only is None else [args.only]:
        r = random.Random(f"{args.seed} {i}")
        family = r.choice(args.family or list(FAMILIES))
        folder = args.folder / f"{args.seed}_{i}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            told = case(r, family, args.build, folder)
            kind, why = "equal", " | ".join(dict.fromkeys(told))
        except Outcome as e:
            kind, why = e.args
        except Exception:
            kind, why = "SCRIPT", traceback.format_exc()[-800:]
        counts[kind] += 1
        if kind != "equal" or args.verbose:
            print(i, family, kind, why.replace(str(folder), ""), flush=True)
        if kind.isupper():
            print("   ", folder, flush=True)
        else:
            shutil.rmtree(folder)
    print(dict(counts))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Random cases of adam_pax, muon, distillation and GRPO's loss: MaxText makes them, our tests compare.

    pip install maxtext==0.2.5 h5py                        # or its sources: PYTHONPATH=maxtext/src
    scripts/random_cases.py FOLDER build/test_train [ROUNDS] [SEED]
    scripts/random_cases.py --grpo FILE                    # one case of GRPO alone: tests/golden/train/grpo_given.h5

A round has ten cases of each optimizer and of GRPO and of distillation, with parameters, gradients, logits and features of
its own: FOLDER/<round>/train/optim_basic.h5, optim_muon.h5, distill_loss.h5 and grpo_given.h5, laid out as the goldens of those
names, and the tests that read them, with MX_GOLDEN=FOLDER/<round>. Prints how many rounds disagree, and where.

GRPO's loss is the code of experimental/rl, from whose files the functions are taken alone: the modules import what serves tokens.
"""
import ast
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import types

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from optax.contrib import MuonDimensionNumbers, muon

from maxtext.optimizers.optimizers import adam_pax
from maxtext.trainers.post_train.distillation import distillation_utils

STEPS, CASES = 20, 10
SHAPES = {
    "decoder/head/bias": (7,),
    "decoder/layers/mlp/wi/kernel": (6, 2, 5),
    "decoder/layers/pre_norm/scale": (6, 2),
    "token_embedder/embedding": (9, 4),
}
# [in, layers, out..]: which dims a product contracts and which it makes; None: by AdamW.
MATRICES = {
    "decoder/decoder_norm/scale": ((16,), None),
    "decoder/layers/mlp/wi_0/kernel": ((16, 2, 24), ([0], [-1])),
    "decoder/layers/mlp/wo/kernel": ((24, 2, 16), ([0], [-1])),
    "decoder/layers/self_attention/key/kernel": ((16, 2, 1, 8), ([0], [-2, -1])),
    "decoder/layers/self_attention/out/kernel": ((2, 2, 8, 16), ([0, -2], [-1])),
    "decoder/layers/self_attention/query/kernel": ((16, 2, 2, 8), ([0], [-2, -1])),
    "decoder/logits_dense/kernel": ((16, 32), None),
    "token_embedder/embedding": ((32, 16), None),
}


def schedule(peak):
    """MaxText's: linear for 4 steps, then a cosine to a tenth over the other 16."""

    def rate(step):
        half = (jnp.cos(jnp.pi * (step - 4) / 15) + 1) / 2
        return jnp.where(step < 4, peak * step / 4, peak * half + 0.1 * peak * (1 - half))

    return rate


def draw(rng, shapes):
    return ({k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()},
            {k: rng.normal(size=(STEPS,) + s).astype(np.float32) for k, s in shapes.items()})


def common(rng):
    peak = float(rng.choice([0.3, 0.05, 0.01, 0.001]))
    keys = {
        "learning_rate": peak,
        "adam_b1": round(float(rng.uniform(0.5, 0.99)), 4),
        "adam_b2": round(float(rng.uniform(0.8, 0.999)), 4),
        "adam_eps": float(rng.choice([1e-8, 1e-6, 1e-3])),
        "adam_eps_root": float(rng.choice([0, 1e-6])),
        "adam_weight_decay": float(rng.choice([0, 0.1, 0.5])),
        "gradient_clipping_threshold": float(rng.choice([0.1, 1, 10])),
    }
    return keys, schedule(peak)


def text(kind, keys):
    lines = [f"steps: {STEPS}", "warmup_steps_fraction: 0.2", "learning_rate_final_fraction: 0.1", f"opt_type: {kind}"]
    return "\n".join(lines + [f"{k}: {v}" for k, v in keys.items()]) + "\n"


def follow(optimizer, keys, params0, grads):
    """Parameters after each step, gradients clipped to a global norm first, as MaxText does."""
    clip = optax.clip_by_global_norm(keys["gradient_clipping_threshold"])

    def step(carry, grads):
        params, state = carry
        grads, _ = clip.update(grads, clip.init(params))
        update, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, update)
        return (params, state), params

    return jax.lax.scan(step, (params0, optimizer.init(params0)), grads)[1]


@functools.partial(jax.jit, static_argnames="decay")
def follow_adam_pax(keys, decay, params0, grads):
    return follow(adam_pax(schedule(keys["learning_rate"]), keys["adam_b1"], keys["adam_b2"], keys["adam_eps"],
                           keys["adam_eps_root"], decay), keys, params0, grads)


@functools.partial(jax.jit, static_argnames="rms")
def follow_muon(keys, rms, params0, grads):
    """As MaxText's get_optimizer calls it."""
    numbers = {k: d and MuonDimensionNumbers(reduction_axis=tuple(d[0]), output_axis=tuple(d[1]))
               for k, (_, d) in MATRICES.items()}
    return follow(muon(learning_rate=schedule(keys["learning_rate"]), eps=keys["adam_eps"], mu_dtype=jnp.float32,
                       beta=keys["muon_beta"], weight_decay=keys["muon_weight_decay"],
                       muon_weight_dimension_numbers=numbers, consistent_rms=rms or None,
                       ns_coeffs=(3.4445, -4.7750, 2.0315), ns_steps=5, adam_b1=keys["adam_b1"], adam_b2=keys["adam_b2"],
                       adam_eps_root=keys["adam_eps_root"], adam_weight_decay=keys["adam_weight_decay"]),
                  keys, params0, grads)


def write_basic(path, rng):
    params0, grads = draw(rng, SHAPES)
    with h5py.File(path, "w") as file:
        for k in SHAPES:
            file[f"params0/{k}"], file[f"grads/{k}"] = params0[k], grads[k]
        for i in range(CASES):
            keys, rate = common(rng)
            seen = follow_adam_pax(keys, keys["adam_weight_decay"], params0, grads)
            group = file.create_group(f"cases/adam_pax_{i}")
            group.attrs["config"] = text("adam_pax", keys)
            group["learning_rate"] = np.asarray(rate(jnp.arange(STEPS)), np.float32)
            for k in SHAPES:
                group[f"params/{k}"] = np.asarray(seen[k])


def write_muon(path, rng):
    params0, grads = draw(rng, {k: s for k, (s, _) in MATRICES.items()})
    with h5py.File(path, "w") as file:
        for k, (_, d) in MATRICES.items():
            file[f"params0/{k}"], file[f"grads/{k}"] = params0[k], grads[k]
            file[f"params0/{k}"].attrs["muon"] = f"reduction={d[0]} output={d[1]}" if d else "adamw"
        for i in range(CASES):
            keys, rate = common(rng)
            keys["muon_beta"] = round(float(rng.uniform(0.5, 0.98)), 4)
            keys["muon_weight_decay"] = float(rng.choice([0, 0.1, 0.5]))
            rms = float(rng.choice([0, 0.2, 0.5]))
            if rms:
                keys["muon_consistent_rms"] = rms
            seen = follow_muon(keys, rms, params0, grads)
            group = file.create_group(f"cases/muon_{i}")
            group.attrs["config"] = text("muon", keys)
            for step in (1, 2, 5):
                for k in MATRICES:
                    group[f"step{step}/params/{k}"] = np.asarray(seen[k][step - 1])


# The names that the test knows; what they hold is drawn.
DISTILLED = ("T1_a0", "T1_a0.5", "T2_a0.5", "T4_a1", "T2_cos", "T2_cos_layers", "T2_l2", "all_masked", "sched_linear_s3",
             "topk_T2")
TOP = 6  # logits of the last of them, of which the test keeps as many


def draw_options(rng):
    options = {"temperature": round(float(rng.uniform(0.5, 5)), 3), "alpha": round(float(rng.uniform(0, 1)), 3)}
    if rng.random() < 0.6:
        options["beta_feature"] = round(float(rng.uniform(0.1, 2)), 3)
        options["feature_loss_type"] = str(rng.choice(["cosine", "l2"]))
        if rng.random() < 0.4:
            options["layer_indices"] = [0, 2]
    if rng.random() < 0.3:
        for key, word in (("alpha", "alpha"), ("temperature", "temperature")):
            options[f"{word}_end"] = round(float(rng.uniform(0.5, 1)), 3)
            options[f"{word}_schedule"] = str(rng.choice(["linear", "cosine"]))
        options["max_steps"] = 10
    return options, int(rng.integers(0, 10))


def write_distill(path, rng):
    B, T, V, LAYERS, D = 2, 10, 48, 3, 8
    given = {
        "student_logits": 3 * rng.normal(size=(B, T, V)), "teacher_logits": 3 * rng.normal(size=(B, T, V)),
        "student_features": rng.normal(size=(LAYERS, B, T, D)), "teacher_features": rng.normal(size=(LAYERS, B, T, D)),
    }
    given = {k: v.astype(np.float32) for k, v in given.items()}
    targets = rng.integers(0, V, size=(B, T)).astype(np.int32)
    segments = (rng.random(size=(B, T)) < 0.8).astype(np.int32)
    Output = distillation_utils.DistillationForwardOutput
    with h5py.File(path, "w") as file:
        top = jax.lax.top_k(jnp.asarray(given["teacher_logits"]), TOP)
        for k, v in dict(given, targets=targets, targets_segmentation=segments, top_k_logits=top[0], top_k_indices=top[1]).items():
            file[k] = np.asarray(v)
        whole = Output(logits=jnp.asarray(given["teacher_logits"]), out_projection_activations=jnp.asarray(given["teacher_features"]))
        for name in DISTILLED:
            options, step = draw_options(rng)
            is_top = name.startswith("topk")
            if is_top:
                options = {k: options[k] for k in ("temperature", "alpha")}
            teacher = Output(logits=top[0], top_k_indices=top[1]) if is_top else whole
            strategy = distillation_utils.CombinedDistillationStrategy(None, None, pad_id=0, vocab_size=V, **options)
            labels = strategy.create_labels(jnp.asarray(targets), targets_segmentation=jnp.asarray(segments))

            def loss(logits, features):
                return strategy.compute_loss(Output(logits=logits, out_projection_activations=features), teacher, labels,
                                             jnp.asarray(step))

            (value, metrics), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
                jnp.asarray(given["student_logits"]), jnp.asarray(given["student_features"]))
            group = file.create_group(f"cases/{name}")
            group.attrs["options"] = "".join(
                f'{k}: "{v}"\n' if isinstance(v, str) and v != "true" else f"{k}: {v}\n" for k, v in dict(options, step=step, **({"topk": "true"} if is_top else {})).items())
            group["loss"] = np.asarray(value)
            group["grad_student_logits"], group["grad_student_features"] = map(np.asarray, grads)
            for k, pair in metrics.items():
                group[f"metrics/{k}"] = np.array([float(x) for x in pair], np.float32)


def functions_of(file, names, known):
    """Functions of a file of MaxText's, by themselves."""
    found = pathlib.Path(importlib.util.find_spec("maxtext").submodule_search_locations[0]) / "experimental/rl" / file
    tree = ast.parse(found.read_text())
    tree.body = [n for n in tree.body if getattr(n, "name", None) in names]
    known = dict(known, jax=jax, jnp=jnp, nnx=nnx)
    exec(compile(tree, str(found), "exec"), known)
    return types.SimpleNamespace(**{name: known[name] for name in names})


class Given(nnx.Module):
    """A model that has its logits."""

    def __init__(self, logits):
        self.logits = nnx.Param(logits)

    def __call__(self, **batch):
        return self.logits[...]


def draw_grpo(rng):
    B, T, V = 4, 7, 10
    logits = (2 * rng.normal(size=(B, T, V))).astype(np.float32)
    start, n = rng.integers(1, 3, size=B), rng.integers(1, 5, size=B)
    at = np.arange(T)
    completion = ((at >= start[:, None]) & (at < (start + n)[:, None])).astype(np.int32)
    heat = round(float(rng.choice([1, rng.uniform(0.5, 2)])), 3)
    keys = {"grpo_epsilon": round(float(rng.uniform(0.05, 0.4)), 3), "grpo_beta": round(float(rng.choice([0, rng.uniform(0.01, 1)])), 3),
            "decode_sampling_temperature": heat, "num_generations": int(rng.choice([2, 4]))}
    given = {"logits": logits, "reference_logits": (logits + 0.7 * rng.normal(size=(B, T, V))).astype(np.float32),
             "tokens": rng.integers(0, V, size=(B, T)).astype(np.int32), "completion": completion}
    if rng.random() < 0.7:
        logps = np.asarray(jax.nn.log_softmax(logits / heat))[:, :-1]
        own = np.take_along_axis(logps, given["tokens"][:, 1:, None], 2)[..., 0]
        given["old"] = (own + 0.3 * rng.normal(size=own.shape)).astype(np.float32) * completion[:, 1:]
    return keys, given


def write_grpo(path, rng, n_cases=CASES):
    utils = functions_of("grpo_utils.py", ("compute_log_probs_nnx", "dummy_reward_len"), {})
    names = {"grpo_utils": utils, "EPS": 1e-8, "LossAux": types.SimpleNamespace}
    loss_fn = functions_of("grpo_trainer.py", ("grpo_loss_fn_nnx",), names).grpo_loss_fn_nnx
    with h5py.File(path, "w", libver="latest", fs_strategy="none") as file:  # small
        for i in range(n_cases):
            keys, given = draw_grpo(rng)
            config = types.SimpleNamespace(train_data_columns="prompt", num_experts=1, enable_dropout=False, **keys)
            data = {"prompt_completions": jnp.asarray(given["tokens"]), "prompt_completions_position": None,
                    "prompt_completions_segmentation": None, "ar_completions_segmentation": jnp.asarray(given["completion"]),
                    "completions_logprobs": given.get("old")}

            def loss(logits):
                return loss_fn(Given(logits), config, data, None, None, Given(jnp.asarray(given["reference_logits"])))[0]

            value, grad = jax.value_and_grad(loss)(jnp.asarray(given["logits"]))
            group = file.create_group(f"cases/{i}")
            group.attrs["options"] = "".join(f"{k}: {v}\n" for k, v in keys.items())
            for k, v in dict(given, loss=value, grad=grad).items():
                group[k] = np.asarray(v)


SUITES = ({"CK_RUN_SUITE": "optimizers"}, {"CK_RUN_SUITE": "distill", "CK_RUN_CASE": "given"},
          {"CK_RUN_SUITE": "grpo"})


def main(folder, binary, rounds=10, seed=0):
    if folder == "--grpo":
        return write_grpo(binary, np.random.default_rng(7), 1)
    failed = 0
    for i in range(int(rounds)):
        at = pathlib.Path(folder) / str(i)
        for name in ("train", "models/variants"):  # the other suites list these
            (at / name).mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([int(seed), i])
        write_basic(at / "train/optim_basic.h5", rng)
        write_muon(at / "train/optim_muon.h5", rng)
        write_distill(at / "train/distill_loss.h5", rng)
        write_grpo(at / "train/grpo_given.h5", rng)
        for words in SUITES:
            found = subprocess.run([binary], env=dict(os.environ, MX_GOLDEN=str(at), **words), capture_output=True, text=True)
            if found.returncode:
                failed += 1
                print(f"round {i}:", (found.stdout + found.stderr).strip())
    print(f"{int(rounds) * CASES} cases each of adam_pax, muon and grpo, {int(rounds) * len(DISTILLED)} of distillation; "
          f"{failed} of {len(SUITES) * int(rounds)} runs disagree")
    sys.exit(failed > 0)


main(*sys.argv[1:])

#!/usr/bin/env python3
"""Trajectories of optimizers that MaxText lacks, by optax on given gradients.

    pip install optax==0.2.8 h5py
    scripts/golden_optax.py lion tests/golden/train/optim_lion.h5
    scripts/golden_optax.py adafactor tests/golden/train/optim_adafactor.h5
    scripts/golden_optax.py schedule_free tests/golden/train/optim_schedule_free.h5
    scripts/golden_optax.py muon tests/golden/train/optim_muon_experts.h5

The file is laid out as MaxText's optim_basic.h5: params0, grads [steps, ..], and for each case the overrides (`config`),
learning rates, parameters after each step and the final state. Gradients are clipped to a global norm of 1 as MaxText does.
muon is of experts, whose matrices are stacked over experts and layers: parameters after some steps, and of each by its
dimension numbers (MaxText's, utils/muon_utils.py @e591f30c) as an attribute, as optim_muon.h5 has them.
Parameters of schedule_free are those that optax evaluates, and `points` those that it takes gradients at.
"""
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

STEPS = 20
LARGE = {
    "decoder/head/bias": (7,),
    "decoder/layers/mlp/wi/kernel": (6, 2, 5),
    "decoder/layers/pre_norm/scale": (6, 2),
    "token_embedder/embedding": (9, 4),
}
SMALL = {
    "decoder/head/bias": (3,),
    "decoder/out/kernel": (2, 3, 4),
    "token_embedder/embedding": (4, 3),
}
# shape, dims that are contracted, dims of outputs; the others have a matrix each
EXPERTS = {
    "layers/wi_0": ((3, 2, 2, 3), [-2], [-1]),
    "layers/wo": ((3, 2, 3, 2), [-2], [-1]),
}
SEEN = (3,)
COMMON = "steps: 20\nlearning_rate: 0.05\nwarmup_steps_fraction: 0.2\nlearning_rate_final_fraction: 0.1\n"


def schedule(step):
    """MaxText's: linear for 4 steps, then a cosine to a tenth over the other 16."""
    up = 0.05 * step / 4
    half = (jnp.cos(jnp.pi * (step - 4) / 15) + 1) / 2
    return jnp.where(step < 4, up, jnp.where(step < 20, 0.05 * half + 0.005 * (1 - half), 0.0))


def no_bias(params):
    return {k: "bias" not in k and "norm" not in k for k in params}


def lion(**words):
    return optax.lion(schedule, **dict(dict(weight_decay=0.1, mu_dtype=jnp.float32), **words))


def adafactor(**words):
    return optax.adafactor(schedule, **dict(dict(min_dim_size_to_factor=3), **words))


def schedule_free(b1=0.9, b2=0.95, weight_decay=0.1, **words):
    """schedule_free_adamw, whose learning rate may not be a schedule."""
    base = optax.chain(optax.scale_by_rms(decay=b2, eps=1e-8, eps_in_sqrt=False, bias_correction=True),
                       optax.add_decayed_weights(weight_decay), optax.scale_by_learning_rate(schedule))
    return contrib.schedule_free(base, schedule, b1=b1, **words)


NEAR_1 = (3.4445, -4.7750, 2.0315)


def muon(beta, weight_decay, coefficients=NEAR_1, steps=5, **words):
    numbers = {k: contrib.MuonDimensionNumbers(reduction_axis=tuple(i), output_axis=tuple(o)) for k, (_, i, o) in EXPERTS.items()}
    return contrib.muon(schedule, eps=1e-8, mu_dtype=jnp.float32, beta=beta, weight_decay=weight_decay,
                        muon_weight_dimension_numbers=numbers, ns_coeffs=coefficients, ns_steps=steps, **words)


def trees_of_adafactor(state, momentum):
    kept = {name: {k: v for k, v in getattr(state[0], name).items() if v.shape != (1,)} for name in ("v_row", "v_col", "v")}
    return dict(kept, ema=state[momentum].ema) if momentum else kept


DEEPSEEK4 = """decoder_block: deepseek4
attention_type: compressed
sliding_window_size: 6
o_groups: 2
o_lora_rank: 8
q_lora_rank: 8
qk_rope_head_dim: 8
base_num_kv_heads: 1
compress_ratios: [0, 0, 0, 0]
scan_layers: false
"""
MIN = "adafactor_min_dim_size_to_factor: 3\n"
# of each optimizer: parameters, how it is made, and cases of config, arguments, and how to read its state
OPTIMIZERS = {
    "lion": (LARGE, lion, {
        "lion": ("opt_type: lion\n", dict()),
        "lion_mask": ('opt_type: lion\nadam_weight_decay: 0.5\nadamw_mask: ["bias", ".*norm"]\n',
                      dict(weight_decay=0.5, mask=no_bias)),
        "lion_decays": ("opt_type: lion\nlion_b1: 0.8\nlion_b2: 0.95\nadam_weight_decay: 0\n", dict(b1=0.8, b2=0.95, weight_decay=0)),
        "lion_mu_bf16": ("opt_type: lion\nmu_dtype: bfloat16\n", dict(mu_dtype=jnp.bfloat16)),
    }, lambda state, words, x: {"mu": state[0].mu}),
    "adafactor": (SMALL, adafactor, {
        "adafactor": ("opt_type: adafactor\n" + MIN, dict()),
        "adafactor_absolute": ("opt_type: adafactor\nadafactor_multiply_by_parameter_scale: false\n"
                               "adafactor_clipping_threshold: null\nadafactor_decay_rate: 0.6\n" + MIN,
                               dict(multiply_by_parameter_scale=False, clipping_threshold=None, decay_rate=0.6)),
        "adafactor_momentum": ('opt_type: adafactor\nadafactor_momentum: 0.7\nadafactor_weight_decay_rate: 0.01\n'
                               'adamw_mask: ["bias", ".*norm"]\nadafactor_eps: 0.001\n' + MIN,
                               dict(momentum=0.7, weight_decay_rate=0.01, weight_decay_mask=no_bias, eps=0.001)),
        "adafactor_whole": ("opt_type: adafactor\nadafactor_factored: false\n", dict(factored=False)),
    }, lambda state, words, x: trees_of_adafactor(state, 4 if "momentum" in words else None)),
    "schedule_free": (SMALL, schedule_free, {
        "schedule_free": ("opt_type: schedule_free_adamw\n", dict()),
        "schedule_free_power": ("opt_type: schedule_free_adamw\nadam_b1: 0.7\nadam_b2: 0.9\nadam_weight_decay: 0\n"
                                "schedule_free_weight_lr_power: 0.5\n", dict(b1=0.7, b2=0.9, weight_decay=0, weight_lr_power=0.5)),
    }, lambda state, words, x: {"nu": state.base_optimizer_state[0].nu, "z_minus_x": {k: state.z[k] - x[k] for k in x}}),
    "muon": ({k: s for k, (s, _, _) in EXPERTS.items()}, muon, {
        "muon": ("opt_type: muon\nmuon_beta: 0.8\nmuon_weight_decay: 0.1\n", dict(beta=0.8, weight_decay=0.1)),
        # as MaxText's optimizers.py has it for this decoder block
        "muon_settles": ("opt_type: muon\nmuon_consistent_rms: 0.2\n" + DEEPSEEK4,
                         dict(beta=0.95, weight_decay=0.0, coefficients=[NEAR_1] * 8 + [(2.0, -1.5, 0.5)] * 2, steps=10,
                              consistent_rms=0.2)),
    }, lambda state, words, x: {}),
}
# where checkpoints have what is kept
FOLDER = {"lion": "0/", "adafactor": "0/", "schedule_free": ""}


def follow(optimizer, params0, grads):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optimizer)
    make_update = jax.jit(optimizer.update)  # as in a train step
    params = {k: jnp.asarray(v) for k, v in params0.items()}
    state, points, seen = optimizer.init(params), [], []
    for step in range(STEPS):
        update, state = make_update({k: jnp.asarray(grads[k][step]) for k in grads}, state, params)
        params = optax.apply_updates(params, update)
        points.append(params)
        is_free = isinstance(state[1], contrib.ScheduleFreeState)
        seen.append(contrib.schedule_free_eval_params(state[1], params) if is_free else params)
    return state[1], points, seen


def main(name, path):
    rng = np.random.default_rng(18)
    shapes, make, cases, read = OPTIMIZERS[name]
    params0 = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    grads = {k: rng.normal(size=(STEPS,) + s).astype(np.float32) for k, s in shapes.items()}
    with h5py.File(path, "w", libver="latest", meta_block_size=256) as file:
        file.attrs["versions"] = f"jax=={jax.__version__} optax=={optax.__version__} numpy=={np.__version__}"
        for k in shapes:
            file[f"params0/{k}"] = params0[k]
            file[f"grads/{k}"] = grads[k][:max(SEEN)] if name == "muon" else grads[k]
            if name == "muon":
                file[f"params0/{k}"].attrs["muon"] = f"reduction={EXPERTS[k][1]} output={EXPERTS[k][2]}"
        for case, (config, words) in cases.items():
            state, points, seen = follow(make(**words), params0, grads)
            group = file.create_group(f"cases/{case}")
            group.attrs["config"] = COMMON + config
            group["learning_rate"] = np.array([schedule(step) for step in range(STEPS)], np.float32)
            for step in SEEN if name == "muon" else ():
                for k in shapes:
                    group[f"step{step}/params/{k}"] = np.asarray(points[step - 1][k])
            for k in shapes if name != "muon" else ():
                group[f"params/{k}"] = np.stack([np.asarray(p[k]) for p in seen])
                if name == "schedule_free":
                    group[f"points/{k}"] = np.stack([np.asarray(p[k]) for p in points])
            for tree, values in read(state, words, seen[-1]).items():
                for k, v in values.items():
                    group[f"opt_state/{FOLDER[name]}{tree}/{k}"] = np.asarray(v, np.float32)


main(*sys.argv[1:])

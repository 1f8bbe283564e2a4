#!/usr/bin/env python3
"""Random cases of losses of rewarded responses: TRL's GRPOTrainer makes them, our test compares.

    pip install trl torch h5py
    scripts/random_policies.py FOLDER build/test_train [ROUNDS] [SEED]

A round draws log-probabilities of a policy, of the one that wrote the responses and of a reference, entropies, masks and advantages,
and has thirty-two cases with bounds of their own: eight losses, ratios of tokens or of sequences, with a reference and without; half of
those with one weigh divergences by ratios, half leave out responses from which the policy has moved away, half keep the tokens of the
largest entropies alone, and half reward entropy. FOLDER/<round>/hf/trl/policies.h5 is laid out as the golden of that name; the test reads it with
MX_GOLDEN=FOLDER/<round>. Prints how many rounds disagree, and where. (scripts/random_cases.py has cases of MaxText's.)
"""
import collections
import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import h5py
import numpy as np
import torch
from trl import GRPOTrainer

ROWS, LENGTH = 6, 9
LOSSES, LEVELS = ("grpo", "bnpo", "dapo", "luspo", "dr_grpo", "cispo", "sapo", "vespo"), ("token", "sequence")
SHAPES = {"vespo_k_pos": (0, 2), "vespo_lambda_pos": (0.5, 2.5), "vespo_k_neg": (0, 2), "vespo_lambda_neg": (0.5, 2.5),
          "sapo_temperature_pos": (0.3, 2), "sapo_temperature_neg": (0.3, 2)}


def draw(rng):
    old = -np.abs(rng.normal(1.5, 1, (ROWS, LENGTH)))
    lengths = rng.integers(1, LENGTH + 1, ROWS)
    near = lambda scale: np.minimum(old + scale * rng.normal(size=old.shape), -1e-3)
    given = {"old_logps": old, "logps": near(0.3), "ref_logps": near(0.3), "advantages": rng.normal(size=ROWS)}
    given = {k: v.astype(np.float32) for k, v in given.items()}
    given["entropies"] = np.abs(rng.normal(1, 1, (ROWS, LENGTH))).astype(np.float32)
    given["mask"] = (np.arange(LENGTH) < lengths[:, None]).astype(np.int64)
    return given


def measure(given, how):
    """TRL's loss and its gradient by the log-probabilities and by the entropies."""
    logps = torch.tensor(given["logps"], requires_grad=True)
    entropies = torch.tensor(given["entropies"], requires_grad=True)
    mask = torch.tensor(given["mask"])
    trainer = MagicMock(model=SimpleNamespace(training=False))
    trainer._get_per_token_logps_and_entropies.return_value = (logps, entropies, None)
    trainer.accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x,
                                          pad_across_processes=lambda x, dim, pad_index: x)
    trainer.get_high_entropy_mask = lambda *args: GRPOTrainer.get_high_entropy_mask(trainer, *args)
    trainer._metrics = {mode: collections.defaultdict(list) for mode in ("train", "eval")}
    trainer.args = SimpleNamespace(delta=how["delta"] or None, use_bias_correction_kl=bool(how["weighs_kl"]), report_to=[],
                                   **{key: how[key] for key in SHAPES})
    trainer.get_gamma_weights = GRPOTrainer.get_gamma_weights
    trainer.get_off_policy_mask = GRPOTrainer.get_off_policy_mask
    for key, value in dict(top_entropy_quantile=how["top_entropy_quantile"], entropy_coef=how["entropy_coef"], use_adaptive_entropy=False,
                           _entropy_bonus_enabled=how["entropy_coef"] != 0, off_policy_mask_threshold=how["off"] or None,
                           use_vllm=False, aux_loss_enabled=False, importance_sampling_level=how["level"], loss_type=how["loss_type"],
                           beta=how["beta"], epsilon_low=how["epsilon_low"], epsilon_high=how["epsilon_high"],
                           max_completion_length=how["max_completion_length"]).items():
        setattr(trainer, key, value)
    prompt = torch.zeros((ROWS, 1), dtype=torch.int64)
    loss = GRPOTrainer._compute_loss(trainer, None, {
        "prompt_ids": prompt, "prompt_mask": prompt, "completion_ids": torch.zeros_like(mask), "completion_mask": mask,
        "advantages": torch.tensor(given["advantages"]), "old_per_token_logps": torch.tensor(given["old_logps"]),
        "ref_per_token_logps": torch.tensor(given["ref_logps"]), "num_items_in_batch": mask.sum()})
    loss.backward()
    made = {"loss": loss.detach().numpy(), "grad_logps": logps.grad.numpy()}
    return made | ({} if entropies.grad is None else {"grad_entropies": entropies.grad.numpy()})


def write(path, rng):
    given = draw(rng)
    with h5py.File(path, "w") as file:
        for key, value in given.items():
            file[f"grpo/{key}"] = value
        for loss_type in LOSSES:
            for level in LEVELS:
                for beta in (0.0, round(float(rng.uniform(0.01, 1)), 3)):
                    how = dict(loss_type=loss_type, level=level, beta=beta, delta=round(float(rng.choice((0, rng.uniform(1, 2)))), 3),
                               max_completion_length=int(rng.integers(9, 40)), weighs_kl=int(rng.integers(2)),
                               top_entropy_quantile=round(float(rng.choice((1, rng.uniform(0, 1)))), 3),
                               entropy_coef=round(float(rng.choice((0, rng.uniform(-0.1, 0.3)))), 3),
                               off=round(float(rng.choice((0, rng.uniform(0.01, 0.1)))), 3),
                               **{key: round(float(rng.uniform(*span)), 3) for key, span in SHAPES.items()},
                               epsilon_low=round(float(rng.uniform(0.05, 0.5)), 3), epsilon_high=round(float(rng.uniform(0.05, 0.5)), 3))
                    group = file.create_group(f"grpo/{loss_type}_{level}_kl{beta}")
                    group.attrs.update(how)
                    for key, value in measure(given, how).items():
                        group[key] = value


def main(folder, binary, rounds=5, seed=0):
    failed = 0
    for i in range(int(rounds)):
        at = pathlib.Path(folder) / str(i)
        for name in ("train", "models/variants", "hf/trl"):  # the other suites list the first two
            (at / name).mkdir(parents=True, exist_ok=True)
        write(at / "hf/trl/policies.h5", np.random.default_rng([int(seed), i]))
        found = subprocess.run([binary], env=dict(os.environ, MX_GOLDEN=str(at), CK_RUN_SUITE="policy"), capture_output=True, text=True)
        if found.returncode or "hf/trl/policies.h5" in found.stdout:
            failed += 1
            print(f"round {i}:", (found.stdout + found.stderr).strip())
    print(f"{int(rounds) * len(LOSSES) * len(LEVELS) * 2} cases of losses; {failed} of {rounds} rounds disagree")
    sys.exit(failed > 0)


main(*sys.argv[1:])

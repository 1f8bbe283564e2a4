#!/usr/bin/env python3
"""Trains a tiny model by TRL's CPOTrainer, DPOTrainer and, with loss_type="dft", SFTTrainer, for tests/golden/hf/trl/cpo.

    pip install torch transformers trl h5py
    scripts/golden_cpo.py START OUT

START is a causal Llama of 32 ids as a folder of Hugging Face's (tests/golden/hf/trl/grpo/start). Writes OUT/expected.h5: for
cpo, alphapo (SimPO with another shape of the reward), mpo (a sum of losses), weighed (WPO), moved (LD-DPO with a
reference that follows) and dft the batch as the trainer collates it (input_ids; labels, -100 where a token does not count; of pairs chosen rows first) and what
each of five steps has: its loss, the gradient's norm and, of cpo, the cross-entropy of chosen responses.
Make expected.h5 smaller by scripts/golden_pack.py.
"""
import json
import os
import sys
import tempfile

import h5py
import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from trl.experimental.cpo import CPOConfig, CPOTrainer

PAIRS, STEPS = 4, 5
ARGS = dict(per_device_train_batch_size=PAIRS, max_steps=STEPS, learning_rate=1e-2, lr_scheduler_type="constant", adam_beta1=0.9,
            adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no",
            use_cpu=True, bf16=False, gradient_checkpointing=False, seed=0)


def words_of(rng, low, high):
    return " ".join(f"w{i}" for i in rng.integers(3, 32, rng.integers(low, high)))


def tokenizer():
    """Of words w3 to w31, of which no other token is a part."""
    special = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words = Tokenizer(models.WordLevel(special | {f"w{i}": i for i in range(3, 32)}, unk_token="<s>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def pairs(rng):
    rows = {"prompt": [words_of(rng, 2, 5) for _ in range(PAIRS)]}
    for side in ("chosen", "rejected"):
        rows[side] = [" " + words_of(rng, 2, 8) for _ in range(PAIRS)]
    return Dataset.from_dict(rows)


def by_cpo(model, rng, **how):
    args = CPOConfig(output_dir=tempfile.mkdtemp(), **how, **ARGS)
    return CPOTrainer(model=model, args=args, train_dataset=pairs(rng), processing_class=tokenizer())


def cpo(model, rng):
    return by_cpo(model, rng, loss_type="sigmoid", beta=0.3, label_smoothing=0.1, cpo_alpha=0.5)


def alphapo(model, rng):
    return by_cpo(model, rng, loss_type="simpo", beta=2.0, simpo_gamma=0.4, cpo_alpha=0.0, alpha=0.2)


def by_dpo(model, rng, **how):
    args = trl.DPOConfig(output_dir=tempfile.mkdtemp(), **how, **ARGS)
    return trl.DPOTrainer(model=model, args=args, train_dataset=pairs(rng), processing_class=tokenizer())


def mpo(model, rng):
    return by_dpo(model, rng, loss_type=["sigmoid", "bco_pair", "aot", "sft"], loss_weights=[0.8, 0.2, 0.3, 0.5], beta=0.3)


def weighed(model, rng):
    return by_dpo(model, rng, beta=0.3, use_weighting=True)


def moved(model, rng):
    return by_dpo(model, rng, beta=0.3, ld_alpha=0.4, sync_ref_model=True, ref_model_sync_steps=2, ref_model_mixup_alpha=0.7)


def dft(model, rng):
    rows = {"prompt": [words_of(rng, 2, 5) for _ in range(PAIRS)], "completion": [" " + words_of(rng, 2, 8) for _ in range(PAIRS)]}
    args = trl.SFTConfig(output_dir=tempfile.mkdtemp(), loss_type="dft", completion_only_loss=True, **ARGS)
    return trl.SFTTrainer(model=model, args=args, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer())


def batch_of(name, trainer):
    """The trainer's only batch; the order of its rows changes nothing."""
    batch = next(iter(trainer.get_train_dataloader()))
    if name == "dft":
        return batch["input_ids"], batch["labels"]
    if "completion_mask" in batch:
        return batch["input_ids"], batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
    both = trainer.concatenated_inputs(batch, padding_value=0)
    return both["concatenated_input_ids"], both["concatenated_labels"]


def main():
    start, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with h5py.File(os.path.join(out, "expected.h5"), "w") as file:
        file.attrs["versions"] = json.dumps({m.__name__: m.__version__ for m in (trl, transformers, torch)})
        for make in (cpo, alphapo, mpo, weighed, moved, dft):
            name = make.__name__
            model = transformers.AutoModelForCausalLM.from_pretrained(start, attn_implementation="eager", dtype=torch.float32)
            trainer = make(model, np.random.default_rng(7))
            ids, labels = batch_of(name, trainer)
            file[f"{name}/input_ids"], file[f"{name}/labels"] = ids.numpy().astype(np.int32), labels.numpy().astype(np.int32)
            trainer.train()
            for key in ("loss", "grad_norm", "nll_loss"):
                log = [row[key] for row in trainer.state.log_history if key in row]
                if log:
                    file[f"{name}/{key}"] = np.array(log, np.float32)


if __name__ == "__main__":
    main()

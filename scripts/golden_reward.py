#!/usr/bin/env python3
"""Trains a tiny reward model by TRL's RewardTrainer, for tests/golden/hf/trl/reward.

    pip install torch transformers trl h5py
    scripts/golden_reward.py OUT

Writes OUT/start, a Llama with a head of one number; OUT/gradient, that of its loss with center_rewards_coefficient; OUT/final,
what five steps of AdamW make of it, all as folders of models; and OUT/expected.h5: pairs of responses as the trainer's collator
pads them (input_ids, attention_mask: chosen ones first), the loss without (plain) and with that coefficient (centered), and
what the steps log (train). Make expected.h5 smaller by scripts/golden_pack.py.
"""
import copy
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

SIZES = dict(hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=32,
             num_hidden_layers=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=1)
PAIRS, STEPS, CENTER = 4, 5, 0.05
LOGGED = ["loss", "grad_norm", "accuracy", "margin", "min_reward", "mean_reward", "max_reward"]


def draw_pairs(rng):
    """Ids with a common prompt, of several lengths; no token is the padding."""
    prompts = [rng.integers(3, 32, 1 + i).tolist() for i in range(PAIRS)]
    return {side: [p + rng.integers(3, 32, rng.integers(2, 9)).tolist() for p in prompts] for side in ("chosen_ids", "rejected_ids")}


def trainer_of(model, pairs, center):
    args = trl.RewardConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=PAIRS, max_steps=STEPS, learning_rate=1e-3,
        lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, disable_dropout=True,
        center_rewards_coefficient=center, seed=0)
    words = {f"w{i}": i for i in range(32)}
    from tokenizers import Tokenizer, models
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w3")),
                                                     pad_token="w0", bos_token="w1", eos_token="w2")
    return trl.RewardTrainer(model=model, args=args, train_dataset=Dataset.from_dict(pairs), processing_class=tokenizer)


def save(model, folder):
    model.save_pretrained(folder)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)


def save_gradients(model, folder):
    gradients = copy.deepcopy(model)
    for to, p in zip(gradients.parameters(), model.parameters()):
        to.data = p.grad.clone()
    save(gradients, folder)


def main():
    out = sys.argv[1]
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**SIZES)
    config._attn_implementation = "eager"
    model = transformers.LlamaForSequenceClassification(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3)
            if p.dim() == 1:
                p.add_(1.0)
    save(model, os.path.join(out, "start"))
    pairs = draw_pairs(np.random.default_rng(5))
    with h5py.File(os.path.join(out, "expected.h5"), "w") as file:
        file.attrs["versions"] = json.dumps({m.__name__: m.__version__ for m in (trl, transformers, torch)})
        for group, center in (("plain", None), ("centered", CENTER)):
            trainer = trainer_of(model, pairs, center)
            batch = trainer.data_collator([dict(zip(pairs, row)) for row in zip(*pairs.values())])
            model.zero_grad()
            loss = trainer.compute_loss(model, dict(batch))
            loss.backward()
            file[group] = np.float32(loss.item())
        save_gradients(model, os.path.join(out, "gradient"))
        file["input_ids"], file["attention_mask"] = batch["input_ids"].numpy(), batch["attention_mask"].numpy()
        model.zero_grad()
        trainer = trainer_of(model, pairs, CENTER)
        trainer.train()
        for key in LOGGED:
            file[f"train/{key}"] = np.array([row[key] for row in trainer.state.log_history if key in row], np.float32)
        save(trainer.model, os.path.join(out, "final"))


if __name__ == "__main__":
    main()

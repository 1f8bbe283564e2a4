#!/usr/bin/env python3
"""Trains a tiny model by TRL's GRPOTrainer, several steps on each batch of responses, for tests/golden/hf/trl/grpo.

    pip install torch transformers trl h5py
    scripts/golden_grpo.py OUT

Writes OUT/start, a Llama as a folder of Hugging Face's, and OUT/expected.h5: batches of responses, two to each prompt, first ones
first (input_ids and mask [batch, row, token], which tokens are a response's; rewards), and what each step has, num_iterations steps
a batch: its loss, the share of tokens whose ratio was bounded, the mean divergence from the reference, the gradient's norm.
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

SIZES = dict(hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=32,
             num_hidden_layers=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
BATCHES, GROUPS, SIDES, ITERATIONS, PROMPT, LENGTH = 2, 2, 2, 3, 3, 12
LOGGED = {"clipped": "clip_ratio/region_mean", "kl": "kl", "grad_norm": "grad_norm"}


class Trainer(trl.GRPOTrainer):
    """Logs round losses."""

    losses = []

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


def draw(rng):
    """Prompts as texts, completions and their rewards [batch, group, side]."""
    prompts = [[" ".join(f"w{i}" for i in rng.integers(3, 32, PROMPT)) for _ in range(GROUPS)] for _ in range(BATCHES)]
    lengths = rng.integers(3, LENGTH - PROMPT + 1, (BATCHES, GROUPS, SIDES))
    completions = [[[rng.integers(3, 32, n).tolist() for n in group] for group in batch] for batch in lengths]
    return prompts, completions, rng.normal(size=(BATCHES, GROUPS, SIDES)).round(2)


def main():
    out = sys.argv[1]
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**SIZES)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3)
            if p.dim() == 1:
                p.add_(1.0)
    start = os.path.join(out, "start")
    model.save_pretrained(start)
    for name in os.listdir(start):
        os.chmod(os.path.join(start, name), 0o644)
    prompts, completions, rewards = draw(np.random.default_rng(5))
    asked = iter(range(BATCHES))
    batch = []

    def write(texts, trainer):
        batch[:] = [next(asked)]
        ids = [[int(w[1:]) for w in text.split()] for text in texts]
        return {"prompt_ids": ids, "completion_ids": [c for group in completions[batch[0]] for c in group], "logprobs": None}

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w3"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", bos_token="w1", eos_token="w2")
    args = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=GROUPS * SIDES, num_generations=SIDES, num_iterations=ITERATIONS,
        max_steps=BATCHES * ITERATIONS, loss_type="dr_grpo", scale_rewards="none", max_completion_length=LENGTH, beta=0.1, epsilon=0.05,
        use_bias_correction_kl=False,  # which weighs divergences by ratios
        learning_rate=1e-2, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0,
        max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
        shuffle_dataset=False, seed=0)
    reference = os.path.join(out, "start")
    model = transformers.AutoModelForCausalLM.from_pretrained(reference, attn_implementation="eager", dtype=torch.float32)
    trainer = Trainer(model=model, args=args, reward_funcs=lambda **kwargs: rewards[batch[0]].ravel().tolist(),
                      train_dataset=Dataset.from_dict({"prompt": [p for b in prompts for p in b]}), processing_class=tokenizer,
                      rollout_func=write)
    trainer.train()
    ids = np.zeros((BATCHES, SIDES, GROUPS, LENGTH), np.int32)
    mask = np.zeros_like(ids)
    for b in range(BATCHES):
        for g in range(GROUPS):
            for s in range(SIDES):
                prompt, completion = [int(w[1:]) for w in prompts[b][g].split()], completions[b][g][s]
                ids[b, s, g, :PROMPT + len(completion)] = prompt + completion
                mask[b, s, g, PROMPT:PROMPT + len(completion)] = 1
    with h5py.File(os.path.join(out, "expected.h5"), "w") as file:
        file.attrs["versions"] = json.dumps({m.__name__: m.__version__ for m in (trl, transformers, torch)})
        file["input_ids"], file["mask"] = ids.reshape(BATCHES, -1, LENGTH), mask.reshape(BATCHES, -1, LENGTH)
        file["rewards"] = rewards.transpose(0, 2, 1).reshape(BATCHES, -1).astype(np.float32)
        file["loss"] = np.array(trainer.losses, np.float32)
        for ours, theirs in LOGGED.items():
            file[ours] = np.array([row[theirs] for row in trainer.state.log_history if theirs in row], np.float32)


if __name__ == "__main__":
    main()

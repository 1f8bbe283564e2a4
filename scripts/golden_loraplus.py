"""Three steps of LoRA+ with peft's own optimizer.

    python scripts/golden_loraplus.py DORA OUT.h5

DORA is tests/golden/train/peft_dora (base model, adapter with magnitudes, input_ids). OUT gets the loss
(next tokens) before each step, and A, B and magnitudes (M) of each module after the last. AdamW with
lr 0.01, loraplus_lr_ratio 8 and loraplus_weight_decay 0.1. peft 0.21 and transformers 5.24 on PyTorch,
CPU; in float64 from float32 numbers, rounded. Needs h5py.
"""

import os
import sys

import h5py
import numpy as np
import peft
import torch
import transformers
from peft.optimizers import create_loraplus_optimizer

MODULES = ["q_proj", "v_proj", "o_proj", "down_proj"]


def main():
    folder, to = sys.argv[1:]
    with h5py.File(os.path.join(folder, "expected.h5")) as file:
        ids = torch.tensor(file["input_ids"][:], dtype=torch.long)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(folder, "base"), dtype=torch.float32, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, folder, is_trainable=True).double().train()
    optimizer = create_loraplus_optimizer(
        model, torch.optim.AdamW, lr=0.01, loraplus_lr_ratio=8, loraplus_weight_decay=0.1,
        betas=(0.9, 0.95), eps=1e-8)
    arrays = {"loss": []}
    for _ in range(3):
        loss = model(ids, labels=ids, use_cache=False).loss
        arrays["loss"].append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    modules = {name.split(".")[-1]: one for name, one in model.named_modules()}
    for name in MODULES:
        one = modules[name]
        arrays[name + ".A"] = one.lora_A["default"].weight.detach().numpy()
        arrays[name + ".B"] = one.lora_B["default"].weight.detach().numpy()
        arrays[name + ".M"] = one.lora_magnitude_vector["default"].weight.detach().numpy()
    with h5py.File(to, "w", libver="latest") as out:
        for name, array in arrays.items():
            out[name] = np.asarray(array).astype(np.float32)


main()

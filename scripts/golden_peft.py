"""Adapters of peft over tiny models of hf/models, with what the models then say.

    python scripts/golden_peft.py MODEL OUT TARGET... [--parameters TARGET...] [--config JSON]

OUT gets adapter_config.json and adapter_model.safetensors as peft saves them, of rank 1 and random
(--config: other members of LoraConfig), and expected.h5: the logits behind a prompt. peft 0.21 and transformers 5.24 on PyTorch, CPU,
float32. Needs h5py.
"""

import argparse
import json
import os

import h5py
import numpy as np
import peft
import torch
import transformers

IDS = [5, 9, 3, 6, 7, 8, 2, 4, 3, 11]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--parameters", nargs="+")
    parser.add_argument("--config", type=json.loads, default={})
    args = parser.parse_args()
    torch.manual_seed(7)
    config = peft.LoraConfig(
        **dict(task_type="CAUSAL_LM", r=1, lora_alpha=2, target_modules=args.targets,
               target_parameters=args.parameters) | args.config
    )
    model = peft.get_peft_model(load(args.model), config)
    for value in model.parameters():
        if value.requires_grad:
            value.data.normal_(std=0.2)
    model.base_model.model.config._name_or_path = ""
    for one in model.peft_config.values():
        one.base_model_name_or_path = ""
    model.save_pretrained(args.out)
    os.remove(os.path.join(args.out, "README.md"))
    model = peft.PeftModel.from_pretrained(load(args.model), args.out).eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), use_cache=False).logits[0].numpy()
    with h5py.File(os.path.join(args.out, "expected.h5"), "w") as out:
        out["prompts/000000/ids"] = np.array(IDS, np.int32)
        out["prompts/000000/logits"] = logits


main()

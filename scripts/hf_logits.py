#!/usr/bin/env python3
"""Logits of prompts as transformers makes them, in a file that mxcompare --logits reads.

    hf_logits.py DIR PROMPTS.jsonl OUT.h5

DIR is a folder of Hugging Face's. A line of PROMPTS is a text, a list of ids, or {"prompt": one of these}, as for
mxdecode --prompts. Needs torch, transformers and h5py. Runs in float32 on the CPU.
"""
import json
import sys

import h5py
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def read_prompts(directory, path):
    tokenizer = None
    for line in open(path, encoding="utf-8"):
        if not line.strip():
            continue
        prompt = json.loads(line)
        prompt = prompt["prompt"] if isinstance(prompt, dict) else prompt
        if isinstance(prompt, str):
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(directory)
            prompt = tokenizer(prompt)["input_ids"]
        yield prompt


def main(directory, prompts, out):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with h5py.File(out, "w") as file, torch.no_grad():
        for i, ids in enumerate(read_prompts(directory, prompts)):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0]
            file[f"prompts/{i:06d}/ids"] = ids
            file[f"prompts/{i:06d}/logits"] = logits.float().numpy()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

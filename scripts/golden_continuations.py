#!/usr/bin/env python3
"""Writes tests/golden/hf/continuations.json: what transformers 5.23 (torch, float32, eager attention) says next,
greedily, behind the prompts of golden/hf/models. Usage: golden_continuations.py MODELS OUT [TOKENS]

MODELS is the folder hf/models of the goldens; every model in it that has expected.h5 with generate/prompt is taken."""
import json
import os
import sys

import h5py
import torch
import transformers


def continue_greedily(model, prompt, n):
    ids = torch.tensor(prompt, dtype=torch.long)[None]
    with torch.no_grad():
        for _ in range(n):
            logits = model(ids, use_cache=False).logits[0, -1]
            ids = torch.cat([ids, logits.argmax()[None, None]], 1)
    return ids[0, len(prompt):].tolist()


def main():
    models, out, n = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 64
    found = {}
    for name in sorted(os.listdir(models)):
        folder, expected = os.path.join(models, name), os.path.join(models, name, "expected.h5")
        if not os.path.exists(expected):
            continue
        with h5py.File(expected) as file:
            if "generate" not in file:
                continue
            prompts = file["generate/prompt"][:].tolist()
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            found[name] = [{"prompt": prompt, "tokens": continue_greedily(model, prompt, n)} for prompt in prompts]
        except Exception as why:  # weights that are no causal model's; learned positions that end before
            print("%s is left out: %s" % (name, str(why).split("\n")[0]))
            continue
        print(name, found[name][0]["tokens"][:8], flush=True)
    with open(out, "w") as file:
        rows = ",\n".join('"%s": %s' % (name, json.dumps(rows, separators=(",", ":"))) for name, rows in found.items())
        file.write("{\n%s\n}\n" % rows)


main()

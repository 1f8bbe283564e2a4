"""Writes the matrices of transformers' models, as peft finds them: a row for each of a layer.

    python scripts/golden_modules.py tests/golden/hf/models/MODEL... > tests/golden/hf/modules.tsv

A row is a model's name, a parameter's with a star for the number of a layer, and its shape. The
models are made of config.json alone, without values. transformers 5.24.
"""

import os
import re
import sys

import torch
import transformers


def rows(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    seen = set()
    for name, value in model.named_parameters():
        is_matrix = value.dim() in (2, 3) and not re.search("embed|bias|conv|_hc|hc_|norm", name)
        name = re.sub(r"layers\.\d+\.", "layers.*.", name)
        row = (name, " ".join(str(n) for n in value.shape))
        if is_matrix and row not in seen:
            seen.add(row)
            yield row


for folder in sys.argv[1:]:
    for name, shape in rows(folder):
        print(os.path.basename(folder.rstrip("/")), name, shape, sep="\t")

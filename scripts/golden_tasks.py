#!/usr/bin/env python3
"""Writes tests/golden/hf/tasks: a small Llama that nobody trained, with the tokenizer of hf/tokenizers/trained, tasks,
and the figures that transformers makes of them (hf_tasks.py).  tests/cli/tasks.sh wants them from mxdecode.

  scripts/golden_tasks.py tests/golden/hf
"""
import contextlib
import io
import json
import pathlib
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import hf_tasks

TASKS = {
    "choices": [
        {"question": "ka lo miren the", "choices": ["heran", "aaa", "мятья grün"], "answer": 1},
        {"question": "where is it? ", "choices": ["here", "there and there"], "answer": 0},
        {"question": "", "choices": ["중문", "a", "b 23 2024", "don't"], "answer": 2},
        {"question": "two\n\nlines\n", "choices": ["x", "xx", "xxx xxx"], "answer": 2},
        {"question": "👍🏽 abab", "choices": ["👍", "e\u0301 é", "字"], "answer": 0},
    ],
    "answers": [{"question": "ka lo", "answer": " x "}, {"question": "the heran", "answer": "y"}],
    "texts": [{"text": "ka lo miren the heran\n\nabab ababab, don't. " * 6}, {"text": "\u4e2d\u6587 grün 2024"}],
}


def main(folder):
    out = pathlib.Path(folder) / "tasks"
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=600, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=4, max_position_embeddings=48, initializer_range=0.5, bos_token_id=None, eos_token_id=2))
    model.save_pretrained(out)
    shutil.copy(f"{folder}/tokenizers/trained/tokenizer.json", out)
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "clean_up_tokenization_spaces": False}))
    examined = hf_tasks.Model(out)
    for record in TASKS["answers"][:1]:  # one that is right
        record["answer"] = " " + examined.reply(record["question"], 16) + "\n"
    for name, records in TASKS.items():
        path = out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as lines:
            hf_tasks.main(str(out), str(path))
        (out / f"{name}_expected.jsonl").write_text(lines.getvalue(), encoding="utf-8")


main(sys.argv[1])

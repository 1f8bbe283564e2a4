#!/usr/bin/env python3
"""Figures of tasks as transformers makes them, in the lines of `mxdecode DIR --evaluate FILE --json`.

    hf_tasks.py DIR TASKS.jsonl

A line of TASKS is {"question", "choices", "answer"} with a number for an answer, {"question", "answer"} with a text,
or {"text"}. What is asked is what lm-evaluation-harness 0.4 asks (lm_eval/models/huggingface.py: _encode_pair,
loglikelihood_rolling), without special tokens. Needs torch and transformers. Runs in float32 on the CPU.
"""
import json
import math
import re
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Model:
    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        self.first = bos if bos is not None else eos
        self.length = min(self.model.config.max_position_embeddings, 2048)

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def foretell(self, ids, given):
        with torch.no_grad():
            logprobs = self.model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].double().log_softmax(-1)
        return sum(logprobs[i - 1, ids[i]].item() for i in range(given, len(ids)))

    def choice(self, context, choice):
        whole = self.ids(context + " " + choice)
        given = self.ids(context.rstrip())
        return self.foretell(whole, len(given)) if given else self.foretell([self.first] + whole, 1)

    def roll(self, text):
        ids = [self.first] + self.ids(text)
        return sum(self.foretell(ids[at - 1:at + self.length], 1) for at in range(1, len(ids), self.length)), len(ids) - 1

    def reply(self, prompt, most):
        out = self.model.generate(torch.tensor([self.ids(prompt)]), max_new_tokens=most, do_sample=False)[0]
        text = self.tokenizer.decode(out[len(self.ids(prompt)):], skip_special_tokens=True)
        return text.split("\n\n")[0].strip()


def share(name, values):
    mean = sum(values) / len(values)
    return {name: mean, f"{name}_stderr": math.sqrt(mean * (1 - mean) / (len(values) - 1)) if len(values) > 1 else 0}


def choices(model, records):
    acc, norm = [], []
    for record in records:
        sums = [model.choice(record["question"], c) for c in record["choices"]]
        each = [s / len(c) for s, c in zip(sums, record["choices"])]
        acc.append(sums.index(max(sums)) == record["answer"])
        norm.append(each.index(max(each)) == record["answer"])
        print(json.dumps({"logprobs": sums, "gold": record["answer"], "acc": int(acc[-1]), "acc_norm": int(norm[-1])}))
    print(json.dumps({"questions": len(records), **share("acc", acc), **share("acc_norm", norm)}))


def answers(model, records):
    right = []
    for record in records:
        reply, wanted = model.reply(record["question"], 16), record["answer"].strip()
        right.append(reply == wanted)
        print(json.dumps({"reply": reply, "wanted": wanted, "exact_match": int(right[-1])}, ensure_ascii=False))
    print(json.dumps({"questions": len(records), **share("exact_match", right)}))


def texts(model, records):
    total = tokens = words = size = 0
    for record in records:
        part, n = model.roll(record["text"])
        total, tokens = total + part, tokens + n
        words, size = words + len(re.split(r"\s+", record["text"])), size + len(record["text"].encode())
    print(json.dumps({"texts": len(records), "perplexity": math.exp(-total / tokens), "word_perplexity": math.exp(-total / words),
                      "byte_perplexity": math.exp(-total / size), "bits_per_byte": -total / size / math.log(2)}))


def main(folder, path):
    records = [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    kind = choices if "choices" in records[0] else answers if "answer" in records[0] else texts
    kind(Model(folder), records)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Writes tests/golden/hf/tokenizers/trained: a text of mixed scripts, and the tokenizer that the
tokenizers library (0.23) trains on it.  tests/text/test_train.c wants the same tokens from us.

  scripts/golden_trained.py tests/golden/hf/tokenizers/trained
"""
import json
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SYLLABLES = ["ka", "lo", "mi", "ren", "the", "he", "er", "an", "aa", "aaa", "abab", "ß", "grün", "ять", "не", "이다", "中文",
             "字", "👍", "👍🏽", "é", "e\u0301", "1", "23", "2024", "don't", "we'll", "==", "->", "...", "_"]


def text(seed):
    rng = random.Random(seed)
    words = ["".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 5))) for _ in range(150)]
    return "".join(rng.choice(words) + rng.choice([" ", " ", " ", ", ", "\n", "\n\n", "  ", "\t", ". "])
                   for _ in range(700))


def main(folder):
    texts = [text(seed) for seed in range(2)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with open(f"{folder}/texts.jsonl", "w", encoding="utf-8") as out:
        for t in texts:
            out.write(json.dumps({"text": t, "ids": tokenizer.encode(t).ids}, ensure_ascii=False) + "\n")
    tokenizer.save(f"{folder}/tokenizer.json", pretty=False)


main(sys.argv[1])

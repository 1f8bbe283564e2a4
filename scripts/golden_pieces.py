#!/usr/bin/env python3
"""Writes tests/golden/hf/tokenizers/pieces: models of sentencepiece (0.2.3) made by hand, and the ids of
random strings. One is a unigram model.  A piece of text may be a normal one, inside a user-defined one or around it, and
scores are so large that sums in float32 are coarse and begin at 0 again within a string. The other is BPE (bpe.model), with
characters that only parts of a user-defined piece have: alone they are unknown, and one with unknown ones beside them.

  scripts/golden_pieces.py tests/golden/hf/tokenizers/pieces
"""
import json
import os
import random
import sys

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

CONTROL = {"<unk>": 2, "<s>": 3, "</s>": 3}
USER = ["tion", "io", ",", "<x>", "▁▁"]
NORMAL = {"▁": -2.1716766357421875, "a": -4.3, "t": -4.1, "i": -3.7, "o": -5.3, "n": -4.7, "ation": -9.1, "ti": -7.8,
          "on": -8.2, ",a": -4.4, "na,": -9.3, "▁▁▁▁": -8.68670654296875, "b": -7001.33, "bb": -14002.66, "bbb": -21003.99,
          "ba": -7005.63}


# Of BPE.
WORDS = ["<1#>"]
MERGED = {"▁": -9.0, "a": -10.0, "b": -11.0, "ab": -1.0, "▁a": -2.0, "e": -12.0}


def model(kind, user, normal):
    proto = pb.ModelProto()
    proto.trainer_spec.model_type = kind
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.remove_extra_whitespaces = False
    for kinds in ({text: (0.0, kind) for text, kind in CONTROL.items()}, {text: (0.0, 4) for text in user},
                  {text: (score, 1) for text, score in normal.items()}):
        for text, (score, kind) in kinds.items():
            proto.pieces.add(piece=text, score=score, type=kind)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()


def main(folder):
    rng = random.Random(5)
    bits = ["a", "t", "i", "o", "n", "tion", "ation", " ", "  ", ",", "b", "bb", "<x>", "c"]
    texts = ["".join(rng.choice(bits) for _ in range(rng.randint(1, 14))) for _ in range(90)]
    texts += ["".join(rng.choice(["b", "bb", "bbb", "ba", " ", ","]) for _ in range(rng.randint(20, 50))) for _ in range(15)]
    texts += ["t<s>", "</s>", "</s>it<s>n", "<unk>"]
    write(folder, "tokenizer.model", model(1, USER, NORMAL), "expected_spm.jsonl", texts)
    bits = ["1", "#", "9", "a", "b", "<", ">", "<1#>", " ", "e", "é"]
    texts = ["".join(rng.choice(bits) for _ in range(rng.choice([2, 3, 5, 40]))) for _ in range(110)]
    write(folder, "bpe.model", model(2, WORDS, MERGED), "expected_bpe.jsonl", texts)


def write(folder, name, content, expected, texts):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    open(path, "wb").write(content)
    pieces = spm.SentencePieceProcessor(model_file=path)
    with open(os.path.join(folder, expected), "w", encoding="utf-8") as out:
        for text in texts:
            out.write(json.dumps({"text": text, "ids": pieces.encode(text)}, separators=(",", ":")) + "\n")


main(sys.argv[1])

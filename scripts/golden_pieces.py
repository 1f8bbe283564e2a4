#!/usr/bin/env python3
"""Writes tests/golden/hf/tokenizers/pieces: a unigram model of sentencepiece (0.2.3) made by hand, and
the ids of random strings.  A piece of text may be a normal one, inside a user-defined one or around it, and
scores are so large that sums in float32 are coarse and begin at 0 again within a string.

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


def model():
    proto = pb.ModelProto()
    proto.trainer_spec.model_type = 1
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.remove_extra_whitespaces = False
    for kinds in ({text: (0.0, kind) for text, kind in CONTROL.items()}, {text: (0.0, 4) for text in USER},
                  {text: (score, 1) for text, score in NORMAL.items()}):
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
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "tokenizer.model")
    open(path, "wb").write(model())
    pieces = spm.SentencePieceProcessor(model_file=path)
    with open(os.path.join(folder, "expected_spm.jsonl"), "w", encoding="utf-8") as out:
        for text in texts:
            out.write(json.dumps({"text": text, "ids": pieces.encode(text)}, separators=(",", ":")) + "\n")


main(sys.argv[1])

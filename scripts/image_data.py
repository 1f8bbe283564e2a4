#!/usr/bin/env python3
"""Makes the bundled pictures with questions about them, and a tokenizer, in share/mxtrain/images.

    image_data.py OUT

Shapes of four colours on grey, 28 x 28 pixels, some of them JPEG; conversations that ask for colour or shape, some about two
pictures. The tokenizer has a token a byte and those that Gemma 3 names. Needs Pillow.
"""
import json
import os
import random
import sys

from PIL import Image, ImageDraw

COLORS = {"red": (220, 40, 30), "green": (40, 180, 60), "blue": (40, 70, 220), "yellow": (230, 210, 40)}
SHAPES = ("circle", "square")
SPECIAL = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
           "<image_soft_token>"]


def draw(path, color, shape, rng):
    background = rng.randrange(90, 170)
    picture = Image.new("RGB", (28, 28), (background,) * 3)
    side, x, y = rng.randrange(12, 19), rng.randrange(1, 8), rng.randrange(1, 8)
    tool = ImageDraw.Draw(picture)
    (tool.ellipse if shape == "circle" else tool.rectangle)((x, y, x + side, y + side), fill=COLORS[color])
    picture.save(path, **({"quality": 92} if path.endswith(".jpg") else {}))


def item(picture):
    return {"type": "image", "path": picture}


def say(question, pictures, answer):
    content = [item(p) for p in pictures] + [{"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]}


def make_records(out, name, n_each, rng):
    records, seen = [], []
    for i in range(n_each):
        for color in COLORS:
            for shape in SHAPES:
                picture = f"{name}_{color}_{shape}_{i}.{'jpg' if (i + len(color)) % 3 == 0 else 'png'}"
                draw(os.path.join(out, picture), color, shape, rng)
                seen.append((picture, color))
                records.append(say("Which colour?", [picture], color))
                records.append(say("Which shape?", [picture], shape))
    for _ in range(2 * n_each):
        (a, first), (b, second) = rng.sample(seen, 2)
        records.append(say("Which colours?", [a, b], f"{first}, {second}"))
    rng.shuffle(records)
    with open(os.path.join(out, name + ".jsonl"), "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)


def bytes_as_characters():
    """As GPT-2 writes bytes in vocabularies."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    table, more = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + more)
            more += 1
    return table


def make_tokenizer(out):
    os.makedirs(out, exist_ok=True)
    table = bytes_as_characters()
    vocab = {token: i for i, token in enumerate(SPECIAL)}
    vocab.update({table[b]: len(SPECIAL) + b for b in range(256)})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, t in enumerate(SPECIAL)],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}
    with open(os.path.join(out, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file, ensure_ascii=True)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as file:
        json.dump({"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
                   "tokenizer_class": "PreTrainedTokenizerFast"}, file)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    make_records(out, "train", 4, random.Random(3))
    make_records(out, "eval", 1, random.Random(4))
    make_tokenizer(os.path.join(out, "tokenizer"))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes golden turns: what MaxText makes of prompts and completions with images before it tokenises them, and the rows.

    JAX_PLATFORMS=cpu golden_turns.py TOKENIZER >turns.jsonl

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH) rewrites the columns and joins their tokens, as its
vision_sft_preprocessing_pipeline does; what stands for an image is still one mark. A line is a case: the encoder,
image_placeholder, how many images there are, the columns, the texts made of them, inputs and targets, of which 0
does not count. TOKENIZER is a folder with tokenizer.json.
"""
import json
import sys

import transformers

from maxtext.input_pipeline import input_pipeline_utils as pipeline

# Presets by the encoder that they have: MaxText knows formats by model_name.
MODELS = {"gemma3": "gemma3-4b", "gemma4": "gemma4-26b", "llama4": "llama4-17b-16e", "qwen3_vl": "qwen3-vl-2b",
          "qwen3_5": "qwen3.5-35b-a3b", "qwen3_omni": "qwen3-omni-30b-a3b"}
MARKS = {"gemma3": "<start_of_image>", "gemma4": "<|image|>", "llama4": "<|image|>"}
QWEN = "<|vision_start|><|image_pad|><|vision_end|>"
# image_placeholder, images, query, label; {} is the encoder's mark
CASES = [
    ("<|image|>", 0, "What is a moon?", "A rock."),
    ("<|image|>", 1, "What is it? ", "14"),
    ("<|image|>", 1, "Look at <|image|>. Which?", "a square\nof red"),
    ("<|image|>", 1, "{} Which?", " ok"),
    ("[x]", 2, "Which of [x] and [x]?", "the first"),
    ("[x]", 2, "Is this it: {}", "no"),
    ("[x]", 2, "[x] then {}", "yes"),
    ("<|image|>", 1, "", "a caption"),
    ("<|image|>", 0, "<start_of_turn>user\nhi<end_of_turn>\n<bos>", "<eos>"),
]
LENGTH, PAD = 128, 0


def make(tokenizer, encoder, placeholder, n_images, query, label):
    query = query.replace("{}", MARKS.get(encoder, QWEN))
    case = {"encoder": encoder, "placeholder": placeholder, "images": n_images, "query": query, "label": label}
    example = {"images": [None] * n_images, "query": query, "label": [label]}
    example = pipeline.reformat_prompt(example, "query", placeholder, MODELS[encoder])
    example = pipeline.reformat_response(example, "label", MODELS[encoder])
    case.update(prompt=example["query"], completion=example["label"])
    example = pipeline.tokenization(example, tokenizer, False, LENGTH, ["query", "label"])
    row = pipeline.SFTPromptMaskingVision("query", "label", LENGTH, PAD).map(example)
    return {**case, "inputs": row["inputs"].tolist(), "targets": row["targets"].tolist()}


def main():
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        sys.argv[1], add_bos_token=False, add_eos_token=False, legacy=False, extra_special_tokens={})
    for encoder in MODELS:
        for case in CASES:
            print(json.dumps(make(tokenizer, encoder, *case), separators=(",", ":")))


main()

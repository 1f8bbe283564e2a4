#!/usr/bin/env python3
"""Trains a tiny Qwen 3-VL by TRL's DPOTrainer, for tests/golden/hf/trl/dpo_sees.

    pip install torch torchvision transformers trl pillow
    scripts/golden_dpo_sees.py OUT

OUT receives config.json, model.safetensors (weights of bfloat16, computed in float32), tokenizer.json and chat_template.jinja, pairs.jsonl
(about the bundled pictures, in the column `image`, whose folder is written PICTURES) and expected.json: what each of five steps over all pairs has. All parameters are
trained, the tower's too.
"""
import json
import os
import sys
import tempfile

import torch
import transformers
import trl
from datasets import Dataset
from PIL import Image

PICTURES = os.path.join(os.path.dirname(__file__), "..", "share", "mxtrain", "images")
STEPS = 5
KEYS = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected"]
PAIRS = [(["train_red_circle_0.jpg"], "Which colour?", "red", "green, I think"),
         (["train_blue_square_1.png"], "Which shape?", "a square", "circle"),
         (["train_green_circle_2.png", "train_red_square_1.png"], "Are both red?", "no", "yes"),
         ([], "Say hello.", "hello", "no")]
TEMPLATE = """{% for m in messages %}<start_of_turn>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for item in m['content'] %}{% if item['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>assistant
{% endif %}"""
TOKENS = {"<start_of_image>": "<|vision_start|>", "<end_of_image>": "<|vision_end|>", "<image_soft_token>": "<|image_pad|>"}


def make_model():
    text = transformers.Qwen3VLTextConfig(
        hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=264,
        num_hidden_layers=2, max_position_embeddings=256, bos_token_id=2, eos_token_id=1, pad_token_id=0, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True})
    vision = dict(depth=2, hidden_size=8, num_heads=1, intermediate_size=12, patch_size=7, spatial_merge_size=2, temporal_patch_size=2,
                  out_hidden_size=16, num_position_embeddings=9, deepstack_visual_indexes=[0])
    config = transformers.Qwen3VLConfig(text_config=text.to_dict(), vision_config=vision, image_token_id=7, video_token_id=263,
                                        vision_start_token_id=5, vision_end_token_id=6, tie_word_embeddings=True)
    torch.manual_seed(0)
    model = transformers.Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1 if "norm" in name and name.endswith("weight") else 0, 0.2)
    return model


def make_processor(out):
    """The bundled tokenizer, with what Qwen 3-VL calls the tokens of an image, and a template; OUT has them, too."""
    with open(os.path.join(PICTURES, "tokenizer", "tokenizer.json")) as file:
        text = file.read()
    for ours, theirs in TOKENS.items():
        text = text.replace(ours, theirs)
    with open(os.path.join(out, "tokenizer.json"), "w") as file:
        file.write(text)
    with open(os.path.join(out, "chat_template.jinja"), "w") as file:
        file.write(TEMPLATE)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(out, "tokenizer.json"), bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    how = dict(patch_size=7, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
               size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28})
    return transformers.Qwen3VLProcessor(transformers.Qwen2VLImageProcessor(**how), tokenizer, transformers.Qwen3VLVideoProcessor(**how),
                                         chat_template=TEMPLATE)


def main():
    out, = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    model = make_model()
    model.to(torch.bfloat16).save_pretrained(out)
    model.to(torch.float32)
    os.path.exists(f := os.path.join(out, "generation_config.json")) and os.remove(f)
    rows = [{"prompt": [{"role": "user", "content": q}], "chosen": [{"role": "assistant", "content": a}],
             "rejected": [{"role": "assistant", "content": b}], "image": names} for names, q, a, b in PAIRS]
    told = [row | {"image": [f"PICTURES/{name}" for name in row["image"]]} for row in rows]
    with open(os.path.join(out, "pairs.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in told)
    for row in rows:
        row["images"] = [Image.open(os.path.join(PICTURES, name)).convert("RGB") for name in row.pop("image")]
    args = trl.DPOConfig(
        output_dir=tempfile.mkdtemp(), beta=0.3, max_length=None, per_device_train_batch_size=len(rows), max_steps=STEPS, learning_rate=1e-2,
        lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, seed=0,
        remove_unused_columns=False)
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    trainer = trl.DPOTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=make_processor(out))
    batch = next(iter(trainer.get_train_dataloader()))
    print({k: tuple(v.shape) for k, v in batch.items()}, batch["input_ids"].tolist(), file=sys.stderr)
    trainer.train()
    log = [row for row in trainer.state.log_history if "loss" in row]
    with open(os.path.join(out, "expected.json"), "w") as file:
        json.dump({"versions": {m.__name__: m.__version__ for m in (trl, transformers, torch)},
                   **{key: [row[key] for row in log] for key in KEYS}}, file, indent=1)


if __name__ == "__main__":
    main()

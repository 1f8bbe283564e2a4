#!/usr/bin/env python3
"""Trains a tiny Qwen 3-VL by TRL's DPOTrainer and GRPOTrainer, for tests/golden/hf/trl/sees.

    pip install torch torchvision transformers trl pillow
    scripts/golden_trl_sees.py OUT

OUT receives config.json, model.safetensors (weights of bfloat16, computed in float32), tokenizer.json and chat_template.jinja; pairs.jsonl
and groups.jsonl (about the bundled pictures, in the column `image`, whose folder is written PICTURES; completions with rewards, SIDES to each
prompt); pairs.json and groups.json: what each of five steps over all pairs, and of three over all groups, has. All parameters are trained,
the tower's too.
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
SIDES, REWARDS = 2, [(1.0, 0.25), (0.5, 0.0), (1.0, -1.0), (0.25, 0.75)]
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


def training(**more):
    return dict(output_dir=tempfile.mkdtemp(), learning_rate=1e-2, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8,
                weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False,
                gradient_checkpointing=False, seed=0, remove_unused_columns=False, **more)


def open_model(out):
    return transformers.Qwen3VLForConditionalGeneration.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")


def write_rows(path, rows):
    with open(path, "w") as file:
        for row in rows:
            file.write(json.dumps(row | {"image": [f"PICTURES/{name}" for name in row["image"]]}) + "\n")


def with_images(row):
    names = row["image"]
    return {k: v for k, v in row.items() if k != "image"} | {"images": [Image.open(os.path.join(PICTURES, name)).convert("RGB") for name in names]}


def write_log(path, trainer, keys):
    log = [row for row in trainer.state.log_history if "loss" in row]
    with open(path, "w") as file:
        json.dump({"versions": {m.__name__: m.__version__ for m in (trl, transformers, torch)},
                   **{key: [row[key] for row in log] for key in keys}}, file, indent=1)


def said(who, text):
    return [{"role": who, "content": text}]


def train_pairs(out, processor):
    rows = [{"prompt": said("user", q), "chosen": said("assistant", a), "rejected": said("assistant", b), "image": names}
            for names, q, a, b in PAIRS]
    write_rows(os.path.join(out, "pairs.jsonl"), rows)
    args = trl.DPOConfig(beta=0.3, max_length=None, per_device_train_batch_size=len(rows), max_steps=STEPS, **training())
    trainer = trl.DPOTrainer(model=open_model(out), args=args, train_dataset=Dataset.from_list([with_images(row) for row in rows]),
                             processing_class=processor)
    trainer.train()
    write_log(os.path.join(out, "pairs.json"), trainer, KEYS)


def train_groups(out, processor):
    groups = [(names, q, [a, b], rewards) for (names, q, a, b), rewards in zip(PAIRS, REWARDS)]
    rows = [{"prompt": said("user", q), "completion": said("assistant", answer), "reward": reward, "image": names}
            for names, q, answers, rewards in groups for answer, reward in zip(answers, rewards)]
    write_rows(os.path.join(out, "groups.jsonl"), rows)

    def write(prompts, trainer):
        texts = [processor.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p in prompts]
        images = [Image.open(os.path.join(PICTURES, name)).convert("RGB") for row in rows for name in row["image"]]
        ids = processor(text=texts, images=images, padding=False)["input_ids"]
        whole = [row["completion"][0]["content"] + "<end_of_turn>\n" for row in rows]
        return {"prompt_ids": ids, "completion_ids": [processor.tokenizer(t, add_special_tokens=False)["input_ids"] for t in whole],
                "logprobs": None}

    args = trl.GRPOConfig(per_device_train_batch_size=len(rows), num_generations=SIDES, max_steps=3, loss_type="grpo", scale_rewards="none", beta=0.1,
                          use_bias_correction_kl=False,  # which weighs divergences by ratios
                          max_completion_length=32, shuffle_dataset=False, **training())
    data = Dataset.from_list([with_images({"prompt": said("user", q), "image": names}) for names, q, *_ in groups])
    trainer = trl.GRPOTrainer(model=open_model(out), args=args, reward_funcs=lambda **kwargs: [row["reward"] for row in rows],
                              train_dataset=data, processing_class=processor, rollout_func=write)
    trainer.train()
    write_log(os.path.join(out, "groups.json"), trainer, ["loss", "grad_norm", "kl"])


def main():
    out, = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    make_model().to(torch.bfloat16).save_pretrained(out)
    os.path.exists(f := os.path.join(out, "generation_config.json")) and os.remove(f)
    processor = make_processor(out)
    train_pairs(out, processor)
    processor.tokenizer.padding_side = "left"  # as the trainer has it, which reads kinds of tokens as the processor pads them
    train_groups(out, processor)


if __name__ == "__main__":
    main()

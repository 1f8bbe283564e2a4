#!/usr/bin/env python3
"""Makes tiny models of transformers with what they compute, for tests/golden/hf/models.

    golden_hf.py OUT [NAME...]

Writes OUT/<name>/config.json (and config_v4.json, in the spelling of transformers 4), model.safetensors and expected.h5:
input_ids, labels (-100: does not count; the model shifts them), logits and loss of the model in float32 on a CPU.
"""
import json
import os
import sys

import h5py
import torch
import transformers

SIZES = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             vocab_size=160, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def gemma3(layers=7, **more):
    return transformers.Gemma3TextConfig(
        **SIZES, num_hidden_layers=layers, sliding_window=8, query_pre_attn_scalar=20,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, **more)


def gemma3_images():
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                  patch_size=14)
    config = transformers.Gemma3Config(text_config=gemma3().to_dict(), vision_config=vision, mm_tokens_per_image=4,
                                       image_token_index=150, boi_token_index=151, eoi_token_index=152)
    return config


# name: the class of the model, its config
MODELS = {
    "gemma3_turns": (lambda: transformers.Gemma3ForCausalLM, gemma3),
    "gemma3_images": (lambda: transformers.Gemma3ForConditionalGeneration, gemma3_images),
}


def old_spelling(config):
    """As transformers 4 wrote it: rope_theta, rope_scaling and rope_local_base_freq."""
    config = dict(config)
    if "text_config" in config:
        config["text_config"] = old_spelling(config["text_config"])
    rope = config.pop("rope_parameters", None)
    config.pop("layer_types", None)
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    if rope:
        full = rope.get("full_attention", rope)
        config["rope_theta"] = full["rope_theta"]
        if full["rope_type"] != "default":
            config["rope_scaling"] = {k: v for k, v in full.items() if k != "rope_theta"}
        if "sliding_attention" in rope:
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            config["sliding_window_pattern"] = config.pop("_sliding_window_pattern", 6)
    return config


def make(out, name):
    model_class, config = MODELS[name][0](), MODELS[name][1]()
    torch.manual_seed(len(name))
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.normal_(0, 0.15)
            if p.dim() == 1:
                p.add_(0.0 if "gemma" in name else 1.0)
    folder = os.path.join(out, name)
    model.save_pretrained(folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(folder, "config_v4.json"), "w") as file:
        json.dump(old_spelling(config), file, indent=2, sort_keys=True)
    ids = torch.randint(3, 140, (2, 20))
    labels = ids.clone()
    labels[0, :5] = -100
    with torch.no_grad():
        got = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels)
    with h5py.File(os.path.join(folder, "expected.h5"), "w") as file:
        file.attrs["versions"] = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__})
        file["input_ids"], file["labels"] = ids.numpy(), labels.numpy()
        file["attention_mask"] = torch.ones_like(ids).numpy()
        file["logits"], file["loss"] = got.logits.float().numpy(), got.loss.float().numpy()
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)


def main():
    for name in sys.argv[2:] or MODELS:
        make(sys.argv[1], name)


if __name__ == "__main__":
    main()

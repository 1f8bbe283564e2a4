"""Tiny Qwen2 models with adapters of peft's beside modules that are trained as they are, and what
training makes of them.

    python scripts/golden_whole.py OUT

Three models: untied/, whose embedding, output matrix, norms (modules_to_save) and biases of adapted
modules (bias: lora_only) are trained, tied/, whose embedding is trained in both places
(ensure_weight_tying), and apart/, whose tied embedding and output matrix are trained as two arrays. Each gets base/ (config.json, model.safetensors), adapter_config.json and
adapter_model.safetensors as peft saves them before training, all random, after.safetensors, the same
after STEPS steps of AdamW, and expected.h5: input_ids and the loss of every step (next tokens). peft
0.21 and transformers 5.24 on PyTorch, CPU; computed in float64 from float32 numbers and rounded.
Needs h5py.
"""

import os
import shutil
import sys

import h5py
import numpy as np
import peft
import torch
import transformers


STEPS = 4
CASES = {
    "untied": (False, {"target_modules": ["q_proj", "down_proj"], "bias": "lora_only",
                       "modules_to_save": ["embed_tokens", "lm_head", "norm", "input_layernorm"]}),
    "tied": (True, {"target_modules": ["v_proj", "o_proj"], "modules_to_save": ["embed_tokens"],
                    "ensure_weight_tying": True}),
    "apart": (True, {"target_modules": ["k_proj", "up_proj"],
                     "modules_to_save": ["embed_tokens", "lm_head"]}),
}


def make(folder, is_tied, what):
    torch.manual_seed(17)
    config = transformers.Qwen2Config(
        vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
        tie_word_embeddings=is_tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=None, bos_token_id=None, attn_implementation="eager")
    base = transformers.Qwen2ForCausalLM(config)
    for value in base.parameters():
        value.data.normal_(std=0.4)
    base.save_pretrained(os.path.join(folder, "base"))
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3,
                                                      **what))
    for name, value in model.named_parameters():
        if value.requires_grad:  # another start than the base
            value.data += 0.3 * torch.randn_like(value)
    for one in model.peft_config.values():
        one.base_model_name_or_path = ""
    model.save_pretrained(folder)
    ids = torch.randint(0, 16, (2, 9))
    model = model.double().train()
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.02, betas=(0.9, 0.95), eps=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        loss = model(ids, labels=ids, use_cache=False).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.float().save_pretrained(os.path.join(folder, "after"))
    shutil.move(os.path.join(folder, "after/adapter_model.safetensors"),
                os.path.join(folder, "after.safetensors"))
    shutil.rmtree(os.path.join(folder, "after"))
    for path in ("README.md", "base/generation_config.json"):
        os.remove(os.path.join(folder, path))
    with h5py.File(os.path.join(folder, "expected.h5"), "w", libver="latest") as out:
        out["input_ids"] = ids.numpy().astype(np.int32)
        out["losses"] = np.array(losses, np.float32)


def main():
    for name, (is_tied, what) in CASES.items():
        make(os.path.join(sys.argv[1], name), is_tied, what)


main()

"""A tiny Qwen2 with biases and an adapter of peft's with magnitudes (use_dora), and what it computes.

    python scripts/golden_dora.py OUT

OUT gets base/ (config.json, model.safetensors), adapter_config.json and adapter_model.safetensors as
peft saves them, all random, and expected.h5: input_ids, logits, loss (next tokens), and of each module
the gradients of A, B and its magnitudes (M), and the merged weight (W). peft 0.21 and transformers 5.24
on PyTorch, CPU; computed in float64 from float32 numbers and rounded. Needs h5py.
"""

import os
import sys

import h5py
import numpy as np
import peft
import torch
import transformers


MODULES = ["q_proj", "v_proj", "o_proj", "down_proj"]


def main():
    folder = sys.argv[1]
    torch.manual_seed(11)
    config = transformers.Qwen2Config(
        vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=None, bos_token_id=None, attn_implementation="eager")
    base = transformers.Qwen2ForCausalLM(config)
    for value in base.parameters():
        value.data.normal_(std=0.4)
    base.save_pretrained(os.path.join(folder, "base"))
    model = peft.get_peft_model(base, peft.LoraConfig(
        task_type="CAUSAL_LM", r=2, lora_alpha=3, use_dora=True,
        target_modules=MODULES))
    for name, value in model.named_parameters():
        if "magnitude" in name:  # another length for each output
            value.data *= torch.empty_like(value).uniform_(0.6, 1.5)
        elif value.requires_grad:
            value.data.normal_(std=0.4)
    for one in model.peft_config.values():
        one.base_model_name_or_path = ""
    model.save_pretrained(folder)
    for path in ("README.md", "base/generation_config.json"):
        os.remove(os.path.join(folder, path))
    ids = torch.randint(0, 16, (2, 9))
    model = model.double().train()
    answer = model(ids, labels=ids, use_cache=False)
    answer.loss.backward()
    arrays = {"input_ids": ids, "loss": answer.loss, "logits": answer.logits}
    modules = {name.split(".")[-1]: one for name, one in model.named_modules()}
    for name in MODULES:
        one = modules[name]
        arrays[name + ".A"] = one.lora_A["default"].weight.grad
        arrays[name + ".B"] = one.lora_B["default"].weight.grad
        arrays[name + ".M"] = one.lora_magnitude_vector["default"].weight.grad
    for name, one in model.merge_and_unload().named_modules():
        if name.split(".")[-1] in MODULES:
            arrays[name.split(".")[-1] + ".W"] = one.weight
    with h5py.File(os.path.join(folder, "expected.h5"), "w", libver="latest") as out:
        for name, array in arrays.items():
            array = array.detach().numpy()
            out[name] = array.astype(np.int32 if name == "input_ids" else np.float32)


main()

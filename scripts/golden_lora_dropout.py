"""What peft and transformers compute where they draw what mxtrain draws: lora_dropout, neftune_noise_alpha.

    python scripts/golden_lora_dropout.py DORA OUT.h5

DORA is tests/golden/train/peft_dora (base model, adapter, input_ids). Each nn.Dropout of its adapter is
replaced by one with the mask that include/mx/ops.h defines (MxRandomAttr): Philox with the key of (seed 0,
stream, step 0), the stream counting the modules in the order in which a layer runs them. OUT gets groups
`lora` (magnitudes left out), `dora`, and `noise`, which is `lora` with noise of embeddings in addition,
whose stream comes first: loss (next tokens), and of each module the gradients of A, B and, in `dora`, its
magnitudes (M). peft 0.21 and transformers 5.24 on PyTorch, CPU; in float64 from float32
numbers, rounded. Needs h5py.
"""

import os
import sys

import h5py
import numpy as np
import peft
import safetensors.torch
import torch
import transformers
from transformers.integrations.neftune import neftune_post_forward_hook

MODULES = ["q_proj", "v_proj", "o_proj", "down_proj"]
RATE, ALPHA = 0.3, 5.0


def philox(seed, stream, counters):
    """Philox4x32-10: words [n, 4] of 64-bit counters [n]."""
    low = np.uint64(0xFFFFFFFF)
    c = [counters & low, counters >> np.uint64(32)]
    c += [np.full_like(counters, stream & 0xFFFFFFFF), np.full_like(counters, stream >> 32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1)


def words_of(stream, x):
    """Those of x, [rows 0, 1, .., tokens, features]."""
    key = philox(0, stream, np.zeros(1, np.uint64))[0]  # of step 0
    n = x.numel()
    words = philox(int(key[0]) | int(key[1]) << 32, stream, np.arange((n + 3) // 4, dtype=np.uint64))
    return words.ravel()[:n].reshape(tuple(x.shape))


class Dropout(torch.nn.Module):
    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    def forward(self, x):
        kept = torch.tensor(words_of(self.stream, x) >= int(RATE * 2**32))
        return torch.where(kept, x / (1 - RATE), 0)


def uniform(x, low, high):
    """In the place of torch.Tensor.uniform_, with the words of stream 0."""
    share = torch.tensor(((words_of(0, x) >> np.uint64(9)).astype(np.float64) + 0.5) / 2**23)
    return x.copy_(low + (high - low) * share)


def compute(folder, ids, use_dora, has_noise):
    base = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(folder, "base"), dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(base, peft.LoraConfig(
        task_type="CAUSAL_LM", r=2, lora_alpha=3, lora_dropout=RATE, use_dora=use_dora,
        target_modules=MODULES))
    values = safetensors.torch.load_file(os.path.join(folder, "adapter_model.safetensors"))
    values = {name: value for name, value in values.items() if use_dora or "magnitude" not in name}
    told = peft.set_peft_model_state_dict(model, values)
    assert not told.unexpected_keys
    model = model.double().train()
    modules = {name.split(".")[-1]: one for name, one in model.named_modules()}
    if has_noise:
        torch.Tensor.uniform_ = uniform
        embedding = model.get_input_embeddings()
        embedding.neftune_noise_alpha = ALPHA
        embedding.register_forward_hook(neftune_post_forward_hook)
    for stream, name in enumerate(MODULES, has_noise):
        assert isinstance(modules[name].lora_dropout["default"], torch.nn.Dropout)
        modules[name].lora_dropout["default"] = Dropout(stream)
    loss = model(ids, labels=ids, use_cache=False).loss
    loss.backward()
    arrays = {"loss": loss}
    for name in MODULES:
        one = modules[name]
        arrays[name + ".A"] = one.lora_A["default"].weight.grad
        arrays[name + ".B"] = one.lora_B["default"].weight.grad
        if use_dora:
            arrays[name + ".M"] = one.lora_magnitude_vector["default"].weight.grad
    return arrays


def main():
    folder, to = sys.argv[1:]
    with h5py.File(os.path.join(folder, "expected.h5")) as file:
        ids = torch.tensor(file["input_ids"][:], dtype=torch.long)
    with h5py.File(to, "w", libver="latest") as out:
        for group in ("lora", "dora", "noise"):
            for name, array in compute(folder, ids, group == "dora", group == "noise").items():
                out[f"{group}/{name}"] = array.detach().numpy().astype(np.float32)


main()

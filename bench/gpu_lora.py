#!/usr/bin/env python3
"""Trains adapters on a random Llama 3 8B with transformers and peft on a GPU, as the peer of mxtrain's lora there.

  gpu_lora.py [--batch N] [--length N] [--rank N] [--checkpoint] [--compile] [--steps N] [sizes: --emb --layers ...]

The model is transformers' LlamaForCausalLM of drawn bfloat16 weights, made on the device, with sdpa attention; peft puts
bfloat16 adapters beside all projections of attention and feed-forward blocks, as mxtrain does by default, and with
weight_dtype=bfloat16 in that dtype. A step is forward, backward, clip to norm 1.0, fused AdamW over the adapters, zero
grads, on one batch of random tokens. --compile compiles each layer. Of mxtrain:

  mxtrain --config configs/base.yml model_name=llama3-8b max_target_length=2048 per_device_batch_size=2 hardware=gpu
          lora.enable_lora=true lora.lora_rank=16 lora.lora_alpha=32 dtype=bfloat16 weight_dtype=bfloat16
          dataset_type=synthetic enable_checkpointing=false

Prints what gpu.py does; FLOPs are mxtrain's count of a step, which does not leave out the gradients that frozen weights
have not. Needs torch, transformers and peft; runs on a CPU, too, to be tried out.
"""
import argparse
import json
import math
import sys
import time

import gpu
import torch

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("emb", 4096), ("layers", 32), ("heads", 32), ("kv-heads", 8), ("head-dim", 128), ("mlp", 14336),
                          ("vocab", 128256), ("batch", 2), ("length", 2048), ("rank", 16), ("steps", 5), ("warm-up", 2)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--checkpoint", action="store_true", help="recompute each layer in the backward pass")
    p.add_argument("--compile", action="store_true", help="torch.compile each layer")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def adapted(s, device):
    import peft
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=s.vocab, hidden_size=s.emb, intermediate_size=s.mlp, num_hidden_layers=s.layers,
        num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, head_dim=s.head_dim, rope_theta=500000.0,
        max_position_embeddings=s.length, rms_norm_eps=1e-5, tie_word_embeddings=False, use_cache=False,
        attn_implementation="sdpa")
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=s.rank, lora_alpha=2 * s.rank, target_modules=PROJECTIONS, task_type="CAUSAL_LM"),
        autocast_adapter_dtype=False)
    if s.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in model.get_base_model().model.layers if s.compile else ():
        layer.compile()
    return model.train()


def main():
    s = options()
    device = torch.device(s.device)
    torch.manual_seed(0)
    start = time.perf_counter()
    model = adapted(s, device)
    ids = torch.randint(0, s.vocab, (s.batch, s.length), device=device)
    adapters = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    loss = None

    def step():
        nonlocal loss
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    count = lambda all_of: sum(w.numel() for w in all_of)
    print(f"torch {torch.__version__} on {name}: {count(model.parameters())} parameters, {count(adapters)} of them adapters in "
          f"{adapters[0].dtype}, {s.batch} x {s.length} tokens, {'layers compiled' if s.compile else 'eager'}"
          f"{', with checkpoints' if s.checkpoint else ''}, made in {time.perf_counter() - start:.1f} s", flush=True)
    seconds, timed, peak = gpu.time_steps(device, s, step, lambda: loss.item())
    told = {"median_s": timed, "seconds": seconds, "first_step_s": seconds[0], "tokens": s.batch * s.length,
            "tokens_per_s": s.batch * s.length / timed, "tflops_per_step": gpu.tflops_a_step(s), "peak_gib": peak,
            "adapters": count(adapters), "loss": loss.item()}
    print(f"{told['tokens_per_s']:.0f} tokens/s, {timed:.4f} s a step, first step {seconds[0] - timed:.1f} s longer"
          + (f", {peak:.1f} GiB at most" if peak else ""))
    print(json.dumps(told))
    return 0 if math.isfinite(told["loss"]) else 1


if __name__ == "__main__":
    sys.exit(main())

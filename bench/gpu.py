#!/usr/bin/env python3
"""Trains a dense decoder with PyTorch on a GPU, as the peer of a run of mxtrain there.

  gpu.py [--batch N] [--length N] [--checkpoint] [--eager | --regional] [--steps N] [sizes: --emb --layers ...]

The model is mxtrain's llama2 block written with torch.nn.functional: RMSNorm, rope, SwiGLU, grouped queries, an
untied head, no biases. Weights, moments and gradients are float32, activations bfloat16 by autocast; attention is
scaled_dot_product_attention on its flash backend, the loss F.cross_entropy of float32 logits, the optimizer
fused AdamW with mxtrain's defaults. A step is forward, backward, clip to norm 1.0, AdamW, zero grads, on one
batch of random tokens, as dataset_type=synthetic has it. The default sizes have 1.2 billion parameters; of mxtrain:

  mxtrain --config configs/base.yml decoder_block=llama2 base_emb_dim=2048 base_num_decoder_layers=16
          base_num_query_heads=16 base_num_kv_heads=8 head_dim=128 base_mlp_dim=8192 vocab_size=50304
          max_target_length=4096 per_device_batch_size=8 dataset_type=synthetic dtype=bfloat16

FLOPs are those that mxtrain counts (src/model/cost.c, as MaxText): half of all pairs of tokens, nothing for what is
recomputed. Prints a line for each step and one of JSON with the figures: the first step, which compiles, is told
apart, then the warm-up steps, then medians of the timed ones. Needs torch; runs on a CPU, too, to be tried out.
"""
import argparse
import contextlib
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

PEAK_TFLOPS = 989  # of an H100 or H200, dense bfloat16
EPSILON, ROPE_BASE = 1e-5, 10000.0


class Layer(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        linear = lambda n, m: torch.nn.Linear(n, m, bias=False)
        self.q, self.k, self.v = (linear(s.emb, n * s.head_dim) for n in (s.heads, s.kv_heads, s.kv_heads))
        self.o = linear(s.heads * s.head_dim, s.emb)
        self.gate, self.up, self.down = linear(s.emb, s.mlp), linear(s.emb, s.mlp), linear(s.mlp, s.emb)
        self.norms = torch.nn.ParameterList(torch.ones(s.emb) for _ in range(2))

    def forward(self, x, cos, sin):
        h = norm(x, self.norms[0])
        q, k, v = (p(h).unflatten(-1, (-1, self.s.head_dim)).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.s.heads != self.s.kv_heads)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = norm(x, self.norms[1])
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embedding = torch.nn.Embedding(s.vocab, s.emb)
        self.layers = torch.nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = torch.nn.Parameter(torch.ones(s.emb))
        self.head = torch.nn.Linear(s.emb, s.vocab, bias=False)
        angles = torch.outer(torch.arange(s.length), ROPE_BASE ** (-torch.arange(0, s.head_dim, 2) / s.head_dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, targets):
        x = self.embedding(ids).to(torch.bfloat16)
        for layer in self.layers:
            if self.s.checkpoint:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        logits = self.head(norm(x, self.norm))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def compiled(model, s):
    """Whole, or a layer at a time: the same code serves all, which compiles sooner, and runs about as fast."""
    if s.eager:
        return model
    if not s.regional:
        return torch.compile(model)
    for layer in model.layers:
        layer.compile()
    return model


def norm(x, scale):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON) * scale).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def tflops_a_step(s):
    """As src/model/cost.c counts them."""
    tokens = s.batch * s.length
    attention = 4 * s.batch * (s.length * s.length / 2) * s.heads * s.head_dim
    projections = 2 * tokens * s.emb * (2 * s.heads + 2 * s.kv_heads) * s.head_dim
    forward = s.layers * (projections + 3 * 2 * tokens * s.emb * s.mlp + attention) + 2 * tokens * s.emb * s.vocab
    return 3 * forward / 1e12


def seconds_of(device, work):
    """By the GPU's own clock where there is one; the work has ended then."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def time_steps(device, s, step, loss_of):
    """Seconds of each step, the first by the clock, with all that is prepared in it; their median after the warm-up; and
    the most GiB in use. Prints a line for each."""
    seconds = []
    for i in range(1 + s.warm_up + s.steps):
        start = time.perf_counter()
        taken = seconds_of(device, step)
        seconds.append(time.perf_counter() - start if i == 0 else taken)
        print(f"completed step: {i}, seconds: {seconds[-1]:.4f}, loss: {loss_of():.3f}", flush=True)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return seconds, statistics.median(seconds[1 + s.warm_up:]), peak


def flash(device):
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION)


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("emb", 2048), ("layers", 16), ("heads", 16), ("kv-heads", 8), ("head-dim", 128), ("mlp", 8192),
                          ("vocab", 50304), ("batch", 8), ("length", 4096), ("steps", 6), ("warm-up", 2)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--checkpoint", action="store_true", help="recompute each layer in the backward pass")
    p.add_argument("--eager", action="store_true", help="without torch.compile")
    p.add_argument("--regional", action="store_true", help="torch.compile each layer, not the whole model")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main():
    s = options()
    device = torch.device(s.device)
    torch.manual_seed(0)
    with device:
        model = Decoder(s)
        ids, targets = (torch.randint(0, s.vocab, (s.batch, s.length)) for _ in range(2))
    with torch.no_grad():
        for w in model.parameters():
            if w.dim() > 1:
                w.normal_(std=1 / math.sqrt(w.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    forward = compiled(model, s)
    loss = None

    def step():
        nonlocal loss
        with torch.autocast(device.type, dtype=torch.bfloat16), flash(device):
            loss = forward(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    parameters = sum(w.numel() for w in model.parameters())
    print(f"torch {torch.__version__} on {name}: {parameters} parameters, {tflops_a_step(s):.2f} TFLOP a step, "
          f"{s.batch} x {s.length} tokens, {'eager' if s.eager else 'layers compiled' if s.regional else 'compiled'}"
          f"{', with checkpoints' if s.checkpoint else ''}", flush=True)
    seconds, timed, peak = time_steps(device, s, step, lambda: loss.item())
    rate = tflops_a_step(s) / timed
    told = {"median_s": timed, "seconds": seconds, "first_step_s": seconds[0], "tokens": s.batch * s.length,
            "tokens_per_s": s.batch * s.length / timed, "tflops_per_step": tflops_a_step(s), "tflops_per_s": rate,
            "mfu": rate / PEAK_TFLOPS, "peak_gib": peak, "parameters": parameters, "loss": loss.item()}
    print(f"{told['tokens_per_s']:.0f} tokens/s, {rate:.1f} TFLOP/s, {rate / PEAK_TFLOPS:.1%} of {PEAK_TFLOPS}, "
          f"first step {seconds[0] - timed:.1f} s longer" + (f", {peak:.1f} GiB at most" if peak else ""))
    print(json.dumps(told))
    return 0 if math.isfinite(told["loss"]) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Trains a workload with PyTorch, as its users do: transformers' llama or mixtral, SDPA, fused AdamW.

  peer_torch.py --workload w1|w3|w4|w5m --method full|lora|qlora|dpo|dpo_lora --dtype f32|bf16 [--compile] --steps N --threads N

A step is forward, backward, clip to norm 1.0, AdamW, zero grads, on one batch of random tokens. bf16 means
autocast with float32 master weights. Prints a line as each step ends and one line of JSON with the seconds
of all steps, the first ones too. dpo: half of the rows are chosen responses, half rejected; the reference is
a second model, with lora the same model without its adapters. qlora: adapters over weights in nf4, blocks of 64, which
are made floats for each product, in plain PyTorch. Needs torch and transformers; peft for lora.
"""
import argparse
import copy
import json
import sys
import time

import torch
import transformers

SHAPES = {  # emb, layers, heads, mlp, vocab, batch, length: those of w1.yml, w3.yml, w4.yml, w5m.yml
    "w1": (768, 12, 12, 2048, 32000, 4, 512),
    "w3": (128, 4, 4, 352, 256, 8, 128),
    "w4": (768, 2, 12, 2048, 32000, 1, 8192),
    "w5m": (768, 8, 12, 2048, 32000, 4, 512),
}
EXPERTS = {"w5m": (8, 2)}  # how many there are, and how many a token goes to; a workload without is dense
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


NF4 = torch.tensor([-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803,
                    0.1609302, 0.24611230, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0])
BLOCK = 64


class Nf4Linear(torch.nn.Linear):
    """A layer whose weight is codes of half a byte and the largest magnitude of each block."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        blocks = linear.weight.detach().reshape(-1, BLOCK)
        self.scales = blocks.abs().amax(1, keepdim=True)
        codes = torch.cat([(part[..., None] - NF4).abs().argmin(-1) for part in (blocks / self.scales).split(4096)])
        codes = codes.to(torch.uint8).reshape(self.out_features, -1)
        self.weight = torch.nn.Parameter(codes[:, 0::2] | codes[:, 1::2] << 4, requires_grad=False)

    def floats(self):
        values = torch.stack((NF4[(self.weight & 15).int()], NF4[(self.weight >> 4).int()]), -1)
        return (values.reshape(-1, BLOCK) * self.scales).reshape(self.out_features, self.in_features)

    def forward(self, x):
        return Nf4Product.apply(x, self)


class Nf4Product(torch.autograd.Function):
    """Keeps codes for the gradient, not the floats that they are made into."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return torch.nn.functional.linear(x, layer.floats().to(x.dtype))

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.layer.floats().to(gradient.dtype), None


def make_model(workload, method):
    emb, layers, heads, mlp, vocab, _, length = SHAPES[workload]
    sizes = dict(hidden_size=emb, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
                 head_dim=emb // heads, intermediate_size=mlp, vocab_size=vocab, max_position_embeddings=length,
                 attn_implementation="sdpa", use_cache=False)
    if workload in EXPERTS:  # multiplied as transformers does by default
        experts, chosen = EXPERTS[workload]
        model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
            num_local_experts=experts, num_experts_per_tok=chosen, **sizes))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    if method == "qlora":
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if name in PROJECTIONS:
                    setattr(parent, name, Nf4Linear(child))
    if "lora" in method:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=PROJECTIONS))
    return model


def log_probabilities(forward, ids):
    """Of each row's tokens, summed up."""
    logits = forward(input_ids=ids).logits[:, :-1].float()
    return torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None]).squeeze(-1).sum(1)


def reference_log_probabilities(model, reference, ids):
    with torch.no_grad():
        if reference is not None:
            return log_probabilities(reference, ids)
        with model.disable_adapter():
            return log_probabilities(model, ids)


def dpo_loss(model, forward, reference, ids):
    beta, half = 0.1, ids.shape[0] // 2
    ratio = log_probabilities(forward, ids) - reference_log_probabilities(model, reference, ids)
    return -torch.nn.functional.logsigmoid(beta * (ratio[:half] - ratio[half:])).mean()


def train_step(model, forward, reference, optimizer, ids, options):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
        loss = dpo_loss(model, forward, reference, ids) if "dpo" in options.method else \
            forward(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workload", required=True, choices=SHAPES)
    p.add_argument("--method", default="full", choices=["full", "lora", "qlora", "dpo", "dpo_lora"])
    p.add_argument("--dtype", required=True, choices=["f32", "bf16"])
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = make_model(a.workload, a.method)
    reference = copy.deepcopy(model).eval() if a.method == "dpo" else None
    trained = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-5, fused=True)
    forward = torch.compile(model) if a.compile else model
    _, _, _, _, vocab, batch, length = SHAPES[a.workload]
    ids = torch.randint(0, vocab, (batch, length))
    seconds, loss = [], None
    for step in range(a.steps):
        start = time.perf_counter()
        loss = train_step(model, forward, reference, optimizer, ids, a)
        seconds.append(time.perf_counter() - start)
        print(f"completed step: {step}, seconds: {seconds[-1]:.3f}, loss: {loss:.3f}", flush=True)
    print(json.dumps({"seconds": seconds, "tokens": batch * length, "loss": loss}))


if __name__ == "__main__":
    sys.exit(main())

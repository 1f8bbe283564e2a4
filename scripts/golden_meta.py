#!/usr/bin/env python3
"""Writes tests/golden/hf/meta: tiny Llamas in the files of Meta's releases (params.json, consolidated.*.pth by torch.save),
whole and in two parts, and the logits of the model as Meta's own code computes them, written here in plain torch.
tests/cli/meta.sh wants them from mxdecode.

  scripts/golden_meta.py tests/golden/hf
"""
import json
import pathlib
import sys

import h5py
import torch

PARAMS = {"dim": 16, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 64, "multiple_of": 8, "ffn_dim_multiplier": 1.2,
          "norm_eps": 1e-5, "rope_theta": 10000.0}
WIDTH = 56  # of the feed-forward unit: int(1.2 * int(8 * 16 / 3)) = 50, up to the next multiple of 8
CUT = {"wq": 0, "wk": 0, "wv": 0, "wo": 1, "w1": 0, "w2": 1, "w3": 0, "output": 0, "tok_embeddings": 1}  # as fairscale cuts them


def make():
    p, kv = PARAMS, PARAMS["dim"] // PARAMS["n_heads"] * PARAMS["n_kv_heads"]
    draw = lambda *shape: (0.4 * torch.randn(*shape)).to(torch.bfloat16)
    norm = lambda: (1 + 0.2 * torch.randn(p["dim"])).to(torch.bfloat16)
    w = {"tok_embeddings.weight": draw(p["vocab_size"], p["dim"]), "norm.weight": norm(), "output.weight": draw(p["vocab_size"], p["dim"])}
    for i in range(p["n_layers"]):
        at = f"layers.{i}."
        w |= {at + "attention.wq.weight": draw(p["dim"], p["dim"]), at + "attention.wk.weight": draw(kv, p["dim"]),
              at + "attention.wv.weight": draw(kv, p["dim"]), at + "attention.wo.weight": draw(p["dim"], p["dim"]),
              at + "feed_forward.w1.weight": draw(WIDTH, p["dim"]), at + "feed_forward.w2.weight": draw(p["dim"], WIDTH),
              at + "feed_forward.w3.weight": draw(WIDTH, p["dim"]), at + "attention_norm.weight": norm(), at + "ffn_norm.weight": norm()}
    return w


def logits(weights, ids):
    w, p = {k: v.double() for k, v in weights.items()}, PARAMS
    T, N, K = len(ids), p["n_heads"], p["n_kv_heads"]
    H = p["dim"] // N
    norm = lambda x, scale: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + p["norm_eps"]) * scale
    angles = torch.outer(torch.arange(T).double(), 1 / p["rope_theta"] ** (torch.arange(0, H, 2).double() / H))
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def rotated(x):  # neighbours are the two parts of a complex number
        return torch.view_as_real(torch.view_as_complex(x.reshape(T, -1, H // 2, 2)) * turn).flatten(2)

    x = w["tok_embeddings.weight"][ids]
    for i in range(p["n_layers"]):
        of = lambda name: w[f"layers.{i}.{name}.weight"]
        y = norm(x, of("attention_norm"))
        q = rotated((y @ of("attention.wq").T).view(T, N, H))
        k = rotated((y @ of("attention.wk").T).view(T, K, H)).repeat_interleave(N // K, 1)
        v = (y @ of("attention.wv").T).view(T, K, H).repeat_interleave(N // K, 1)
        scores = torch.einsum("tnh,snh->nts", q, k) / H ** 0.5 + torch.full((T, T), float("-inf")).double().triu(1)
        x = x + torch.einsum("nts,snh->tnh", scores.softmax(-1), v).reshape(T, -1) @ of("attention.wo").T
        y = norm(x, of("ffn_norm"))
        x = x + (torch.nn.functional.silu(y @ of("feed_forward.w1").T) * (y @ of("feed_forward.w3").T)) @ of("feed_forward.w2").T
    return (norm(x, w["norm.weight"]) @ w["output.weight"].T).float()


def main(folder):
    out = pathlib.Path(folder) / "meta"
    torch.manual_seed(0)
    weights = make()
    for n, vocab in ((1, 64), (2, -1)):
        at = out / f"shards_{n}"
        at.mkdir(parents=True, exist_ok=True)
        (at / "params.json").write_text(json.dumps(PARAMS | {"vocab_size": vocab}))
        for s in range(n):
            cut = {k: CUT.get(k.split(".")[-2]) for k in weights}
            part = {k: v if cut[k] is None else v.chunk(n, cut[k])[s].clone().contiguous() for k, v in weights.items()}
            torch.save(part, at / f"consolidated.{s:02d}.pth")
    ids = torch.randint(0, 64, (2, 12))
    with h5py.File(out / "expected.h5", "w") as file:
        file["input_ids"] = ids.int().numpy()
        file["logits"] = torch.stack([logits(weights, row) for row in ids]).numpy()
    (out / "prompts.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in ids))


main(sys.argv[1])

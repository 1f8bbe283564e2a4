#!/usr/bin/env python3
"""Saves and loads a train state as PyTorch users do: torch.save and fsync, torch.load with every byte read.

  peer_checkpoint.py --workload w1|w3|w4 --folder DIR --rounds N --threads N

The state is a llama's parameters and AdamW's two moments, float32, a tensor for each layer's array. A save ends when
the file is on disk; a load when its tensors are in memory of their own. Prints the lines of CSV that bench/checkpoint
prints. Needs torch and transformers.
"""
import argparse
import os
import sys
import time

import torch

import peer_torch


def new_state(workload):
    model = peer_torch.make_model(workload, "full")
    params = {name: p.detach() for name, p in model.named_parameters()}
    moments = {name: {"exp_avg": torch.rand_like(p), "exp_avg_sq": torch.rand_like(p)} for name, p in params.items()}
    return {"model": params, "optimizer": moments, "step": 1}


def tensors_of(state):
    return list(state["model"].values()) + [t for m in state["optimizer"].values() for t in m.values()]


def save(state, path):
    start = time.perf_counter()
    with open(path, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    return time.perf_counter() - start


def load(path):
    start = time.perf_counter()
    state = torch.load(path, map_location="cpu", mmap=False)
    seconds = time.perf_counter() - start
    assert len(tensors_of(state)) > 0
    return seconds


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workload", required=True, choices=peer_torch.SHAPES)
    p.add_argument("--folder", required=True)
    p.add_argument("--rounds", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    os.makedirs(a.folder, exist_ok=True)
    path = os.path.join(a.folder, "state.pt")
    state = new_state(a.workload)
    size = sum(t.numel() * t.element_size() for t in tensors_of(state))
    print("what,seconds,bytes")
    for _ in range(a.rounds):
        if os.path.exists(path):
            os.remove(path)
        print(f"save,{save(state, path):.6f},{size}", flush=True)
        print(f"load,{load(path):.6f},{size}", flush=True)
    os.remove(path)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""make_runs.py FOLDER — folders of runs that nobody trained: `long`, 100,000 steps with all metrics, and one whose
name, config, log and metrics are written to break out of a page."""
import json
import math
import os
import random
import sys

HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;"
BREAK = "</script></title></style><script>alert(1)</script><!-- "
LOSS = ["loss", "lm_loss", "perplexity", "z_loss", "moe_lb_loss", "indexer_loss", "mtp_loss", "total_weights", "grad_norm",
        "raw_grad_norm", "param_norm", "current_learning_rate"]
PERF = ["step_time_seconds", "per_device_tflops", "per_device_tflops_per_sec", "per_device_tokens", "per_device_tokens_per_sec"]
EVAL = ["total_loss", "total_weights", "avg_loss", "avg_perplexity", "avg_z_loss"]


def put(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf8", errors="surrogateescape") as file:
        file.write(text)


def long_run(folder, steps=100_000):
    draw = random.Random(1)
    put(folder, "config.yml", f"run_name: long  # <command line>\nsteps: {steps}  # <command line>\n")
    put(folder, "run.log", f"2026-01-02T03:04:05.678Z completed step: {steps - 1}, loss: 2.0\n")
    lines = []
    for step in range(steps):
        row = {f"learning/{name}": round(3 + math.exp(-step / 2e4) * draw.gauss(3, 0.3), 6) for name in LOSS}
        row |= {f"perf/{name}": round(draw.uniform(1, 2), 6) for name in PERF}
        if step == 54_321:
            row["learning/loss"] = 99.5  # the peak of one step that must not be lost
        if step == 65_432:
            row["learning/loss"] = None
        lines.append(json.dumps(row | {"step": float(step), "run_name": "long"}))
        if step % 1000 == 0:
            row = {f"eval/{name}": round(draw.uniform(2, 3), 6) for name in EVAL}
            lines.append(json.dumps(row | {"step": float(step), "run_name": "long"}))
    put(folder, "metrics.jsonl", "\n".join(lines) + "\n")


def hostile_run(folder):
    put(folder, "config.yml", f"# {BREAK}\nrun_name: {BREAK}  # {HOSTILE}\nsteps: 9  # {BREAK}\n{HOSTILE}: [{BREAK}]  # x\n"
        "logical_axis_rules:  # a\n  - <b>\n")
    put(folder, "run.log", f"2026-01-02T03:04:05.678Z completed step: 3, loss: 2.0\n2026-01-02T03:04:05.678Z {BREAK}\x1b[2J\udcff\n"
        f"2026-01-02T03:04:05.678Z mxtrain: error: {BREAK}\n")
    rows = [{BREAK: step + 0.5, HOSTILE: -step, "learning/loss": None if step == 2 else step * 1e300, "step": step, "run_name": BREAK}
            for step in range(4)]
    put(folder, "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + "not JSON\n" + '{"learning/loss": 1, "st')
    put(os.path.join(folder, "checkpoints", "3"), "MANIFEST.json", json.dumps({"made_by": {BREAK: BREAK}}))


long_run(os.path.join(sys.argv[1], "long"))
hostile_run(os.path.join(sys.argv[1], HOSTILE))
print(HOSTILE)

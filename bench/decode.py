#!/usr/bin/env python3
"""Measures how fast W1 takes a prompt in and gives tokens, in turn with transformers' generate and llama.cpp's llama-bench.

  bench/decode.py --python VENV/bin/python [--llama-bench PATH --gguf-python VENV/bin/python] [--dtypes bf16,f32] [--rounds 3]

All have W1's shapes, random weights in the dtype, batch 1, a prompt of 512 tokens and 64 more, and the fastest of a process's
rounds counts. Every process becomes a row of results.csv, kind "prefill" or "decode", as bench/run.py's do; this prints the ratios of each round's pairs
and writes RESULTS.md anew.
--python has torch and transformers. llama-bench is built from the sources in llama-cpp-python's sdist
(cmake -B build VENDOR/llama.cpp && cmake --build build --target llama-bench); --gguf-python has gguf and numpy and writes its file.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True  # no __pycache__ beside the sources

import harness
import machine
import run

PROMPT, TOKENS = 512, 64
KINDS = {"prefill": PROMPT, "decode": TOKENS}


def ours(setup, dtype):
    """The fastest of generate's rounds; its lines, for the share of memory."""
    name = run.DTYPES[dtype]
    process = harness.run_process(setup, [setup.programs / "generate", "bench/w1.yml", PROMPT, PROMPT, TOKENS, "floats",
                                          f"dtype={name}", f"weight_dtype={name}", f"num_threads={setup.threads}",
                                          "per_device_batch_size=1"])
    text = "\n".join(line for _, line in process.lines)
    print(text, flush=True)
    rates = [float(re.search(pattern, text)[1]) for pattern in (r"prompt of .*: (\d+) tokens", r"one by one: ([\d.]+) tokens")]
    return process, dict(zip(KINDS, rates))


def transformers(setup, dtype):
    process = harness.run_process(setup, [setup.peer_python, "bench/peer_decode.py", "generate", "--dtype", dtype, "--prompt",
                                          PROMPT, "--tokens", TOKENS, "--threads", setup.threads])
    return process, json.loads(process.lines[-1][1])


def llama(setup, dtype):
    """The fastest of 5 runs each, the tokens behind a prompt as ours are."""
    path = setup.build / "bench" / f"w1-{dtype}.gguf"
    if not path.exists():
        harness.run_process(setup, [setup.gguf_python, "bench/peer_decode.py", "gguf", "--dtype", dtype, "--out", path])
    rates = {}
    for kind, what in (("prefill", ["-p", PROMPT, "-n", 0]), ("decode", ["-p", 0, "-n", TOKENS, "-d", PROMPT])):
        process = harness.run_process(setup, [setup.llama_bench, "-m", path, "-t", setup.threads, *what, "-r", 5, "-o", "json"])
        rates[kind] = max(json.loads("\n".join(line for _, line in process.lines))[0]["samples_ts"])
    return process, rates


def measure(sitting, who, work, dtype, place):
    process, rates = work(sitting.setup, dtype)
    for kind, tokens in KINDS.items():
        outcome = harness.single(process, tokens / rates[kind])
        outcome.tokens = tokens
        sitting.record(outcome, kind=kind, workload="w1", dtype=dtype, who=who, environment=run.report.AS_FOUND, **place)
    return rates


def compare(sitting, dtype, rivals, rounds):
    ratios = {}
    for number in range(rounds):
        for pair, (who, work) in enumerate(rivals.items()):
            place = dict(round=number, pair=pair)
            mine = measure(sitting, "ours", ours, dtype, place)
            theirs = measure(sitting, who, work, dtype, place)
            for kind in KINDS:
                ratios.setdefault((who, kind), []).append(mine[kind] / theirs[kind])
    for (who, kind), found in ratios.items():
        print(f"{dtype} {kind}: {statistics.median(found):.2f} x {who} ({min(found):.2f} to {max(found):.2f})", flush=True)


def read_options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", type=pathlib.Path, required=True)
    p.add_argument("--llama-bench", type=pathlib.Path, help="without it llama.cpp is left out")
    p.add_argument("--gguf-python", type=pathlib.Path, default=sys.executable)
    p.add_argument("--dtypes", type=run.words, default="bf16,f32", help="default %(default)s")
    p.add_argument("--rounds", type=int, default=3, help="how often each pair runs (default %(default)s)")
    p.add_argument("--build", type=pathlib.Path, default=machine.ROOT / "build", help="folder of bench/generate")
    p.add_argument("--csv", type=pathlib.Path, default=machine.ROOT / "bench" / "results.csv", help="rows are added")
    p.add_argument("--results", type=pathlib.Path, default=machine.ROOT / "bench" / "RESULTS.md", help="written anew")
    return p.parse_args()


def main():
    options = read_options()
    cores = sorted(os.sched_getaffinity(0))
    setup = harness.Setup(build=options.build.resolve(), peer_python=options.python.absolute(), cores=cores,
                          llama_bench=options.llama_bench, gguf_python=options.gguf_python)
    sitting = run.Sitting(setup, options.csv)
    rivals = {"transformers": transformers, **({"llama.cpp": llama} if options.llama_bench else {})}
    for dtype in options.dtypes:
        sitting.attempt(dtype, lambda: compare(sitting, dtype, rivals, options.rounds))
    options.results.write_text(run.report.render(run.report.read(options.csv)))
    return 1 if sitting.failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures mxtrain against PyTorch and against the machine; see bench/README.md.

Processes run in turn (ours, theirs, ours, theirs ...) on the same cores. Every process becomes a row of
bench/results.csv as it ends; bench/RESULTS.md is written from that file.
"""
import argparse
import csv
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # no __pycache__ beside the sources

import harness
import machine
import report

ROOT = machine.ROOT
CORETYPE = "OPENBLAS_CORETYPE"
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
LORA = ["lora.enable_lora=true", "lora.lora_rank=16", "lora.lora_alpha=32"]
INT8 = ["quantization=int8"]
QLORA = [*LORA, "lora.lora_weight_qtype=nf4"]
DPO = ["use_dpo=true", "per_device_batch_size=2", "packing=false"]  # two pairs: W1's four rows
# config, what the peer trains, overrides, timed steps, whether the matmul floor knows it, workloads of ours that
# it is held against
WORKLOADS = {
    "w1": dict(config="bench/w1.yml", peer="w1", method="full", overrides=[], steps=7, has_floor=True, beside=[]),
    "w1i": dict(config="bench/w1.yml", peer="w1", method="full", overrides=INT8, steps=7, has_floor=False, beside=["w1"]),
    "w2": dict(config="bench/w1.yml", peer="w1", method="lora", overrides=LORA, steps=7, has_floor=False, beside=["w1"]),
    "w2q": dict(config="bench/w1.yml", peer="w1", method="qlora", overrides=QLORA, steps=7, has_floor=False, beside=["w2"]),
    "w2i": dict(config="bench/w1.yml", peer="w1", method="lora", overrides=LORA + INT8, steps=7, has_floor=False, beside=["w2"]),
    "w3": dict(config="bench/w3.yml", peer="w3", method="full", overrides=[], steps=58, has_floor=True, beside=[]),
    "w4": dict(config="bench/w4.yml", peer="w4", method="full", overrides=[], steps=5, has_floor=False, beside=[]),
    "w5m": dict(config="bench/w5m.yml", peer="w5m", method="full", overrides=[], steps=5, has_floor=False, beside=[]),
    "w6": dict(config="bench/w1.yml", peer="w1", method="dpo", overrides=DPO, steps=7, has_floor=False, beside=[]),
    "w7": dict(config="bench/w1.yml", peer="w1", method="dpo_lora", overrides=DPO + LORA, steps=7, has_floor=False,
               beside=["w2"]),
}
CHECKPOINT_ROUNDS = 5  # saves and loads of a process
SAVING_STEPS = 40
BATCHES, LAYERS, LENGTHS, REMATS = (1, 2, 4, 8), (2, 4, 8, 12), (2048, 4096, 8192), ("none", "minimal", "full")


class Sitting:
    """One run of a script: what is common to its rows, and the file they go to."""

    def __init__(self, setup, path):
        self.setup, self.path, self.failures = setup, path, []
        self.common = dict(sitting=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"), machine=machine.describe(),
                           level=machine.level(), commit=machine.commit(), threads=setup.threads,
                           versions=machine.versions(setup.programs, setup.peer_python), cores=" ".join(str(c) for c in setup.cores))

    def write(self, **fields):
        row = {name: fields.get(name, self.common.get(name, "")) for name in report.FIELDS}
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as f:
            out = csv.DictWriter(f, report.FIELDS, lineterminator="\n")
            if is_new:
                out.writeheader()
            out.writerow(row)

    def record(self, outcome, **fields):
        """Writes the row of a process and tells it."""
        seconds = outcome.seconds
        if seconds:
            fields.update(steps=len(seconds), min_s=f"{min(seconds):.6g}", median_s=f"{outcome.median_s:.6g}",
                          max_s=f"{max(seconds):.6g}", mean_s=f"{statistics.fmean(seconds):.6g}")
            if outcome.tokens:
                fields["tokens_per_s"] = f"{outcome.tokens / outcome.median_s:.6g}"
        for name in ("wall_s", "tflops", "rss_mb", "plan_mb", "reference_mb", "activations_mb", "first_step_s", "others_cpu"):
            value = getattr(outcome, name)
            fields[name] = "" if value is None else f"{value:.5g}"
        self.write(**fields)
        told = [fields["workload"], fields["dtype"], fields["who"], fields.get("environment", ""),
                fields.get("settings", ""), f"{outcome.median_s:.4f} s" if seconds else "",
                f"{outcome.rss_mb:.0f} MB", f"others {100 * outcome.others_cpu:.0f} %"]
        print("  ".join(word for word in told if word), flush=True)
        if outcome.wall_s and seconds and outcome.wall_s > 1.03 * outcome.median_s:
            print(f"  note: {outcome.wall_s:.4f} s pass between lines of steps", flush=True)
        return outcome

    def attempt(self, name, work):
        """Runs work; a failure is told, kept for the exit code, and ends only this piece."""
        try:
            work()
            return True
        except harness.RunFailed as failure:
            print(f"{name}: {failure}", file=sys.stderr, flush=True)
            self.failures.append(name)
            return False


def environment_of(unset):
    return f"{unset[0]} unset" if unset else report.AS_FOUND


def run_ours(sitting, name, dtype, steps, **fields):
    """One process of ours, or several ranks. Fields that are no column: overrides, unset, ranks, and what is different
    from the workload as it is, provider or instead, another workload."""
    unset, provider, instead = fields.pop("unset", ()), fields.pop("provider", "auto"), fields.pop("instead", name)
    overrides = [*WORKLOADS[instead]["overrides"], f"dtype={DTYPES[dtype]}", *fields.pop("overrides", [])]
    outcome = harness.ours(sitting.setup, WORKLOADS[instead]["config"], steps,
                           [f"matmul_provider={provider}", *overrides], unset, fields.pop("ranks", 1))
    different = [provider] * (provider != "auto") + [instead] * (instead != name)
    who = fields.pop("who", " ".join(["ours", *different]))
    return sitting.record(outcome, workload=name, dtype=dtype, who=who, environment=environment_of(unset), **fields)


# ---- pairs


def rivals_of(name, dtype, options):
    """What is run in turn with ours: (who, environment variables to unset)."""
    workload = WORKLOADS[name]
    envs = [()]
    if dtype == "f32" and workload["has_floor"] and CORETYPE in os.environ:
        envs.append((CORETYPE,))
    rivals = [(who, ()) for who in options.peers]
    if workload["has_floor"]:
        rivals += [("floor", unset) for unset in envs]
    rivals += [(f"ours {p}", unset) for p in options.providers if p != "auto" for unset in envs]
    rivals += [(f"ours {other}", ()) for other in workload["beside"]]
    return rivals + ([("touch", ())] if name == "w1" else [])


def run_rival(sitting, name, dtype, steps, rival, **fields):
    who, unset = rival
    setup, workload = sitting.setup, WORKLOADS[name]
    if who.startswith("ours "):
        what = who.split()[1]
        return run_ours(sitting, name, dtype, steps, unset=unset, **{"instead" if what in WORKLOADS else "provider": what}, **fields)
    if who == "floor":
        outcome = harness.floor(setup, workload["peer"], dtype, unset)
    else:
        outcome = harness.peer(setup, workload["peer"], workload["method"], dtype, who == "compile", steps)
    return sitting.record(outcome, workload=name, dtype=dtype, who=who, environment=environment_of(unset), **fields)


def run_touch(sitting, name, dtype, plan_mb, **fields):
    """The plan's bytes touched by a bare program: plainly, and as fast as we know how."""
    for pages, threads in (("small", 1), ("huge", sitting.setup.threads)):
        outcome = harness.touch(sitting.setup, plan_mb * harness.MB, threads, pages)
        sitting.record(outcome, workload=name, dtype=dtype, who=f"touch {pages}", environment=report.AS_FOUND,
                       settings=f"{threads} threads", **fields)


def run_pair(sitting, name, dtype, steps, rival, plan_mb, **fields):
    """Ours, then the rival. Before ours is paired with touching, the plan's bytes are touched once for nothing: a host
    that has not handed them out yet takes far longer, from whoever is first. Returns the plan's size."""
    who, unset = rival
    if who == "touch" and plan_mb:
        harness.touch(sitting.setup, plan_mb * harness.MB, sitting.setup.threads, "huge")
    ours = run_ours(sitting, name, dtype, steps, unset=unset, **fields)
    if who == "touch":
        run_touch(sitting, name, dtype, ours.plan_mb, **fields)
    else:
        run_rival(sitting, name, dtype, steps, rival, **fields)
    return ours.plan_mb


def compare(sitting, name, dtype, options):
    steps, plan_mb = options.steps or WORKLOADS[name]["steps"], 0
    rivals = rivals_of(name, dtype, options) or [("nobody", ())]
    for number in range(options.rounds):
        for pair, rival in enumerate(list(rivals)):
            def work():
                nonlocal plan_mb
                fields = dict(kind="compare", round=number, pair=pair)
                if rival[0] == "nobody":
                    run_ours(sitting, name, dtype, steps, **fields)
                else:
                    plan_mb = run_pair(sitting, name, dtype, steps, rival, plan_mb, **fields)
            if not sitting.attempt(f"{name} {dtype} {rival[0]}", work):
                rivals = [r if r != rival else ("skipped", ()) for r in rivals]
        rivals = [r for r in rivals if r[0] != "skipped"]
    if name == "w4":
        sitting.attempt(f"w4 {dtype} lengths", lambda: lengths(sitting, dtype))


# ---- tables of ours alone


def lengths(sitting, dtype):
    """Memory at several lengths; a run of the warm-up steps alone says it."""
    for length in LENGTHS:
        run_ours(sitting, "w4", dtype, 0, kind="length", settings=f"length={length}",
                 overrides=[f"max_target_length={length}"])


def growth(sitting, dtype, options):
    points = [(batch, LAYERS[-1]) for batch in BATCHES] + [(4, layers) for layers in LAYERS[:-1]]
    for number in range(options.rounds):
        for batch, layers in points:
            run_ours(sitting, "w1", dtype, options.steps or report.LEAST_STEPS, kind="growth", round=number,
                     settings=f"batch={batch} layers={layers}",
                     overrides=[f"per_device_batch_size={batch}", f"base_num_decoder_layers={layers}"])


def remat(sitting, dtype, options):
    for number in range(options.rounds):
        for policy in REMATS:
            run_ours(sitting, "w1", dtype, options.steps or report.LEAST_STEPS, kind="remat", round=number,
                     settings=policy, overrides=[f"remat_policy={policy}"])


def ranks(sitting, dtype, options):
    """A rank for every core, one thread each, against one process with as many threads, in turn."""
    n, steps = sitting.setup.threads, options.steps or WORKLOADS["w1"]["steps"]
    rows = 4 / n  # of W1's batch for each rank
    for number in range(options.rounds):
        for pair, axis in enumerate(report.RANK_AXES):
            fields = dict(kind="ranks", round=number, pair=pair)
            run_ours(sitting, "w1", dtype, steps, **fields)
            run_ours(sitting, "w1", dtype, steps, who=f"ranks {axis}", settings=f"{n} ranks", ranks=n, **fields,
                     overrides=[f"per_device_batch_size={rows:g}", f"ici_{axis}_parallelism={n}"])


def profile(sitting, name, dtype, options):
    steps, workload = options.steps or WORKLOADS[name]["steps"], WORKLOADS[name]
    rows, others = harness.profile(sitting.setup, workload["config"], steps,
                                   [*workload["overrides"], f"dtype={DTYPES[dtype]}"])
    for op, seconds, calls, share in rows:
        sitting.write(kind="profile", workload=name, dtype=dtype, who=op, steps=steps, median_s=f"{seconds:.6g}",
                      calls=calls, share=share, others_cpu=others)
        others = ""  # once a process
    print(f"{name} {dtype} profile: {len(rows)} kinds of op", flush=True)


def kernels(sitting, name, dtype):
    workload = WORKLOADS[name]
    rows, others = harness.kernels(sitting.setup, workload["config"], [*workload["overrides"], f"dtype={DTYPES[dtype]}"])
    for row in rows:
        sitting.write(kind="ops", workload=name, dtype=dtype, who=row["entry"], settings=row["kernel"],
                      steps=row["runs"], min_s=row["min_s"], median_s=row["median_s"], max_s=row["max_s"],
                      warm_s=row["warm_s"], tflops=float(row["flops"]) * 1e-12, mb=float(row["bytes"]) / harness.MB,
                      calls=row["calls"], share=row["share"], others_cpu=others)
        others = ""
    print(f"{name} {dtype} kernels: {len(rows)} rows", flush=True)


# ---- checkpoints


def checkpoints(sitting, name, options):
    """Saves and loads of the workload's state, ours and PyTorch's in turn, in the same folder."""
    setup, workload = sitting.setup, WORKLOADS[name]
    folder = setup.build / "bench" / "checkpoints"
    for number in range(options.rounds):
        for who in ("ours", *(p for p in options.peers if p == "eager")):
            found, mb = (harness.our_checkpoints(setup, workload["config"], folder, CHECKPOINT_ROUNDS) if who == "ours" else
                         harness.peer_checkpoints(setup, workload["peer"], folder, CHECKPOINT_ROUNDS))
            for what, outcome in found.items():
                sitting.record(outcome, kind=what, workload=name, dtype="f32", who=who, environment=report.AS_FOUND,
                               round=number, pair=0, mb=mb)


def saving(sitting, name, dtype, options):
    """A step while a checkpoint is written in the background, and alone."""
    setup, steps = sitting.setup, options.steps or SAVING_STEPS
    with tempfile.TemporaryDirectory(dir=setup.build / "bench") as folder:
        parts = harness.saving(setup, WORKLOADS[name]["config"], steps, folder, [f"dtype={DTYPES[dtype]}"])
    for who, outcome in zip(("saving", "alone"), parts):
        sitting.record(outcome, kind="saving", workload=name, dtype=dtype, who=who, environment=report.AS_FOUND)


# ---- set-up


def make_venv(folder):
    """The peer's python; makes the venv and installs into it if need be."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making a venv for PyTorch in {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if not machine.output_of([python, "-c", "import torch, transformers; print('ok')"]):
        subprocess.run([python, "-m", "pip", "install", "torch", "transformers", "peft"], check=True)
    return python


def words(text):
    return [] if text in ("", "none") else text.split(",")


def read_options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", type=words, default="w1,w3,w4", help=f"of {', '.join(WORKLOADS)} (default %(default)s)")
    p.add_argument("--dtypes", type=words, default="f32,bf16", help="default %(default)s")
    p.add_argument("--peers", type=words, default="eager,compile", help="of eager, compile, or none (default %(default)s)")
    p.add_argument("--providers", type=words, default="auto", help="of auto, openblas, onednn (default %(default)s)")
    p.add_argument("--steps", type=int, default=0, help="timed steps of a process (default: the workload's)")
    p.add_argument("--rounds", type=int, default=3, help="how often each pair runs (default %(default)s)")
    p.add_argument("--growth", action="store_true", help="also W1 over batch sizes and layers")
    p.add_argument("--remat", action="store_true", help="also W1 under each remat_policy")
    p.add_argument("--ranks", action="store_true", help="also W1 on a rank for every core, along data and along fsdp")
    p.add_argument("--profile", action="store_true", help="also mxtrain's own account of its time, by op")
    p.add_argument("--ops", action="store_true", help="also every kernel by itself")
    p.add_argument("--checkpoints", action="store_true", help="also saves and loads of W1's state, and steps during a save")
    p.add_argument("--no-pairs", action="store_true", help="only what the flags above name")
    p.add_argument("--report", action="store_true", help="measure nothing, write the tables anew")
    p.add_argument("--cores", type=lambda t: [int(c) for c in t.split(",")], help="default: those this process may use")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder of mxtrain and bench/")
    p.add_argument("--venv", type=pathlib.Path, help="default: BUILD/bench-venv, made if missing")
    p.add_argument("--csv", type=pathlib.Path, help="rows are added (default bench/results.csv)")
    p.add_argument("--results", type=pathlib.Path, help="written anew (default bench/RESULTS.md)")
    options = p.parse_args()
    for given, known, what in ((options.workloads, WORKLOADS, "workload"), (options.dtypes, DTYPES, "dtype"),
                               (options.peers, ("eager", "compile"), "peer"),
                               (options.providers, ("auto", "openblas", "onednn"), "provider")):
        for word in given:
            if word not in known:
                p.error(f"unrecognized {what} \"{word}\"; known: {', '.join(known)}")
    return options


def set_paths(options):
    """Trials stay out of the committed files unless told otherwise."""
    is_trial = 0 < options.steps < report.LEAST_STEPS
    place, csv_name, md_name = (options.build / "bench", "trial.csv", "TRIAL.md") if is_trial else \
        (ROOT / "bench", "results.csv", "RESULTS.md")
    options.csv = options.csv or place / csv_name
    options.results = options.results or place / md_name
    if is_trial:
        print(f"fewer than {report.LEAST_STEPS} timed steps: a trial, not a result; rows go to {options.csv.name}")


def open_sitting(options):
    cores = sorted(options.cores or os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)  # what is started from here inherits it
    has_peers = options.peers and (options.checkpoints or not options.no_pairs)
    python = make_venv(options.venv or options.build / "bench-venv") if has_peers else None
    setup = harness.Setup(build=options.build.resolve(), peer_python=python and pathlib.Path(os.path.abspath(python)),
                          cores=cores)
    for program in (setup.build / "mxtrain", *(setup.programs / name for name in ("matmul_floor", "touch", "ops", "checkpoint"))):
        if not program.exists():
            sys.exit(f"{program.name} is not built; run make bench")
    return Sitting(setup, options.csv)


def measure(sitting, options):
    for name in () if options.no_pairs else options.workloads:
        for dtype in options.dtypes:
            compare(sitting, name, dtype, options)
    if options.checkpoints:
        sitting.attempt("checkpoints", lambda: checkpoints(sitting, "w1", options))
    for dtype in options.dtypes:
        if options.checkpoints:
            sitting.attempt(f"saving {dtype}", lambda: saving(sitting, "w1", dtype, options))
        if options.growth:
            sitting.attempt(f"growth {dtype}", lambda: growth(sitting, dtype, options))
        if options.ranks:
            sitting.attempt(f"ranks {dtype}", lambda: ranks(sitting, dtype, options))
        if options.remat:
            sitting.attempt(f"remat {dtype}", lambda: remat(sitting, dtype, options))
        for name in options.workloads:
            if options.profile:
                sitting.attempt(f"{name} {dtype} profile", lambda: profile(sitting, name, dtype, options))
            if options.ops:
                sitting.attempt(f"{name} {dtype} kernels", lambda: kernels(sitting, name, dtype))


def main():
    options = read_options()
    set_paths(options)
    failures = []
    if not options.report:
        sitting = open_sitting(options)
        print(f"{sitting.common['machine']}\n{sitting.common['versions']}", flush=True)
        measure(sitting, options)
        failures = sitting.failures
    options.results.write_text(report.render(report.read(options.csv)))
    if failures:
        print(f"could not measure: {', '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

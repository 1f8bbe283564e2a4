"""Runs one process and reads off it what counts: seconds of its steps, when the first was done, how much
memory it took at most, and how much of the cores others used meanwhile."""
import csv
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import machine

WARM_UP = 2  # steps that are not timed
MB = 1e6
GIB = 2**30


class RunFailed(Exception):
    pass


@dataclasses.dataclass
class Process:
    lines: list  # (seconds after the start, text)
    rss_mb: float
    others_cpu: float  # share of the cores' time that went to others


@dataclasses.dataclass
class Outcome:
    """One process's figures; None = does not apply."""
    seconds: list = None  # of the timed steps, or of one measurement
    wall_s: float = None  # median between the lines that steps print
    tokens: int = None
    tflops: float = None
    rss_mb: float = None
    plan_mb: float = None
    activations_mb: float = None
    reference_mb: float = None
    first_step_s: float = None
    others_cpu: float = None

    @property
    def median_s(self):
        return statistics.median(self.seconds)


@dataclasses.dataclass
class Setup:
    """Where programs are and on what they run."""
    build: pathlib.Path
    peer_python: pathlib.Path
    cores: list
    llama_bench: pathlib.Path = None
    gguf_python: pathlib.Path = None

    @property
    def threads(self):
        return len(self.cores)

    @property
    def programs(self):
        return self.build / "bench"


def variables(unset):
    return {k: v for k, v in os.environ.items() if k not in unset}


def run_process(setup, command, unset=()):
    """Runs a command to its end, pinned as this process is; its stdout is read line by line."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as errors:
        busy, start = machine.busy_seconds(setup.cores), time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1,
                                 env=variables(unset), cwd=machine.ROOT)
        lines = [(time.monotonic() - start, line.rstrip("\n")) for line in child.stdout]
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
        wall, busy = time.monotonic() - start, machine.busy_seconds(setup.cores) - busy
        if child.returncode:
            errors.seek(0)
            said = errors.read().strip().splitlines()[-5:]
            raise RunFailed(f"{os.path.basename(command[0])} ended with {child.returncode}: " + "\n  ".join(said))
    others = busy - usage.ru_utime - usage.ru_stime
    return Process(lines, usage.ru_maxrss * 1024 / MB, max(0.0, others / (wall * setup.threads)))


def arrivals(process):
    return [at for at, text in process.lines if text.startswith("completed step: ")]


def step_outcome(process, seconds, tokens):
    """Figures of a training process; seconds are of all its steps."""
    at = arrivals(process)
    between = [b - a for a, b in zip(at, at[1:])][WARM_UP - 1:]
    return Outcome(seconds=seconds[WARM_UP:], tokens=tokens, rss_mb=process.rss_mb, others_cpu=process.others_cpu,
                   first_step_s=at[0], wall_s=statistics.median(between) if between else None)


def planned(process):
    """Bytes that our plan says: in all, of the reference model and of activations."""
    for _, text in process.lines:
        found = re.match(r"memory: ([\d.]+) GiB = .*reference ([\d.]+), activations ([\d.]+)", text)
        if found:
            return [float(part) * GIB for part in found.groups()]
    raise RunFailed("mxtrain printed no line \"memory: ... GiB\"")


def ours(setup, config, steps, overrides=(), unset=(), ranks=1):
    """Trains with mxtrain: `steps` timed ones after the warm-up. With ranks, memory is that of the largest one."""
    launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        process = run_process(setup, [
            *launcher, setup.build / "mxtrain", "--config", config, f"steps={WARM_UP + steps}",
            f"num_threads={setup.threads // ranks}", "remat_policy=none", "log_config=false", f"metrics_file={metrics}",
            f"base_output_directory={folder}", *overrides], unset)
        rows = [json.loads(line) for line in pathlib.Path(metrics).read_text().splitlines()]
    if any(row["learning/loss"] is None for row in rows):
        raise RunFailed("mxtrain's loss is not finite")
    outcome = step_outcome(process, [row["perf/step_time_seconds"] for row in rows],
                           rows[0]["perf/per_device_tokens"] * ranks)
    outcome.tflops = rows[0]["perf/per_device_tflops"]
    outcome.plan_mb, outcome.reference_mb, outcome.activations_mb = (b / MB for b in planned(process))
    return outcome


def profile(setup, config, steps, overrides=()):
    """Where mxtrain's time goes, by a run's own account: rows (op, seconds a step, calls, share)."""
    with tempfile.TemporaryDirectory() as folder:
        process = run_process(setup, [
            setup.build / "mxtrain", "--config", config, f"steps={WARM_UP + steps}", f"num_threads={setup.threads}",
            "remat_policy=none", "log_config=false", "profile_ops=true", f"base_output_directory={folder}",
            *overrides])
    rows = []
    for _, text in process.lines:
        found = re.match(r"(\w+) +([\d.]+) +(\d+) +([\d.]+)% +", text)
        if found:
            rows.append((found[1], float(found[2]) / (WARM_UP + steps), int(found[3]), float(found[4]) / 100))
    return rows, process.others_cpu


def peer(setup, workload, method, dtype, is_compiled, steps):
    command = [setup.peer_python, "bench/peer_torch.py", "--workload", workload, "--method", method, "--dtype", dtype,
               "--steps", WARM_UP + steps, "--threads", setup.threads]
    process = run_process(setup, command + (["--compile"] if is_compiled else []))
    told = json.loads(process.lines[-1][1])
    if not told["loss"] < float("inf"):
        raise RunFailed("the peer's loss is not finite")
    return step_outcome(process, told["seconds"], told["tokens"])


def single(process, seconds):
    return Outcome(seconds=[seconds], rss_mb=process.rss_mb, others_cpu=process.others_cpu)


def floor(setup, workload, dtype, unset=()):
    """Seconds that a workload's matrix products take alone."""
    process = run_process(setup, [setup.programs / "matmul_floor", workload, dtype, setup.threads], unset)
    return single(process, float(process.lines[-1][1].split()[1]))


def touch(setup, size, threads, pages):
    """Seconds that a bare program needs to touch so many bytes."""
    process = run_process(setup, [setup.programs / "touch", int(size), threads, pages])
    return single(process, float(process.lines[-1][1]))


def kernels(setup, config, overrides=()):
    """Rows of bench/ops: every kernel of a step by itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ops.csv")
        process = run_process(setup, [setup.programs / "ops", "--csv", path, config,
                                      f"num_threads={setup.threads}", *overrides])
        with open(path, newline="") as f:
            return list(csv.DictReader(f)), process.others_cpu


def saves_and_loads(setup, command):
    """{"save": outcome, "load": outcome} of a program that prints what, seconds, bytes."""
    process = run_process(setup, command)
    rows = list(csv.DictReader(text for _, text in process.lines))
    found = {}
    for what in ("save", "load"):
        part = [r for r in rows if r["what"] == what]
        found[what] = Outcome(seconds=[float(r["seconds"]) for r in part], rss_mb=process.rss_mb,
                              others_cpu=process.others_cpu)
    return found, float(rows[0]["bytes"]) / MB


def our_checkpoints(setup, config, folder, rounds):
    return saves_and_loads(setup, [setup.programs / "checkpoint", config, folder, rounds])


def peer_checkpoints(setup, workload, folder, rounds):
    return saves_and_loads(setup, [setup.peer_python, "bench/peer_checkpoint.py", "--workload", workload, "--folder", folder,
                                   "--rounds", rounds, "--threads", setup.threads])


def saving(setup, config, steps, folder, overrides=()):
    """Seconds of a step, from line to line: (while the checkpoint of step 0 is written, afterwards)."""
    process = run_process(setup, [
        setup.build / "mxtrain", "--config", config, f"steps={steps}", f"num_threads={setup.threads}", "remat_policy=none",
        "log_config=false", "enable_checkpointing=true", "checkpoint_period=1000000", "save_checkpoint_on_completion=false",
        f"base_output_directory={folder}", *overrides])
    saved = next((at for at, text in process.lines if text.startswith("Saved a checkpoint")), None)
    at = arrivals(process)
    gaps = [(b, b - a) for a, b in zip(at, at[1:])]
    if saved is None or not [b for b, _ in gaps if b > saved][1:]:
        raise RunFailed("the checkpoint was still being written when the run ended; more --steps")
    last = next(i for i, (b, _) in enumerate(gaps) if b >= saved)
    during, alone = gaps[:last + 1], gaps[last + 1:]
    return [Outcome(seconds=[s for _, s in part], rss_mb=process.rss_mb, others_cpu=process.others_cpu)
            for part in (during, alone)]

#!/usr/bin/env python3
"""Tells how long plans and searches take, in processor time and memory, the least of some runs.

  bench/plan.py [--build build] [--runs 3]

No model is built and no peer runs, so nothing goes into results.csv.
"""
import argparse
import os
import subprocess
import sys
import tempfile

PLANS = {
    "llama3.1-405b on 4,096": "model_name=llama3.1-405b num_devices=4096 ici_tensor_parallelism=8",
    "llama3.1-405b on 18,432, pipeline": "model_name=llama3.1-405b num_devices=18432 ici_tensor_parallelism=8 "
                                         "ici_pipeline_parallelism=9 num_layers_per_pipeline_stage=14",
    "deepseek3-671b on 4,096": "model_name=deepseek3-671b num_devices=4096 ici_expert_parallelism=64",
    "search over 1,024": "--search --device h100 --devices 1024 model_name=llama3.1-405b per_device_batch_size=1 "
                         "max_target_length=8192 dtype=bfloat16",
    "search over 128, pipelines": "--search --device h100 --devices 128 model_name=llama3.1-70b per_device_batch_size=1 "
                                  "max_target_length=8192 dtype=bfloat16",
    "4,500 rules": "RULES model_name=llama2-7b num_devices=8 scan_layers=false",
}


def measure(words):
    """Seconds of processor time and MB of one run."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(words)}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="where mxtrain is")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules:
        rules.write("base_config: base.yml\nlogical_axis_rules:\n")
        rules.writelines(f"  - [axis_{i}, [tensor]]\n" for i in range(4500))
        rules.flush()
        for name, words in PLANS.items():
            words = words.replace("RULES", f"--config {rules.name}").split()
            runs = [measure([f"{options.build}/mxtrain", "--plan", *words]) for _ in range(options.runs)]
            print(f"{name:36} {min(s for s, _ in runs):7.2f} s {max(mb for _, mb in runs):7.1f} MB")


if __name__ == "__main__":
    main()

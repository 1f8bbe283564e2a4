#!/usr/bin/env python3
"""Rows of each step while the batch grows, as MaxText's RampupBatchManager counts them: tests/golden/train/rampup.jsonl.

    JAX_PLATFORMS=cpu PYTHONPATH=MAXTEXT/src python scripts/golden_rampup.py FILE

A line has the keys of a config, the number of devices and the rows of 40 steps of all devices together; MAXTEXT is a checkout of
e591f30c."""
import json
import sys
from types import SimpleNamespace

from maxtext.utils.rampup_batch import RampupBatchManager

# devices, per_device_batch_size, _start, _increment, global_rampup_samples
CASES = [(1, 12, 4, 2, 500), (1, 8, 2, 2, 24), (1, 8, 2, 3, 100), (4, 8, 4, 2, 500), (2, 6, 1, 1, 7), (1, 16, 4, 6, 1),
         (8, 1, 0.5, 0.25, 50), (3, 10, 4, 2, 123), (1, 64, 1, 9, 200), (2, 9, 3, 3, 36)]
with open(sys.argv[1], "w", encoding="utf-8") as out:
    for devices, end, start, increment, samples in CASES:
        keys = {"per_device_batch_size": end, "per_device_batch_size_start": start,
                "per_device_batch_size_increment": increment, "global_rampup_samples": samples}
        manager = RampupBatchManager(SimpleNamespace(num_target_devices=devices, **keys), -1)
        rows = []
        for _ in range(40):
            rows.append(manager.global_batch_size_current)
            manager.update()
        out.write(json.dumps({"num_devices": devices, **keys, "rows": rows}) + "\n")

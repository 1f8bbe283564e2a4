#!/usr/bin/env python3
"""Reads files of token ids by MaxText's OLMo pipeline, for tests/golden/rows/olmo.

    pip install numpy grain h5py
    PYTHONPATH=MAXTEXT/src scripts/golden_olmo.py OUT

Writes OUT/a.npy, OUT/b.npy and OUT/c.npy, ids as uint16 without a header, some of them in spans that repeat; OUT/index.json, as
MaxText's tool makes it; and OUT/expected.h5: the five fields of every row in order [rows, 128].
"""
import importlib.util
import os
import pathlib
import sys

import h5py
import numpy as np

LENGTH, VOCAB = 128, 60
FIELDS = ["inputs", "targets", "inputs_position", "inputs_segmentation", "targets_segmentation"]


def module(name):
    """One of MaxText's, without the packages above it, which want accelerators."""
    for folder in sys.path:
        path = pathlib.Path(folder, "maxtext/input_pipeline", f"{name}.py")
        if path.exists():
            spec = importlib.util.spec_from_file_location(f"maxtext.input_pipeline.{name}", path)
            sys.modules[spec.name] = made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            return made
    raise SystemExit("PYTHONPATH does not lead to MaxText")


def tokens(rng, n, spans):
    ids = rng.integers(0, VOCAB, n).astype("<u2")
    for at, period, times, more in spans:
        span = np.tile(rng.integers(0, VOCAB, period), times + 1)[: period * times + more]
        ids[at : at + len(span)] = span[: n - at]
    return ids


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    data = module("olmo_data")
    rng = np.random.default_rng(3)
    files = {
        # spans within a row: long enough, one time too few, over the edge of two rows
        "a.npy": tokens(rng, 9 * LENGTH + 77, [(10, 1, 32, 0), (LENGTH + 10, 1, 31, 0), (2 * LENGTH + 3, 3, 32, 2), (4 * LENGTH - 40, 2, 32, 0),
                                               (5 * LENGTH, 4, 32, 0), (6 * LENGTH + 1, 4, 31, 3)]),
        "b.npy": tokens(rng, LENGTH - 1, []),  # no row
        "c.npy": tokens(rng, 4 * LENGTH, [(2, 3, 40, 1), (2 * LENGTH, 128, 1, 0), (3 * LENGTH + 20, 2, 33, 1)]),
    }
    for name, ids in files.items():
        ids.tofile(os.path.join(out, name))
    os.chdir(out)
    index = data.build_index([(name, "x") for name in files], LENGTH, tokenizer="none",
                             header_reader=lambda path: data.read_raw_metadata_from_path(path, "uint16"))
    index.save("index.json")
    loader = module("olmo_data_grain")
    source, filtered, shifted = loader.OlmoNpyDataSource(index), loader.NgramFilterTransform(), loader.ShiftToInputsTargets()
    rows = [shifted.map(filtered.map(source[i])) for i in range(len(source))]
    with h5py.File("expected.h5", "w") as file:
        for field in FIELDS:
            file[field] = np.stack([row[field] for row in rows]).astype(np.int32)
    print(len(rows), "rows,", sum(not row["targets_segmentation"].any() for row in rows), "of which do not count")


if __name__ == "__main__":
    main()

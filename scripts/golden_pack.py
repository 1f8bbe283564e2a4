"""golden_pack.py — makes golden files smaller without changing what they say:

    python golden_pack.py FILE.h5..

Datasets above half a kilobyte are shuffled and compressed (HDF5's own filters, so that every reader
reads them); names, types, values and attributes stay, which is checked before a file is replaced. For
files that scripts/golden_*.py made; those of others are never rewritten. Needs h5py."""
import os
import sys

import h5py
import numpy as np


def copy(source, target):
    for name, value in source.attrs.items():
        target.attrs[name] = value
    for name, item in source.items():
        if isinstance(item, h5py.Group):
            copy(item, target.create_group(name))
            continue
        packed = item.shape and item.size * item.dtype.itemsize > 512
        how = dict(compression="gzip", compression_opts=9, shuffle=True, chunks=item.shape) if packed else {}
        made = target.create_dataset(name, data=item[()], dtype=item.dtype, **how)
        for key, value in item.attrs.items():
            made.attrs[key] = value


def check(a, b, path="/"):
    same = set(a.attrs) == set(b.attrs) and all(np.array_equal(a.attrs[k], b.attrs[k]) for k in a.attrs)
    if isinstance(a, h5py.Group):
        same = same and set(a) == set(b)
    else:
        same = same and a.dtype == b.dtype and a.shape == b.shape and np.asarray(a[()]).tobytes() == np.asarray(b[()]).tobytes()
    if not same:
        sys.exit(f"{a.file.filename}: {path} would change")
    if isinstance(a, h5py.Group):
        for name in a:
            check(a[name], b[name], f"{path}{name}/")


for file in sys.argv[1:]:
    packed = file + ".packed"
    with h5py.File(file) as source, h5py.File(packed, "w", libver=("v110", "v110")) as target:
        copy(source, target)
        check(source, target)
    before, after = os.path.getsize(file), os.path.getsize(packed)
    if after < before:
        os.replace(packed, file)
    else:
        os.remove(packed)
    print(f"{file}: {before} bytes, packed {after}")

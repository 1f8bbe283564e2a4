#!/usr/bin/env python3
"""Makes golden rows: what MaxText's own input pipelines make of small files of records.

    JAX_PLATFORMS=cpu golden_rows.py FOLDER TOKENIZER

The real MaxText (src/maxtext of commit e591f30c on PYTHONPATH, with grain, datasets and google-crc32c) reads
files that are written into FOLDER first: token ids and texts as JSON Lines, TFRecord and Parquet. Each line of
FOLDER/rows.jsonl is a case: the words of its config, and the batches that the iterator gives.
TOKENIZER is a folder with tokenizer.json.
"""
import json
import os
import random
import struct
import sys

from absl import flags
import google_crc32c
import numpy as np
import pyarrow
import pyarrow.parquet

from maxtext.configs import pyconfig
from maxtext.input_pipeline import input_pipeline_interface
from maxtext.input_pipeline.protos import example_pb2
from maxtext.utils import maxtext_utils

LENGTH, ROWS = 12, 2
COMMON = f"""run_name=golden skip_jax_distributed_system=true hardware=cpu enable_checkpointing=false base_emb_dim=16
base_num_decoder_layers=1 vocab_size=512 tokenizer_type=huggingface per_device_batch_size={ROWS} enable_data_shuffling=false
max_target_length={LENGTH} max_prefill_predict_length=4 grain_worker_count=0""".split()

IDS = "train_data_columns=[ids] tokenize_train_data=false "
TEXT = "train_data_columns=[text] "
HF, GRAIN = "dataset_type=hf hf_path=json hf_train_files=", "dataset_type=grain grain_file_type=tfrecord grain_train_files="
PARQUET = "dataset_type=grain grain_file_type=parquet grain_train_files="
CASES = [
    IDS + HF + "ids.jsonl packing=true",
    IDS + HF + "long.jsonl packing=false",
    IDS + HF + "ids.jsonl packing=false generate_padding_batch_train=true",
    IDS + GRAIN + "ids.tfrecord packing=true",
    IDS + GRAIN + "long.tfrecord packing=false",
    TEXT + GRAIN + "long.tfrecord packing=true",
    TEXT + GRAIN + "long.tfrecord packing=false",
    IDS + PARQUET + "ids.parquet packing=true",
    TEXT + PARQUET + "long.parquet packing=true",
    TEXT + PARQUET + "long.parquet packing=false use_truncation=false",
    TEXT + GRAIN + "long.tfrecord packing=true use_truncation=false",
    TEXT + GRAIN + "long.tfrecord packing=false use_truncation=false",
]


def records(most):
    """Ids of the vocabulary, some of them padding (0) in the middle or at the end; words of one or two tokens."""
    rng = random.Random(3)
    out = []
    for i in range(14):
        n = rng.randrange(2, most)
        ids = [rng.randrange(3, 500) for _ in range(n)]
        if i % 4 == 1:
            ids[-1] = 0
        if i % 5 == 2:
            ids[n // 2] = 0
        out.append({"ids": ids, "text": " ".join(rng.choice(["a", "the", "of", "in"]) for _ in range(n))})
    return out


def masked(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write(folder, name, all_records):
    with open(os.path.join(folder, name + ".jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in all_records)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(all_records), os.path.join(folder, name + ".parquet"))
    with open(os.path.join(folder, name + ".tfrecord"), "wb") as f:
        for r in all_records:
            e = example_pb2.Example()
            e.features.feature["ids"].int64_list.value.extend(r["ids"])
            e.features.feature["text"].bytes_list.value.append(r["text"].encode())
            data = e.SerializeToString(deterministic=True)
            length = struct.pack("<Q", len(data))
            f.write(length + masked(length) + data + masked(data))


def batches(folder, tokenizer, words):
    """Four, and behind the end of the data two more, which are padding."""
    most = 9 if "generate_padding" in words else 4
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    words = [w.replace("_files=", "_files=" + folder + "/") for w in words.split()]
    config = pyconfig.initialize([sys.argv[0], base, "tokenizer_path=" + tokenizer] + COMMON + words)
    train, _ = input_pipeline_interface.create_data_iterator(config, maxtext_utils.get_mesh_from_config(config))
    out = []
    for batch in train:
        out.append({k: np.asarray(v).tolist() for k, v in sorted(batch.items())})
        if len(out) == most:
            break
    return out


def main():
    folder, tokenizer = sys.argv[1:3]
    flags.FLAGS(sys.argv[:1])
    write(folder, "ids", records(LENGTH + 1))
    write(folder, "long", records(3 * LENGTH))
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for words in CASES:
            case = {"words": words, "length": LENGTH, "rows": ROWS, "batches": batches(folder, tokenizer, words)}
            f.write(json.dumps(case, separators=(",", ":")) + "\n")


main()

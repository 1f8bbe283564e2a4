#!/usr/bin/env python3
"""Makes golden rows of dataset_type=c4_mlperf: what MaxText's own pipeline makes of small sets.

    JAX_PLATFORMS=cpu PYTHONPATH=MAXTEXT/src scripts/golden_c4.py OUT TOKENIZERS

With tensorflow, tensorflow-datasets, jax, transformers and sentencepiece from PyPI. TOKENIZERS is tests/golden/hf/tokenizers. Writes the
sets into OUT/sets, as TensorFlow Datasets lays them out but packed with gzip; OUT/cases.jsonl: words of configs, how many rows they give
and the first of them, since of training only the last are kept; and OUT/rows.h5: five fields of the rows of all cases [fields, rows,
length]. Training is read without its shuffle of 128 rows.
"""
import gzip
import json
import os
import random
import shutil
import sys
import tempfile

from absl import flags
import h5py
import numpy as np
import tensorflow as tf

SETS = os.environ["TFDS_DATA_DIR"] = tempfile.mkdtemp()  # it is read by the import
import tensorflow_datasets as tfds

from maxtext.configs import pyconfig
from maxtext.input_pipeline import input_pipeline_interface
from maxtext.input_pipeline import tfds_data_processing_c4_mlperf as c4
from maxtext.utils import maxtext_utils

LENGTH, ROWS, KEPT = 64, 4, 16
FIELDS = ["inputs", "targets", "inputs_position", "inputs_segmentation", "targets_segmentation"]
COMMON = f"""run_name=golden skip_jax_distributed_system=true hardware=cpu enable_checkpointing=false base_emb_dim=16
base_num_decoder_layers=1 vocab_size=2048 per_device_batch_size={ROWS} enable_data_shuffling=false max_target_length={LENGTH}
max_prefill_predict_length=4 dataset_type=c4_mlperf dataset_name=c4/en:3.0.4 eval_interval=1""".split()

T5 = "tokenizer_type=sentencepiece tokenizer_path=t5/tokenizer.model add_bos=false"
LLAMA = "tokenizer_type=sentencepiece tokenizer_path=llama2/tokenizer.model"
GPT2 = "tokenizer_type=huggingface tokenizer_path=gpt2 add_bos=false"
CASES = [T5, LLAMA + " add_eos=false", GPT2] + [T5 + " eval_dataset_name=c4/en:3.0." + v for v in "459"] + \
    [LLAMA + " eval_dataset_name=c4/en:3.0." + v for v in "49"] + [GPT2 + " eval_dataset_name=c4/en:3.0.5"]

TEXTS = ["The first document of all.", "", "It", "Caf\u00e9 and \u65e5\u672c", "A longer one: " + "and then another word, " * 9,
         "It! is! 0", "The\nend"]


CUTS = {"train2": [16, 16, 40, 45, *range(400, 4400, 290)], "validation_tokenized_5662seqs": [3, 50, 50]}


def feature(value):
    if isinstance(value, str):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def write_set(folder, version, name, kind, splits):
    """Several shards of two splits, of training more than are read at a time; without records, too."""
    folder = os.path.join(folder, "c4/en", version)
    os.makedirs(folder)
    infos = []
    for split, values in splits.items():
        cuts = [0, *CUTS.get(split, []), len(values)]
        for i in range(len(cuts) - 1):
            path = f"{folder}/c4-{split}.tfrecord-{i:05d}-of-{len(cuts) - 1:05d}"
            with tf.io.TFRecordWriter(path) as out:
                for value in values[cuts[i]:cuts[i + 1]]:
                    example = tf.train.Example(features=tf.train.Features(feature={name: feature(value)}))
                    out.write(example.SerializeToString(deterministic=True))
        infos.append(tfds.core.SplitInfo(
            name=split, shard_lengths=[b - a for a, b in zip(cuts, cuts[1:])], num_bytes=0,
            filename_template=tfds.core.ShardedFileTemplate(
                dataset_name="c4", data_dir=folder, split=split, filetype_suffix="tfrecord",
                template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}")))
    tfds.folder_dataset.write_metadata(
        data_dir=folder, features=tfds.features.FeaturesDict({name: kind}), split_infos=infos, description="golden")


def write_sets(folder):
    rng = random.Random(4)
    many = [rng.choice(TEXTS) if rng.random() < 0.1 else "" for _ in range(4096 + 400)]
    ids = [[rng.choice([0, 1, 2, rng.randrange(3, 800)]) for _ in range(rng.randrange(1, LENGTH // 2 if i % 9 else LENGTH + 9))]
           for i in range(80)]
    text = tfds.features.Text()
    write_set(folder, "3.0.4", "text", text, {"train2": many, "validation_24567exp": [rng.choice(TEXTS) for _ in range(40)]})
    write_set(folder, "3.0.5", "ids", tfds.features.Sequence(np.int32), {"validation_tokenized_5662seqs": ids})
    write_set(folder, "3.0.9", "text", text, {"validation": [rng.choice(TEXTS) for _ in range(9)]})


def rows_of(tokenizers, words):
    base = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
    words = words.replace("tokenizer_path=", f"tokenizer_path={tokenizers}/")
    is_eval = "eval_dataset_name" in words
    if not is_eval:
        words += " eval_dataset_name=c4/en:3.0.4"
    config = pyconfig.initialize([sys.argv[0], base, "dataset_path=" + SETS] + COMMON + words.split())
    train, evaluation = input_pipeline_interface.create_data_iterator(config, maxtext_utils.get_mesh_from_config(config))
    fields = {}
    for batch in evaluation if is_eval else train:
        for key, value in batch.items():
            fields.setdefault(key, []).append(np.asarray(value))
    rows = {key: np.concatenate(values).astype(np.int32) for key, values in fields.items()}
    np.testing.assert_array_equal(rows.pop("targets_position"), rows["inputs_position"])
    first = 0 if is_eval else len(rows["inputs"]) - KEPT
    return first, np.stack([rows[key][first:] for key in FIELDS])


def main():
    out, tokenizers = sys.argv[1], os.path.abspath(sys.argv[2])
    flags.FLAGS(sys.argv[:1])
    tf.data.Dataset.shuffle = lambda self, *ignored, **also: self
    write_sets(SETS)
    os.makedirs(out, exist_ok=True)
    rows = []
    with open(os.path.join(out, "cases.jsonl"), "w") as cases:
        for words in CASES:
            first, more = rows_of(tokenizers, words)
            rows.append(more)
            cases.write(json.dumps({"words": words, "first": first, "rows": more.shape[1]}) + "\n")
    rows = np.concatenate(rows, axis=1)
    with h5py.File(os.path.join(out, "rows.h5"), "w", libver=("earliest", "v110")) as file:
        file.create_dataset("rows", data=rows, chunks=rows.shape, compression="gzip", compression_opts=9, shuffle=True)
    for folder, _, names in os.walk(SETS):
        to = os.path.join(out, "sets", os.path.relpath(folder, SETS))
        os.makedirs(to, exist_ok=True)
        for name in names:
            with open(os.path.join(folder, name), "rb") as source:
                data = source.read()
            if "tfrecord" in name:
                data = gzip.compress(data, 9, mtime=0)
            elif name != "dataset_info.json":
                continue
            with open(os.path.join(to, name), "wb") as target:
                target.write(data)
    shutil.rmtree(SETS)


main()

#!/usr/bin/env python3
"""events.py RUN — whether the event files of a run say what its metrics.jsonl and config.yml say.

They are read here record by record, by no more than the formats' descriptions: TFRecord with its sums,
protocol buffers field by field. Where TensorBoard is installed, it reads them too and must find the same.
"""
import json
import logging
import math
import os
import struct
import sys

# MaxText, src/maxtext/common/metric_logger.py and trainers/pre_train/train.py @e591f30c.
SCALARS = [
    "learning/loss", "learning/lm_loss", "learning/perplexity", "learning/z_loss", "learning/moe_lb_loss",
    "learning/indexer_loss", "learning/mtp_loss", "learning/total_weights", "learning/grad_norm",
    "learning/raw_grad_norm", "learning/param_norm", "learning/current_learning_rate", "perf/step_time_seconds",
    "perf/per_device_tflops", "perf/per_device_tflops_per_sec", "perf/per_device_tokens",
    "perf/per_device_tokens_per_sec", "eval/total_loss", "eval/total_weights", "eval/avg_loss",
    "eval/avg_perplexity", "eval/avg_z_loss",
]


def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        length, length_sum = struct.unpack_from("<QI", data, at)
        assert masked(data[at:at + 8]) == length_sum, f"{path}: sum of a length at {at}"
        body = data[at + 12:at + 12 + length]
        (body_sum,) = struct.unpack_from("<I", data, at + 12 + length)
        assert masked(body) == body_sum, f"{path}: sum of a record at {at}"
        at += 16 + length
        yield body


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """A message as {number of a field: its values}."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        elif kind == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        else:
            assert kind == 2, f"wire type {kind}"
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def read_events(folder):
    """{tag: [(step, float or text)]}, less what a later session makes again."""
    out, last_time = {}, 0
    for name in sorted(os.listdir(folder)):
        events = [fields(r) for r in records(os.path.join(folder, name))]
        assert events[0][3] == [b"brain.Event:2"], f"{name} has no version first"
        assert 7 in events[1], f"{name} has no start of a session"
        for event in events:
            step = event.get(2, [0])[0]
            assert event[1][0] >= last_time - 1, "times go backwards"
            last_time = event[1][0]
            if 7 in event and fields(event[7][0])[1] == [1]:
                out = {tag: kept for tag, old in out.items() if (kept := [p for p in old if p[0] < step])}
            for summary in event.get(5, []):
                for value in fields(summary).get(1, []):
                    value = fields(value)
                    tag = value[1][0].decode()
                    if 2 in value:
                        out.setdefault(tag, []).append((step, value[2][0]))
                    else:
                        plugin = fields(fields(value[9][0])[1][0])
                        assert plugin[1] == [b"text"], tag
                        out.setdefault(tag, []).append((step, fields(value[8][0])[8][0].decode()))
    return out


def read_metrics(path):
    out = {}
    for line in open(path, encoding="utf8"):
        row = json.loads(line)
        step = row.pop("step")
        row.pop("run_name")
        for name, value in row.items():
            out.setdefault(name, []).append((int(step), math.nan if value is None else value))
    return out


def same(a, b):
    return a == b or math.isclose(a, b, rel_tol=1e-6) or (not math.isfinite(a) and math.isnan(b))


def compare(who, found, wanted):
    assert set(found) == set(wanted), f"{who}: {sorted(set(found) ^ set(wanted))}"
    for tag, points in wanted.items():
        assert [p[0] for p in found[tag]] == [p[0] for p in points], f"{who}: steps of {tag}: {found[tag]}"
        for (step, a), (_, b) in zip(found[tag], points):
            assert same(a, b), f"{who}: {tag} of step {step}: {a}, not {b}"


def config_of(path):
    """Keys and values on a line of their own, without the comments."""
    out = {}
    for line in open(path, encoding="utf8"):
        key, colon, rest = line.partition(": ")
        if colon and not line.startswith(("#", " ")) and not rest.lstrip().startswith("#"):
            out[key] = rest.rsplit("  # ", 1)[0].strip()
    return out


def main(run):
    found = read_events(os.path.join(run, "tensorboard"))
    wanted = read_metrics(os.path.join(run, "metrics.jsonl"))
    missing = [name for name in SCALARS if name not in wanted]
    assert not missing, f"not MaxText's names: {missing}"
    texts = {tag: points for tag, points in found.items() if tag.endswith("/text_summary")}
    compare("records", {tag: p for tag, p in found.items() if tag not in texts}, wanted)
    assert int(texts["num_model_parameters/text_summary"][-1][1]) > 0
    config = config_of(os.path.join(run, "config.yml"))
    for key, value in config.items():
        if key != "apply_model_config":
            assert texts[f"{key}/text_summary"][-1][1] == value, f"{key}: not {value}"
    assert len(config) > 100, len(config)
    print(f"{len(wanted)} scalars, {len(texts)} texts")
    try:
        from tensorboard import version
        from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    except ImportError:
        print("tensorboard is not here, NOT TESTED that it reads event files")
        return
    logging.disable()  # of what it purges
    old = event_accumulator.EventAccumulator(os.path.join(run, "tensorboard"), size_guidance={"scalars": 0})
    old.Reload()
    compare("TensorBoard", {t: [(e.step, e.value) for e in old.Scalars(t)] for t in old.Tags()["scalars"]}, wanted)
    new = plugin_event_accumulator.EventAccumulator(os.path.join(run, "tensorboard"), size_guidance={},
                                                    tensor_size_guidance={"scalars": 0, "text": 0})
    new.Reload()
    scalars, shown = new.PluginTagToContent("scalars"), new.PluginTagToContent("text")
    assert set(scalars) == set(wanted), set(scalars) ^ set(wanted)
    assert set(shown) == set(texts), set(shown) ^ set(texts)
    for tag, points in texts.items():
        got = [(e.step, e.tensor_proto.string_val[0].decode()) for e in new.Tensors(tag)]
        assert got == points, f"TensorBoard: {tag}: steps {[p[0] for p in got]}, not {[p[0] for p in points]}"
    print(f"TensorBoard {version.VERSION} finds the same")


main(sys.argv[1])

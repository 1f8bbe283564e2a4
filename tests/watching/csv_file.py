#!/usr/bin/env python3
"""csv_file.py FILE METRICS.JSONL — whether a CSV file says what the JSON lines say, row by row."""
import csv
import json
import math
import sys

csv_file, lines = sys.argv[1:]
rows = list(csv.DictReader(open(csv_file, newline="", encoding="utf8")))
wanted = [json.loads(line) for line in open(lines, encoding="utf8")]
assert len(rows) == len(wanted), f"{len(rows)} rows, {len(wanted)} lines"
columns = list(rows[0])
assert columns[0] == "step" and columns[-1] == "run_name" and None not in columns, columns
assert {"learning/loss", "eval/avg_loss"} <= set(columns), columns
for number, (row, line) in enumerate(zip(rows, wanted), 2):
    assert None not in row and None not in row.values(), f"line {number}: {len(row)} fields"
    assert {name for name, text in row.items() if text} == set(line), f"line {number}: {sorted(row)}"
    for name, value in line.items():
        got = row[name] if name == "run_name" else float(row[name])
        assert got == value or (value is None and not math.isfinite(got)), f"line {number}: {name} {got}, not {value}"
print(f"{len(rows)} rows of {len(columns)} columns")

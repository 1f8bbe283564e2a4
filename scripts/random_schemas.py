#!/usr/bin/env python3
"""Random JSON schemas: what a guide lets through must be valid for the package jsonschema.

    scripts/random_schemas.py [--n 2000] [--seed 1] [--suite FOLDER] [--show 5] [--test build/test_guide]

Schemas of a seed have words that limit each other. For each one the suite `walks` of build/test_guide writes texts, of which jsonschema must
find every one valid, and says of other texts whether they fit, which must then be valid, too. It prints how many schemas were taken, how many
refused and why, how many texts were valid, and of the values that jsonschema finds valid how many a guide would let through. FOLDER is one of
https://github.com/json-schema-org/JSON-Schema-Test-Suite (tests/draft2020-12), whose schemas and values are added. Exits 1 if a text that was
let through is not valid. Needs jsonschema 4.x."""

import argparse
import collections
import decimal
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

TEXTS = ["", "a", "ab", "abc", "x-1", "x-", "12", "a b", "é", "Foo", "y\n", 'q"']
PATTERNS = ["^a", "b$", "^[a-z]+$", "x-", r"^\d+$", "^(foo|ab)", "^.{2}$"]
NAMES = ["a", "b", "kind", "x-1", "x-ab", "n"]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]


def scalar(r):
    return r.choice([None, True, False, r.randrange(-4, 9), r.choice([0.5, 1.5, 2.25, -0.1]), r.choice(TEXTS)])


def value(r, depth=2):
    kind = r.randrange(8 if depth else 5)
    if kind < 5:
        return scalar(r)
    if kind < 7:
        return {r.choice(NAMES): value(r, depth - 1) for _ in range(r.randrange(4))}
    return [value(r, depth - 1) for _ in range(r.randrange(4))]


def tagged(r, depth, kind):
    """An alternative that a constant tells from others."""
    own = {"properties": {"kind": {"const": kind}, "a": schema(r, depth - 1)}, "required": r.choice([["kind"], ["kind", "a"]])}
    return {"type": "object", **own}


def word(r, depth, out):
    """Adds a word, or some that belong together."""
    kind = r.choice(["type", "enum", "number", "text", "object", "list", "choice", "not", "if", "all", "count", "patterns", "contains", "unique", "multiple"])
    if kind == "type":
        out["type"] = r.choice(TYPES) if r.random() < 0.7 else r.sample(TYPES, 2)
    elif kind == "enum":
        out.update({"enum": [value(r, 1) for _ in range(r.randrange(1, 5))]} if r.random() < 0.7 else {"const": value(r, 1)})
    elif kind == "number":
        out[r.choice(["minimum", "exclusiveMinimum"])] = r.choice([-3, 0, 1, 2.5])
        out[r.choice(["maximum", "exclusiveMaximum"])] = r.choice([3, 7, 8.25])
    elif kind == "multiple":
        out["multipleOf"] = r.choice([1, 2, 3, 7, 10, 0.5, 0.1, 0.01, 2.5])
    elif kind == "text":
        out.update(r.choice([{"minLength": r.randrange(3)}, {"maxLength": r.randrange(1, 4)}, {"pattern": r.choice(PATTERNS)}, {"pattern": r.choice(PATTERNS), "minLength": 2}]))
    elif kind == "object" and depth:
        names = r.sample(NAMES, r.randrange(1, 4))
        out["properties"] = {n: schema(r, depth - 1) for n in names}
        out["required"] = [n for n in r.sample(NAMES, 2) if r.random() < 0.5]
        if r.random() < 0.4:
            out["additionalProperties"] = r.choice([True, False, schema(r, depth - 1)])
    elif kind == "count":
        out[r.choice(["minProperties", "maxProperties"])] = r.randrange(4)
    elif kind == "patterns" and depth:
        out["patternProperties"] = {p: schema(r, depth - 1) for p in r.sample(PATTERNS, r.randrange(1, 3))}
        if r.random() < 0.4:
            out["propertyNames"] = r.choice([{"maxLength": 3}, {"pattern": "^[a-z]"}, {"enum": NAMES[:3]}])
    elif kind == "list" and depth:
        out["items"] = schema(r, depth - 1)
        if r.random() < 0.3:
            out["prefixItems"] = [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]
        out.update(r.choice([{}, {"minItems": 1}, {"maxItems": 3}, {"minItems": 2, "maxItems": 3}]))
    elif kind == "contains" and depth:
        out["contains"] = schema(r, depth - 1)
        out.update(r.choice([{}, {}, {"minContains": 2}, {"maxContains": 1}, {"minContains": 0}]))
    elif kind == "unique":
        out["uniqueItems"] = True
        out["items"] = r.choice([{"enum": [value(r, 1) for _ in range(4)]}, {"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 4}])
    elif kind == "choice" and depth:
        several = [schema(r, depth - 1) for _ in range(2)]
        out[r.choice(["anyOf", "oneOf", "oneOf"])] = r.choice([several, [tagged(r, depth, k) for k in ("u", "v")]])
    elif kind == "not" and depth:
        out["not"] = schema(r, depth - 1)
    elif kind == "if" and depth:
        out["if"] = schema(r, depth - 1)
        out.update({w: schema(r, depth - 1) for w in ("then", "else") if r.random() < 0.8})
    elif kind == "all" and depth:
        out["allOf"] = [schema(r, depth - 1) for _ in range(2)]


def schema(r, depth):
    if r.random() < 0.04:
        return r.random() < 0.5
    out = {}
    if r.random() < 0.6:
        out["type"] = r.choice(TYPES)
    for _ in range(r.choice([1, 1, 2, 3])):
        word(r, depth, out)
    return out


decimal.getcontext().prec = 300


def whole(r):
    own = schema(r, 2)
    return own if isinstance(own, dict) else {"anyOf": [own]}


def exact(text):
    """Numbers as they are written: 0.07 is a multiple of 0.01."""
    return json.loads(text, parse_float=decimal.Decimal)


def has_value(row):
    try:
        check = Draft202012Validator(exact(json.dumps(row["schema"])))
        return any(check.is_valid(exact(t)) for t in row["texts"])
    except Exception:  # what is no schema for jsonschema
        return False


def rows_of(args):
    for i in range(args.n):
        r = random.Random(f"{args.seed} {i}")
        yield {"schema": whole(r), "texts": [json.dumps(value(r), ensure_ascii=False) for _ in range(20)]}
    for file in sorted(args.suite.glob("*.json")) if args.suite else []:
        for case in json.loads(file.read_text()):
            if isinstance(case["schema"], dict) and "\\u0000" not in json.dumps(case):  # requests may not have it
                own = {k: v for k, v in case["schema"].items() if k != "$schema"}
                yield {"schema": own, "texts": [json.dumps(t["data"], ensure_ascii=False) for t in case["tests"]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--suite", type=pathlib.Path)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--test", default="build/test_guide")
    args = parser.parse_args()
    rows, counts, why, shown = list(rows_of(args)), collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/schemas.jsonl"
        pathlib.Path(path).write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in rows), encoding="utf-8")
        run = subprocess.run([args.test], env=dict(os.environ, MX_SCHEMAS=path, CK_RUN_SUITE="walks"), capture_output=True, text=True)
        found = [json.loads(x) for x in pathlib.Path(path + ".out").read_text(encoding="utf-8").split("\n") if x]
    if len(found) < len(rows):
        print(f"{run.stdout}\nended at line {len(found)}: {json.dumps(rows[len(found)], ensure_ascii=False)[:2000]}")
        return 1
    for row, own in zip(rows, found):
        if "error" in own:
            is_empty = "no value fits" in own["error"]
            counts["refused"] += not is_empty
            counts["without a value"] += is_empty
            if is_empty and has_value(row):
                counts["with a value that is not found"] += 1
                if (shown := shown + 1) <= args.show:
                    print(f"not found: {[t for t in row['texts'] if has_value({**row, 'texts': [t]})][:3]}\n  {json.dumps(row['schema'], ensure_ascii=False)}")
            why[re.sub(r"\d+", "N", re.sub(r"^schema: (at [^:]*?([^/:]*): )?", r"\2: ", own["error"]))[:100]] += 1
            continue
        counts["taken"] += 1
        check = Draft202012Validator(exact(json.dumps(row["schema"])))
        try:
            texts = [(t, True) for t in own["walks"]] + [(t, bool(f)) for t, f in zip(row["texts"], own["fits"])]
            valid = [check.is_valid(exact(t)) for t, _ in texts]
        except (SchemaError, Unresolvable, json.JSONDecodeError, re.error, AttributeError, TypeError) as error:
            counts[f"jsonschema: {type(error).__name__}"] += 1
            continue
        counts["texts written"] += len(own["walks"])
        for (text, fits), is_valid in zip(texts, valid):
            counts["invalid, let through"] += fits and not is_valid
            counts["valid"] += is_valid
            counts["valid, let through"] += is_valid and fits
            if fits and not is_valid and shown < args.show:
                shown += 1
                print(f"not valid: {text}\n  {json.dumps(row['schema'], ensure_ascii=False)}")
    for text, n in why.most_common(25):
        print(f"{n:6} {text}")
    print(f"{len(rows)} schemas: " + ", ".join(f"{n} {k}" for k, n in counts.items()))
    return 1 if counts["invalid, let through"] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""golden_schemas.py OUT — JSON schemas and texts, with whether the package jsonschema finds that they fit.

A line of OUT is {"schema", "fits": texts as a guide would write them, "others": [[text, whether it fits], …]}.
Needs jsonschema[format] 4.x.  OUT is tests/golden/guide/schemas.jsonl."""

import json
import random
import sys

from jsonschema import Draft202012Validator

R = random.Random(7)
NAMES = ["a", "b", "city", "na me", "é", 'x"y', "name", "names", "ünï"]
PATTERNS = {"^[a-z]+$": ["abc", "z"], r"^\d{3}-\d{4}$": ["123-4567"], "abc": ["abc", "xabcé"], "^(foo|bar)+$": ["foobar"],
            '^[^"\\\\<]{2,5}$': ["a b", "é>é"], "x.y$": ["xzy", "__x\"y"], r"^\w+@\w+\.(com|org)$": ["a_1@b.org"],
            "^a|b$": ["ab", "axx", "xxb"], "^(?:[A-Z][a-z]{1,3} ?){2,}$": ["Abc De"], r"^\S+\s[^\s\d]$": ["a\té"[:2] + "x"]}
FORMATS = {"date": ["2024-01-31"], "time": ["23:59:59.25Z"], "date-time": ["1999-12-01T00:00:00+05:30"], "ipv4": ["10.0.255.1"],
           "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "email": ["jo.do@example.com"], "duration": ["P3DT2H"]}


def scalar():
    return R.choice([None, True, R.randrange(-50, 50), R.choice(["x", "y\n", 'é"', "<b>"]), round(R.uniform(-3, 3), 2)])


def bounds(low, spread, digits):
    out = {}
    if R.random() < 0.8:
        out[R.choice(["minimum", "exclusiveMinimum"])] = low
    if R.random() < 0.6:
        out[R.choice(["maximum", "exclusiveMaximum"])] = round(low + spread, digits)
    return out


def schema(depth):
    """A schema, and a function that makes a value of it, with members in its order."""
    kind = R.randrange(11 if depth else 7)
    if kind == 0:
        s = {"type": "integer", **bounds(R.randrange(-300, 300), R.choice([2, 7, 12345]), 0)}
        low = s.get("minimum", s.get("exclusiveMinimum", s.get("maximum", s.get("exclusiveMaximum", 0)) - 2) + 1)
        return s, lambda: low
    if kind == 1:
        s = {"type": "number", **bounds(round(R.uniform(-30, 30), 2), R.choice([0.5, 1, 100]), 3)}
        low = s.get("minimum", s.get("exclusiveMinimum", s.get("maximum", s.get("exclusiveMaximum", 0)) - 1) + 0.25)
        return s, lambda: round(low, 4)
    if kind == 2:
        least = R.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + 2}, lambda: "".join(R.choice('é a"\\z') for _ in range(least + R.randrange(3)))
    if kind == 3:
        kept = R.choice([("pattern", PATTERNS), ("format", FORMATS)])
        word = R.choice(list(kept[1]))
        return {"type": "string", kept[0]: word}, lambda: R.choice(kept[1][word])
    if kind == 4:
        values = [R.choice([scalar(), [scalar()], {"k": scalar()}]) for _ in range(3)]
        return {"enum": values}, lambda: R.choice(values)
    if kind == 5:
        return {"type": ["string", "null"]}, lambda: R.choice([None, "text"])
    if kind == 6:
        return {"$ref": "#/$defs/node"}, lambda: {"v": 1, "next": R.choice([None, {"v": 2, "next": None}])}
    if kind in (7, 8):
        names = R.sample(NAMES, R.randrange(1, 4))
        parts = {n: schema(depth - 1) for n in names}
        required = [n for n in names if R.random() < 0.5]
        s = {"type": "object", "properties": {n: p[0] for n, p in parts.items()}, "required": required}
        others = R.choice([None, False, True])
        if others is not None:
            s["additionalProperties"] = others
        return s, lambda: {**{n: parts[n][1]() for n in names if n in required or R.random() < 0.5}, **({"more": [1]} if others else {})}
    if kind == 9:
        item = schema(depth - 1)
        least = R.randrange(3)
        return {"type": "array", "items": item[0], "minItems": least, "maxItems": least + 1}, lambda: [item[1]() for _ in range(least + R.randrange(2))]
    either = schema(depth - 1), schema(0)
    if R.random() < 0.5:
        return {"anyOf": [e[0] for e in either]}, lambda: R.choice(either)[1]()
    first, second = schema(0), schema(depth - 1)
    return ({"allOf": [{"type": "object", "properties": {"p": first[0]}, "required": ["p"]}, {"properties": {"r": second[0]}}]},
            lambda: {"p": first[1](), "r": second[1]()})


def changed(value):
    """Another value near this one."""
    if isinstance(value, dict) and value and R.random() < 0.8:
        name = R.choice(list(value))
        if R.random() < 0.3:
            return {n: v for n, v in value.items() if n != name}
        return {n: changed(v) if n == name else v for n, v in value.items()}
    if isinstance(value, list) and value and R.random() < 0.8:
        at = R.randrange(len(value))
        return R.choice([value[:at] + [changed(value[at])] + value[at + 1:], value[:at] + value[at + 1:], value + value[at:at + 1]])
    if isinstance(value, str) and R.random() < 0.8:
        at = R.randrange(len(value) + 1)
        return value[:at] + R.choice(["", "x", "é", "0", " "]) + value[at + R.randrange(2):]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and R.random() < 0.8:
        return R.choice([value + 1, value - 1, value + 0.5, -value, value * 10])
    return scalar()


NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["v", "next"], "additionalProperties": False}


def text(value):
    return json.dumps(value, ensure_ascii=False)


with open(sys.argv[1], "w") as out:
    for _ in range(60):
        s, make = schema(2)
        if "#/$defs" in json.dumps(s):
            s = {**s, "$defs": {"node": NODE}}
        check = Draft202012Validator(s, format_checker=Draft202012Validator.FORMAT_CHECKER)
        fits = sorted({text(v) for v in (make() for _ in range(3)) if check.is_valid(v)})
        others = sorted({text(changed(json.loads(f))) for f in fits for _ in range(2)})
        out.write(text({"schema": s, "fits": fits, "others": [[o, check.is_valid(json.loads(o))] for o in others]}) + "\n")

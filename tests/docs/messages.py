#!/usr/bin/env python3
"""messages.py PAGE.md — whether the programs can print what a page quotes. A quoted message is a line of a block ```message; "…" in it stands
for what is not always the same. The parts between must be in string literals of one file of src or include, in this order and near one
another; "%s" and the like of a format are such a "…". Prints the messages that are nowhere, then the closing line of a suite.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|\'(?:[^\'\\]|\\.)+\'|"(?:[^"\\\n]|\\.)*"', re.S)
FORMAT = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
ESCAPES = {"n": "\n", "t": "\t"}
NEAR = 120  # characters that a "…" may pass over


def literals(text):
    """All string literals of C, those side by side as one, formats as they print."""
    parts, end = [], 0
    for token in TOKENS.finditer(text):
        word = token.group()
        if word[0] != '"':
            continue
        if text[end:token.start()].strip() or not parts:
            parts.append("")
        parts[-1] += re.sub(r"\\(.)", lambda m: ESCAPES.get(m.group(1), m.group(1)), word[1:-1])
        end = token.end()
    return "\n".join(FORMAT.sub("…", part).replace("%%", "%") for part in parts)


def pattern(message):
    pieces = [re.escape(piece) for piece in re.split(r"\s*…\s*", message)]
    return re.compile((r"[\s\S]{0,%d}?" % NEAR).join(pieces))


def main():
    sources = [path for folder in ("src", "include") for kind in ("*.c", "*.h", "*.def") for path in sorted((TOP / folder).rglob(kind))]
    texts = [literals(path.read_text()) for path in sources]
    blocks = re.findall(r"^```message\n(.*?)^```", pathlib.Path(sys.argv[1]).read_text(), re.M | re.S)
    messages = [line for block in blocks for line in block.splitlines() if line.strip()]
    lost = [message for message in messages if not any(pattern(message.strip()).search(text) for text in texts)]
    for message in lost:
        print(f"FAIL {sys.argv[1]}: no source has \"{message}\"")
    print(f"{len(messages) - len(lost)} passed, {len(lost) + (not messages)} failed")
    return 1 if lost or not messages else 0


if __name__ == "__main__":
    sys.exit(main())

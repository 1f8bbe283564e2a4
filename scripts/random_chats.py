#!/usr/bin/env python3
"""Random conversations through chat templates: mxdecode --render-chat and transformers must agree.

    scripts/random_chats.py FOLDER_OR_TEMPLATE... [--n 40] [--seed 1] [--only I] [--training FOLDER] [--show 3]

Conversation i of a seed and a template has a system message or none, several turns, reasoning, texts or lists of parts, calls of tools with
arguments as objects or texts, their results, tools with nested schemas, and values for variables that the template reads. For each template:

    text   what transformers.utils.chat_template_utils.render_jinja_template gives, or both refuse
    mask   of templates with {% generation %}: the characters that transformers says are the assistant's

With --training, a template NAME.jinja without that tag is compared with NAME_training.jinja of the folder, which has it: conversations that
both render to the same text must have the same mask. The tokenizer has a token for each byte. Prints a line for each template, the first
conversations that differ, and counts. Exit code 1 = a text differs, or a mask of a template with the tag. Needs transformers and jinja2."""
import argparse
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import jinja2
import jinja2.meta
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.utils import chat_template_utils as theirs

TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")
NO_SPANS = "{% if false %}{% generation %}{% endgeneration %}{% endif %}"  # no mask is looked for
WORDS = ["yes", "No.", "The answer is 42", "naïve café", "日本語", "😀 👍🏽", "a\tb", "line\nline", " lead", "trail ", "\n\nlines\n\n", '"quoted"', "it's",
         "back\\slash", "<b>html</b> &amp;", "{{ braces }}", "{% if %}", "1.5e-3", "```json\n{}\n```", "é", "null", "é\u2028x", "İß", "",
         "/no_think", "/think", "key: value", "[1, 2]", '{"a": 1}', "<tool", "100%", "a  b", "𝔘nicode", "\u00a0nbsp\u00a0", "x" * 40]
MARKS = ["<think>\nhm\n</think>\n\nso", "<think></think>", "</think>", "<|im_end|>", "<tool_call>", "</tool_response>", "[INST]", "<s>", "<|channel|>final"]
VALUES = {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "medium", "high", "none", "max"],
          "builtin_tools": [["wikipedia_search"], ["browser", "python"], ["code_interpreter"]], "date_string": ["26 Jul 2024", "2025-01-01"],
          "tools_in_user_message": [True, False], "model_identity": ["You are M."], "documents": [[{"title": "T", "text": "some text"}]],
          "citations": ["fast", "accurate", "off"], "preserve_thinking": [True, False], "clear_thinking": [True, False], "custom_tools": [[]],
          "reasoning_budget": [0, 512], "thinking_budget": [0, 512, -1, 5000], "keep_past_thinking": [True, False], "xml_tools": [[]], "python_tools": [[]],
          "response_format": [{"type": "json_object"}], "controls": [{"length": "long"}], "add_bos_token": [True, False],
          "truncate_history_thinking": [True, False], "force_nonempty_content": [True, False], "system_message": ["S"], "user_name": ["Ann"],
          "json_schema": [{"type": "object"}], "context": ["c"], "today": ["Monday"], "available_tools": [[]], "safety_mode": ["CONTEXTUAL", "NONE"]}
ALWAYS = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now", "namespace", "dict", "range", "bos_token", "eos_token",
          "pad_token", "unk_token", "continue_final_message", "conversations", "chat_template", "cycler", "joiner", "lipsum"}
SCHEMAS = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}, "n": {"type": "integer", "default": 3}}, "required": ["city"]},
    {"type": "object", "properties": {"q": {"type": ["string", "null"]}, "mode": {"type": "string", "enum": ["a", "b"]}}, "additionalProperties": False},
    {"type": "object", "properties": {"at": {"type": "object", "properties": {"x": {"type": "number"}, "deep": {"type": "array", "items": {
        "type": "object", "properties": {"k": {"type": "boolean", "description": "ß"}}}}}, "required": ["x"]}, "u": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
     "required": ["at"]},
    {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string"}, "description": "of \"words\""}}, "required": []},
]
ARGUMENTS = [{}, {"city": "Paris"}, {"city": "San José", "n": 3}, {"q": None, "mode": "a"}, {"at": {"x": 1.5, "deep": [{"k": True}]}, "u": "7"}, {"list": ["a", "b\"c", "<d>"]},
             {"list": [], "n": -2}, {"text": "two\nlines 'and' \\ more", "flag": False}, {"x": 1e20, "y": 0.1, "z": [1, [2, {"w": None}]]}]
RESULTS = ["", "ok", '{"t": 21.5}', "21 °C\nsunny", {"t": 1, "s": ["a"]}, [{"type": "text", "text": "found"}], "plain 'x' \"y\""]


NOON = 1_700_000_000  # what both sides take for the time


class Then(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        return cls.fromtimestamp(NOON, datetime.timezone.utc).replace(tzinfo=None)


theirs.datetime = Then
os.environ["SOURCE_DATE_EPOCH"] = str(NOON)


# ---- conversations

def text_of(rng):
    many = [rng.choice(WORDS) for _ in range(rng.randrange(1, 4))]
    return rng.choice([" ", " ", "\n", ""]).join(many + ([rng.choice(MARKS)] if rng.random() < 0.08 else []))


def content_of(rng, parts):
    if rng.random() >= parts:
        return text_of(rng)
    return [{"type": "text", "text": text_of(rng)} for _ in range(rng.randrange(1, 3))]


def tool_of(rng, i):
    function = {"name": ["get_weather", "search", "run-it", "f2"][i], "description": rng.choice(["Tells it.", "Says \"so\"\nand more", ""]), "parameters": rng.choice(SCHEMAS)}
    if rng.random() < 0.1:
        function["strict"] = True
    if rng.random() < 0.1:
        function["return"] = {"type": "string", "description": "what"}
    if rng.random() < 0.05:
        del function["description"]
    return {"type": "function", "function": function}


def call_of(rng, number, as_text, names):
    arguments = rng.choice(ARGUMENTS)
    call = {"type": "function", "function": {"name": rng.choice(names), "arguments": json.dumps(arguments, ensure_ascii=rng.random() < 0.5) if as_text else arguments}}
    if rng.random() < 0.85:
        call["id"] = f"abcdefgh{number % 10}" if rng.random() < 0.8 else f"call_{number}"
    return call


def assistant_of(rng, parts, calls, number, as_text, names):
    message = {"role": "assistant", "content": content_of(rng, parts)}
    if rng.random() < 0.35:
        message[rng.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = rng.choice([text_of(rng), text_of(rng), "", None])
    if calls:
        message["tool_calls"] = [call_of(rng, number + k, as_text, names) for k in range(calls)]
        message["content"] = rng.choice([None, "", message["content"], message["content"]])
        if rng.random() < 0.2:
            del message["content"]
    elif rng.random() < 0.1:
        message["tool_calls"] = rng.choice([[], None])
    return message


def conversation_of(rng, variables):
    parts = rng.choice([0, 0, 0, 0.5, 1])
    as_text, most_calls, names = rng.random() < 0.4, rng.choice([1, 1, 3]), ["get_weather", "search"]
    messages, number = [], 0
    if rng.random() < 0.5:
        messages.append({"role": "developer" if rng.random() < 0.05 else "system", "content": content_of(rng, parts)})
    has_tools = rng.random() < 0.5
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": content_of(rng, parts)})
        for _ in range(rng.randrange(0, 3) if has_tools else 0):
            calls = rng.randrange(1, most_calls + 1)
            message = assistant_of(rng, parts, calls, number, as_text, names)
            messages.append(message)
            for call in message["tool_calls"] if rng.random() < 0.95 else []:
                result = {"role": rng.choice(["tool"] * 20 + ["function", "ipython"]), "content": rng.choice(RESULTS)}
                result.update({k: v for k, v in (("name", call["function"]["name"]), ("tool_call_id", call.get("id"))) if v and rng.random() < 0.9})
                messages.append(result)
            number += calls
        messages.append(assistant_of(rng, parts, 0, number, as_text, names))
    if rng.random() < 0.5:
        while len(messages) > 1 and messages[-1]["role"] == "assistant":
            messages.pop()
    if rng.random() < 0.03:
        rng.shuffle(messages)
    line = {"messages": messages, "add_generation_prompt": rng.random() < 0.5}
    if has_tools and rng.random() < 0.9:
        line["tools"] = [tool_of(rng, i) for i in range(rng.randrange(1, 4))]
    for name in variables:
        if rng.random() < 0.4:
            line[name] = rng.choice(VALUES.get(name, [True, False, "some"]))
    if messages[-1]["role"] == "assistant" and rng.random() < 0.15:
        line["add_generation_prompt"] = False
        line["continue_final_message"] = rng.choice([True, True, "reasoning_content", "content"])
    return line


# ---- both sides

def expected(line, template):
    """Text and spans, or the error."""
    given = {k: v for k, v in line.items() if k != "messages"}
    try:
        messages = theirs._normalize_chat_messages(line["messages"])
        texts, spans = theirs.render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask="generation" in template,
                                                    bos_token="<s>", eos_token="</s>", **given)
        return texts[0], spans[0] if spans else []
    except Exception as error:  # whatever a template may raise
        return None, f"{type(error).__name__}: {error}"


def said_bytes(text, spans):
    """The assistant's bytes, one digit each."""
    ends, out = [0], bytearray(b"0" * len(text.encode()))
    for c in text:
        ends.append(ends[-1] + len(c.encode()))
    for start, end in spans:
        low, high = ends[min(start, len(text))], ends[min(end, len(text))]
        out[low:high] = b"1" * (high - low)
    return out.decode()


class Ours:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, template, lines):
        """For each line (text, mask) or (None, error): mxdecode ends at an error, and begins behind it again."""
        path, out = f"{self.folder}/template.jinja", []
        pathlib.Path(path).write_text(template, encoding="utf-8", newline="")
        while len(out) < len(lines):
            done = subprocess.run([self.program, self.folder, "--render-chat", "--chat-template", path], text=True, encoding="utf-8", capture_output=True,
                                  input="".join(json.dumps(x) + "\n" for x in lines[len(out):]))
            made = [json.loads(x) for x in done.stdout.split("\n") if x]
            out += [(x["text"], "".join(map(str, x["mask"]))) for x in made]
            if not done.returncode:
                break
            out.append((None, done.stderr.strip()))
            if not made and "template.jinja" in done.stderr and "stdin" not in done.stderr:  # it cannot be parsed
                out += [out[-1]] * (len(lines) - len(out))
        return out


def byte_tokenizer(path):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(path)


# ---- comparisons

class Tally:
    def __init__(self, show):
        self.show, self.shown, self.counts = show, 0, {}

    def add(self, kind):
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def differ(self, kind, i, line, want, got):
        self.add(kind)
        if self.shown == self.show:
            return
        self.shown += 1
        at = next((k for k, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        print(f"  {kind} {i}: from character {at}\n    {json.dumps(line, ensure_ascii=False)[:1500]}\n    want …{want[max(0, at - 60):at + 200]!r}\n    got  …{got[max(0, at - 60):at + 200]!r}")


def compare_texts(tally, lines, wants, gots):
    for i, (line, (text, why), (own, own_why)) in enumerate(zip(lines, wants, gots)):
        if text is None and own is None:
            tally.add("refused")
        elif text is None or own is None:
            tally.differ("text differs", i, line, text if text is not None else why, own if own is not None else own_why)
        elif text != own:
            tally.differ("text differs", i, line, text, own)
        else:
            tally.add("equal")


def shown(text, mask):
    """The text with brackets around what is masked."""
    bits, out, last = text.encode(), bytearray(), "0"
    for byte, bit in zip(bits, mask):
        if bit != last:
            out += "⟦".encode() if bit == "1" else "⟧".encode()
        out.append(byte)
        last = bit
    return out.decode(errors="replace") + ("⟧" if last == "1" else "")


def compare_masks(tally, kind, lines, wants, gots):
    for i, (line, (text, spans), (own, mask)) in enumerate(zip(lines, wants, gots)):
        if text is None or (own is not None and own != text):
            continue
        if own is None:
            if "cannot be found" in mask:
                tally.differ("no mask found", i, line, shown(text, said_bytes(text, spans)), mask)
            continue
        want = said_bytes(text, spans)
        if want == mask:
            tally.add("masks equal")
        else:
            tally.differ(kind, i, line, shown(text, want), shown(text, mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--training", type=pathlib.Path)
    parser.add_argument("--mxdecode", default="build/mxdecode")
    args = parser.parse_args()
    files = [f for p in map(pathlib.Path, args.paths) for f in (sorted(p.rglob("*.jinja")) if p.is_dir() else [p])]
    total, bad = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer(f"{folder}/tokenizer.json")
        ours = Ours(args.mxdecode, folder)
        for file in files:
            template = file.read_text(encoding="utf-8")
            has_tag = bool(TAG.search(template))
            try:
                variables = sorted(jinja2.meta.find_undeclared_variables(theirs._compile_jinja_template(template).environment.parse(template)) - ALWAYS)
            except jinja2.TemplateError as error:
                print(f"{file.name}: jinja2: {error}")
                continue
            lines = [conversation_of(random.Random(f"{args.seed} {file.name} {i}"), variables) for i in range(args.n)]
            if args.only is not None:
                lines = [lines[args.only]]
            tally = Tally(args.show)
            tokens = {"bos_token": "<s>", "eos_token": "</s>"}
            given = [dict(x, **tokens) for x in lines]
            print(f"{file.name}:")
            plain = template if has_tag else NO_SPANS + template
            wants, gots = [expected(x, plain) for x in lines], ours.run(plain, given)
            compare_texts(tally, lines, wants, gots)
            if has_tag:
                compare_masks(tally, "mask differs", lines, wants, gots)
            trained = args.training and args.training / f"{file.stem}_training.jinja"
            if trained and trained.exists() and not has_tag:
                compare_masks(tally, "guessed mask differs", lines, [expected(x, trained.read_text(encoding="utf-8")) for x in lines], ours.run(template, given))
            print("  " + ", ".join(f"{n} {k}" for k, n in sorted(tally.counts.items())))
            bad += tally.counts.get("text differs", 0) + tally.counts.get("mask differs", 0)
            for kind, n in tally.counts.items():
                total[kind] = total.get(kind, 0) + n
    print(f"{len(files)} templates: " + ", ".join(f"{n} {k}" for k, n in sorted(total.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

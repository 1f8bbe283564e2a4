#!/usr/bin/env python3
"""Makes tests/golden/hf/chat/more_cases.jsonl: conversations as transformers' apply_chat_template renders them.

    golden_chat.py OUT.jsonl      (transformers 5.24)

The lines are like those of cases.jsonl. The first two templates show every name of a message's reasoning; one of them marks the assistant's
words, so that contents of several blocks have a mask too. The third one trims: final messages are continued in it, at the end of their text
or of their reasoning. Run it in the folder with tests/golden.
"""
import json
import os
import sys

from transformers import AutoTokenizer

TOKENIZER = "tests/golden/hf/tokenizers/qwen"
NAMES = "{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}"
SHOWN = "{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content %}{{ b.text }}{% endfor %}{% endif %}"
TEMPLATES = {
    "reasons": "{% for m in messages %}[{{ m.role }}|" + NAMES + "|" + SHOWN + "]{% endfor %}",
    "reasons_marked": "{% for m in messages %}[{{ m.role }}|{% if m.role == 'assistant' %}{% generation %}" + SHOWN +
                      "{% endgeneration %}{% else %}" + SHOWN + "{% endif %}]{% endfor %}",
    "trimmed": "{% for m in messages %}{{ m | join }}[{{ m.reasoning_content | trim }}|{{ m.thinking | trim }}|{{ m.content | trim }}]{% endfor %}",
}


def assistant(**more):
    return [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes.", **more}]


CONVERSATIONS = {
    "none": assistant(),
    "content": assistant(reasoning_content="a"),
    "thinking": assistant(thinking="b"),
    "reasoning": assistant(reasoning="c"),
    "all": assistant(reasoning="c", thinking="b", reasoning_content="a"),
    "null_first": assistant(reasoning_content=None, thinking=None, reasoning="c"),
    "empty": assistant(reasoning_content="", thinking="b"),
    "blocks": [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two?"}]},
               {"role": "assistant", "content": [{"type": "text", "text": "Three, "}, {"type": "text", "text": "four."}]}],
}

CONTINUED = {
    "content": (assistant(), True),
    "named": (assistant(reasoning="c"), "content"),
    "spaces": ([{"role": "assistant", "content": "Yes \u00a0\n"}], True),
    "reasoning": (assistant(reasoning_content="a ", thinking="b"), "reasoning_content"),
    "thinking": (assistant(reasoning_content="a", thinking="b", reasoning="b"), "thinking"),
}


def main():
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for template, text in TEMPLATES.items():
            with open(os.path.join(os.path.dirname(sys.argv[1]), "templates", template + ".jinja"), "w") as file:
                file.write(text + "\n")
            cases = {name: (messages, False) for name, messages in CONVERSATIONS.items()} if template != "trimmed" else CONTINUED
            for name, (messages, continues) in cases.items():
                given = dict(continue_final_message=continues) if continues else {}
                marks = dict(return_assistant_tokens_mask=True) if "generation" in text else {}
                made = tokenizer.apply_chat_template(messages, chat_template=text + "\n", return_dict=True, **given, **marks)
                shown = tokenizer.apply_chat_template(messages, chat_template=text + "\n", tokenize=False, **given)
                line = dict(template=template, tokenizer="qwen", conversation=name, messages=messages, kwargs=given, text=shown,
                            ids=made["input_ids"])
                if marks:
                    line["assistant_mask"] = made["assistant_masks"]
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


main()

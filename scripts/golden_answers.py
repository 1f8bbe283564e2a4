#!/usr/bin/env python3
"""Makes tests/golden/train/answers.jsonl: what MaxText's trainer of rewards asks, and how it judges replies in evaluations.

    JAX_PLATFORMS=cpu golden_answers.py OUT.jsonl      (MaxText e591f30c on PYTHONPATH, math_verify 0.9)

A line is a question and the message made of it (format_maxtext_messages), an answer of gsm8k and what counts of it (extract_hash_answer), or
replies to one question and how right they are (score_responses) in each eval_mode. Answers are numbers, as in golden_rewards.py.
"""
import itertools
import json
import random
import sys
import types

from golden_rewards import DEFAULTS, FORMS, THINKS, utils_rl  # which makes do without tunix

for name in ("tunix.rl.rollout", "tunix.rl.rollout.base_rollout"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["tunix.rl.rollout.base_rollout"].RolloutConfig = object  # which only generates

from maxtext.trainers.post_train.rl import evaluate_rl

TEMPLATES = [
    {"SYSTEM_PROMPT": "Reason between {reasoning_start_token} and {reasoning_end_token}; {{then}} answer in {solution_start_token}{solution_end_token}.",
     "TEMPLATE": "<start_of_turn>user\n{system_prompt}\n\n{question}<end_of_turn>\n<start_of_turn>model"},
    {"SYSTEM_PROMPT": "", "TEMPLATE": "{question} {{braces}} {question}"},
    {"SYSTEM_PROMPT": "{solution_end_token}", "TEMPLATE": "no question, {system_prompt}"},
]
QUESTIONS = ["What is 2 + 2?", "A {set} of {question}s: \\frac{1}{2}?", "", "Wie groß ist π?"]
TEXTS = ["6*7\n#### 42", "####5", "a #### 1,234 #### 6", "#### \n-3\t"]
SAID = ["4", "4.0", "5", "4.3", "3.5", "4.5", "-4", "nine", "8/2", "0", "4,000"]
RIGHT = ["4", "0", "-4", "4000", "1/4"]


def questions():
    for template, question, settings in itertools.product(TEMPLATES, QUESTIONS, (DEFAULTS, THINKS)):
        config = types.SimpleNamespace(**settings)
        content = utils_rl.format_maxtext_messages([question], template, config)[0]["content"]
        marks = {key: value for key, value in settings.items() if key.endswith("_token")}
        yield dict(template=template, marks=marks, question=question, content=content)


def judged():
    draw = random.Random(7)
    for n in (1, 1, 2, 3, 4, 5) * 12:
        settings = draw.choice((DEFAULTS, THINKS))
        right, few = draw.choice(RIGHT), draw.sample(SAID, 3)
        replies = [draw.choice(FORMS).format(draw.choice(few)) for _ in range(n)]
        line = dict(replies=replies, answer=right, settings={k: v for k, v in settings.items() if v != DEFAULTS[k]}, judged={})
        for mode in ("pass", "maj", "pass_at_1"):
            config = types.SimpleNamespace(debug=False, eval_mode=mode, **settings)
            line["judged"][mode] = [float(x) for x in evaluate_rl.score_responses(config, "", replies, [right])]
        yield line


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        marked = [dict(text=text, marked=utils_rl.extract_hash_answer(text)) for text in TEXTS]
        for line in itertools.chain(questions(), marked, judged()):
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

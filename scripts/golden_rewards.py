#!/usr/bin/env python3
"""Makes tests/golden/train/rewards.jsonl: what MaxText's built-in rewards give completions.

    JAX_PLATFORMS=cpu golden_rewards.py OUT.jsonl      (MaxText e591f30c on PYTHONPATH, math_verify 0.9)

A line has a completion, its right answer, settings by MaxText's keys, and the sum of match_format_exactly, match_format_approximately and
check_numbers, as tunix adds them. Answers are numbers and texts: what math_verify compares beyond those is not what the tests ask for.
"""
import json
import multiprocessing.pool  # which MaxText uses without it
import sys
import types
from unittest import mock

for name in ("tunix", "tunix.rl", "tunix.rl.agentic", "tunix.rl.agentic.parser", "tunix.rl.agentic.parser.chat_template_parser"):
    sys.modules[name] = mock.MagicMock(parser=types.SimpleNamespace(DefaultChatTemplateParser=object))  # of it no reward knows

from maxtext.trainers.post_train.rl import utils_rl

DEFAULTS = dict(reward_exact_answer=5.0, reward_exact_format_match=3.0, reward_white_space_format_match=1.5, reward_partial_format_match=0.5,
                penalty_incorrect_format=-0.5, penalty_incorrect_answer=-1.0, reasoning_start_token="<reasoning>",
                reasoning_end_token="</reasoning>", solution_start_token="<answer>", solution_end_token="</answer>",
                reasoning_start_token_in_prompt=False)
THINKS = dict(DEFAULTS, reasoning_start_token="<think>", reasoning_end_token="</think>", reasoning_start_token_in_prompt=True,
              reward_exact_answer=1.0, reward_partial_format_match=0.25, penalty_incorrect_format=-2.0, reward_white_space_format_match=-3.0)
FORMS = [  # {} is the answer
    "<reasoning>2 and 2</reasoning><answer>{}</answer>", "<reasoning>\nso\n</reasoning>\n<answer> {}\n</answer>\n",
    "<answer>{}</answer>", "</reasoning><answer>{}</answer>", "<reasoning>a<reasoning>b</reasoning><answer>{}</answer>",
    "<reasoning>a</reasoning><answer>{}", "{}", "<reasoning>a</reasoning><answer></answer>",
    "<answer>{}</answer><reasoning>late</reasoning>", "<reasoning>a</reasoning><answer>7</answer> no: <answer>{}</answer>",
    "<reasoning>a</reasoning><answer>\\boxed{{{}}}</answer>", "<reasoning>\\boxed{{9}}</reasoning><answer>it is {}</answer>",
    "so \\boxed{{{}}}", "\\boxed{{3}} then \\boxed{{ {} }}", "\\boxed {}", "\\boxed{{{}", "<reasoning>é</reasoning><answer>\u00a9{}</answer>",
    "<reasoning></reasoning><answer>\\boxed{{a{{b}}c}} \\boxed{{{}}}</answer>", "</reasoning></answer><answer><reasoning>{}",
    "<think>a</think><answer>{}</answer>", "a</think>\n<answer>{}</answer>", "a</think>b</think><answer>{}</answer>",
]
ANSWERS = [  # right, said
    ("4", "4"), ("4", "5"), ("4", "4.0"), ("1/2", "0.5"), ("0.5", "\\frac{1}{2}"), ("1234", "1,234"), ("-3", "-3.00"), ("18", "$18"), ("4", "x = 4"),
    ("\\frac{3}{4}", "\\dfrac{3}{4}"), ("4", "-4"), ("0.333", "1/3"), ("1000000", "1,000,000"), ("10", "010"), ("7", "{7}"), ("12", "1,2"),
    ("2.5", "\\frac{5}{2}"), ("3", "6/2"), ("-0.75", "-\\frac{3}{4}"), ("9", "nine"), ("42", "42."), (".5", "0.5"), ("5", "+5"),
]


def give(completion, answer, settings):
    config = types.SimpleNamespace(debug=False, math_verify_timeout=60, math_verify_num_procs=1, **settings)
    given = dict(prompts=[""], completions=[completion], tmvp_config=config)
    return (utils_rl.match_format_exactly(**given)[0] + utils_rl.match_format_approximately(**given)[0] +
            utils_rl.check_numbers(answer=[json.dumps([answer, answer])], question=[""], **given)[0])


def main():
    cases = [(form.format(said), right, settings) for settings in (DEFAULTS, THINKS) for form in FORMS
             for right, said in (("4", "4"), ("4", "5"))]
    cases += [(FORMS[0].format(said), right, DEFAULTS) for right, said in ANSWERS]
    with open(sys.argv[1], "w") as out:
        for completion, answer, settings in cases:
            changed = {key: value for key, value in settings.items() if value != DEFAULTS[key]}
            line = dict(completion=completion, answer=answer, settings=changed, reward=give(completion, answer, settings))
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

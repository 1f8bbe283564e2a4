#!/usr/bin/env python3
"""Writes the bundled data for fine-tuning, share/mxtrain/posttrain/*.jsonl, always the same bytes.

Prompts with completions: small tasks on words that a byte-level model can learn in a minute.
Conversations: short talks about things, in one to four rounds.
Pairs of responses: the preferred one answers calmly, the other one shouts or refuses. Groups of
four responses with rewards: most for a calm answer, least for a shouted refusal. Single responses
with labels: calm ones are wanted. Words of the evaluation files do not occur in the training files.
"""
import json
import pathlib
import random

WORDS = """anchor apple arrow autumn badge basket beacon bridge bronze bucket butter button cabin
candle canvas carpet castle cellar cheese cherry circle clover copper corner cotton cradle dagger
danger desert dinner dragon drawer eagle engine fabric falcon feather fiddle finger flower forest
fossil garden garlic ginger glider goblet guitar hammer harbor helmet hollow honey hunter island
jacket jungle kernel kettle ladder lantern lemon letter lizard magnet marble market meadow mirror
monkey needle nickel nutmeg olive orange orchid oyster paddle pepper pillow planet pocket pollen
puzzle quartz rabbit ribbon river rocket saddle salmon sandal shadow silver spider spring square
statue sugar summer tailor temple thread timber tunnel turtle valley velvet violet walnut window
winter yellow zebra""".split()

TASKS = [
    ("Write {w} in capitals.\n", lambda w: w.upper()),
    ("Say {w} twice.\n", lambda w: f"{w} {w}"),
    ("Which letter does {w} begin with?\n", lambda w: w[0]),
    ("Put {w} in quotes.\n", lambda w: f'"{w}"'),
    ("Do you know the word {w}?\n", lambda w: f"Yes, I know the word {w}."),
]

QUESTIONS = [
    "Where is the {w}?\n",
    "May I borrow the {w}?\n",
    "Tell me about the {w}.\n",
    "Is the {w} ready?\n",
]
CALM = [
    "Of course. The {w} is on the table.",
    "Gladly. I will look for the {w}.",
    "Yes, here is the {w}. Take your time.",
    "Thank you for asking. The {w} is here.",
]
RUDE = [
    "NO! FIND THE {W} YOURSELF!",
    "WHO CARES ABOUT THE {W}!",
    "STOP ASKING FOR THE {W}!!",
    "NOT NOW! LEAVE THE {W} ALONE!",
]

ASKED = [
    ("Where is the {w}?", "The {w} is on the table."),
    ("Is the {w} ready?", "Yes, the {w} is ready."),
    ("May I have the {w}?", "Here is the {w}."),
    ("Who has the {w}?", "I have the {w}."),
]


def completions(rng, words):
    both = [(task, word) for task in TASKS for word in words]
    for (prompt, answer), word in rng.sample(both, len(both)):
        yield {"prompt": prompt.format(w=word), "completion": answer(word)}


def pairs(rng, words):
    both = [(question, word) for question in QUESTIONS for word in words]
    for question, word in rng.sample(both, len(both)):
        yield {
            "prompt": question.format(w=word),
            "chosen": rng.choice(CALM).format(w=word),
            "rejected": rng.choice(RUDE).format(W=word.upper()),
        }


def conversations(rng, words):
    both = [(asked, word) for asked in ASKED for word in words]
    for first in rng.sample(both, len(both)):
        rounds = [("Hello.", "Hello. What is it?")] if rng.random() < 0.5 else []
        for (question, answer), word in [first] + rng.sample(both, rng.randrange(2)):
            rounds.append((question.format(w=word), answer.format(w=word)))
        if rng.random() < 0.5:
            rounds.append(("Thank you.", "You are welcome."))
        yield {"messages": [{"role": role, "content": text} for pair in rounds
                            for role, text in zip(["user", "assistant"], pair)]}


# Ways to answer, and what each is rewarded with.
WAYS = [(CALM, str.lower, 1.0), (CALM, str.upper, 0.3), (RUDE, str.lower, 0.2), (RUDE, str.upper, 0.0)]


def groups(rng, words):
    both = [(question, word) for question in QUESTIONS for word in words]
    for question, word in rng.sample(both, len(both)):
        for ways, case, reward in rng.sample(WAYS, len(WAYS)):
            answer = rng.choice(ways).format(w=word, W=word)
            yield {"prompt": question.format(w=word), "completion": case(answer), "reward": reward}


def labels(rng, words):
    """Single responses, wanted or not: of three questions two get one of them, one gets both."""
    records = []
    for pair in pairs(rng, words):
        sides = rng.choice([["chosen"], ["rejected"], ["chosen", "rejected"]])
        records += [{"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"} for side in sides]
    yield from rng.sample(records, len(records))


def main():
    rng = random.Random(0)
    words = rng.sample(WORDS, len(WORDS))
    folder = pathlib.Path(__file__).parent.parent / "share" / "mxtrain" / "posttrain"
    for name, make, part in [
        ("sft_train", completions, words[16:]),
        ("sft_eval", completions, words[:16]),
        ("preference_train", pairs, words[16:]),
        ("preference_eval", pairs, words[:16]),
        ("chat_train", conversations, words[16:]),
        ("chat_eval", conversations, words[:16]),
        ("rewards_train", groups, words[56:]),
        ("rewards_eval", groups, words[:8]),
        ("labels_train", labels, words[16:]),
        ("labels_eval", labels, words[:16]),
    ]:
        lines = [json.dumps(record) + "\n" for record in make(rng, part)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


main()

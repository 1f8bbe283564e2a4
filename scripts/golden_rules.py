#!/usr/bin/env python3
"""Small tokenizers, one for each rule below, and what tokenizers makes of some texts: tests/golden/hf/tokenizers/rules/rules.jsonl.

Needs tokenizers (0.23). A line is a tokenizer.json, texts, their ids, and what decoding them gives. Where the rule is
how texts are split, every piece that occurs is a token of its own, so that ids tell where a text was cut;
such tokenizers have no decoder.

    scripts/golden_rules.py tests/golden/hf/tokenizers/rules/rules.jsonl
"""
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

TEXTS = ["He It's 3.1€ ok_1", "好。世、〆々ーカ・ひ", "a\u0301é ½²x ٣ \u2028z\x85y\t\n q", "[a]b-c^d\\:f", "abBC  XyZ\n\nl\n", "👍🏽₷₋ₑℵⅣⓐ \u0302 ـ،"]
SHORT = ["Hello Web", "a.b x", ""]
# Regular expressions at whose matches a text is cut.
PATTERNS = [r"\p{Han}+", r"[^\p{Hiragana}\s]+", r"\P{Arabic}", r"[[:punct:]]", r"[[:alpha:]]+", r"[^[:alnum:]]", r"[[:^space:]]+",
            r"[[:lower:]][[:upper:]]", r"[[:word:]]+", r"[[:graph:]]+", r"[\h:]+",
            r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[^a[[:punct:]]d]+", r"[^\S\n]+", r"[\W_]+", r"[^\W\d]+", r"[\w]+", r"\w+",
            r"\b", r"\B", r"\bx|\d\b", r"(?=[A-Z])", r"(?<=[aeiou])", r"x*", r"$", r"^", r"\u00e9", r"[\u4e00-\u9fa5]",
            r"\p{L}{,2}-", r"[^a-z&&[^aeiou]]", r"\s\Z"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def words(splitter):
    """Every piece that the splitter makes of the texts is a token."""
    pieces = dict.fromkeys(piece for text in TEXTS for piece, _ in splitter.pre_tokenize_str(text))
    out = Tokenizer(models.WordLevel({"<unk>": 0, **{piece: i + 1 for i, piece in enumerate(pieces)}}, unk_token="<unk>"))
    out.pre_tokenizer = splitter
    return out


def letters():
    """Characters are tokens."""
    vocab = dict.fromkeys(["<unk>", *"".join(SHORT), "~"])
    out = Tokenizer(models.BPE({text: i for i, text in enumerate(vocab)}, [], unk_token="<unk>"))
    out.decoder = decoders.Fuse()
    return out


def with_normalizer(*rows):
    out = letters()
    out.normalizer = normalizers.Sequence(list(rows))
    return out


def with_decoder(decoder):
    out = letters()
    out.decoder = decoder
    return out


def with_bytes(**affixes):
    texts = ["<unk>", *(f"<0x{byte:02X}>" for byte in sorted(set("".join(SHORT).encode() + b"##</w>"))), "a", "##b", "x</w>"]
    out = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, [], unk_token="<unk>", byte_fallback=True, **affixes))
    out.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return out


def with_added(*tokens, normalizer=None):
    out = letters()
    if normalizer:
        out.normalizer = normalizer
    out.add_tokens(list(tokens))
    return out


def ties():
    """Ways with equal sums, of which rounding chooses."""
    scores = {"<unk>": 0.0, "H": -1.2, "e": -5.8, "l": -3.4, "o": -5.6, "x": -5.1, "b": -2.8, "W": -5.5, " ": -5.2, "  ": -10.4, "   ": -15.600000000000001}
    out = Tokenizer(models.Unigram(list(scores.items()), unk_id=0))
    out.decoder = decoders.Fuse()
    return out


def rules():
    for pattern in PATTERNS:
        yield pattern, words(pre_tokenizers.Split(Regex(pattern), "isolated"))
    for behavior in BEHAVIORS:
        for invert in (False, True):
            yield f"empty matches, {behavior}, {invert}", words(pre_tokenizers.Split(Regex(r"(?=[A-Z])|b*"), behavior, invert))
    for pattern in (r"x*", r"(?=[A-Z])", r"$", r"\b", r"[[:punct:]]|(?<=a)"):
        yield f"normalizer {pattern}", with_normalizer(normalizers.Replace(Regex(pattern), "~"))
        yield f"decoder {pattern}", with_decoder(decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex(pattern), "~")]))
    yield "decoder of tokens", with_decoder(decoders.Replace(Regex(r"[a-e]|\s"), "~"))
    yield "decoders, none of them", with_decoder(decoders.Sequence([]))
    yield "bytes with a prefix", with_bytes(continuing_subword_prefix="##")
    yield "bytes with a suffix", with_bytes(end_of_word_suffix="</w>")
    yield "bytes with both", with_bytes(continuing_subword_prefix="##", end_of_word_suffix="</w>", fuse_unk=True)
    yield "spaces that are taken", with_added(AddedToken(" ", lstrip=True, rstrip=True), AddedToken("l", rstrip=True))
    yield "ties", ties()


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for name, tokenizer in rules():
            is_split = name in PATTERNS or name.startswith("empty")
            texts = TEXTS if is_split else SHORT + ["      a", "xxxxHello Web Hello Web Hello Web       b"] if name in ("ties", "spaces that are taken") else SHORT
            ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            rows = {k: v for k, v in json.loads(tokenizer.to_str()).items() if v}
            rows["model"] = {k: v for k, v in rows["model"].items() if v is not None and v is not False}
            row = {"rule": name, "tokenizer": rows, "texts": texts, "ids": ids} | ({} if is_split else {"decoded": [tokenizer.decode(i) for i in ids]})
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

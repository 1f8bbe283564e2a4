#!/usr/bin/env python3
"""Compares mxdecode with the libraries tokenizers, sentencepiece and tiktoken (pip install them).

Random strings of mixed scripts, and spans of the given text files, are encoded by both, and both
decode random ids.  Tokenizers are those that are named (tokenizer.json, FILE.model or folders of
them), and small ones that this script trains on the text, one for each kind of step that those
libraries have.  Prints a line a tokenizer; characters that only one side's Unicode tables know are
told apart, since they are differences of versions.  Exit code 1 = something else differs.

  scripts/compare_tokenizers.py --text share/mxtrain/corpus/*.txt DIR_OR_FILE...
"""
import argparse
import base64
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece as spm
import tiktoken
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0x61, 0x7a), (0x30, 0x39), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x3ff),
          (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff),
          (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2070, 0x20bf), (0x2100, 0x218f), (0x2460, 0x24ff), (0x2581, 0x2581),
          (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfb00, 0xfb4f), (0xfe00, 0xfe0f),
          (0xff00, 0xffef), (0x10330, 0x1034f), (0x1d400, 0x1d7ff), (0x1f1e6, 0x1f1ff), (0x1f300, 0x1faff),
          (0x20000, 0x2a6df)]
BITS = ["\n", "\n\n", "\r\n", "\t", " ", "  ", "    ", "'s", "'LL", "don't", "\u200d", "\u00a0", "\ufeff", "\u2028",
        "<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "[MASK]", " [SEP] ", "\u0000", "\u0085", "e\u0301",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "12345", "3.14", "http://a.b/c?d=e", "İ", "ß", "ﬁ", "\x7f", "\x0b"]


def random_string(rng, files):
    if rng.random() < 0.25:
        text = rng.choice(files)
        start = rng.randrange(len(text))
        return text[start:start + rng.randrange(200)]
    out = []
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.35:
            out.append(rng.choice(BITS))
            continue
        low, high = rng.choice(RANGES)
        out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 8))))
    return "".join(out)


# ---- small tokenizers of our own making

def trained(tokenizer, trainer, files):
    tokenizer.train_from_iterator(files, trainer)
    return tokenizer


def make_bert(files):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained(t, trainers.WordPieceTrainer(vocab_size=900, special_tokens=special, show_progress=False), files)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def make_cased_bert(files):
    t = make_bert(files)
    t.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False)
    return t


def make_roberta(files):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    trained(t, trainers.BpeTrainer(vocab_size=900, special_tokens=["<s>", "</s>"], show_progress=False,
                                   initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), files)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("\tright", rstrip=True), "New York"])
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return t


def make_clip(files):
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="##", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                         normalizers.Replace(Regex(r"\s+"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"),
                                               pre_tokenizers.Digits(individual_digits=True)])
    t.decoder = decoders.BPEDecoder()
    return trained(t, trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>"], end_of_word_suffix="</w>",
                                          continuing_subword_prefix="##", show_progress=False), files)


def make_albert(files):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(),
                                         normalizers.Prepend("x")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    trained(t, trainers.UnigramTrainer(vocab_size=800, special_tokens=["<unk>", "<pad>"], unk_token="<unk>",
                                       show_progress=False), files)
    t.add_tokens([AddedToken("É", normalized=True), AddedToken("<x>", normalized=False)])
    return t


def make_words(files):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(left=False)])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return trained(t, trainers.WordLevelTrainer(vocab_size=900, special_tokens=["<unk>"], show_progress=False), files)


def make_o200k(files):
    """The split of GPT-4o."""
    split = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" \
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" \
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return trained(t, trainers.BpeTrainer(vocab_size=2000, show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), files)


def make_splits(files):
    t = make_o200k(files)
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\w+"), "contiguous", invert=True), pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.CharDelimiterSplit("q"),
        pre_tokenizers.Split("z", "removed"), pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(use_regex=True)])
    return t


MADE = [make_bert, make_cased_bert, make_roberta, make_clip, make_albert, make_words, make_o200k, make_splits]
PIECES = {
    "bpe": dict(model_type="bpe", byte_fallback=True, user_defined_symbols=["<sep>", "ing", "▁▁"]),
    "bpe_nfkc_no_dummy": dict(model_type="bpe", add_dummy_prefix=False, remove_extra_whitespaces=False,
                              normalization_rule_name="identity"),
    "unigram": dict(model_type="unigram", user_defined_symbols=["<sep>", "tion"]),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf",
                          character_coverage=0.98),
}


def make_pieces(files, options):
    out = io.BytesIO()
    lines = [line for text in files for line in text.split("\n") if line]
    spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, vocab_size=900,
                                   minloglevel=2, **options)
    return out.getvalue()


def byte_order(tokenizer_json):
    """Ranks of a byte-level tokenizer, as tiktoken wants them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    chars = {chr(b): b for b in printable}
    chars.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    vocab = json.loads(tokenizer_json)["model"]["vocab"]
    return {bytes(chars[c] for c in text): rank for text, rank in vocab.items()}


# ---- the two sides

class Ours:
    def __init__(self, program, path):
        self.program, self.path = program, path

    def run(self, lines, *options):
        done = subprocess.run([self.program, self.path, *options], input="".join(json.dumps(x) + "\n" for x in lines),
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.path}: {done.stderr}")
        return [json.loads(line) for line in done.stdout.split("\n") if line]


# Punctuation since Unicode 9, and one character that is none since 12; tokenizers has tables of 8 for it.
RECENT = {0x61d, 0x9fd, 0xa76, 0xc77, 0xc84, 0x166d, 0x1b7d, 0x1b7e, *range(0x2e43, 0x2e5e)}


def is_recent(text):
    """Whether it has characters that this Python's tables lack, or that are known to differ."""
    return any(unicodedata.category(c) == "Cn" or ord(c) in RECENT for c in text)


def compare(name, strings, want, got, show):
    bad = [i for i in range(len(want)) if want[i] != got[i]]
    recent = [i for i in bad if isinstance(strings[i], str) and is_recent(strings[i])]
    print(f"{name}: {len(want) - len(bad)} of {len(want)} equal, {len(recent)} differ by version of Unicode")
    for i in [i for i in bad if i not in recent][:show]:
        print(f"    {strings[i]!r}\n        want {want[i]}\n        got  {got[i]}")
    return len(bad) == len(recent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--mxdecode", default="build/mxdecode")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    files = [open(path, encoding="utf-8").read() for path in args.text]
    training = [text[:400_000] for text in files]
    strings = [random_string(rng, files) for _ in range(args.strings)]
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for path in args.paths:
            inside = [os.path.join(path, n) for n in ("tokenizer.json", "tokenizer.model")] if os.path.isdir(path) else [path]
            paths += [p for p in inside if os.path.exists(p)]
        for make in MADE:
            paths.append(os.path.join(folder, make.__name__ + ".json"))
            make(training).save(paths[-1])
        for name, options in PIECES.items():
            paths.append(os.path.join(folder, name + ".model"))
            open(paths[-1], "wb").write(make_pieces(training, options))
        for path in paths:
            ours = Ours(args.mxdecode, path)
            if path.endswith(".json"):
                theirs = Tokenizer.from_file(path)
                encode = lambda text: theirs.encode(text, add_special_tokens=False).ids
                special = lambda text: theirs.encode(text, add_special_tokens=True).ids
                decode = lambda ids: theirs.decode(ids, skip_special_tokens=False)
                size = theirs.get_vocab_size()
            else:
                theirs = spm.SentencePieceProcessor(model_file=path)
                encode, special, decode, size = theirs.encode, None, theirs.decode, theirs.vocab_size()
            clean = strings if path.endswith(".json") else [s.replace("\0", "") for s in strings]
            ok &= compare(path, clean, [encode(s) for s in clean], ours.run(clean, "--tokenize"), args.show)
            if special:
                ok &= compare(path + " --special", clean, [special(s) for s in clean],
                              ours.run(clean, "--tokenize", "--special"), args.show)
            ids = [[rng.randrange(size) for _ in range(rng.randrange(1, 20))] for _ in range(args.strings // 5)]
            ok &= compare(path + " --detokenize", ids, [decode(i) for i in ids], ours.run(ids, "--detokenize"), args.show)
        ranks = byte_order(open(os.path.join(folder, "make_o200k.json")).read())
        path = os.path.join(folder, "ranks.tiktoken")
        with open(path, "w") as file:
            file.writelines(f"{base64.b64encode(text).decode()} {rank}\n" for text, rank in ranks.items())
        llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        theirs = tiktoken.Encoding("test", pat_str=llama, mergeable_ranks=ranks, special_tokens={})
        ok &= compare(path, strings, [theirs.encode(s) for s in strings], Ours(args.mxdecode, path).run(strings, "--tokenize"),
                      args.show)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""golden_gguf.py LLAMA_CPP GOLDEN_HF OUT.json — what llama.cpp's converter makes of the golden folders.

LLAMA_CPP is a folder of llama.cpp's sources (those in llama-cpp-python 0.3.36 on PyPI, vendor/llama.cpp),
GOLDEN_HF the folder golden/hf.  For every model that it converts: its metadata but what it says of the
vocabulary and in general, and each tensor's name, type, dims (innermost first) and XXH3-64 of its bytes, with
matrices in bfloat16; of some also in other types, as "MODEL TYPE".  For every tokenizer: its metadata, lists as their length and XXH3-64 of their values.
Wants torch, transformers, sentencepiece, xxhash.
"""

import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

llama_cpp, golden, out = map(Path, sys.argv[1:4])
sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]

import gguf  # noqa: E402
import xxhash  # noqa: E402
from conversion import base, get_model_class  # noqa: E402

MODELS = """llama llama_bf16 llama_rope3 llama_linear llama_sharded mixtral qwen2 qwen3 qwen3_moe gemma gemma2
gemma3_text olmo3 olmo3_tiny""".split()
# As 0.1 ln(factor) + 1 is, which llama.cpp computes whatever a file says.
CHANGED = {"olmo3_tiny": ('"attention_factor": 1.2', '"attention_factor": 1.138629436111989')}
TYPED = {"q8_0": ["llama", "qwen3_moe", "gemma3_text"], "float16": ["qwen2"]}
FILE_TYPES = {"bfloat16": gguf.LlamaFileType.MOSTLY_BF16, "float16": gguf.LlamaFileType.MOSTLY_F16,
              "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
TOKENIZERS = ["llama2", "llama3", "gpt2", "qwen", "gemma"]


def digest(data):
    return xxhash.xxh3_64_hexdigest(data)


def values_of(field):
    """The number of a list's values and the hash of all of them, texts each ended by a zero byte."""
    kind = field.types[-1]
    parts = [field.parts[i] for i in field.data]
    if kind == gguf.GGUFValueType.STRING:
        data = b"".join(bytes(p) + b"\0" for p in parts)
    else:
        data = b"".join(p.tobytes() for p in parts)
    return {"n": len(parts), "hash": digest(data)}


def metadata(reader):
    out = {}
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            out[name] = values_of(field)
        else:
            value = field.contents()
            out[name] = {"type": field.types[0].name, "value": value}
    return out


def convert(folder, vocab_only, path, kind="bfloat16"):
    hparams = base.ModelBase.load_hparams(folder, False)
    model = get_model_class(hparams["architectures"][0])
    cls = type("Golden", (model,), {"model_arch": model.model_arch})
    # Their names of ways to split text are hashes of what published tokenizers make of a text.
    cls.get_vocab_base_pre = lambda self, tokenizer: "golden"
    if not vocab_only:
        cls.set_vocab = lambda self: None
    made = cls(folder, FILE_TYPES[kind], path, eager=True)
    made.write_vocab() if vocab_only else made.write()
    return gguf.GGUFReader(path)


def model(folder, kind="bfloat16"):
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / folder.name
        copy.mkdir()
        for file in folder.iterdir():
            if file.name.startswith("model") or file.name == "config.json":
                shutil.copy(file, copy)
        if folder.name in CHANGED:
            said = (copy / "config.json").read_text()
            (copy / "config.json").write_text(said.replace(*CHANGED[folder.name]))
        # Gemma 3's table is cut to the tokenizer's number of entries, which are all of it here.
        n = json.loads((copy / "config.json").read_text())["vocab_size"]
        text = {"model": {"vocab": {str(i): i for i in range(n)}}, "added_tokens": []}
        (copy / "tokenizer.json").write_text(json.dumps(text))
        reader = convert(copy, False, Path(work) / "model.gguf", kind)
        tensors = [[t.name, t.tensor_type.name, [int(n) for n in t.shape], digest(t.data.tobytes())]
                   for t in reader.tensors]
        meta = {k: v for k, v in metadata(reader).items()
                if not k.startswith(("general.", "tokenizer.")) or k in ("general.architecture", "general.file_type")}
        return {"metadata": meta, "tensors": sorted(tensors)}


CONFIGS = {"llama2": "LlamaForCausalLM", "llama3": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel",
           "qwen": "Qwen2ForCausalLM", "gemma": "GemmaForCausalLM"}


def tokenizer(folder):
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / folder.name
        copy.mkdir()
        for file in folder.iterdir():
            if file.name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"):
                shutil.copy(file, copy)
        vocab = json.loads((copy / "tokenizer.json").read_text())
        n = max(list(vocab["model"]["vocab"].values()) + [a["id"] for a in vocab["added_tokens"]]) + 1
        config = {"architectures": [CONFIGS[folder.name]], "vocab_size": n + 3, "num_hidden_layers": 1,
                  "n_layer": 1, "hidden_size": 8, "num_attention_heads": 2, "n_head": 2, "n_embd": 8, "n_ctx": 8,
                  "num_key_value_heads": 2, "max_position_embeddings": 8, "head_dim": 4, "intermediate_size": 8,
                  "rms_norm_eps": 1e-6, "layer_norm_epsilon": 1e-6}
        (copy / "config.json").write_text(json.dumps(config))
        reader = convert(copy, True, Path(work) / "vocab.gguf")
        return {"vocab_size": n + 3,
                **{k: v for k, v in metadata(reader).items() if k.startswith("tokenizer.")}}


made = {"models": {}, "tokenizers": {}}
for name in MODELS:
    folder = golden / "models" / name
    if folder.exists():
        made["models"][name] = model(folder)
for kind, names in TYPED.items():
    for name in names:
        made["models"][f"{name} {kind}"] = model(golden / "models" / name, kind)
for name in TOKENIZERS:
    folder = golden / "tokenizers" / name
    if folder.exists():
        made["tokenizers"][name] = tokenizer(folder)
out.write_text(json.dumps(made, separators=(",", ":")) + "\n")
print(f"{len(made['models'])} models, {len(made['tokenizers'])} tokenizers, {out.stat().st_size} bytes")

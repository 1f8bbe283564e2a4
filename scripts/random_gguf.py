#!/usr/bin/env python3
"""random_gguf.py MXCONVERT TOKENIZER [SEED] — random small models of every family that --to-gguf writes, in llama.cpp
and in transformers: the largest difference of their logits, and of their ids of some texts.

MXCONVERT is the program, TOKENIZER a folder with a byte-level tokenizer.json.  Wants torch, transformers and
llama-cpp-python.  Exits with 1 if logits differ by more than 1e-5 of the largest, with keys and values in float32; by
more than 2e-3 in Gemma's families, as llama.cpp looks GELU up in a table of float16.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copy

import numpy as np
import torch
import transformers as tf
from llama_cpp import Llama

mxconvert, tokenizer = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
text = tf.AutoTokenizer.from_pretrained(tokenizer)
SIZES = {"vocab_size": len(text) + 5, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256,
         "initializer_range": 0.2}
MOE = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
STRETCH = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32, "rope_theta": 10000.0}
GEMMA = {"query_pre_attn_scalar": 32, "sliding_window": 8}
FAMILIES = {
    "llama": (tf.LlamaConfig, tf.LlamaForCausalLM, {}),
    "llama, tied": (tf.LlamaConfig, tf.LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama 3.1": (tf.LlamaConfig, tf.LlamaForCausalLM, {"rope_parameters": STRETCH}),
    "mistral": (tf.MistralConfig, tf.MistralForCausalLM, {"sliding_window": None}),
    "mixtral": (tf.MixtralConfig, tf.MixtralForCausalLM, {"num_local_experts": 4, "sliding_window": None}),
    "qwen2": (tf.Qwen2Config, tf.Qwen2ForCausalLM, {"head_dim": 16}),
    "qwen3": (tf.Qwen3Config, tf.Qwen3ForCausalLM, {}),
    "qwen3_moe": (tf.Qwen3MoeConfig, tf.Qwen3MoeForCausalLM, MOE),
    "olmo3": (tf.Olmo3Config, tf.Olmo3ForCausalLM, {"head_dim": 16, "sliding_window": 8}),
    "gemma": (tf.GemmaConfig, tf.GemmaForCausalLM, {}),
    "gemma2": (tf.Gemma2Config, tf.Gemma2ForCausalLM, GEMMA),
    "gemma3": (tf.Gemma3TextConfig, tf.Gemma3ForCausalLM, {**GEMMA, "num_hidden_layers": 7}),
}
TEXTS = ["Hello, world! 123456 it's a test.", "  naïve 日本語\n\n\tTabs  and   spaces", "I'll DON'T 3.14159 €5"]


def logits_of(path, ids):
    model = Llama(str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0)
    same = [model.tokenize(t.encode(), add_bos=False) == text.encode(t, add_special_tokens=False) for t in TEXTS]
    model.reset()
    model.eval(ids)
    return np.array(model.scores[: len(ids)]), all(same)


failed = 0
with tempfile.TemporaryDirectory() as work:
    for name, (config, cls, words) in FAMILIES.items():
        folder, file = Path(work) / name.replace(" ", "_"), Path(work) / f"{name.replace(' ', '_')}.gguf"
        model = cls(config(**{**SIZES, **words}))
        for p in model.parameters():
            if p.dim() == 1:
                p.data += 0.3 * torch.randn_like(p)
        model.save_pretrained(folder)
        for f in ("tokenizer.json", "tokenizer_config.json"):
            if (tokenizer / f).exists():
                copy(tokenizer / f, folder)
        subprocess.run([mxconvert, folder, file, "--to-gguf", "--dtype", "float32"], check=True, stdout=subprocess.PIPE)
        ids = torch.randint(0, len(text), (24,)).tolist()
        with torch.no_grad():
            wanted = model(torch.tensor([ids])).logits[0].numpy()
        found, same = logits_of(file, ids)
        found = found[:, : wanted.shape[1]]
        off = abs(found - wanted).max() / abs(wanted).max()
        failed += off > (2e-3 if name.startswith("gemma") else 1e-5) or not same
        print(f"{name}: logits differ by {off:.1e} of the largest, ids are {'the same' if same else 'OTHERS'}")
sys.exit(failed > 0)

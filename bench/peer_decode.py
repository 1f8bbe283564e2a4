#!/usr/bin/env python3
"""The peers of bench/decode.py: W1 with random weights.

  peer_decode.py generate --dtype bf16|f32 --prompt N --tokens N --threads N
  peer_decode.py gguf --dtype bf16|f32 --out FILE

generate: transformers' generate, greedy, with its cache; prints a line of JSON with tokens a second of the prompt (the
time of one new token) and of those after it (the time of N + 1 less that of one), each the fastest of 3. gguf: a file of
the same shapes for llama-bench. Needs torch and transformers; gguf and numpy.
"""
import argparse
import json
import sys
import time

EMB, LAYERS, HEADS, MLP, VOCAB = 768, 12, 12, 2048, 32000  # of w1.yml
ROUNDS = 3


def generate(options):
    import torch
    import transformers
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[options.dtype]
    config = transformers.LlamaConfig(
        hidden_size=EMB, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=EMB // HEADS,
        intermediate_size=MLP, vocab_size=VOCAB, max_position_embeddings=options.prompt + options.tokens + 1,
        attn_implementation="sdpa", bos_token_id=None, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    ids = torch.randint(0, VOCAB, (1, options.prompt))

    def seconds(n):
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
        assert out.shape[1] == options.prompt + n
        return time.perf_counter() - start

    seconds(2)
    one = min(seconds(1) for _ in range(ROUNDS))
    all_of_them = min(seconds(options.tokens + 1) for _ in range(ROUNDS))
    print(json.dumps({"prefill": options.prompt / one, "decode": options.tokens / (all_of_them - one)}))


def tensors():
    """Names of llama.cpp's llama and their shapes, outputs first."""
    yield from (("token_embd", (VOCAB, EMB)), ("output_norm", (EMB,)), ("output", (VOCAB, EMB)))
    for i in range(LAYERS):
        for name, shape in (("attn_norm", (EMB,)), ("ffn_norm", (EMB,)), *((f"attn_{x}", (EMB, EMB)) for x in ("q", "k", "v", "output")),
                            ("ffn_gate", (MLP, EMB)), ("ffn_up", (MLP, EMB)), ("ffn_down", (EMB, MLP))):
            yield f"blk.{i}.{name}", shape


def gguf(options):
    import gguf as files
    import numpy
    out = files.GGUFWriter(options.out, "llama")
    out.add_block_count(LAYERS)
    out.add_context_length(4096)
    out.add_embedding_length(EMB)
    out.add_feed_forward_length(MLP)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(EMB // HEADS)
    out.add_vocab_size(VOCAB)
    out.add_tokenizer_model("none")
    random = numpy.random.default_rng(0)
    for name, shape in tensors():
        x = 0.02 * random.standard_normal(shape, dtype=numpy.float32)
        if options.dtype == "f32" or len(shape) == 1:  # llama.cpp's norms are floats
            out.add_tensor(f"{name}.weight", x)
        else:
            high = (x.view(numpy.uint32) >> 16).astype(numpy.uint16)
            out.add_tensor(f"{name}.weight", high.view(numpy.uint8), raw_dtype=files.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["generate", "gguf"])
    p.add_argument("--dtype", required=True, choices=["bf16", "f32"])
    for name in ("prompt", "tokens", "threads"):
        p.add_argument(f"--{name}", type=int)
    p.add_argument("--out")
    options = p.parse_args()
    {"generate": generate, "gguf": gguf}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes a tiny thinker of Qwen 3-Omni that hears sounds, of transformers, with what it computes, for tests/golden/sounds/qwen3_omni_hears.

    golden_hears.py OUT
    golden_hears.py --continue FILE

OUT receives config.json, model.safetensors and expected.h5 as golden_sees.py writes them. Its batch has two rows: one with a picture and a sound of
several windows, one with a sound that is shorter than a chunk and another (image: which token of the row's images stands
there, or, behind those that images have at most, of its chunks of sounds; pixels: those of the first row). Gradients are those of the audio encoder, by the order of
their paths in MaxText's tree (grads).
transformers pads the chunks of all sounds of a call to the longest; each sound passes alone here, as it does if it is the only one. Its logits are those of every twelfth token.

FILE receives what transformers' generate says greedily behind the beginning of each row, as golden_sees.py has it.
"""
import json
import os
import sys

import h5py
import numpy as np
import torch
import transformers

import golden_sees
from golden_sees import BEGIN, END, TOKEN, distance, in_bfloat16, in_float64, matrix, moved, qwen3_vl_patches, qwen3_vl_pixels, same

AUDIO, SOUND, SILENCE, LENGTH, EACH, CHUNK, ROOM, BINS = 57, 58, 59, 48, 13, 100, 3, 9  # ids of a token, before and behind; tokens and frames of a chunk
IMAGES = 4  # tokens that images of a row have at most

CONFIG = """decoder_block: qwen3_moe
base_num_decoder_layers: 1
base_mlp_dim: 4
base_moe_mlp_dim: 4
num_experts: 2
num_experts_per_tok: 2
norm_topk_prob: true
load_balance_loss_weight: 0
base_emb_dim: 8
base_num_query_heads: 1
base_num_kv_heads: 1
head_dim: 8
mlp_activations: [silu, linear]
vocab_size: 64
normalization_layer_epsilon: 1e-06
logits_via_embedding: false
use_qk_norm: true
enable_dropout: false
rope_max_timescale: 10000
use_mrope: true
mrope_section: [2, 1, 1]
vision_encoder_block: qwen3_omni
image_size_for_vit: 8
patch_size_for_vit: 2
temporal_patch_size_for_vit: 2
spatial_merge_size_for_vit: 2
num_hidden_layers_for_vit: 1
num_attention_heads_for_vit: 1
hidden_size_for_vit: 4
intermediate_size_for_vit: 4
out_hidden_size_for_vit: 8
num_position_embeddings_for_vit: 4
deepstack_visual_indexes_for_vit: [0]
max_num_images_per_example: 1
use_multimodal: true
packing: false
use_audio: true
d_model_for_audio: 8
encoder_layers_for_audio: 1
encoder_attention_heads_for_audio: 2
encoder_ffn_dim_for_audio: 6
num_mel_bins_for_audio: 9
downsample_hidden_size_for_audio: 3
n_window_for_audio: 50
n_window_infer_for_audio: 200
output_dim_for_audio: 8
max_sample_len_for_audio: 300
"""

SOUNDS = [[230], [70, 150]]  # frames
GRIDS = [[(2, 4)], []]
IDS = [[1, 5, BEGIN, TOKEN, TOKEN, END, 9, SOUND] + [AUDIO] * 30 + [SILENCE, 7, 9, 11, 4, 3, 8, 2, 17, 21],
       [1, SOUND] + [AUDIO] * 9 + [SILENCE, 33, 34, SOUND] + [AUDIO] * 20 + [SILENCE, 9, 33, 34, 2, 8, 55, 10, 22, 27, 50, 51, 31]]
PROMPT = [41, 37]
SPEC = dict(grids=GRIDS, prompt=PROMPT)


def make():
    text = transformers.Qwen3OmniMoeTextConfig(
        hidden_size=8, num_attention_heads=1, num_key_value_heads=1, head_dim=8, vocab_size=64, num_hidden_layers=1, max_position_embeddings=128,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False, intermediate_size=4, moe_intermediate_size=4, num_experts=2,
        num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        rope_parameters=golden_sees.QWEN3_VL_TEXT["rope_parameters"])
    vision = dict(golden_sees.QWEN3_VL_VISION, depth=1, hidden_size=4, intermediate_size=4, out_hidden_size=8, num_position_embeddings=4,
                  deepstack_visual_indexes=[0])
    audio = dict(d_model=8, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=6, num_mel_bins=9, downsample_hidden_size=3, output_dim=8,
                 n_window=50, n_window_infer=200)
    config = transformers.Qwen3OmniMoeThinkerConfig(
        text_config=text.to_dict(), vision_config=vision, audio_config=audio, audio_token_id=AUDIO, audio_start_token_id=SOUND, audio_end_token_id=SILENCE,
        **dict(golden_sees.QWEN3_VL_IDS, tie_word_embeddings=False))
    model = golden_sees.draw(transformers.Qwen3OmniMoeThinkerForConditionalGeneration, config)
    with torch.no_grad():
        model.model.audio_tower.ln_post.weight.add_(1)
    return one_by_one(in_bfloat16(model))


def one_by_one(model):
    """Each sound passes through the audio encoder alone."""
    tower = model.model.audio_tower
    forward = tower.forward

    def each(input_features, feature_lens, **kwargs):
        parts = [forward(part, feature_lens=n[None], return_dict=True).last_hidden_state
                 for part, n in zip(input_features.split(feature_lens.tolist(), 1), feature_lens)]
        return transformers.modeling_outputs.BaseModelOutputWithPooling(last_hidden_state=torch.cat(parts))
    tower.forward = each
    return model


def frames_of_all():
    """Sixteenths that the test makes again: element i of all sounds is (37 i^2 + 11 i mod 101) mod 33 - 16 of them."""
    i = np.arange(sum(map(sum, SOUNDS)) * BINS)
    values = (((37 * i * i + 11 * i) % 101 % 33 - 16) / 16).astype(np.float32).reshape(-1, BINS)
    return np.split(values, np.cumsum([n for row in SOUNDS for n in row])[:-1])


def heard(frames):
    """As the processor gives them: zeros behind each, and which are none of these."""
    most = max(map(len, frames))
    values, mask = np.zeros((len(frames), BINS, most), np.float32), np.zeros((len(frames), most), np.int64)
    for i, f in enumerate(frames):
        values[i, :, :len(f)], mask[i, :len(f)] = f.T, 1
    return dict(input_features=torch.tensor(values), feature_attention_mask=torch.tensor(mask))


def rows():
    tower, theirs = "audio_encoder/Qwen3OmniAudioEncoder_0/", "audio_tower."
    out = []
    for k in "123":
        out += [(tower + f"conv2d{k}/kernel", theirs + f"conv2d{k}.weight", lambda w: w.transpose(2, 3, 1, 0)),
                (tower + f"conv2d{k}/bias", theirs + f"conv2d{k}.bias", same)]
    out += [(tower + "conv_out/kernel", theirs + "conv_out.weight", matrix())]
    for i in range(1):
        ours, layer = tower + f"layers_{i}/", theirs + f"layers.{i}."
        for a, b in (("input_layer_norm", "self_attn_layer_norm"), ("post_attention_layer_norm", "final_layer_norm")):
            out += [(ours + a + "/scale", layer + b + ".weight", same), (ours + a + "/bias", layer + b + ".bias", same)]
        for a, b in (("query", "q"), ("key", "k"), ("value", "v")):
            out += [(ours + f"self_attention_audio/{a}/kernel", layer + f"self_attn.{b}_proj.weight", matrix(2)),
                    (ours + f"self_attention_audio/{a}/bias", layer + f"self_attn.{b}_proj.bias", lambda w: w.reshape(2, -1))]
        out += [(ours + "self_attention_audio/out/kernel", layer + "self_attn.out_proj.weight", matrix(2, True)),
                (ours + "self_attention_audio/out/bias", layer + "self_attn.out_proj.bias", same)]
        for a, b in (("wi", "fc1"), ("wo", "fc2")):
            out += [(ours + f"AudioMLP/{a}/kernel", layer + f"{b}.weight", matrix()), (ours + f"AudioMLP/{a}/bias", layer + f"{b}.bias", same)]
    out += [(tower + "layernorm_post/scale", theirs + "ln_post.weight", same), (tower + "layernorm_post/bias", theirs + "ln_post.bias", same)]
    for k in "12":
        ours = f"audio_encoder/Qwen3OmniAudioProjector_0/proj{k}/"
        out += [(ours + "kernel", theirs + f"proj{k}.weight", matrix()), (ours + "bias", theirs + f"proj{k}.bias", same)]
    return out


def write_batch(out, ids, pixels):
    image = np.where(ids == TOKEN, np.cumsum(ids == TOKEN, -1), 0)
    for b, row in enumerate(SOUNDS):
        slots, chunk = [], 0
        for n in row:
            for at in range(0, n, CHUNK):
                tokens = -(-min(n - at, CHUNK) // 8)  # three convolutions
                slots += [IMAGES + EACH * chunk + k + 1 for k in range(tokens)]
                chunk += 1
        image[b, ids[b] == AUDIO] = slots
    out["inputs"], out["image"] = ids.astype(np.int32), image.astype(np.int32)
    out["pixels"] = qwen3_vl_patches(SPEC, pixels)[0].ravel()


def continue_row(change, b):
    frames, first = frames_of_all(), 0 if b == 0 else len(SOUNDS[0])
    seen = heard(frames[first:first + len(SOUNDS[b])])
    if GRIDS[b]:
        seen.update(qwen3_vl_pixels(SPEC))
    model = one_by_one(golden_sees.KINDS["qwen3_omni_sees"].from_pretrained("tests/golden/sounds/qwen3_omni_hears", attn_implementation="eager",
                                                                              dtype=torch.float32))
    model.generation_config.eos_token_id = None
    model, seen = change(model.eval(), seen)
    return golden_sees.continue_row(model, seen, dict(ids=IDS, grids=GRIDS, pixels=qwen3_vl_pixels, types=False), IDS[b], PROMPT[b])


def continue_rows():
    out = []
    for b in range(2):
        tokens, logprobs = continue_row(lambda model, seen: (model, seen), b)
        noise = 0
        for change in [in_float64] + [lambda model, seen, k=k: (moved(model, k), seen) for k in range(8)]:
            other, others = continue_row(change, b)
            assert tokens.tolist() == other.tolist()
            noise = max(noise, float((logprobs - others).abs().max()))
        out.append(dict(prompt=PROMPT[b], tokens=tokens.tolist(), logprobs=[round(x, 7) for x in logprobs.tolist()], noise=round(noise, 7)))
    return out


def main():
    if sys.argv[1] == "--continue":
        with open(sys.argv[2], "w") as out:
            json.dump({"qwen3_omni_hears": continue_rows()}, out)
            out.write("\n")
        return
    folder = sys.argv[1]
    ids, model = np.array(IDS), make()
    assert ids.shape == (2, LENGTH)
    seen = dict(heard(frames_of_all()), **qwen3_vl_pixels(SPEC))
    logits, loss, gradients, named = golden_sees.run(SPEC, model, ids, seen)
    others = [in_float64(make(), seen)] + [(moved(make(), k), seen) for k in range(8)]
    others = [golden_sees.run(SPEC, other, ids, other_seen) for other, other_seen in others]
    for p in named.values():
        p.requires_grad_(False)
    model.bfloat16().save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        told = json.loads(file.read().replace('"dtype": "bfloat16"', '"dtype": "float32"'))
    with open(path, "w") as file:
        json.dump(told, file, separators=(",", ":"))
        file.write("\n")
    with h5py.File(os.path.join(folder, "expected.h5"), "w", libver="latest", meta_block_size=64) as out:
        out.attrs["config"] = CONFIG
        out.attrs["versions"] = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__})
        grads, noise, found = [], 0, set()
        for ours, theirs, change in sorted(rows(), key=lambda row: row[0]):
            path, = [p for p in named if p.endswith(theirs)]
            found.add(path)
            if not ours.endswith("key/bias"):  # 0 in real numbers: its keys are not rotated
                noise = max([noise] + [distance(change(gradients[path]), change(other[2][path])) for other in others])
            grads.append(change(gradients[path]).ravel())
        assert found == {p for p in named if "audio_tower" in p}
        out.attrs["noise_gradient"] = noise
        out.attrs["noise_logits"] = max(distance(logits, other[0]) for other in others)
        write = dict(grads=np.concatenate(grads), logits=logits[:, ::12], loss=loss)
        for name, value in write.items():
            out[name] = value
        write_batch(out, ids, seen["pixel_values"].numpy())


if __name__ == "__main__":
    main()

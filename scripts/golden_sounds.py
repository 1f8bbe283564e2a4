#!/usr/bin/env python3
"""Makes tests/golden/sounds/frames.json: what transformers makes of a sound, and soxr of another rate.

    golden_sounds.py OUT

The sound is samples ((7 i^2 + 13 i) mod 2001 - 1000) 16 / 32768 of 16 kHz, of which those from 1800 to 2600 are 0. OUT receives some of the values of
WhisperFeatureExtractor with the settings of Qwen 3-Omni's processor (frames: of each seventh frame every fourth of 128 bins), and of python-soxr's
high quality, as librosa.load has it, every fortieth sample of what the same samples become if their rate is 44100 or 8000 Hz."""
import json
import sys

import numpy as np
import soxr
import transformers

N = 3360
i = np.arange(N, dtype=np.int64)
samples = ((7 * i * i + 13 * i) % 2001 - 1000) * 16
samples[1800:2600] = 0
samples = (samples / 32768).astype(np.float32)
extract = transformers.WhisperFeatureExtractor(feature_size=128, sampling_rate=16000, hop_length=160, chunk_length=30, n_fft=400, dither=0.0)
made = extract(samples, sampling_rate=16000, padding=True, truncation=False, return_attention_mask=True, return_tensors="np")
frames = made["input_features"][0].T
assert frames.shape == (N // 160, 128) and made["attention_mask"].sum() == N // 160
rates = {str(rate): [round(float(x), 6) for x in soxr.resample(samples, rate, 16000, quality="HQ")[::40]] for rate in (44100, 8000)}
with open(sys.argv[1], "w") as out:
    json.dump(dict(frames=[[round(float(x), 5) for x in frame[::4]] for frame in frames[::7]], **rates), out, separators=(",", ":"))
    out.write("\n")

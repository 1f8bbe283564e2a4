#!/usr/bin/env python3
"""Makes small pictures with the pixels that transformers' image processors of Gemma 3, Gemma 4, Llama 4 and Qwen 3-VL make of them, for tests/golden/images.

    golden_images.py OUT

Writes OUT/<picture> and OUT/<picture>.rgb: 16 x 24 pixels (height, width), rows of red, green and blue bytes, which are the
processor's values before they are scaled: value = byte / 127.5 - 1. Pictures of 16 bits are cut to their upper 8 first.
Of some pictures also OUT/<picture>.near: rows and columns of patches (int32) that Qwen 3-VL's processor makes, and their bytes.
Of some pictures also OUT/<picture>.tiles: rows and columns of tiles (int32), then the tiles of 8 x 8 pixels, six at most, and the small
picture of all of it behind them, [tiles, 3, 8, 8] in bfloat16.
"""
import os
import sys

import numpy as np
import torch
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor

HEIGHT, WIDTH = 16, 24
FORMED = ("rgb_large.png", "rgb_small.png")
NEAR = ("rgb_large.png", "rgb_small.png", "rgba.png")
TILED = ("rgb_large.png", "rgb_small.png", "rgba.png")


def waves(height, width, channels):
    """Smooth shapes with edges and a little noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    rng = np.random.default_rng(height * width)
    planes = [127 + 90 * np.sin(x / (3 + c) + y / (5 - c)) + 30 * ((x // 4 + y // 3) % 2) for c in range(channels)]
    picture = np.stack(planes, -1) + rng.normal(0, 6, (height, width, channels))
    return np.clip(picture, 0, 255)


def byte(picture):
    return np.round(picture).astype(np.uint8)


def save_16_bits(path, picture):
    """Pillow writes no colours of 16 bits: one by hand."""
    import struct
    import zlib
    height, width, channels = picture.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in picture)
    color = {1: 0, 3: 2}[channels]

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def pictures(out):
    """Each picture's file name, and what Pillow makes of it."""
    big, small = byte(waves(61, 47, 3)), byte(waves(7, 5, 3))
    alpha = byte(waves(20, 33, 4))
    Image.fromarray(big).save(os.path.join(out, "rgb_large.png"))
    Image.fromarray(small).save(os.path.join(out, "rgb_small.png"))
    Image.fromarray(alpha, "RGBA").save(os.path.join(out, "rgba.png"))
    Image.fromarray(big[..., 0], "L").save(os.path.join(out, "grey.png"))
    Image.fromarray(big).quantize(17).save(os.path.join(out, "palette.png"), transparency=3)
    Image.fromarray(byte(waves(HEIGHT, WIDTH, 3))).save(os.path.join(out, "same_size.png"))
    Image.fromarray(big).save(os.path.join(out, "rgb.jpg"), quality=85)
    Image.fromarray(big).save(os.path.join(out, "progressive.jpg"), quality=60, progressive=True)
    Image.fromarray(big[..., 1], "L").save(os.path.join(out, "grey.jpg"))
    for name, channels in (("rgb16.png", 3), ("grey16.png", 1)):
        wide = np.round(waves(31, 29, channels) * 257).astype(np.uint16)
        save_16_bits(os.path.join(out, name), wide)
        upper = (wide >> 8).astype(np.uint8)
        yield name, Image.fromarray(upper if channels == 3 else np.repeat(upper, 3, -1))
    Image.fromarray(alpha, "CMYK").save(os.path.join(out, "cmyk.jpg"))
    Image.fromarray(small).save(os.path.join(out, "small.gif"))
    for name in ("rgb_large.png", "rgb_small.png", "rgba.png", "grey.png", "palette.png", "same_size.png", "rgb.jpg",
                 "progressive.jpg", "grey.jpg"):
        yield name, Image.fromarray(np.asarray(Image.open(os.path.join(out, name)).convert("RGB")))


def write_tiles(path, picture):
    processor = Llama4ImageProcessor(size={"height": 8, "width": 8}, max_patches=6)
    got = processor(picture, return_tensors="pt")
    values = got["pixel_values"].to(torch.bfloat16)
    assert torch.equal(values.float(), got["pixel_values"].float())
    with open(path, "wb") as file:
        file.write(np.array([r.tolist() for r in got["aspect_ratios"]], np.int32).tobytes())
        file.write(values.view(torch.int16).numpy().tobytes())


def write_form(path, picture):
    got = Gemma4ImageProcessor(patch_size=2, max_soft_tokens=70)(picture, return_tensors="pt")
    columns, rows = (int(n) + 1 for n in got["image_position_ids"][0].max(0).values)
    values = got["pixel_values"][0, :rows * columns].double().numpy() * 255
    assert np.abs(values - np.round(values)).max() < 1e-3
    with open(path, "wb") as file:
        file.write(np.array([rows, columns], np.int32).tobytes() + np.round(values).astype(np.uint8).tobytes())


def write_near(path, picture):
    """Patches of 2 x 2 pixels, of squares of two by two together, one frame of two that are alike: [patches, 2, 2, 3]."""
    got = Qwen2VLImageProcessor(patch_size=2, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                                size={"shortest_edge": 256, "longest_edge": 1120})(picture, return_tensors="pt")
    _, rows, columns = got["image_grid_thw"][0].tolist()
    values = got["pixel_values"].double().numpy().reshape(-1, 3, 2, 2, 2)
    assert (values[:, :, 0] == values[:, :, 1]).all()
    values = (values[:, :, 0].transpose(0, 2, 3, 1) + 1) * 127.5
    assert np.abs(values - np.round(values)).max() < 1e-3
    with open(path, "wb") as file:
        file.write(np.array([rows, columns], np.int32).tobytes() + np.round(values).astype(np.uint8).tobytes())


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    processor = Gemma3ImageProcessorPil(size={"height": HEIGHT, "width": WIDTH})
    for name, picture in pictures(out):
        values = np.asarray(processor(picture, return_tensors="np")["pixel_values"])[0].transpose(1, 2, 0)
        exact = (values.astype(np.float64) + 1) * 127.5
        assert np.abs(exact - np.round(exact)).max() < 1e-3, name
        np.round(exact).astype(np.uint8).tofile(os.path.join(out, name + ".rgb"))
        if name in FORMED:
            write_form(os.path.join(out, name + ".form"), picture)
        if name in NEAR:
            write_near(os.path.join(out, name + ".near"), picture)
        if name in TILED:
            write_tiles(os.path.join(out, name + ".tiles"), picture)


if __name__ == "__main__":
    main()

"""Pictures to load as image pipelines do it: JPEGs in memory, decoded by PIL, cropped, flipped and normalised.

A crop of 224 x 224 is taken of a picture of 500 x 375, as ImageNet's are on average, and other sizes in proportion.
Source of the pipeline: torchvision's reference training, references/classification/presets.py.
"""

import io
import math
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

ENCODED = 16  # pictures; many samples are crops of the same one
SAMPLES = 16384
PROPORTIONS = (375 / 224, 500 / 224)  # height and width of a picture, for a crop of 1
COARSE = (24, 32)  # random values, smoothed: about as many bytes per pixel as a photograph has
GRAIN, QUALITY = 0.05, 90
LEAST = 0.08  # of the picture's largest square, that a crop covers
CENTRE, SPREAD = 0.45, 0.225  # ImageNet's, nearly


class Pictures(Dataset[tuple[Tensor, int]]):
    """(channels, size, size) normalised crops and their labels; where they are cropped is drawn anew each time."""

    def __init__(self, *, channels: int, size: int, classes: int) -> None:
        self.mode, self.size, self.classes = {1: "L", 3: "RGB"}[channels], size, classes
        height, width = (round(size * proportion) for proportion in PROPORTIONS)
        self.encoded = [_encoded(self.mode, channels, height, width) for _ in range(ENCODED)]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < SAMPLES:
            raise IndexError(index)
        picture = Image.open(io.BytesIO(self.encoded[index % ENCODED]))
        cropped = _cropped(picture, self.size, torch.rand(4).tolist())
        values = torch.frombuffer(bytearray(cropped.tobytes()), dtype=torch.uint8)
        pixels = values.view(self.size, self.size, -1).permute(2, 0, 1).float()
        return pixels.div_(255).sub_(CENTRE).div_(SPREAD).contiguous(), index % self.classes


def _cropped(picture: Image.Image, size: int, draws: Sequence[float]) -> Image.Image:
    """A random square of the picture in this size, every other time mirrored."""
    share, across, down, mirrored = draws
    side = min(picture.size) * math.sqrt(LEAST + (1 - LEAST) * share)
    left, top = across * (picture.width - side), down * (picture.height - side)
    square = (left, top, left + side, top + side)
    cropped = picture.resize((size, size), Image.Resampling.BILINEAR, box=square)
    return cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored < 0.5 else cropped


def _encoded(mode: str, channels: int, height: int, width: int) -> bytes:
    smooth = functional.interpolate(torch.rand(1, channels, *COARSE), size=(height, width), mode="bicubic")[0]
    pixels = ((smooth + GRAIN * torch.randn_like(smooth)).clamp(0, 1) * 255).to(torch.uint8)
    picture = Image.frombytes(mode, (width, height), pixels.permute(1, 2, 0).contiguous().numpy().tobytes())
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()

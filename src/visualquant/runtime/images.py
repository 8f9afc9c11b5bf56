"""Folders of images as samples (with the extra `images`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError, UsageError

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})


@dataclasses.dataclass(frozen=True, slots=True)
class ImageOptions:
    """Preprocessing of images, stated in the report.

    Attributes:
        size: (height, width); None keeps the images' own, which must then be equal.
        mean, std: a channel, on pixels in [0, 1]; x = (pixel − mean) / std.
        channel_order: of the result.
        layout: of the result.
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channel_order: Literal["rgb", "bgr", "gray"] = "rgb"
    layout: Literal["nchw", "nhwc"] = "nchw"

    def describe(self) -> str:
        """One line for the report."""
        size = "own size" if self.size is None else f"{self.size[0]}x{self.size[1]}"
        mean, std = (", ".join(f"{x:g}" for x in v) for v in (self.mean, self.std))
        return f"{size}, [0, 1], mean {mean}, std {std}, {self.channel_order}, {self.layout}"


def read_images(paths: Sequence[Path], options: ImageOptions) -> npt.NDArray[np.float32]:
    """All images as float32 [N, C, H, W] (or [N, H, W, C]).

    Raises:
        UsageError: Pillow is not installed, or mean and std do not fit the channels.
        InputError: an image can't be read, or sizes differ and no size was given.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UsageError("Images need Pillow: pip install 'visualquant[images]'.") from error
    channels = 1 if options.channel_order == "gray" else 3
    for option, numbers in (("--mean", options.mean), ("--std", options.std)):
        if len(numbers) not in (1, channels):
            raise UsageError(f"{option} has {len(numbers)} numbers; the images have {channels} channels.")
    if 0 in options.std:
        raise UsageError("--std must not be 0: pixels are divided by it.")
    rows: list[npt.NDArray[Any]] = []
    for path in paths:
        try:
            with Image.open(path) as image:
                picture = image.convert("L" if options.channel_order == "gray" else "RGB")
                if options.size is not None:
                    picture = picture.resize((options.size[1], options.size[0]), Image.Resampling.BILINEAR)
                pixels = np.asarray(picture, np.float32) / 255
        except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise InputError(f"The image {path.name!r} can't be read: {error}.") from error
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if options.channel_order == "bgr":
            pixels = pixels[..., ::-1]
        rows.append((pixels - np.array(options.mean, np.float32)) / np.array(options.std, np.float32))
    if len({r.shape for r in rows}) > 1:
        raise InputError("The images have different sizes: give --image-size HEIGHTxWIDTH.")
    stacked = np.stack(rows).astype(np.float32)
    return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2)) if options.layout == "nchw" else stacked

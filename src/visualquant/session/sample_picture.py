"""One sample of the user's data as a picture, where it is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError
from visualquant.runtime.samples import read_samples

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions

LARGEST = 4096


def sample_picture(data: DataOptions | str, inputs: Sequence[str], sample: int) -> npt.NDArray[np.float32]:
    """The first input of a sample that looks like a picture, scaled from its smallest to its largest value.

    Args:
        data: what was compared on; a path, or options.
        inputs: names of the model's inputs.
        sample: its index.

    Returns:
        float32 [H, W, 3] in 0..1.

    Raises:
        InputError: the data can't be read, or no input of the sample is a picture.
    """
    path, images = (data, None) if isinstance(data, str) else (data.data, data.images)
    if path == "random":
        raise InputError("Random samples are not kept, so there is no picture of one.")
    file = read_samples(Path(path), images)
    for name in inputs:
        array = file.validation(name)
        if array is not None and sample < len(array):
            found = as_picture(np.asarray(array[sample]))
            if found is not None:
                return found
    raise InputError(f"Sample {sample} has no input that is a picture (height × width, with one or three channels).")


def as_picture(array: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """float32 [H, W, 3] in 0..1 of [H, W], [1 or 3, H, W] or [H, W, 1 or 3]; None for other shapes."""
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim == 3 and array.shape[0] in (1, 3):
        array = np.moveaxis(array, 0, -1)
    if array.ndim != 3 or array.shape[2] not in (1, 3) or min(array.shape[:2]) < 2 or max(array.shape[:2]) > LARGEST:
        return None
    values = array.astype(np.float64)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    scaled = np.nan_to_num((values - low) / ((high - low) or 1.0), nan=0.0, posinf=1.0, neginf=0.0)
    return np.broadcast_to(np.clip(scaled, 0, 1), (*array.shape[:2], 3)).astype(np.float32)

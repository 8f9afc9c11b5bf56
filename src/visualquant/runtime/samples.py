"""Sample files: what they hold, and which array belongs to which input."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError, UsageError
from visualquant.runtime.images import IMAGE_SUFFIXES, ImageOptions, read_images

Array = npt.NDArray[Any]
RANDOM = "random"
LABELS = ("val_label", "label")
_NPY, _ZIP = b"\x93NUMPY", b"PK"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SampleFile:
    """The arrays of a sample file.

    Attributes:
        name: of the file or folder, without folders above it.
        arrays: by key; the key "" holds the only array of a .npy file or of a folder of samples.
        preprocessing: what was done to images, for the report.
        is_random: made up, not measured.
    """

    name: str
    arrays: Mapping[str, Array]
    preprocessing: str = ""
    is_random: bool = False

    def labels(self, inputs: Sequence[str]) -> Array | None:
        """Labels of the validation samples; a key that is the name of an input is no label."""
        for key in LABELS:
            if key in self.arrays and key not in inputs:
                return self.arrays[key]
        return None

    def groups(self) -> dict[str, Array]:
        """Conditions (light, speaker, ...) of the validation samples by name."""
        found = {}
        for key, array in self.arrays.items():
            name = key.removeprefix("val_")
            if name.startswith("group_"):
                found[name.removeprefix("group_")] = array
        return found

    def validation(self, name: str, *, only: bool = False) -> Array | None:
        """The validation samples of an input; of the only one they need no key."""
        for key in (f"val_{name}", name):
            if key in self.arrays:
                return self.arrays[key]
        return self.arrays.get("") if only else None

    def calibration(self, name: str) -> Array | None:
        """The calibration samples of an input."""
        return self.arrays.get(f"calib_{name}")


def read_samples(path: Path | str, images: ImageOptions | None = None) -> SampleFile:
    """The samples of an .npz, a .npy, a folder of .npy, or a folder of images.

    Raises:
        InputError: nothing readable is there; the message says what was expected.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path, images or ImageOptions())
    return SampleFile(path.name, _arrays(path))


def _arrays(path: Path) -> dict[str, Array]:
    """What a .npy or .npz holds, told apart by its first bytes."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(_NPY))
            stream.seek(0)
            if start == _NPY:
                return {"": np.load(path, allow_pickle=False, mmap_mode="r")}
            if start.startswith(_ZIP):
                with np.load(stream, allow_pickle=False) as archive:
                    found = {key: archive[key] for key in archive.files}
                arrays = {key: value for key, value in found.items() if isinstance(value, np.ndarray)}
                if arrays:
                    return arrays
        reason = "it is empty" if not start else "it holds no arrays of numpy"
    except FileNotFoundError as error:
        raise InputError(f"The sample file {str(path)!r} does not exist.") from error
    except Exception as error:  # NOTE: on damaged files numpy lets out whatever its parsers of headers and zips raise
        reason = str(error) or type(error).__name__
    raise InputError(
        f"{path.name!r} is no readable sample file ({reason}). Give an .npz with a key for each input, a .npy, a "
        "folder of .npy, or a folder of images."
    )


def _folder(path: Path, images: ImageOptions) -> SampleFile:
    files = sorted(p for p in path.iterdir() if p.is_file())
    arrays = [p for p in files if p.suffix == ".npy"]
    if arrays:
        loaded = {p.stem: a for p in arrays for a in _arrays(p).values()}
        shapes = {a.shape for a in loaded.values()}
        if len(loaded) > 1 and len(shapes) == 1 and not any(k.startswith(("val_", "calib_")) for k in loaded):
            return SampleFile(path.name, {"": np.stack(list(loaded.values())), **loaded})
        return SampleFile(path.name, loaded if len(loaded) > 1 else {"": next(iter(loaded.values())), **loaded})
    pictures = [p for p in files if p.suffix.lower() in IMAGE_SUFFIXES]
    if pictures:
        return SampleFile(path.name, {"": read_images(pictures, images)}, preprocessing=images.describe())
    raise InputError(f"The folder {path.name!r} holds neither .npy files nor images.")


def random_samples(
    shapes: Mapping[str, tuple[Sequence[int | str | None], np.dtype[Any]]], count: int = 8
) -> SampleFile:
    """Made-up samples: normal noise, or small integers.

    `count` of them along the first symbolic axis (the first axis where none is symbolic); other symbolic sizes are 16.
    """
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    for name, (shape, dtype) in shapes.items():
        sizes = [n if isinstance(n, int) and n > 0 else 16 for n in shape]
        if shape:
            symbolic = [k for k, n in enumerate(shape) if not isinstance(n, int) or n <= 0]
            sizes[symbolic[0] if symbolic else 0] = count
        made = rng.normal(size=sizes) if dtype.kind == "f" else rng.integers(0, 2, size=sizes)
        arrays[name] = made.astype(dtype)
    return SampleFile(RANDOM, arrays, is_random=True)


def digests(array: Array) -> list[str]:
    """A digest of each sample (first axis): calibration and validation are compared by samples, not by files."""
    return [hashlib.sha256(np.ascontiguousarray(sample).tobytes()).hexdigest()[:24] for sample in array]


def parse_pairs(options: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE options as a dictionary.

    Raises:
        UsageError: one has no `=`.
    """
    found = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} wants NAME=VALUE, not {text!r}.")
        found[name] = value
    return found

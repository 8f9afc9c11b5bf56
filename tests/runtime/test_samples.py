"""Sample files: what is read from which form, and a sentence for what can't be read."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visualquant.errors import InputError, UsageError
from visualquant.runtime.images import ImageOptions
from visualquant.runtime.samples import SampleFile, digests, parse_pairs, random_samples, read_samples

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_npz_keys(tmp_path: Path) -> None:
    keys = {"val_x": A, "calib_x": A + 1, "y": A + 2, "val_label": np.int64([1, 0]), "val_group_light": ["a", "b"]}
    np.savez(tmp_path / "d.npz", **keys, group_speaker=np.int64([7, 8]))
    file = read_samples(tmp_path / "d.npz")
    assert file.name == "d.npz" and not file.is_random
    np.testing.assert_array_equal(file.validation("x"), A)
    np.testing.assert_array_equal(file.calibration("x"), A + 1)
    np.testing.assert_array_equal(file.validation("y"), A + 2)
    assert file.validation("z") is None and file.calibration("y") is None
    assert file.labels(["x"]).tolist() == [1, 0]
    assert {k: v.tolist() for k, v in file.groups().items()} == {"light": ["a", "b"], "speaker": [7, 8]}


def test_validation_key_goes_before_the_plain_one() -> None:
    file = SampleFile("d", {"x": A, "val_x": A + 1, "label": np.int64([1, 1]), "val_label": np.int64([0, 0])})
    np.testing.assert_array_equal(file.validation("x"), A + 1)
    assert file.labels(["x"]).tolist() == [0, 0]


def test_an_input_named_label_is_no_label() -> None:
    file = SampleFile("d", {"label": A})
    assert file.labels(["label"]) is None and file.labels(["x"]) is A


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", A)
    np.testing.assert_array_equal(read_samples(tmp_path / "d.npy").arrays[""], A)


def test_folder_of_samples_is_stacked_in_order_of_names(tmp_path: Path) -> None:
    for k in (2, 0, 1):
        np.save(tmp_path / f"s{k}.npy", A + k)
    np.testing.assert_array_equal(read_samples(tmp_path).arrays[""], np.stack([A, A + 1, A + 2]))


def test_folder_of_keys(tmp_path: Path) -> None:
    np.save(tmp_path / "val_x.npy", A)
    np.save(tmp_path / "val_y.npy", A)
    file = read_samples(tmp_path)
    assert set(file.arrays) == {"val_x", "val_y"}


def test_folder_with_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", A)
    file = read_samples(tmp_path)
    np.testing.assert_array_equal(file.arrays[""], A)
    np.testing.assert_array_equal(file.validation("x"), A)


def _pictures(folder: Path) -> np.ndarray:
    pixels = np.random.default_rng(3).integers(0, 256, size=(2, 4, 6, 3), dtype=np.uint8)
    for k, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / f"{k}.png")
    return pixels


def test_images(tmp_path: Path) -> None:
    pixels = _pictures(tmp_path)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    want = (pixels.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std)
    file = read_samples(tmp_path, ImageOptions(mean=mean, std=std))
    np.testing.assert_allclose(file.arrays[""], want.transpose(0, 3, 1, 2), rtol=1e-6, atol=1e-6)
    assert file.preprocessing == "own size, [0, 1], mean 0.5, 0.4, 0.3, std 0.2, 0.25, 0.5, rgb, nchw"
    other = read_samples(tmp_path, ImageOptions(channel_order="bgr", layout="nhwc"))
    np.testing.assert_allclose(other.arrays[""], pixels[..., ::-1].astype(np.float32) / 255, rtol=1e-6)
    gray = read_samples(tmp_path, ImageOptions(channel_order="gray", size=(8, 5)))
    assert gray.arrays[""].shape == (2, 1, 8, 5) and gray.preprocessing.startswith("8x5,")


@pytest.mark.parametrize("given", [{"mean": (0.1, 0.2)}, {"std": (1.0, 0.0, 1.0)}, {"std": (1.0, 1.0)}])
def test_image_options_that_do_not_fit(given: dict[str, tuple[float, ...]], tmp_path: Path) -> None:
    _pictures(tmp_path)
    with pytest.raises(UsageError, match=r"--mean|--std"):
        read_samples(tmp_path, ImageOptions(**given))


def test_images_of_different_size(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    Image.new("RGB", (5, 4)).save(tmp_path / "b.png")
    with pytest.raises(InputError, match="--image-size"):
        read_samples(tmp_path)
    assert read_samples(tmp_path, ImageOptions(size=(3, 3))).arrays[""].shape == (2, 3, 3, 3)


def _write(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def _cut(name: str, share: float) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        if name.endswith(".npz"):
            np.savez(path, x=np.random.default_rng(0).normal(size=4000))
        else:
            np.save(path, np.random.default_rng(0).normal(size=4000))
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        return path

    return make


def _flipped(folder: Path) -> Path:
    path = folder / "f.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=4000))
    data = bytearray(path.read_bytes())
    data[2000:2100] = bytes(100)
    path.write_bytes(data)
    return path


def _other_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "z.npz", "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return folder / "z.npz"


def _objects(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        ragged = np.array([{"a": 1}, None], dtype=object)
        if name.endswith(".npz"):
            np.savez(path, x=ragged)
        else:
            np.save(path, ragged)
        return path

    return make


def _folder(make: Callable[[Path], Path] | None) -> Callable[[Path], Path]:
    def inside(folder: Path) -> Path:
        if make is not None:
            make(folder)
        return folder

    return inside


DAMAGED: dict[str, Callable[[Path], Path]] = {
    "missing": lambda folder: folder / "nowhere.npz",
    "missing npy": lambda folder: folder / "nowhere.npy",
    "empty npz": _write("e.npz", b""),
    "empty npy": _write("e.npy", b""),
    "text": _write("t.npz", b"1,2,3\n4,5,6\n"),
    "npy is npz": _write("t.npy", b"PK\x03\x04" + bytes(60)),
    "npz is npy": _write("t.npz", b"\x93NUMPY\x01\x00v\x00"),
    "text of another name": _write("t.csv", b"1,2,3\n"),
    "cut npz": _cut("c.npz", 0.5),
    "cut npy": _cut("c.npy", 0.5),
    "cut npy head": _cut("c.npy", 0.001),
    "flipped bytes": _flipped,
    "other zip": _other_zip,
    "objects npz": _objects("o.npz"),
    "objects npy": _objects("o.npy"),
    "empty folder": _folder(None),
    "folder of text": _folder(_write("a.txt", b"hello")),
    "folder with a damaged npy": _folder(_write("a.npy", b"\x93NUMPY")),
    "folder with an empty npy": _folder(_write("a.npy", b"")),
    "folder with a cut npy": _folder(_cut("a.npy", 0.5)),
    "folder with a damaged image": _folder(_write("a.png", b"\x89PNG\r\n\x1a\n" + bytes(40))),
    "folder with an empty image": _folder(_write("a.jpg", b"")),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_read(name: str, tmp_path: Path) -> None:
    path = DAMAGED[name](tmp_path)
    with pytest.raises(InputError) as caught:
        read_samples(path)
    assert (path.name in str(caught.value) or "a." in str(caught.value)) and len(str(caught.value)) > 30


@pytest.mark.parametrize("name", ["d.npz", "d.npy"])
def test_any_changed_byte_is_read_or_refused(name: str, tmp_path: Path) -> None:
    path, rng = tmp_path / name, np.random.default_rng(11)
    if name == "d.npz":
        np.savez_compressed(path, x=A, y=A)
    else:
        np.save(path, A)
    sound = path.read_bytes()
    for _ in range(150):
        data = bytearray(sound)
        data[rng.integers(len(data))] = rng.integers(256)
        bad = tmp_path / f"bad{path.suffix}"
        bad.write_bytes(data)
        with contextlib.suppress(InputError):
            assert read_samples(bad).arrays


def test_an_npz_that_holds_a_plain_array(tmp_path: Path) -> None:
    """numpy reads a .npy under any name: taken as the .npy that it is."""
    np.save(tmp_path / "d.npy", A)
    path = (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    np.testing.assert_array_equal(read_samples(path).arrays[""], A)


def test_a_single_image(tmp_path: Path) -> None:
    _pictures(tmp_path)
    with pytest.raises(InputError, match="folder of images"):
        read_samples(tmp_path / "0.png")


def test_random_samples_are_marked_and_repeat() -> None:
    shapes = {
        "x": (["batch", 3, "length"], np.dtype(np.float32)),
        "ids": ([1, 5], np.dtype(np.int64)),
        "flag": ([2], np.dtype(np.bool_)),
        "state": ([2, None, 8], np.dtype(np.float32)),
    }
    one, two = random_samples(shapes, count=4), random_samples(shapes, count=4)
    assert one.is_random and one.name == "random"
    assert one.arrays["x"].shape == (4, 3, 16) and one.arrays["x"].dtype == np.float32
    assert one.arrays["ids"].dtype == np.int64 and one.arrays["ids"].shape == (4, 5)
    assert one.arrays["flag"].dtype == np.bool_
    assert one.arrays["state"].shape == (2, 4, 8), "samples stand on the symbolic axis"
    for name in shapes:
        np.testing.assert_array_equal(one.arrays[name], two.arrays[name])


def test_digests_tell_samples_not_files() -> None:
    more = np.concatenate([A[1:], A[:1] + 5])
    assert len(set(digests(A))) == 2 and digests(A)[1] == digests(more)[0] and digests(A)[0] not in digests(more)
    assert digests(A) == digests(np.asfortranarray(A))


def test_pairs() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1", ""):
        with pytest.raises(UsageError, match="--set wants NAME=VALUE"):
            parse_pairs([text], "--set")

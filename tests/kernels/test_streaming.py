"""Any chunking, any number of threads and any place of the data give the same bits."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.samples import make_case
from tests.reference import naive
from visualquant.core.quant import QuantParams
from visualquant.core.stats import WeightStats
from visualquant.core.tensors import ELEMENT_TYPES, FileSource, TensorRef
from visualquant.errors import CancelledError
from visualquant.kernels import MeasureOptions, measure, what_if
from visualquant.kernels.tasks import file_region

EVERYTHING = MeasureOptions(channel_axis=0, histogram_bins=128, channel_histograms=True, quantiles=(0.01, 0.5, 0.999))


def same(a: object, b: object, where: str = "") -> None:
    """Equal, bit for bit."""
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape, where
        assert a.tobytes() == b.tobytes(), where
    elif isinstance(a, tuple):
        assert isinstance(b, tuple) and len(a) == len(b), where
        for k, (left, right) in enumerate(zip(a, b, strict=True)):
            same(left, right, f"{where}[{k}]")
    else:
        assert a == b or (a != a and b != b), where


CASES = [
    ("int8", "per_channel", 0, 0, (60, 1501)),
    ("int8", "per_tensor", 0, 1, (1501, 60)),
    ("uint8", "per_channel", 1, 1, (700, 130)),
    ("int4", "blocked", 1, 0, (50, 2080)),
    ("uint4", "blocked", 0, 1, (2112, 50)),
    ("int8", "per_channel", 1, 0, (300, 300)),
    ("int16", "per_channel", 0, 0, (40, 2000)),
    ("float8e4m3fn", "per_tensor", 0, 0, (40, 2000)),
    ("int8", "per_tensor", 0, None, (3, 70_000)),
]


@pytest.mark.parametrize(("code_type", "granularity", "axis", "channel", "shape"), CASES)
def test_chunks_and_threads(code_type, granularity, axis, channel, shape) -> None:
    x, codes, params = make_case(shape, code_type, granularity, axis=axis)
    x[1, 3] = np.nan
    reference = TensorRef.of(codes, params.code_type)
    options = dataclasses.replace(EVERYTHING, channel_axis=channel, channel_histograms=channel is not None)
    whole = measure(x, reference, params, options)
    for threads, chunk in ((1, 1), (2, 100_000), (3, 300_000), (2, 1)):
        other = measure(x, reference, params, dataclasses.replace(options, threads=threads, chunk_bytes=chunk))
        same(whole, other)
    want = naive.weight_metrics(x, codes, params, channel)
    assert whole.metrics()["sqnr_db"] == pytest.approx(want["sqnr_db"], abs=1e-4)
    assert whole.metrics()["outliers"] == want["outliers"]
    assert whole.metrics()["cosine"] == pytest.approx(want["cosine"], abs=1e-9)


@pytest.fixture(scope="module")
def case() -> tuple[np.ndarray, np.ndarray, QuantParams, WeightStats]:
    x, codes, params = make_case((96, 1030), "int4", "per_channel", axis=0)
    return x, codes, params, measure(x, TensorRef.of(codes), params, EVERYTHING)


def test_file_maps(case, tmp_path: Path) -> None:
    x, codes, params, want = case
    path = tmp_path / "weights.bin"
    packed = TensorRef.of(codes).raw()
    for shift in (0, 1, 64):
        path.write_bytes(b"\0" * shift + x.tobytes() + packed.tobytes())
        floats = TensorRef(ELEMENT_TYPES["float32"], x.shape, FileSource(path, shift, x.nbytes))
        stored = TensorRef(ELEMENT_TYPES["int4"], x.shape, FileSource(path, shift + x.nbytes, packed.size))
        same(measure(floats, stored, params, dataclasses.replace(EVERYTHING, threads=2, chunk_bytes=200_000)), want)
    view = np.memmap(path, np.float32, "r", 64, x.shape)
    assert file_region(view) is not None
    same(measure(view, stored, params, EVERYTHING), want)


def test_private_memory_is_never_dropped(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(1 << 16))
    private = np.memmap(path, np.float32, "c", 0, (128, 128))
    private[:] = 3
    frozen = private.view()
    frozen.flags.writeable = False
    for array in (private, frozen, private.T, np.ones((128, 128), np.float32)):
        assert file_region(array) is None
    measure(frozen, None, None, MeasureOptions(channel_axis=0))
    assert (private == 3).all()


def test_layouts(case) -> None:
    x, codes, params, want = case

    class Source:
        shape = x.shape

        def read(self, start: int, stop: int) -> np.ndarray:
            return x.reshape(-1)[start:stop]

    wide = np.zeros((192, 2060), np.float32)
    wide[::2, ::2] = x
    views = {
        "transposed": np.asfortranarray(x),
        "strided": wide[::2, ::2],
        "backwards": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "source": Source(),
    }
    for name, view in views.items():
        same(measure(view, TensorRef.of(codes), params, EVERYTHING), want, name)
    same(measure(x, np.asfortranarray(codes), params, EVERYTHING), want)


def test_transposed_operands(case) -> None:
    """Codes stored [K, N] with channels along N, and the float side a transposed view of [N, K]."""
    x, codes, params, want = case
    turned = QuantParams(params.code_type, params.scale, params.zero_point, 1, None, params.qmin, params.qmax)
    stats = measure(
        x.T, TensorRef.of(np.ascontiguousarray(codes.T)), turned, dataclasses.replace(EVERYTHING, channel_axis=1)
    )
    assert stats.metrics() == pytest.approx(want.metrics(), rel=1e-6)
    np.testing.assert_allclose(stats.channel_sqnr_db, want.channel_sqnr_db, atol=1e-5)


def test_progress_and_cancel(case) -> None:
    x, codes, params, want = case
    seen: list[tuple[int, int]] = []
    options = dataclasses.replace(
        EVERYTHING, chunk_bytes=40_000, progress=lambda done, total: seen.append((done, total))
    )
    same(measure(x, TensorRef.of(codes), params, options), want)
    assert len(seen) > 3
    assert seen[-1][0] == seen[-1][1] == x.size * (2 * 36 + 2 * 32) // 8
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    stop = threading.Event()
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        stop.set()

    for threads in (1, 2):
        stop.clear()
        calls = 0
        with pytest.raises(CancelledError):
            options = MeasureOptions(threads=threads, chunk_bytes=40_000, cancel=stop.is_set, progress=progress)
            measure(x, TensorRef.of(codes), params, options)
        assert calls <= 2
        with pytest.raises(CancelledError):
            what_if(x, channel_axis=0, cancel=stop.is_set, threads=threads)


def test_what_if_does_not_depend_on_threads() -> None:
    x = np.random.default_rng(5).standard_t(4, (600, 2000)).astype(np.float32)
    want = what_if(x, channel_axis=0)
    same(what_if(x, channel_axis=0, threads=3), want)
    same(what_if(np.asfortranarray(x), channel_axis=0, threads=2), want)

"""What `visualquant bench` and `make bench` measure, as rows of a table."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES, TensorRef
from visualquant.errors import CancelledError
from visualquant.kernels.api import MeasureOptions, measure
from visualquant.testing.bench import rivals
from visualquant.testing.bench.rounds import Timing, alternate, ratio

BLOCK = 32
_WARM_BYTES = 64_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: in words.
        value: the figure, with its unit.
        target: what it should be, or "".
        met: whether it is; None without a target.
    """

    what: str
    value: str
    target: str = ""
    met: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A weight with int8 codes a channel and with int4 codes in blocks of 32."""

    x: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    int8: QuantParams
    packed: TensorRef
    int4: QuantParams

    @staticmethod
    def make(rows: int, columns: int, seed: int = 0) -> Sample:
        """Normal weights [rows, columns]."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((rows, columns), dtype=np.float32)
        scale = (np.abs(x).max(axis=1) / 127).astype(np.float32)
        codes = np.rint(x / scale[:, None]).astype(np.int8)
        blocks = x.reshape(rows, columns // BLOCK, BLOCK)
        small = (np.abs(blocks).max(axis=2) / 7).astype(np.float32)
        four = np.rint(blocks / small[:, :, None]).astype(np.int8).reshape(rows, columns)
        int8 = QuantParams(ELEMENT_TYPES["int8"], scale.astype(np.float64), axis=0, qmin=-128, qmax=127)
        int4 = QuantParams(ELEMENT_TYPES["int4"], small.astype(np.float64), axis=1, block_size=BLOCK, qmin=-8, qmax=7)
        packed = TensorRef.of(four.astype(ELEMENT_TYPES["int4"].numpy))
        return Sample(x, codes, scale, int8, packed, int4)


def _statistics(threads: int = 1, **more: Any) -> MeasureOptions:
    return MeasureOptions(channel_axis=0, outliers=False, code_counts=False, threads=threads, **more)


def kernel_rows(sample: Sample, rounds: int) -> Iterator[Row]:
    """Speed against a pure read and against rivals, one thread, in turns."""
    x, codes = sample.x, sample.codes
    histograms = _statistics(histogram_bins=rivals.BINS, error_histogram=False)
    two_histograms = dataclasses.replace(histograms, threads=2)
    pool = ThreadPoolExecutor(2)
    low, high = float(x.min()), float(np.nextafter(x.max(), np.float32(np.inf)))
    contenders: dict[str, Callable[[], Any]] = {
        "read": lambda: rivals.pure_read(x, codes),
        "read x": lambda: rivals.pure_read(x),
        "ours": lambda: measure(x, codes, sample.int8, _statistics()),
        "ours two threads": lambda: measure(x, codes, sample.int8, _statistics(2)),
        "ours histograms": lambda: measure(x, codes, sample.int8, histograms),
        "ours histograms two threads": lambda: measure(x, codes, sample.int8, two_histograms),
        "read two threads": lambda: list(pool.map(rivals.pure_read, (x[: len(x) // 2], x[len(x) // 2 :]))),
        "ours blocked": lambda: measure(x, sample.packed, sample.int4, _statistics()),
        "numpy": lambda: rivals.numpy_statistics(x, codes, sample.scale),
        "numpy histograms": lambda: (
            rivals.numpy_statistics(x, codes, sample.scale),
            rivals.numpy_histograms(x, codes, sample.scale, low, high),
        ),
    }
    for name, rival in (
        ("C", rivals.c_statistics(x, codes, sample.scale)),
        ("torch", rivals.torch_statistics(x, codes, sample.scale, 1)),
        ("boost histograms", rivals.boost_histograms(x, codes, sample.scale, low, high)),
    ):
        if rival is not None:
            contenders[name] = rival
    found = alternate(contenders, rounds)
    size = (x.nbytes + codes.nbytes) / 1e9
    yield Row(
        f"pure read of {size * 1e3:.0f} MB (float32 {list(x.shape)} and int8 codes)",
        f"{size / found['read'].median:.1f} GB/s ±{found['read'].spread:.0%}",
    )
    yield _share("statistics a channel, int8 codes", found, "read", "ours", 0.6)
    yield _share("the same with two histograms of 2,048 bins", found, "read", "ours histograms", 0.25)
    yield _share("statistics, int4 in blocks of 32 (read: float side)", found, "read x", "ours blocked", 0.4)
    yield _times("against C (cc -O3 -march=native)", found, "ours", "C", 1.0)
    yield _times("against plain numpy", found, "ours", "numpy", 8.0)
    yield _times("against plain numpy, with histograms", found, "ours histograms", "numpy histograms", 12.0)
    yield _times("against torch on one thread", found, "ours", "torch", 10.0)
    yield _times("boost-histogram alone, to ours with statistics", found, "ours histograms", "boost histograms", None)
    reads, _ = ratio(found["read two threads"], found["read x"])
    for what, name in (("statistics", "ours"), ("with histograms", "ours histograms")):
        row = _times(f"two threads over one, {what}", found, f"{name} two threads", name, 1.7)
        yield dataclasses.replace(row, what=f"{row.what} (a pure read gains {reads:.1f})")


def debugger_row(rounds: int) -> Iterator[Row]:
    """ONNX Runtime's debugger at 4,096 channels; a small tensor, since its time grows with their square."""
    sample = Sample.make(4096, 1024)
    rival = rivals.ort_debugger(sample.x, sample.codes, sample.scale)
    if rival is None:
        return
    options = _statistics()
    ours = {"ours": lambda: measure(sample.x, sample.codes, sample.int8, options), "ort": rival}
    yield _times(
        "against ONNX Runtime's debugger path, 4,096 channels", alternate(ours, rounds, 30), "ours", "ort", 100.0
    )


def memory_row() -> Row:
    """Most extra memory of one measurement, all figures wanted."""
    sample = Sample.make(2048, 11008)
    options = MeasureOptions(channel_axis=0, histogram_bins=256, quantiles=(0.01, 0.99), threads=2)
    measure(sample.x, sample.codes, sample.int8, options)
    tracemalloc.start()
    measure(sample.x, sample.codes, sample.int8, options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Row("peak extra memory, every figure, two threads", f"{peak / 1e6:.0f} MB", "at most 64 MB", peak <= 64e6)


def cancel_row() -> Row:
    """How long a running measurement takes to stop."""
    sample = Sample.make(4096, 11008)
    stop, waits = threading.Event(), []

    def work() -> None:
        options = MeasureOptions(channel_axis=0, histogram_bins=256, quantiles=(0.5,), cancel=stop.is_set)
        try:
            for _ in range(100):
                measure(sample.x, sample.codes, sample.int8, options)
        except CancelledError:
            waits.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    start = time.perf_counter()
    stop.set()
    thread.join()
    seconds = waits[0] - start if waits else float("inf")
    return Row("cancel returns", f"{seconds * 1e3:.1f} ms", "within 300 ms", seconds <= 0.3)


_FIRST_KERNEL = """
import time, numba, numpy as np
from visualquant.kernels import MeasureOptions, measure
x = np.ones((512, 512), np.float32)
start = time.perf_counter()
measure(x, x.astype(np.float16), None, MeasureOptions(channel_axis=0, outliers=False))
print(time.perf_counter() - start)
"""


def start_rows() -> Iterator[Row]:
    """The first kernel of a fresh process, compiled and cached, beyond importing numba."""
    with tempfile.TemporaryDirectory() as folder:
        for name, target in (("cold: compiling", None), ("warm: from the cache", 0.5)):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST_KERNEL],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
            seconds = float(done.stdout)
            met = None if target is None else seconds <= target
            yield Row(f"first kernel, {name}", f"{seconds:.2f} s", "" if target is None else f"at most {target} s", met)


def compare_rows(folder: Path, size_bytes: int, progress: Callable[[int, int], None] | None = None) -> Iterator[Row]:
    """`visualquant compare` of a generated model against reading its files, cold where the system lets us."""
    from visualquant.testing.bench.large import write_large

    with tempfile.TemporaryDirectory() as small:  # compiles what the runs need
        warm = write_large(Path(small), min(size_bytes, _WARM_BYTES))
        for quant in (warm["int8"], warm["int4"]):
            _compared(warm["float"], quant)
    made = write_large(folder, size_bytes, progress=progress)
    for quant in (made["int8"], made["int4"]):
        files = [model.with_suffix(".data") for model in (made["float"], quant)]
        _forget(files)
        count, seconds = _read(files)
        _forget(files)
        start = time.perf_counter()
        resident = _compared(made["float"], quant)
        took = time.perf_counter() - start
        rate = count / took / 1e9
        limit = min(count / seconds / 1e9, 2.0)
        what = f"compare {count / 1e9:.1f} GB, {quant.stem}"
        yield Row(
            f"{what}: rate (files read at {count / seconds / 1e9:.2f} GB/s)",
            f"{rate:.2f} GB/s",
            f"at least {limit / 2:.2f} GB/s",
            rate >= limit / 2,
        )
        yield Row(f"{what}: resident memory", f"{resident:.0f} MB", "at most 1,000 MB", resident <= 1000)


# NOTE: the peak of the process itself; what getrusage says starts at the peak of whoever started it
_COMPARE = """
import resource, sys, visualquant
visualquant.compare(sys.argv[1], sys.argv[2], threads=2)
try:
    with open("/proc/self/status") as status:
        print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)
except (OSError, StopIteration):
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _compared(float_model: Path, quant_model: Path) -> float:
    """Compares in a process of its own; its most resident memory in MB."""
    command = [sys.executable, "-c", _COMPARE, str(float_model), str(quant_model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _forget(files: list[Path]) -> None:
    """Asks the system to drop its copies of files."""
    if hasattr(os, "posix_fadvise"):
        for path in files:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(files: list[Path]) -> tuple[int, float]:
    """Bytes and seconds of reading files from end to end."""
    buffer, count, start = bytearray(16 << 20), 0, time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while n := file.readinto(buffer):
                count += n
    return count, time.perf_counter() - start


def _share(what: str, found: dict[str, Timing], base: str, name: str, target: float) -> Row:
    times, spread = ratio(found[base], found[name])
    share = 1 / times
    return Row(what, f"{share:.0%} of a pure read ±{spread:.0%}", f"at least {target:.0%}", share >= target)


def _times(what: str, found: dict[str, Timing], ours: str, other: str, target: float | None) -> Row:
    if other not in found:
        return Row(what, "not installed")
    times, spread = ratio(found[ours], found[other])
    if target is None:
        return Row(what, f"{times:.1f} times as long ±{spread:.0%}")
    return Row(what, f"{times:.1f} times ±{spread:.0%}", f"at least {target:g}", times >= target)

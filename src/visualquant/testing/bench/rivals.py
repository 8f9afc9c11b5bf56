"""The same figures by other means: numpy, torch, ONNX Runtime's debugger, boost-histogram, and C."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
BINS = 2048


def pure_read(*arrays: npt.NDArray[Any]) -> float:
    """Reads every byte once: sums of the arrays, as numpy does them (integers eight bytes at a time)."""
    total = 0.0
    for array in arrays:
        flat = array.reshape(-1)
        if flat.dtype != np.float32:
            flat = flat.view(np.uint8)
            flat = flat[: flat.size // 8 * 8].view(np.int64)
        total += float(flat.sum())
    return total


def numpy_statistics(x: F32, codes: I8, scale: F32) -> tuple[npt.NDArray[Any], ...]:
    """Per-channel statistics, written plainly."""
    y = codes.astype(np.float32) * scale[:, None]
    e = x - y
    low, high = codes.min(axis=1), codes.max(axis=1)
    half = scale * np.float32(0.5005)
    size = np.abs(e)
    return (
        x.min(axis=1),
        x.max(axis=1),
        (x == 0).sum(axis=1),
        np.isfinite(x).sum(axis=1),
        x.sum(axis=1),
        (x * x).sum(axis=1),
        (y * y).sum(axis=1),
        (x * y).sum(axis=1),
        e.sum(axis=1),
        size.sum(axis=1),
        (e * e).sum(axis=1),
        size.max(axis=1),
        ((codes == low[:, None]) & (e < -half[:, None])).sum(axis=1),
        ((codes == high[:, None]) & (e > half[:, None])).sum(axis=1),
    )


def numpy_histograms(x: F32, codes: I8, scale: F32, low: float, high: float) -> tuple[npt.NDArray[Any], ...]:
    """Two histograms with shared edges."""
    y = codes.astype(np.float32) * scale[:, None]
    return np.histogram(x, BINS, (low, high))[0], np.histogram(y, BINS, (low, high))[0]


def boost_histograms(x: F32, codes: I8, scale: F32, low: float, high: float) -> Callable[[], Any] | None:
    """Two histograms by boost-histogram; None where it is not installed."""
    try:
        import boost_histogram
    except ImportError:
        return None

    def run() -> Any:
        y = codes.astype(np.float32) * scale[:, None]
        both = []
        for values in (x, y):
            histogram = boost_histogram.Histogram(boost_histogram.axis.Regular(BINS, low, high))
            histogram.fill(values.reshape(-1))
            both.append(histogram.view())
        return both

    return run


def torch_statistics(x: F32, codes: I8, scale: F32, threads: int) -> Callable[[], Any] | None:
    """The statistics on torch's CPU side; None where torch is not installed."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    a, c, s = torch.from_numpy(x), torch.from_numpy(codes), torch.from_numpy(scale)[:, None]

    def run() -> Any:
        y = c.to(torch.float32) * s
        e = a - y
        size = e.abs()
        low, high = c.amin(1, keepdim=True), c.amax(1, keepdim=True)
        return (
            a.amin(1), a.amax(1), (a == 0).sum(1), torch.isfinite(a).sum(1), a.sum(1), (a * a).sum(1), (y * y).sum(1),
            (a * y).sum(1), e.sum(1), size.sum(1), (e * e).sum(1), size.amax(1),
            ((c == low) & (e < -0.5005 * s)).sum(1), ((c == high) & (e > 0.5005 * s)).sum(1),
        )  # fmt: skip

    return run


def ort_debugger(x: F32, codes: I8, scale: F32) -> Callable[[], Any] | None:
    """ONNX Runtime's debugger path: dequantize whole, then one SNR; None where it is not installed."""
    try:
        from onnxruntime.quantization.qdq_loss_debug import (
            _run_dequantize_linear,
            compute_signal_to_quantization_noice_ratio,
        )
    except ImportError:
        return None
    zero = np.zeros(scale.shape, np.int8)

    def run() -> Any:
        y = _run_dequantize_linear(codes, scale, zero, channel_axis=0)
        return compute_signal_to_quantization_noice_ratio(x, y)

    return run


_C = r"""
#include <math.h>
#include <stdint.h>
#define LANES 16
#define TILE 1024
/* out[14]: min, max, zeros, sum, sum of squares, of x; sum, sum of sizes, of squares, largest, of the error; sum of
   squared codes; lowest and highest code; elements beyond half a step */
void statistics(const float *x, const int8_t *c, const float *scale, int64_t rows, int64_t columns, double *out) {
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * columns;
        const int8_t *cr = c + r * columns;
        const float s = scale[r], limit = s * 0.5005f;
        double sum[7] = {0};
        float low = INFINITY, high = -INFINITY, worst = 0;
        int8_t least = 127, most = -128;
        int64_t zeros = 0, beyond = 0;
        for (int64_t t = 0; t < columns; t += TILE) {
            const int64_t n = columns - t < TILE ? columns - t : TILE;
            const int64_t full = n / LANES * LANES;
            float a[7][LANES] = {{0}}, lo[LANES], hi[LANES], wo[LANES] = {0};
            int32_t ze[LANES] = {0}, be[LANES] = {0};
            int8_t le[LANES], mo[LANES];
            for (int j = 0; j < LANES; j++) { lo[j] = INFINITY; hi[j] = -INFINITY; le[j] = 127; mo[j] = -128; }
            for (int64_t i = 0; i < full; i += LANES) {
                const float *xi = xr + t + i;
                const int8_t *ci = cr + t + i;
                for (int j = 0; j < LANES; j++) {
                    const float v = xi[j], d = ci[j], e = fmaf(-d, s, v), m = fabsf(e);
                    a[0][j] += v; a[1][j] += v * v; a[2][j] += e; a[3][j] += m; a[4][j] += e * e; a[5][j] += d * d;
                    lo[j] = v < lo[j] ? v : lo[j];
                    hi[j] = v > hi[j] ? v : hi[j];
                    wo[j] = m > wo[j] ? m : wo[j];
                    le[j] = ci[j] < le[j] ? ci[j] : le[j];
                    mo[j] = ci[j] > mo[j] ? ci[j] : mo[j];
                    ze[j] += v == 0;
                    be[j] += m > limit;
                }
            }
            for (int64_t i = full; i < n; i++) {
                const float v = xr[t + i], d = cr[t + i], e = fmaf(-d, s, v), m = fabsf(e);
                a[0][0] += v; a[1][0] += v * v; a[2][0] += e; a[3][0] += m; a[4][0] += e * e; a[5][0] += d * d;
                lo[0] = v < lo[0] ? v : lo[0];
                hi[0] = v > hi[0] ? v : hi[0];
                wo[0] = m > wo[0] ? m : wo[0];
                le[0] = cr[t + i] < le[0] ? cr[t + i] : le[0];
                mo[0] = cr[t + i] > mo[0] ? cr[t + i] : mo[0];
                ze[0] += v == 0;
                be[0] += m > limit;
            }
            for (int j = 0; j < LANES; j++) {
                for (int k = 0; k < 6; k++) sum[k] += a[k][j];
                low = lo[j] < low ? lo[j] : low;
                high = hi[j] > high ? hi[j] : high;
                worst = wo[j] > worst ? wo[j] : worst;
                least = le[j] < least ? le[j] : least;
                most = mo[j] > most ? mo[j] : most;
                zeros += ze[j];
                beyond += be[j];
            }
        }
        double *o = out + r * 14;
        o[0] = low; o[1] = high; o[2] = zeros; o[3] = sum[0]; o[4] = sum[1]; o[5] = sum[2]; o[6] = sum[3];
        o[7] = sum[4]; o[8] = worst; o[9] = sum[5]; o[10] = least; o[11] = most; o[12] = beyond; o[13] = 0;
    }
}
"""


def c_statistics(x: F32, codes: I8, scale: F32) -> Callable[[], npt.NDArray[np.float64]] | None:
    """The statistics in C, compiled on the spot with -O3 -march=native; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "reference.c", Path(folder) / "reference.so"
        source.write_text(_C)
        done = subprocess.run(
            [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            return None
        function = ctypes.CDLL(str(library)).statistics
    out = np.empty((x.shape[0], 14))
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, codes, scale)]
    rows, columns = (ctypes.c_int64(n) for n in x.shape)

    def run() -> npt.NDArray[np.float64]:
        function(*pointers, rows, columns, out.ctypes.data_as(ctypes.c_void_p))
        return out

    return run

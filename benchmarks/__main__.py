"""`make bench`: speed as ratios, rivals side by side in one process."""

from __future__ import annotations

import numpy as np

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES
from visualquant.kernels.api import MeasureOptions, measure
from visualquant.testing.bench import rivals
from visualquant.testing.bench.rounds import alternate, ratio

ROUNDS = 7
SHAPE = (1024, 11008)


def main() -> None:
    """Per-channel statistics of float32 against int8 codes, one thread: ours, plain numpy, torch, C, a pure read."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=SHAPE).astype(np.float32)
    scale = (np.abs(x).max(axis=1) / 127).astype(np.float32)
    codes = np.clip(np.rint(x / scale[:, None]), -127, 127).astype(np.int8)
    params = QuantParams(ELEMENT_TYPES["int8"], scale.astype(np.float64), axis=0)
    plain = MeasureOptions(channel_axis=0, outliers=False, code_counts=False)
    full = MeasureOptions(channel_axis=0, histogram_bins=2048, error_histogram=False, outliers=False, code_counts=False)
    contenders = {
        "pure read": lambda: rivals.pure_read(x, codes),
        "visualquant, statistics": lambda: measure(x, codes, params, plain),
        "visualquant, two histograms": lambda: measure(x, codes, params, full),
        "numpy, statistics": lambda: rivals.numpy_statistics(x, codes, scale),
    }
    for name, found in (
        ("C, statistics", rivals.c_statistics(x, codes, scale)),
        ("torch, statistics", rivals.torch_statistics(x, codes, scale, 1)),
    ):
        if found is not None:
            contenders[name] = found
    timings = alternate(contenders, ROUNDS)
    read = timings["pure read"]
    print(f"float32 {list(SHAPE)} with int8 codes, {(x.nbytes + codes.nbytes) / 1e6:.0f} MB, one thread")
    for name, timing in timings.items():
        times, spread = ratio(read, timing)
        print(f"{name:<30}{timing.median * 1e3:9.1f} ms ±{timing.spread:4.0%}  {times:7.1f} pure reads ±{spread:.0%}")


if __name__ == "__main__":
    main()

"""What calibration showed of each value, against what validation shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from visualquant.analysis.tap_plan import INPUT
from visualquant.errors import CancelledError
from visualquant.kernels.pair_sums import finite_extrema
from visualquant.runtime.feeds import Feeder, FeedOptions
from visualquant.runtime.runner import Runner
from visualquant.runtime.samples import SampleFile

MOST_SAMPLES = 256


def calibration_ranges(
    samples: SampleFile,
    runners: tuple[Runner, Runner],
    options: FeedOptions,
    taps: Collection[str],
    cancel: Callable[[], bool] | None = None,
) -> dict[str, tuple[float, float]]:
    """Smallest and largest finite value of each float tap (and input) over the calibration samples.

    Args:
        samples: the calibration samples, under the names of the float model's inputs.
        runners: float and quantized; only the float one runs.
        options: how samples are fed.
        taps: names in the float model.
        cancel: asked between batches.

    Raises:
        InputError: the samples do not fit.
        CancelledError: `cancel` said so.
    """
    limited = dataclasses.replace(options, limit=min(options.limit or MOST_SAMPLES, MOST_SAMPLES))
    found: dict[str, tuple[float, float]] = {}
    wanted = {t for t in taps if not t.startswith(INPUT)}
    for batch in Feeder(samples, *runners, limited).batches():
        if cancel is not None and cancel():
            raise CancelledError("Stopped before all calibration samples were run.")
        for name, array in batch.float_feeds.items():
            _widen(found, INPUT + name, finite_extrema(array))
        for event in runners[0].tap([(batch.samples, batch.float_feeds)], wanted):
            if event.value and event.array.dtype.kind == "f":
                _widen(found, event.value, finite_extrema(event.array))
    return found


def _widen(found: dict[str, tuple[float, float]], name: str, ends: tuple[float, float]) -> None:
    low, high = found.get(name, ends)
    if ends[0] <= ends[1]:
        found[name] = min(low, ends[0]), max(high, ends[1])

"""Rivals that take turns in one process, so that a busy machine slows all of them alike."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one contender.

    Attributes:
        seconds: of each round.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Middle round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, over the median."""
        if len(self.seconds) < 4:
            return (max(self.seconds) - min(self.seconds)) / 2 / self.median
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median


def alternate(
    contenders: Mapping[str, Callable[[], Any]], rounds: int, limit_seconds: float = 60.0
) -> dict[str, Timing]:
    """Runs each contender once for warmth and then in turns.

    Args:
        contenders: what to run, by name.
        rounds: how often; slow contenders stop early.
        limit_seconds: for all rounds of one contender; at least two rounds are run.

    Returns:
        Timings by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for turn in range(rounds):
        for name, run in contenders.items():
            if turn >= 2 and sum(seconds[name]) > limit_seconds:
                continue
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def ratio(a: Timing, b: Timing) -> tuple[float, float]:
    """Median and spread of b over a, round by round: how many times as long b takes."""
    quotients = sorted(y / x for x, y in zip(a.seconds, b.seconds, strict=False))
    middle = statistics.median(quotients)
    if len(quotients) < 4:
        return middle, (quotients[-1] - quotients[0]) / 2 / middle
    low, _, high = statistics.quantiles(quotients, n=4)
    return middle, (high - low) / 2 / middle

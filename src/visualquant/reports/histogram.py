"""Histograms as one line of text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*#%"


def sparkline(counts: npt.NDArray[Any], width: int = 16, *, unicode: bool = True) -> str:
    """Counts pooled to `width` columns, each as high as the square root of its share of the largest column.

    Args:
        counts: [bins], not negative.
        width: characters.
        unicode: block characters, else ASCII.
    """
    ramp = BLOCKS if unicode else ASCII
    if counts.size == 0 or counts.sum() == 0:
        return " " * width
    edges = np.linspace(0, counts.size, width + 1).astype(int)
    pooled = np.array([counts[a : max(b, a + 1)].sum() for a, b in itertools.pairwise(edges)], np.float64)
    height = np.ceil(np.sqrt(pooled / pooled.max()) * (len(ramp) - 1)).astype(int)
    return "".join(ramp[h] for h in height)

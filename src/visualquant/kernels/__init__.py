"""Numba kernels: arrays in, arrays out.

Importing this package is cheap: names load on first use, and numba only when a kernel is called.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "BlockSource": "api",
    "MeasureOptions": "api",
    "fake_quantize": "api",
    "measure": "api",
    "prefetch": "api",
    "release": "api",
    "what_if": "api",
}

__all__ = [
    "BlockSource",
    "MeasureOptions",
    "fake_quantize",
    "measure",
    "prefetch",
    "release",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)

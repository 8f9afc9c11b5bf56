"""Numbers as a person wants to read them."""

from __future__ import annotations

import math

from visualquant.core.report import Number


def as_float(number: Number | None) -> float | None:
    """A number of the report as a float ("inf" and the like too); None stays None."""
    return None if number is None else float(number)


def decibel(number: Number | None) -> str:
    """A level in dB: one decimal, "exact" for +inf, an em dash where there is none."""
    value = as_float(number)
    if value is None or math.isnan(value):
        return "—"
    if math.isinf(value):
        return "exact" if value > 0 else "−∞"
    return f"{value:.1f}".replace("-", "−")


def short(number: Number | None) -> str:
    """Three significant digits."""
    value = as_float(number)
    if value is None:
        return "—"
    if value == 0:
        return "0"
    return f"{value:.3g}".replace("-", "−")


def share(number: Number | None) -> str:
    """A share in [0, 1] as per cent; "<0.01 %" for a little above 0."""
    value = as_float(number)
    if value is None:
        return "—"
    percent = value * 100
    if 0 < percent < 0.01:
        return "<0.01 %"
    return f"{percent:.2f} %" if percent < 10 else f"{percent:.0f} %"


def size(count: int) -> str:
    """Bytes with a decimal unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError

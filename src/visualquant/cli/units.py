"""Sizes and numbers as users write them."""

from __future__ import annotations

import math
import re

from visualquant.errors import UsageError

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KB": 1000, "KIB": 1 << 10, "M": 1 << 20, "MB": 10**6, "MIB": 1 << 20}
_UNITS |= {"G": 1 << 30, "GB": 10**9, "GIB": 1 << 30}


def parse_bytes(text: str | None) -> int | None:
    """Bytes of "512MB", "1.5GiB" and the like; None for None.

    Raises:
        UsageError: no number, or an unknown unit.
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text)
    try:
        value = float(found[1]) * _UNITS[found[2].upper()] if found else -1.0
    except (ValueError, KeyError):
        value = -1.0
    if value <= 0:
        raise UsageError(f"{text!r} is no size: write 512MB or 1.5GiB.")
    return int(value)


def parse_floats(text: str | None, option: str) -> tuple[float, ...]:
    """Numbers separated by commas; empty for None.

    Raises:
        UsageError: something is no finite number.
    """
    if text is None:
        return ()
    try:
        values = tuple(float(x) for x in text.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(math.isfinite(v) for v in values):
        raise UsageError(f"{option} wants numbers separated by commas, not {text!r}.")
    return values


def parse_size(text: str | None) -> tuple[int, int] | None:
    """(height, width) of "224x224"; None for None.

    Raises:
        UsageError: another form.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)[xX](\d+)", text.strip())
    if not found or not int(found[1]) or not int(found[2]):
        raise UsageError(f"--image-size wants HEIGHTxWIDTH, not {text!r}.")
    return int(found[1]), int(found[2])

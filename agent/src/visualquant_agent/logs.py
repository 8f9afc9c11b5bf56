"""Logs that programs can read: one line an event, `key=value` pairs, values quoted as JSON where they need it."""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any

_PLAIN = re.compile(r"[\w.:/+-]+")
log = logging.getLogger("visualquant_agent")


def event(name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Writes one event. What comes from the wire is quoted, so no line can be forged."""
    log.log(level, " ".join([f"event={name}", *(f"{k}={_value(v)}" for k, v in fields.items())]))


def to_stderr(level: int) -> None:
    """Events go to standard error, with time (UTC) and level."""
    handler = logging.StreamHandler()
    form = logging.Formatter("time=%(asctime)s.%(msecs)03dZ level=%(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    form.converter = time.gmtime
    handler.setFormatter(form)
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.isascii() else json.dumps(text[:300])

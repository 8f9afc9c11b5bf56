"""Names from models and devices, made safe to show."""

from __future__ import annotations

import unicodedata


def safe_text(text: str, limit: int | None = None) -> str:
    r"""`text` without anything that could drive a terminal or reorder what stands beside it.

    Control characters (C0, C1, line and paragraph separators), bidirectional controls and lone surrogates become
    visible escapes such as `\x1b`; letters of any script stay. With `limit`, the middle is cut out ("a…z").
    """
    if not text.isascii() or not text.isprintable():
        text = "".join(_escape(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text)
    if limit is not None and len(text) > limit:
        head = (limit - 1) // 2
        text = text[:head] + "…" + text[len(text) - (limit - 1 - head) :]
    return text


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"

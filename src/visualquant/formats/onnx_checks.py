"""What onnx's own checker says of a file."""

from __future__ import annotations

from pathlib import Path


def check_onnx(path: Path) -> tuple[tuple[str, bool, str], ...]:
    """(check, passed, message) of onnx's checker."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # NOTE: onnx raises ValidationError, RuntimeError, ValueError or UnicodeDecodeError here
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (("onnx.checker", False, lines[0] if lines else type(error).__name__),)
    return (("onnx.checker", True, "The file is valid ONNX."),)

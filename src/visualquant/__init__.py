"""Why did my model get worse when it was quantized, where, and what do I change?

report = visualquant.compare("float.onnx", "int8.onnx")
report.summary.verdict
visualquant.save(report, "out.vqz")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from visualquant._version import __version__

if TYPE_CHECKING:
    from visualquant.session.archive import load, save
    from visualquant.session.compare import compare

__all__ = ["__version__", "compare", "load", "save"]

_HOMES = {
    "compare": "visualquant.session.compare",
    "load": "visualquant.session.archive",
    "save": "visualquant.session.archive",
}


def __getattr__(name: str) -> Any:
    """Functions are imported on first use: `import visualquant` loads no numba, onnx or onnxruntime."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'visualquant' has no attribute {name!r}")

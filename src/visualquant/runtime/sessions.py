"""ONNX Runtime sessions: one place for options, and for what to do when the runtime refuses a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime as ort

from visualquant.core.taps import Level, RunOptions
from visualquant.errors import InputError

LEVELS: dict[Level, Any] = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
QUIET = 4  # NOTE: the runtime's own log goes to standard error; refusals come back as exceptions anyway
BIG_BYTES = 1 << 30


class RefusedError(InputError):
    """The runtime will not load a model; the message is the runtime's own, shortened."""


class FailedRunError(InputError):
    """The runtime loads a model and fails when it runs.

    Attributes:
        path: the model file.
    """

    def __init__(self, path: Path, message: str) -> None:
        """The message names the file."""
        super().__init__(f"{path.name!r} fails when it runs: {message}")
        self.path = path


def make_session(
    model: Path | bytes,
    options: RunOptions,
    *,
    level: Level | None = None,
    optimised_path: Path | None = None,
    profile_prefix: str | None = None,
) -> ort.InferenceSession:
    """A session on a file or on serialized bytes.

    Args:
        model: path, or a serialized ModelProto without external data.
        options: threads, provider and, unless `level` says otherwise, the optimisation level.
        level: overrides `options.level`.
        optimised_path: also write the optimised graph there.
        profile_prefix: profile node times into a file that starts so.

    Raises:
        RefusedError: the runtime refuses the model.
    """
    settings = ort.SessionOptions()
    settings.graph_optimization_level = LEVELS[level or options.level]
    settings.log_severity_level = QUIET
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    if optimised_path is not None:
        settings.optimized_model_filepath = str(optimised_path)
        if isinstance(model, Path) and _bytes_of(model) > BIG_BYTES:
            key = "session.optimized_model_external_initializers_file_name"
            settings.add_session_config_entry(key, optimised_path.name + ".data")
    if profile_prefix is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = profile_prefix
    source = str(model) if isinstance(model, Path) else model
    try:
        return ort.InferenceSession(source, settings, providers=[options.provider])
    except Exception as error:  # NOTE: the runtime raises classes of its own without a common base
        raise RefusedError(first_line(str(error))) from error


def first_line(message: str, limit: int = 300) -> str:
    """The telling part of the runtime's message."""
    text = " ".join(message.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _bytes_of(path: Path) -> int:
    beside = sum(p.stat().st_size for p in path.parent.glob(path.name + "*") if p.is_file())
    return max(path.stat().st_size, beside)

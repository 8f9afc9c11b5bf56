"""ONNX Runtime sessions: one place for options, and for what to do when the runtime refuses a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualquant.core.taps import Level, RunOptions
from visualquant.errors import InputError
from visualquant_agent import engine

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
) -> Any:
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
    data = None
    if optimised_path is not None and isinstance(model, Path) and _bytes_of(model) > BIG_BYTES:
        data = optimised_path.name + ".data"
    try:
        return engine.open_session(
            str(model) if isinstance(model, Path) else model,
            level=level or options.level,
            threads=options.threads,
            provider=options.provider,
            optimised_path=None if optimised_path is None else str(optimised_path),
            optimised_data=data,
            profile_prefix=profile_prefix,
        )
    except Exception as error:  # NOTE: the runtime raises classes of its own without a common base
        raise RefusedError(engine.first_line(str(error))) from error


def _bytes_of(path: Path) -> int:
    beside = sum(p.stat().st_size for p in path.parent.glob(path.name + "*") if p.is_file())
    return max(path.stat().st_size, beside)

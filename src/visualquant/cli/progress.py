"""Progress on standard error: only for work over a second, only on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOW_AFTER_S = 1.0


class Progressbar:
    """Use as a context; call `stage` and `bytes` from the work."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._enabled = sys.stderr.isatty()

    def __enter__(self) -> Progressbar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, done: int, total: int) -> None:
        """What is being done now; total 0 where it is unknown."""
        early = time.monotonic() - self._start < SHOW_AFTER_S and not name.startswith("compiling")
        if not self._enabled or early:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(file=sys.stderr), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(name, total=None)
        assert self._task is not None
        self._bar.update(self._task, description=name, completed=done, total=total or None)

    def weights(self, done: int, total: int) -> None:
        """Bytes of weights measured."""
        self.stage("measuring weights", done, total)

"""Agents as tests need them: a process of its own, with or without TLS, on another processor."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import psutil


class AgentProcess:
    """`visualquant-agent serve` in a process of its own; use as a context.

    Attributes:
        address: where it listens.
        process: the supervisor.
        log: its last lines.
    """

    def __init__(
        self, store: Path, *options: str, before: Sequence[str] = (), listen: str = "127.0.0.1:0", python: str = ""
    ) -> None:
        command = [*before, python or sys.executable, "-m", "visualquant_agent", "serve", "--listen", listen]
        self.process = subprocess.Popen(
            [*command, "--store", str(store), *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.log: deque[str] = deque(maxlen=2000)
        assert self.process.stderr is not None
        port = 0
        for line in self.process.stderr:
            self.log.append(line)
            if "event=listening" in line:
                port = int(line.split("port=")[1].split()[0])
                break
        if not port:
            raise RuntimeError("the agent did not start:\n" + "".join(self.log))
        self.address = f"127.0.0.1:{port}" if listen.startswith("127.") else listen
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self.log.append(line)

    def tree(self) -> list[psutil.Process]:
        """Supervisor, server and workers."""
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._reader.join(timeout=10)
        assert self.process.stderr is not None
        self.process.stderr.close()

"""A TCP proxy on loopback that throttles, delays, truncates and cuts."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
import threading
import time


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to one connection, in each direction.

    Attributes:
        cut_after: bytes, then both sides are closed; None for never.
        reset: close with a reset instead of an end.
        delay_s: before each piece.
        bytes_a_second: 0 for no bound.
    """

    cut_after: int | None = None
    reset: bool = False
    delay_s: float = 0.0
    bytes_a_second: float = 0.0


def random_fault(rng: random.Random, reach: int) -> Fault:
    """A fault within the first `reach` bytes."""
    cut = rng.randrange(1, reach) if rng.random() < 0.7 else None
    delay = rng.choice([0.0, 0.0, 0.001, 0.01])
    rate = rng.choice([0.0, 0.0, 3e6])
    return Fault(cut, rng.random() < 0.5, delay, rate)


class Proxy:
    """Use as a context; `faults` are taken one a connection, none afterwards.

    Attributes:
        address: where it listens.
        sent_up: bytes passed on to the agent.
        connections: taken so far.
    """

    def __init__(self, target: str, faults: list[Fault] | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.faults = list(faults or [])
        self.sent_up = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            fault = self.faults.pop(0) if self.faults else Fault()
            try:
                agent = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            agent.settimeout(None)
            with self._lock:
                self._open |= {client, agent}
            self._start(self._pump, client, agent, fault, True)
            self._start(self._pump, agent, client, fault, False)

    def _pump(self, source: socket.socket, sink: socket.socket, fault: Fault, up: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if fault.delay_s:
                    time.sleep(fault.delay_s)
                if fault.bytes_a_second:
                    time.sleep(len(data) / fault.bytes_a_second)
                if fault.cut_after is not None and passed + len(data) >= fault.cut_after:
                    sink.sendall(data[: max(fault.cut_after - passed, 0)])
                    break
                sink.sendall(data)
                passed += len(data)
                self.sent_up += len(data) if up else 0
        for side in (source, sink):
            self._close(side, fault.reset)

    def _close(self, side: socket.socket, reset: bool = False) -> None:
        with self._lock:
            if side not in self._open:
                return
            self._open.discard(side)
        with contextlib.suppress(OSError):
            if reset:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            side.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            side.close()

    def cut(self) -> None:
        """Cuts every connection now."""
        for side in list(self._open):
            self._close(side, reset=True)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=10)

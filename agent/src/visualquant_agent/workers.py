"""Child processes for jobs: forked by a supervisor that has the runtime loaded, or threads inside the server (tests).

The supervisor is the first process of the agent. It loads ONNX Runtime once, forks the server, and forks a worker for
every job; it has a single thread, so forking is sound, and a worker starts in milliseconds even on a slow board.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Optional, Tuple

from visualquant_agent import memory

_FORK, _END = b"fork", b"end"
DYING_S = 2.0


class Worker:
    """A started worker.

    Attributes:
        sock: the server's end; nothing more comes after the job's end.
    """

    def __init__(self, sock: socket.socket, end: Callable[[bool], Optional[int]]) -> None:
        """`end` kills it and gives the signal that it had died of, if any; True: it is dying, let it."""
        self.sock = sock
        self._end = end
        self._lock = threading.Lock()
        self._over = False
        self._signal: Optional[int] = None

    def end(self, dying: bool = False) -> Optional[int]:
        """Ends it, whatever it does; the signal that it had died of before, or None. May be called often.

        Args:
            dying: its socket closed by itself: the system may not have ended it yet.
        """
        with self._lock:
            if not self._over:
                self._over = True
                with contextlib.suppress(OSError):
                    self.sock.shutdown(socket.SHUT_RDWR)
                self._signal = self._end(dying)
            return self._signal

    def close(self) -> None:
        """Ends it and frees the socket."""
        self.end()
        self.sock.close()


class ThreadWorkers:
    """Jobs in threads of this process: nothing is bounded or killed, a closed socket ends them."""

    def start(self) -> Worker:
        """A worker that waits for its job."""
        from visualquant_agent.worker import work

        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=work, args=(theirs,), kwargs={"alone": False}, daemon=True, name="job")
        thread.start()

        def end(_dying: bool) -> None:
            thread.join(timeout=30)

        return Worker(ours, end)


class ForkedWorkers:
    """Jobs in child processes of the supervisor."""

    def __init__(self, control: socket.socket) -> None:
        """`control` leads to the supervisor."""
        self._control = control
        self._lock = threading.Lock()

    def start(self) -> Worker:
        """A worker that waits for its job.

        Raises:
            OSError: the supervisor is gone.
        """
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            socket.send_fds(self._control, [_FORK], [theirs.fileno()])
            answer = self._control.recv(64)
        pid = int(answer or 0)
        if pid <= 0:
            ours.close()
            raise OSError("the device can start no further process")
        return Worker(ours, lambda dying: self._end(pid, dying))

    def _end(self, pid: int, dying: bool) -> Optional[int]:
        with self._lock:
            self._control.send(_END + b" %d %d" % (pid, dying))
            answer = self._control.recv(64)
        return int(answer) or None if answer else None


def supervise(serve: Callable[[Any], int]) -> int:
    """Forks the server and then workers on its demand, until the server ends; its exit code.

    Args:
        serve: runs the server with the `ForkedWorkers` that it is given.
    """
    import visualquant_agent.worker  # noqa: F401  (the runtime is loaded once, here)

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()
    parent = os.getpid()
    server = os.fork()
    if server == 0:
        memory.die_with_parent()
        ours.close()
        code = 70
        try:
            code = serve(ForkedWorkers(theirs)) if os.getppid() == parent else 0
        except KeyboardInterrupt:
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    theirs.close()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _frame: _pass_on(server, signum))
    while True:
        message, handles = _receive(ours)
        if not message:
            break
        if message == _FORK and handles:
            ours.send(b"%d" % _fork_worker(handles[0], ours, parent))
        elif message.startswith(_END):
            ours.send(b"%d" % _end(*(int(n) for n in message.split()[1:])))
    _, status = os.waitpid(server, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 70


def _pass_on(server: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGTERM if number == signal.SIGINT else number)


def _receive(sock: socket.socket) -> Tuple[bytes, Any]:
    try:
        message, handles, _, _ = socket.recv_fds(sock, 64, 1)
        return message, handles
    except ConnectionError:
        return b"", []


def _fork_worker(handle: int, control: socket.socket, parent: int) -> int:
    try:
        pid = os.fork()
    except OSError:
        os.close(handle)
        return -1
    if pid:
        os.close(handle)
        return pid
    memory.die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control.close()
    try:
        if os.getppid() == parent:
            from visualquant_agent.worker import work

            work(socket.socket(fileno=handle), alone=True)
    finally:
        os._exit(0)


def _end(pid: int, dying: int) -> int:
    """Kills and reaps a worker; the signal that it had died of before, or 0."""
    done, status = os.waitpid(pid, os.WNOHANG)
    deadline = time.monotonic() + DYING_S
    while dying and not done and time.monotonic() < deadline:
        time.sleep(0.005)
        done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

"""Background work: a frozen request in, a frozen result out; a result whose request is stale is dropped."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any

from visualquant.errors import CancelledError, VisualQuantError


@dataclasses.dataclass(frozen=True, eq=False)
class Done:
    """What came of a request: a value, or an error in words.

    Attributes:
        slot: what the request was for; a newer request of the same slot makes it stale.
        value: the result, None after an error.
        error: a message for the user, "" where there is none.
    """

    slot: Hashable
    request: int
    value: Any
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the work of a slot is; `total` is 0 where unknown."""

    slot: Hashable
    text: str
    done: int
    total: int


class Task:
    """What a running job sees of its request."""

    def __init__(self, slot: Hashable, request: int, board: Requests) -> None:
        self.slot, self.request, self._board = slot, request, board
        self._stopped = threading.Event()

    def cancelled(self) -> bool:
        """True once a newer request of the slot came, or the user stopped it."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Asks the job to end."""
        self._stopped.set()

    def say(self, text: str, done: int, total: int) -> None:
        """Progress, kept for the next frame."""
        if not self.cancelled():
            self._board.progress[self.slot] = Progress(self.slot, text, done, total)


class Requests:
    """Runs jobs in threads; `drain` is called once a frame and gives what is finished and still wanted."""

    def __init__(self) -> None:
        self.progress: dict[Hashable, Progress] = {}
        self._finished: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._current: dict[Hashable, Task] = {}
        self._last = 0
        self._threads: set[threading.Thread] = set()

    def submit(self, slot: Hashable, job: Callable[[Task], Any]) -> int:
        """Starts a job; the one that ran for the same slot becomes stale and is asked to end."""
        self.cancel(slot)
        self._last += 1
        task = Task(slot, self._last, self)
        self._current[slot] = task
        thread = threading.Thread(target=self._run, args=(task, job), name=f"visualquant-{slot}", daemon=True)
        self._threads.add(thread)
        thread.start()
        return task.request

    def _run(self, task: Task, job: Callable[[Task], Any]) -> None:
        try:
            done = Done(task.slot, task.request, job(task))
        except CancelledError:
            done = Done(task.slot, task.request, None, "Cancelled.")
        except VisualQuantError as error:
            done = Done(task.slot, task.request, None, str(error))
        except MemoryError:
            done = Done(task.slot, task.request, None, "Not enough memory for this. Close other programs.")
        except Exception as error:  # NOTE: a fault must show in the window, not end a thread unseen
            done = Done(
                task.slot,
                task.request,
                None,
                f"This is a fault of visualquant itself: {type(error).__name__}: {error}. Please report it.",
            )
        self._finished.put(done)
        self._threads.discard(threading.current_thread())

    def cancel(self, slot: Hashable) -> None:
        """Drops the request of a slot, whatever becomes of it."""
        task = self._current.pop(slot, None)
        if task is not None:
            task.stop()
        self.progress.pop(slot, None)

    def busy(self) -> tuple[Hashable, ...]:
        """Slots that wait for a result."""
        return tuple(self._current)

    def drain(self) -> list[Done]:
        """Finished requests that are not stale."""
        found: list[Done] = []
        while True:
            try:
                done = self._finished.get_nowait()
            except queue.Empty:
                return found
            task = self._current.get(done.slot)
            if task is not None and task.request == done.request:
                self.cancel(done.slot)
                found.append(done)

    def close(self, seconds: float = 5.0) -> None:
        """Asks all jobs to end and waits a while."""
        for slot in self.busy():
            self.cancel(slot)
        for thread in list(self._threads):
            thread.join(seconds)

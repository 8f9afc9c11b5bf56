"""Whether a bounded run keeps its word: growth of this process, measured."""

from __future__ import annotations

from visualquant.errors import InputError
from visualquant_agent import memory

_NEAR = 1 << 24


class MemoryWatch:
    """Peak growth over the moment of its making; does nothing where the system does not tell (it must be Linux)."""

    def __init__(self, allowed_bytes: int | None) -> None:
        """Starts to watch; None for no bound."""
        self._allowed = allowed_bytes
        self._idle = 0
        if allowed_bytes is not None:
            memory.reset_peak()
            self._idle = memory.resident_bytes()
            if memory.peak_bytes() > self._idle + _NEAR:  # the peak could not be reset: an old one says nothing
                self._allowed = None

    @property
    def growth_bytes(self) -> int:
        """Peak so far over the idle size."""
        return max(memory.peak_bytes() - self._idle, 0)

    def check(self) -> None:
        """Called after the first sample, which shows what any of them takes.

        Raises:
            InputError: more was taken than is allowed; the message says how much it takes at least.
        """
        if self._allowed is not None and self.growth_bytes > self._allowed:
            least = -(-self.growth_bytes // 10**6)
            raise InputError(
                f"--memory allows {self._allowed / 1e6:.0f} MB, and one sample of these models takes {least} MB: both "
                f"models' weights and the largest tensors on their way. Give at least --memory {least}MB, or smaller "
                "samples."
            )

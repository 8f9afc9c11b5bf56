"""Selection, its history, and saved views."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from visualquant.core.alignment import SideName
from visualquant.viewmodel.camera import Camera

State = TypeVar("State")
_DEEPEST = 500


@dataclasses.dataclass(frozen=True)
class Selection:
    """One group and the side that it was picked on; nothing when `group` and `node` are None.

    Attributes:
        group: place in the pair's groups.
        side: where the user picked.
        node: place of the picked node on that side.
    """

    group: int | None = None
    side: SideName = "float"
    node: int | None = None

    def __bool__(self) -> bool:
        return self.group is not None or self.node is not None


@dataclasses.dataclass(frozen=True)
class View:
    """What undo goes back to and a key from 1 to 9 recalls: cameras and the selection."""

    cameras: tuple[tuple[SideName, Camera], ...]
    selection: Selection


class History(Generic[State]):
    """States that can be undone and redone."""

    def __init__(self, start: State) -> None:
        self._states = [start]
        self._at = 0

    @property
    def current(self) -> State:
        """The present state."""
        return self._states[self._at]

    def push(self, state: State) -> None:
        """A new state; what was undone is forgotten. An equal one changes nothing."""
        if state == self.current:
            return
        del self._states[self._at + 1 :]
        self._states.append(state)
        del self._states[:-_DEEPEST]
        self._at = len(self._states) - 1

    def replace(self, state: State) -> None:
        """Changes the present state in place."""
        self._states[self._at] = state

    def undo(self) -> State:
        """One state back, as far as there is one."""
        self._at = max(self._at - 1, 0)
        return self.current

    def redo(self) -> State:
        """One state forward, as far as there is one."""
        self._at = min(self._at + 1, len(self._states) - 1)
        return self.current

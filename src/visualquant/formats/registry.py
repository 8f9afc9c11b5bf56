"""Readers by module path: imported on use, and a failed import is a fact to show, not a crash."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from types import ModuleType


@dataclasses.dataclass(frozen=True, slots=True)
class ReaderStatus:
    """One entry of a registry.

    Attributes:
        path: dotted path of the module.
        name: the reader's NAME; the last part of the path where it can't be imported.
        error: why it can't be imported, or None.
    """

    path: str
    name: str
    error: str | None = None


def load(paths: Sequence[str]) -> list[ModuleType]:
    """The readers that can be imported, in order."""
    found = [_import(path) for path in paths]
    return [module for module in found if isinstance(module, ModuleType)]


def status(paths: Sequence[str]) -> tuple[ReaderStatus, ...]:
    """Each reader, with the reason where it can't be used (for `doctor`)."""
    out = []
    for path in paths:
        module = _import(path)
        if isinstance(module, ModuleType):
            out.append(ReaderStatus(path, str(module.NAME)))
        else:
            out.append(ReaderStatus(path, path.rsplit(".", 1)[-1], str(module)))
    return tuple(out)


def _import(path: str) -> ModuleType | ImportError:
    try:
        return importlib.import_module(path)
    except ImportError as error:
        return error

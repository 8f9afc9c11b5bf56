"""How much memory this process holds, and a hard bound for it. Linux; elsewhere figures are 0 and nothing is bound."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Dict

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
THREAD_BYTES = 10 << 20
SLACK_BYTES = 24 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def resident_bytes() -> int:
    """Resident memory now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def peak_bytes() -> int:
    """Largest resident memory since the start or `reset_peak`."""
    return _status().get("VmHWM", 0)


def reset_peak() -> None:
    """Lets `peak_bytes` begin anew where the system allows."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Returns freed memory to the system."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_no_spare() -> None:
    """Freed large blocks go back to the system at once: a bounded run must not keep what it does not use."""
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 256 << 10)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 20)
        libc.mallopt(_M_ARENA_MAX, 2)


def bound(growth_bytes: int, threads: int) -> None:
    """Allocations fail beyond this growth (RLIMIT_DATA), with room for the stacks of threads."""
    if sys.platform != "linux":
        return
    import resource

    limit = _status().get("VmData", 0) + growth_bytes + SLACK_BYTES + THREAD_BYTES * (threads + 2)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def first_to_die() -> None:
    """When memory runs out, the system ends this process and no other."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def die_with_parent() -> None:
    """The system kills this process when its parent ends, however that happens."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


def _status() -> Dict[str, int]:
    found: Dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[key] = int(value.split()[0]) << 10
    return found

"""Facts about this device that decide what its integer kernels compute."""

from __future__ import annotations

import os
import platform
from pathlib import Path

# Features that change which integer kernel ONNX Runtime picks.
_X86 = ("avx", "avx2", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "f16c")
_ARM = ("asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "sme")
KERNEL_FEATURES = frozenset(_X86 + _ARM)


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The processor features of `KERNEL_FEATURES` that this device has, sorted; empty where unknown."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            found.update(value.split())
    return sorted(found & KERNEL_FEATURES)


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system gives it, or an empty string."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor()


def memory_bytes() -> int:
    """Physical memory in bytes, 0 where unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0

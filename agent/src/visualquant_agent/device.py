"""Facts about this device that decide what its integer kernels compute."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
from pathlib import Path
from typing import Optional

from visualquant_agent import profiling
from visualquant_agent.wire.v1 import agent_pb2

# Features that change which integer kernel ONNX Runtime picks.
_X86 = ("avx", "avx2", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "f16c")
_ARM = ("asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "sme")
KERNEL_FEATURES = frozenset(_X86 + _ARM)
# Features that numpy does not know, by one without which they can't be there.
_IMPLIED = frozenset({"avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"})
_NUMPY_NAMES = {
    "avx": "AVX",
    "avx2": "AVX2",
    "avx512f": "AVX512F",
    "avx512bw": "AVX512BW",
    "avx512_vnni": "AVX512VNNI",
    "avx_vnni": "AVX2",
    "avx512_bf16": "AVX512F",
    "amx_int8": "AVX512F",
    "amx_bf16": "AVX512F",
    "f16c": "F16C",
    "asimd": "ASIMD",
    "asimddp": "ASIMDDP",
    "asimdhp": "ASIMDHP",
    "sve": "SVE",
}


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
    asked = _asked_processor()
    found.update(f for f, name in _NUMPY_NAMES.items() if f not in _IMPLIED and asked.get(name, False))
    return sorted(f for f in found & KERNEL_FEATURES if asked.get(_NUMPY_NAMES.get(f, ""), True))


def _asked_processor() -> "dict[str, bool]":
    """What numpy learnt from the processor itself: an emulator shows the real machine's /proc/cpuinfo."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        with contextlib.suppress(ImportError, AttributeError):
            found: "dict[str, bool]" = importlib.import_module(name).__cpu_features__
            return found
    return {}


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


def memory_available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Memory that programs can still take, 0 where unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def temperature_celsius(sys: Path = Path("/sys")) -> Optional[float]:
    """The hottest thermal zone."""
    found = [_number(p) for p in sorted(sys.glob("class/thermal/thermal_zone*/temp"))]
    known = [n / 1000 for n in found if n is not None]
    return max(known) if known else None


def throttle_count(sys: Path = Path("/sys")) -> Optional[int]:
    """Throttling events of all cores since the start of the device."""
    found = [_number(p) for p in sys.glob("devices/system/cpu/cpu*/thermal_throttle/core_throttle_count")]
    known = [n for n in found if n is not None]
    return sum(known) if known else None


def facts(sys: Path = Path("/sys")) -> agent_pb2.Device:
    """All that the device tells of itself now."""
    frequency = sys / "devices/system/cpu/cpu0/cpufreq"
    try:
        governor = (frequency / "scaling_governor").read_text(encoding="utf-8").strip()
    except OSError:
        governor = ""
    return agent_pb2.Device(
        machine=platform.machine(),
        system=platform.platform(terse=True),
        processor=processor_name(),
        cores=os.cpu_count() or 0,
        memory_bytes=memory_bytes(),
        cpu_features=cpu_features(),
        memory_available_bytes=memory_available_bytes(),
        governor=governor,
        frequency_khz=_number(frequency / "scaling_cur_freq") or 0,
        frequency_max_khz=_number(frequency / "cpuinfo_max_freq") or 0,
        temperature_celsius=temperature_celsius(sys),
        throttle_count=throttle_count(sys),
        energy_sources=list(profiling.energy_counters(sys)),
    )


def _number(path: Path) -> Optional[int]:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None

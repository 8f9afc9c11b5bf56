"""Node times from the runtime's own profile, and the energy of repeated runs where the device tells."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np


def node_times(events: Sequence[Mapping[str, Any]], warm_up: int) -> Tuple[List[Dict[str, Any]], List[float]]:
    """Node times from ONNX Runtime's profile (a list of trace events).

    Returns:
        Nodes in order of execution as the fields of `NodeTime`; microseconds of whole runs, warm-up left out.
    """
    times: Dict[str, List[float]] = {}
    facts: Dict[str, Tuple[str, str]] = {}
    totals: List[float] = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Session" and name == "model_run":
            totals.append(float(event["dur"]))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            node = name[: -len("_kernel_time")]
            times.setdefault(node, []).append(float(event["dur"]))
            args = event.get("args", {})
            facts[node] = str(args.get("op_name", "")), str(args.get("provider", ""))
    nodes = []
    for node, found in times.items():
        p50, p90, p99 = percentiles(found[warm_up:] or found)
        op_type, provider = facts[node]
        nodes.append(
            {"node": node, "op_type": op_type, "provider": provider, "p50_us": p50, "p90_us": p90, "p99_us": p99}
        )
    return nodes, totals[warm_up:] or totals or [0.0]


def percentiles(times: Sequence[float]) -> Tuple[float, float, float]:
    """50th, 90th and 99th percentile."""
    p50, p90, p99 = np.percentile(np.asarray(times, np.float64), [50, 90, 99])
    return float(p50), float(p90), float(p99)


def read_profile(path: str, warm_up: int) -> Tuple[List[Dict[str, Any]], List[float]]:
    """`node_times` of a file that the runtime wrote; the file is removed."""
    try:
        return node_times(json.loads(Path(path).read_text(encoding="utf-8")), warm_up)
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def timed(run: Callable[[], Any], repeats: int) -> List[float]:
    """Microseconds of each call."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e6)
    return found


def energy_counters(sys: Path = Path("/sys")) -> Dict[str, Path]:
    """Files that count microjoules, by a name for people: RAPL packages and energy sensors of hwmon."""
    found: Dict[str, Path] = {}
    for folder in sorted(sys.glob("class/powercap/intel-rapl:?")):
        found["rapl:" + _read(folder / "name")] = folder / "energy_uj"
    for path in sorted(sys.glob("class/hwmon/hwmon*/energy*_input")):
        found[f"hwmon:{_read(path.parent / 'name')}:{path.name.split('_')[0]}"] = path
    return {name: path for name, path in found.items() if _read(path).isdigit()}


def read_energy(counters: Mapping[str, Path]) -> Dict[str, int]:
    """Microjoules now, by name."""
    return {name: int(text) for name, text in ((n, _read(p)) for n, p in counters.items()) if text.isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

"""From requests to jobs for a worker: what the host asks for, checked against store and limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List

from visualquant_agent import engine
from visualquant_agent.limits import MAX_EDGES, MAX_TAPS, Limits, Refused, check_memory
from visualquant_agent.store import Store
from visualquant_agent.wire.v1 import agent_pb2

MAX_REPEATS = 10_000
# Measured on 25 and 100 MB of weights: 78 and 240 MB.
OPTIMISE_COPIES = 2.25
OPTIMISE_BYTES = 16 << 20
_LEVELS = {
    agent_pb2.SessionSettings.ALL: "all",
    agent_pb2.SessionSettings.NONE: "none",
    agent_pb2.SessionSettings.BASIC: "basic",
    agent_pb2.SessionSettings.EXTENDED: "extended",
}


def settings_of(settings: agent_pb2.SessionSettings, providers: List[str]) -> Dict[str, Any]:
    """Keyword arguments for `engine.open_session`.

    Raises:
        Refused: an unknown level or provider, an option that is not allowed.
    """
    engine.check_options(settings.config, settings.provider_options)
    if settings.level not in _LEVELS:
        raise Refused("INVALID_ARGUMENT", f"optimisation level {settings.level} is unknown")
    provider = settings.provider or "CPUExecutionProvider"
    if provider not in providers:
        raise Refused("INVALID_ARGUMENT", f"this device has no provider {provider[:60]!a}, only {', '.join(providers)}")
    return {
        "level": _LEVELS[settings.level],
        "threads": min(settings.threads, 4 * (os.cpu_count() or 1)),
        "provider": provider,
        "config": dict(settings.config),
        "provider_options": dict(settings.provider_options),
    }


def optimize_job(
    request: agent_pb2.OptimizeRequest, store: Store, limits: Limits, providers: List[str]
) -> Dict[str, Any]:
    """The job of `Optimize`."""
    job = _common(limits, store)
    job.update(kind="optimize", settings=settings_of(request.settings, providers))
    path = store.model(request.model.digest)
    job["model"] = str(path)
    weights = sum(p.stat().st_size for p in path.parent.rglob("*") if p.is_file())
    floor = int(OPTIMISE_COPIES * weights) + OPTIMISE_BYTES if limits.memory_bytes is not None else 0
    job["memory_bytes"] = check_memory(0, limits.memory_bytes, floor, "optimising loads the whole model once")
    job["value_types"] = request.value_types
    return job


def run_job(
    start: agent_pb2.RunStart, store: Store, limits: Limits, providers: List[str], kind: str = "run"
) -> Dict[str, Any]:
    """The job of `Run` or `Profile`.

    Raises:
        Refused: unknown models or files, too many taps, less memory than the run needs.
    """
    job = _common(limits, store)
    job.update(kind=kind, settings=settings_of(start.settings, providers))
    if len(start.segments) > MAX_TAPS or sum(len(s.taps) for s in start.segments) > MAX_TAPS:
        raise Refused("INVALID_ARGUMENT", f"a run has at most {MAX_TAPS} taps")
    if start.segments:
        folder = store.path(start.model.digest)
        names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        for segment in start.segments:
            if segment.file not in names:
                raise Refused("NOT_FOUND", f"the upload has no file {segment.file[:80]!a}")
            store.check(folder / segment.file)
        job["segments"] = [
            {
                "file": str(folder / s.file),
                "inputs": list(s.inputs),
                "outputs": list(s.outputs),
                "taps": list(s.taps),
                "drop": list(s.drop),
                "expected_bytes": s.expected_bytes,
            }
            for s in start.segments
        ]
    else:
        job["model"] = str(store.model(start.model.digest))
        job["segments"] = []
    job["outputs"] = list(start.outputs)
    job["memory_bytes"] = check_memory(start.memory_bytes, limits.memory_bytes, start.floor_bytes)
    job["summary"] = start.taps == agent_pb2.RunStart.SUMMARY
    job["edges"] = {name: _edges(e.edges) for name, e in start.edges.items()}
    if kind == "profile":
        if not 1 <= start.repeats <= MAX_REPEATS or start.warm_up > MAX_REPEATS:
            raise Refused("INVALID_ARGUMENT", f"repeats are 1 to {MAX_REPEATS}")
        job.update(warm_up=start.warm_up, repeats=start.repeats)
    return job


def _edges(edges: Any) -> List[float]:
    found = list(edges)
    if not 2 <= len(found) <= MAX_EDGES or any(not found[k] < found[k + 1] for k in range(len(found) - 1)):
        raise Refused("INVALID_ARGUMENT", f"histogram edges are 2 to {MAX_EDGES} numbers that rise")
    return found


def _common(limits: Limits, store: Store) -> Dict[str, Any]:
    work = store.root / "work"
    work.mkdir(exist_ok=True, mode=0o700)
    return {"batch_bytes": limits.batch_bytes, "seconds": limits.seconds, "work": str(work)}


def without_places(message: str, root: Path) -> str:
    """The runtime's words without the device's folders."""
    words = [w if str(root) not in w else w.rpartition("/")[2] for w in message.split(" ")]
    return " ".join(words)

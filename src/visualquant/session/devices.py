"""`compare --device`: the quantized model on one or several devices, beside this host's own run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from visualquant.analysis.findings.device import BEYOND_ROUNDING
from visualquant.core.alignment import Alignment
from visualquant.core.device import DeviceComparison
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.model import Model
from visualquant.core.report import DeviceRow
from visualquant.core.taps import RunOptions
from visualquant.errors import DeviceError
from visualquant.runtime.connect import Access
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.paired import PairedRunner
from visualquant.runtime.remote import Device, Progress
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.runtime.sessions import RefusedError
from visualquant.runtime.spool import Spool
from visualquant.session.data_rows import RUN_ID
from visualquant.session.data_sections import DataSections
from visualquant.session.with_data import DataOptions, DataRun

HOST_RUN = "host"


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Where the quantized model runs.

    Attributes:
        devices: how each is reached.
        spool: folder for finished batches, from which a rerun goes on; None keeps nothing.
        provider: execution provider there; this host runs its own.
    """

    devices: tuple[Access, ...]
    spool: Path | None = None
    provider: str = "CPUExecutionProvider"


class _DeviceRun:
    """One device with the run on it."""

    def __init__(
        self, access: Access, where: DeviceOptions, progress: Progress, cancel: Callable[[], bool] | None
    ) -> None:
        self.device = Device(access)
        self.comparison: DeviceComparison | None = None
        self.spool = None if where.spool is None else Spool(where.spool / _folder_name(access))
        self._provider = where.provider
        self._progress, self._cancel = progress, cancel

    def open_quant(self, path: Path, options: RunOptions) -> PairedRunner:
        there = dataclasses.replace(options, provider=self._provider)
        remote = RemoteRunner(path, there, self.device, spool=self.spool, progress=self._progress, cancel=self._cancel)
        try:
            paired = PairedRunner(remote, LocalRunner(path, remote.host_options))
        except RefusedError as refusal:
            paired = PairedRunner(remote, None, f"this host's runtime refuses the model: {refusal}")
        except BaseException:
            remote.close()
            raise
        self.comparison = paired.comparison
        return paired


class DeviceRuns:
    """Both models on the user's samples, the quantized one here and on each device; as `DataRun` to the pipeline."""

    def __init__(
        self,
        paths: tuple[Path, Path],
        models: tuple[Model, Model],
        options: DataOptions,
        where: DeviceOptions,
        *,
        stage: Progress,
        cancel: Callable[[], bool] | None = None,
    ) -> None:
        """Connects, sends the model to each device and opens it there.

        Args:
            paths: of the float and the quantized model.
            models: the same, loaded.
            options: what the user gave.
            where: the devices.
            stage: told what is done; called from several threads.
            cancel: asked often, from several threads.

        Raises:
            DeviceError: a device can't be reached.
            InputError: the float model can't be run, or samples do not fit.
        """
        self._runs: list[tuple[_DeviceRun, DataRun]] = []
        with contextlib.ExitStack() as stack:
            open_run = functools.partial(DataRun, paths, models, options, cancel=cancel)
            self._host = stack.enter_context(
                open_run(progress=lambda done, total: stage("running samples on this host", done, total))
            )
            self.facts = self._host.facts
            for access in where.devices:
                run = _DeviceRun(access, where, stage, cancel)
                stack.callback(run.device.close)
                run.device.info()
                say = functools.partial(stage, f"running samples on {access.name}")
                self._runs.append((run, stack.enter_context(open_run(open_quant=run.open_quant, progress=say))))
            self._opened = stack.pop_all()

    def __enter__(self) -> DeviceRuns:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def evidence(self, alignment: Alignment) -> ActivationEvidence:
        """From the host alone."""
        return self._host.evidence(alignment)

    def measure(self, alignment: Alignment) -> DataSections:
        """Runs all samples here and on all devices at once; a device that is lost leaves the others' results.

        Raises:
            DeviceError: every device was lost before its first batch was finished.
        """
        host = self._host.measure(alignment)
        found: list[tuple[_DeviceRun, DataSections | None]] = []
        lost: list[DeviceError] = []
        with ThreadPoolExecutor(len(self._runs), thread_name_prefix="device") as pool:
            pending = [(run, pool.submit(data.measure, alignment)) for run, data in self._runs]
            for run, future in pending:
                try:
                    found.append((run, future.result()))
                    if run.spool is not None:
                        run.spool.clear()
                except DeviceError as error:
                    found.append((run, None))
                    lost.append(error)
        return merged(host, found, lost)


def merged(
    host: DataSections, found: Sequence[tuple[_DeviceRun, DataSections | None]], lost: Sequence[DeviceError]
) -> DataSections:
    """One report's parts: the first device that finished is the run in question, the host's a column beside it."""
    done = [(run, sections) for run, sections in found if sections is not None]
    base = done[0][1] if done else host
    parts = [_renamed(sections, RUN_ID if k == 0 else f"r{k + 1}") for k, (_, sections) in enumerate(done)]
    parts.append(_renamed(host, HOST_RUN if done else RUN_ID))
    ids = {id(run): RUN_ID if k == 0 else f"r{k + 1}" for k, (run, _) in enumerate(done)}
    facts = dataclasses.replace(base.facts, devices=[r.comparison for r, _ in done if r.comparison is not None])
    reason = None
    if lost:
        reason = " ".join(str(e) for e in lost) + " What was finished is kept: the same command goes on from there."
    floats = tuple(r for r in base.runs if r.model == "float")
    return DataSections(
        runs=floats + tuple(r for p in parts for r in p.runs if r.model == "quant"),
        activations=tuple(r for p in parts[: max(len(done), 1)] for r in p.activations),
        outputs=tuple(r for p in parts for r in p.outputs),
        task=tuple(r for p in parts for r in p.task),
        latency=tuple(r for r in host.latency if r.run == "r0")
        + tuple(r for p in parts for r in p.latency if r.run != "r0"),
        run=base.run,
        facts=facts,
        devices=tuple(_row(run, ids.get(id(run), "")) for run, _ in found),
        status="partial" if lost else "complete",
        status_reason=reason,
    )


def _renamed(sections: DataSections, run: str) -> DataSections:
    def of(rows: Sequence[Any], field: str = "run") -> tuple[Any, ...]:
        return tuple(dataclasses.replace(r, **{field: run}) if getattr(r, field) == RUN_ID else r for r in rows)

    return dataclasses.replace(
        sections,
        runs=of(sections.runs, "id"),
        activations=of(sections.activations),
        outputs=of(sections.outputs),
        task=of(sections.task),
        latency=of(sections.latency),
    )


def _row(run: _DeviceRun, run_id: str) -> DeviceRow:
    info, found = run.device.info(), run.comparison
    row = DeviceRow(
        run=run_id,
        name=run.device.name,
        machine=info.machine,
        processor=info.processor,
        features=info.cpu_features,
        runtime=f"ONNX Runtime {info.onnxruntime_version}",
        complete=bool(run_id),
    )
    if found is None or not found.elements:
        return row
    first = found.first(BEYOND_ROUNDING)
    return dataclasses.replace(
        row,
        codes=found.elements,
        differing=found.share,
        off_by=tuple(int(n) for n in found.off_by),
        max_difference=found.largest,
        first=None if first is None else first.value,
    )


def _folder_name(access: Access) -> str:
    return hashlib.sha256(access.address.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def spool_folder() -> Path:
    """The user's cache folder for finished batches."""
    import os

    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base else Path.home() / ".cache") / "visualquant" / "device-runs"

"""`compare --data`: runs both models and fills the second and third level of the report."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from visualquant.analysis.measured import DataFacts, RunResult
from visualquant.core.alignment import Alignment
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.model import Model
from visualquant.core.report import LatencyRow, TaskRow
from visualquant.core.taps import RunOptions
from visualquant.errors import InputError
from visualquant.runtime.feeds import Feeder, FeedOptions
from visualquant.runtime.images import ImageOptions
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.memory_watch import MemoryWatch
from visualquant.runtime.runner import Array, Runner
from visualquant.runtime.samples import RANDOM, SampleFile, digests, random_samples, read_samples
from visualquant.runtime.sessions import FailedRunError, RefusedError
from visualquant.session.activations import run_and_measure
from visualquant.session.coverage import calibration_ranges
from visualquant.session.data_rows import RUN_ID, activation_rows, latency_row, output_rows, run_rows, task_rows
from visualquant.session.data_sections import DataSections
from visualquant.session.probe import measured_likeness
from visualquant.session.user_metric import load_metric, metric_row


@dataclasses.dataclass(frozen=True, slots=True)
class DataOptions:
    """What `compare` is given beside the files.

    Attributes:
        data: sample file, folder, or "random".
        calibration: file with calibration samples when they stand elsewhere.
        feeds: how samples go into inputs.
        images: preprocessing of image folders.
        quant: how the quantized model runs.
        profile: measure node times.
        metric: a user's function for the task, "module:function".
    """

    data: str
    calibration: str | None = None
    feeds: FeedOptions = dataclasses.field(default_factory=FeedOptions)
    images: ImageOptions = dataclasses.field(default_factory=ImageOptions)
    quant: RunOptions = dataclasses.field(default_factory=RunOptions)
    profile: bool = True
    metric: str | None = None


class DataRun:
    """Both models of a pair on the user's samples.

    Attributes:
        facts: what is known of samples and runs.
    """

    def __init__(
        self,
        paths: tuple[Path, Path],
        models: tuple[Model, Model],
        options: DataOptions,
        *,
        open_quant: Callable[[Path, RunOptions], Runner] = LocalRunner,
        progress: Callable[[int, int], None] | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> None:
        """Opens both models and reads the samples; a refused quantized model is a finding.

        Args:
            paths: of the float and the quantized model.
            models: the same, loaded.
            options: what the user gave.
            open_quant: where the quantized model runs.
            progress: told the samples done and all.
            cancel: asked between batches.

        Raises:
            InputError: the float model can't be run, or samples do not fit.
        """
        self.facts = DataFacts()
        self._metric = None if options.metric is None else load_metric(options.metric)
        self._paths, self._models, self._options = paths, models, options
        self._progress, self._cancel = progress, cancel
        self._watch = MemoryWatch(options.quant.memory_bytes)
        self._runners: tuple[Runner, Runner] | None = None
        with contextlib.ExitStack() as stack:
            # NOTE: unoptimised, so that every value of the user's float graph exists and can be compared
            reference = dataclasses.replace(options.quant, level="none", provider="CPUExecutionProvider")
            float_runner = stack.enter_context(LocalRunner(paths[0], reference))
            self._file = _samples(options, float_runner)
            self._inputs = tuple(float_runner.inputs)
            self.facts.is_random = self._file.is_random
            self.facts.labels = self._file.labels(list(float_runner.inputs))
            self.facts.groups = self._file.groups()
            self._calibration_file = self._file
            if options.calibration is not None:
                self._calibration_file = read_samples(options.calibration, options.images)
            self._free = [n for n in self._inputs if n not in options.feeds.constants]
            self.facts.reused = _reused(self._file, self._calibration_file, self._free)
            try:
                quant_runner = stack.enter_context(open_quant(paths[1], options.quant))
            except RefusedError as refusal:
                self.facts.refusal = str(refusal)
            else:
                self.facts.fallback = quant_runner.notes[0] if quant_runner.notes else None
                feeds = options.feeds
                ranges_by_batch = any(s.params is None for s in models[1].activation_sites)
                if (ranges_by_batch or options.quant.memory_bytes is not None) and feeds.batch > 1:
                    feeds = dataclasses.replace(feeds, batch=1)
                self._feeder = Feeder(self._file, float_runner, quant_runner, feeds)
                if ranges_by_batch:
                    self._feeder.notes.append(
                        "samples run one by one: activation ranges are computed at run time, over all of a batch"
                    )
                self._runners = float_runner, quant_runner
            self._opened = stack.pop_all()

    def __enter__(self) -> DataRun:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def opened(self) -> tuple[tuple[Runner, Runner], Feeder]:
        """Both runners and what feeds them.

        Raises:
            InputError: the runtime refuses the quantized model.
        """
        if self._runners is None:
            raise InputError(self.facts.refusal or "The quantized model can't be run.")
        return self._runners, self._feeder

    def evidence(self, alignment: Alignment) -> ActivationEvidence:
        """Which values a run over the first batch shows to be the same; nothing where a model can't run.

        Args:
            alignment: by the files alone.
        """
        if self._runners is None or not alignment.groups:
            return ActivationEvidence()
        with contextlib.suppress(InputError):  # NOTE: `measure` meets the same failure and states it
            return measured_likeness(self._models, self._runners, next(self._feeder.batches()))
        return ActivationEvidence()

    def measure(self, alignment: Alignment) -> DataSections:
        """Runs all samples through both models and measures.

        Raises:
            InputError: the float model fails; a quantized model that does is a finding.
            CancelledError: `cancel` said so.
        """
        if self._runners is None:
            return _nothing_run(self.facts)
        try:
            run = run_and_measure(
                *self._models,
                alignment,
                self._runners,
                self._feeder,
                progress=self._progress,
                cancel=self._cancel,
                watch=self._watch,
            )
        except FailedRunError as failure:
            if failure.path != self._paths[1] or self._paths[0] == self._paths[1]:
                raise
            self.facts.refusal = str(failure)
            return _nothing_run(self.facts)
        self._see_calibration(run)
        return DataSections(
            runs=run_rows(self._file, self._runners, run),
            activations=activation_rows(*self._models, run),
            outputs=output_rows(run),
            task=self._task(run),
            latency=_latency(self._runners, self._feeder) if self._options.profile else (),
            run=run,
            facts=self.facts,
        )

    def _see_calibration(self, run: RunResult) -> None:
        """Notes what calibration showed of each value, where its samples are at hand and no state ties them."""
        samples = _calibration(self._file, self._calibration_file, self._free)
        if samples is None or self._options.feeds.state or self._runners is None:
            return
        items = [i for i in run.activations if i.range_use is not None and i.pair.float_tap is not None]
        try:
            ranges = calibration_ranges(
                samples, self._runners, self._feeder.options, {i.pair.float_tap or "" for i in items}, self._cancel
            )
        except InputError as error:
            run.notes.append(f"The calibration samples were not run: {error}")
            return
        for item in items:
            item.calibration = ranges.get(item.pair.float_tap or "")

    def _task(self, run: RunResult) -> tuple[TaskRow, ...]:
        rows = task_rows(run, self.facts)
        if self._metric is None or not run.outputs:
            return rows
        inputs = {key for name in self._inputs for key in (name, f"val_{name}", f"calib_{name}", "")}
        labels = {k: a[: run.samples] if a.ndim else a for k, a in self._file.arrays.items() if k not in inputs}
        assert self._options.metric is not None
        return (metric_row(RUN_ID, self._options.metric, self._metric, run, labels), *rows)


def _nothing_run(facts: DataFacts) -> DataSections:
    return DataSections((), (), (), (), (), RunResult([], {}, {}, {}, 0, {}, []), facts)


def _samples(options: DataOptions, runner: Runner) -> SampleFile:
    if options.data == RANDOM:
        return random_samples({n: (i.shape, runner.input_dtype(n)) for n, i in runner.inputs.items()})
    return read_samples(options.data, options.images)


def _calibration_of(name: str, file: SampleFile, other: SampleFile, *, only: bool) -> Array | None:
    """The calibration samples of an input; in a file of their own they need no `calib_`."""
    array = other.calibration(name)
    return other.validation(name, only=only) if array is None and other is not file else array


def _calibration(file: SampleFile, other: SampleFile, free: Sequence[str]) -> SampleFile | None:
    """The calibration samples of all inputs that take samples; None where one has none."""
    found = {}
    for name in free:
        array = _calibration_of(name, file, other, only=len(free) == 1)
        if array is None:
            return None
        found[name] = array
    return SampleFile(other.name, found)


def _reused(file: SampleFile, other: SampleFile, free: Sequence[str]) -> int:
    columns: tuple[list[list[str]], list[list[str]]] = ([], [])
    for name in free:
        only = len(free) == 1
        ours, theirs = file.validation(name, only=only), _calibration_of(name, file, other, only=only)
        if ours is None or theirs is None or not ours.ndim or not theirs.ndim or ours.shape[1:] != theirs.shape[1:]:
            continue
        columns[0].append(digests(np.asarray(ours)))
        columns[1].append(digests(np.asarray(theirs)))
    if not columns[0] or any(len({len(c) for c in side}) > 1 for side in columns):
        return 0
    seen, known = (set(zip(*side, strict=True)) for side in columns)
    return len(seen & known)


def _latency(runners: tuple[Runner, Runner], feeder: Feeder) -> tuple[LatencyRow, ...]:
    batch = next(iter(feeder.batches()))
    rows = []
    level = runners[1].level  # NOTE: the reference runs unoptimised; its time is that of the user's level
    for key, runner, feeds in (("r0", runners[0], batch.float_feeds), (RUN_ID, runners[1], batch.quant_feeds)):
        rows.append(latency_row(key, runner.profile(feeds, level=level)))
    return tuple(rows)

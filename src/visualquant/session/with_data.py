"""`compare --data`: runs both models and fills the second and third level of the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from visualquant.analysis.findings.context import value_range
from visualquant.analysis.measured import DataFacts, RunResult
from visualquant.analysis.tasks import decide, logit_metrics, task_row
from visualquant.core.alignment import Alignment
from visualquant.core.model import Model
from visualquant.core.report import ActivationRow, LatencyRow, NodeTimeRow, OutputRow, RunRow, TaskRow
from visualquant.core.taps import Profile, RunOptions
from visualquant.runtime.feeds import Feeder, FeedOptions
from visualquant.runtime.images import ImageOptions
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.samples import RANDOM, SampleFile, digests, random_samples, read_samples
from visualquant.runtime.sessions import FailedRunError, RefusedError
from visualquant.session.activations import run_and_measure
from visualquant.session.data_sections import DataSections

CONVERSIONS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Cast",
        "Transpose",
        "ReorderInput",
        "ReorderOutput",
    }
)
RUN_ID = "r1"


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
    """

    data: str
    calibration: str | None = None
    feeds: FeedOptions = dataclasses.field(default_factory=FeedOptions)
    images: ImageOptions = dataclasses.field(default_factory=ImageOptions)
    quant: RunOptions = dataclasses.field(default_factory=RunOptions)
    profile: bool = True


def measure_data(
    paths: tuple[Path, Path],
    float_model: Model,
    quant_model: Model,
    alignment: Alignment,
    options: DataOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> DataSections:
    """Runs and measures.

    Raises:
        InputError: the float model can't be run, or samples do not fit; a refused quantized model is a finding.
    """
    facts = DataFacts()
    # NOTE: unoptimised, so that every value of the user's float graph exists and can be compared
    reference = dataclasses.replace(options.quant, level="none", provider="CPUExecutionProvider")
    with LocalRunner(paths[0], reference) as float_runner:
        file = _samples(options, float_runner)
        facts.is_random = file.is_random
        facts.labels = file.labels(list(float_runner.inputs))
        facts.groups = file.groups()
        facts.reused = _reused(file, options, list(float_runner.inputs))
        try:
            quant_runner = LocalRunner(paths[1], options.quant)
        except RefusedError as refusal:
            facts.refusal = str(refusal)
            return _nothing_run(facts)
        with quant_runner:
            facts.fallback = quant_runner.notes[0] if quant_runner.notes else None
            feeder = Feeder(file, float_runner, quant_runner, options.feeds)
            try:
                run = run_and_measure(
                    float_model,
                    quant_model,
                    alignment,
                    (float_runner, quant_runner),
                    feeder,
                    progress=progress,
                    cancel=cancel,
                )
            except FailedRunError as failure:
                if failure.path != paths[1] or paths[0] == paths[1]:
                    raise
                facts.refusal = str(failure)
                return _nothing_run(facts)
            latency = _latency((float_runner, quant_runner), feeder) if options.profile else ()
    return DataSections(
        runs=_run_rows(file, (float_runner, quant_runner), run),
        activations=_activation_rows(float_model, quant_model, run),
        outputs=_output_rows(run),
        task=_task_rows(run, facts),
        latency=latency,
        run=run,
        facts=facts,
    )


def _nothing_run(facts: DataFacts) -> DataSections:
    return DataSections((), (), (), (), (), RunResult([], {}, {}, {}, 0, {}, []), facts)


def _samples(options: DataOptions, runner: LocalRunner) -> SampleFile:
    if options.data == RANDOM:
        return random_samples({n: (i.shape, runner.input_dtype(n)) for n, i in runner.inputs.items()})
    return read_samples(options.data, options.images)


def _reused(file: SampleFile, options: DataOptions, inputs: Sequence[str]) -> int:
    other = file if options.calibration is None else read_samples(options.calibration, options.images)
    free = [n for n in inputs if n not in options.feeds.constants]
    columns: tuple[list[list[str]], list[list[str]]] = ([], [])
    for name in free:
        only = len(free) == 1
        ours, theirs = file.validation(name, only=only), other.calibration(name)
        if theirs is None and other is not file:
            theirs = other.validation(name, only=only)
        if ours is None or theirs is None or not ours.ndim or not theirs.ndim or ours.shape[1:] != theirs.shape[1:]:
            continue
        columns[0].append(digests(np.asarray(ours)))
        columns[1].append(digests(np.asarray(theirs)))
    if not columns[0] or any(len({len(c) for c in side}) > 1 for side in columns):
        return 0
    seen, known = (set(zip(*side, strict=True)) for side in columns)
    return len(seen & known)


def _run_rows(file: SampleFile, runners: tuple[LocalRunner, LocalRunner], run: RunResult) -> tuple[RunRow, ...]:
    data: dict[str, Any] = {"file": file.name, "random": file.is_random}
    if file.preprocessing:
        data["preprocessing"] = file.preprocessing
    rows = []
    for key, name, runner in (("r0", "float", runners[0]), (RUN_ID, "quant", runners[1])):
        rows.append(
            RunRow(
                id=key,
                model="float" if name == "float" else "quant",
                kind="local",
                provider=runner.options.provider,
                optimisation=runner.level,
                threads=runner.options.threads,
                samples=run.samples,
                data=data,
                taps_verified=run.taps_verified.get(name, "not checked"),
                notes=tuple(runner.notes) + (tuple(run.notes) if name == "quant" else ()),
            )
        )
    return tuple(rows)


def _activation_rows(float_model: Model, quant_model: Model, run: RunResult) -> tuple[ActivationRow, ...]:
    rows = []
    for item in run.activations:
        pair, use = item.pair, item.range_use
        site_range = None if pair.site is None else value_range(pair.site.params)
        seen = None
        if use is not None and use.n:
            seen = use.seen_low, use.seen_high
        elif item.cumulative.n:
            seen = item.cumulative.low, item.cumulative.high
        rows.append(
            ActivationRow(
                run=RUN_ID,
                group=pair.group,
                float_value=float_model.graph.values[pair.float_value].key,
                quant_value=quant_model.key(pair.quant_value),
                samples=run.samples,
                depth=pair.depth,
                cumulative=item.cumulative.metrics() if pair.observable and item.reason is None else {},
                isolated={} if item.isolated is None else item.isolated.metrics(),
                range_float=seen,
                range_quant=site_range,
                clipped_share=None if use is None or not use.n else use.clipped_share,
                range_used=None if use is None else use.range_used,
                observable=pair.observable and item.reason is None,
                reason=pair.reason or item.reason,
                layout=item.layout,
            )
        )
    return tuple(rows)


def _output_rows(run: RunResult) -> tuple[OutputRow, ...]:
    rows = []
    for (ours, theirs), sums in run.outputs.items():
        metrics = dict(sums.metrics()) | logit_metrics(run.float_outputs[ours], run.quant_outputs[theirs])
        rows.append(OutputRow(RUN_ID, ours, theirs, metrics))
    return tuple(rows)


def _task_rows(run: RunResult, facts: DataFacts) -> tuple[TaskRow, ...]:
    if facts.labels is None:
        return ()
    for ours, theirs in run.outputs:
        decisions = decide(run.float_outputs[ours], run.quant_outputs[theirs], facts.labels)
        if decisions is not None:
            return (task_row(RUN_ID, decisions, facts.groups),)
    return ()


def _latency(runners: tuple[LocalRunner, LocalRunner], feeder: Feeder) -> tuple[LatencyRow, ...]:
    batch = next(iter(feeder.batches()))
    rows = []
    level = runners[1].level  # NOTE: the reference runs unoptimised; its time is that of the user's level
    for key, runner, feeds in (("r0", runners[0], batch.float_feeds), (RUN_ID, runners[1], batch.quant_feeds)):
        rows.append(latency_row(key, runner.profile(feeds, level=level)))
    return tuple(rows)


def latency_row(run: str, profile: Profile) -> LatencyRow:
    """Node times with the share that goes into conversions."""
    total = sum(n.p50_us for n in profile.nodes)
    spent = sum(n.p50_us for n in profile.nodes if n.op_type in CONVERSIONS)
    nodes = tuple(NodeTimeRow(n.node, n.op_type, n.p50_us, n.p90_us, n.provider) for n in profile.nodes)
    return LatencyRow(run, profile.total_p50_us, profile.repeats, spent / total if total else 0.0, nodes)

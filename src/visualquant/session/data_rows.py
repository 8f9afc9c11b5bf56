"""The report's rows on runs, activations, outputs, task and latency."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from visualquant.analysis.findings.context import value_range
from visualquant.analysis.measured import DataFacts, RunResult
from visualquant.analysis.tasks import decide, logit_metrics, task_row
from visualquant.core.model import Model
from visualquant.core.report import ActivationRow, LatencyRow, NodeTimeRow, Number, OutputRow, RunRow, TaskRow
from visualquant.core.taps import Profile
from visualquant.runtime.runner import Runner
from visualquant.runtime.samples import SampleFile

Array = npt.NDArray[Any]
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


def run_rows(file: SampleFile, runners: tuple[Runner, Runner], run: RunResult) -> tuple[RunRow, ...]:
    """A row for each model that ran."""
    data: dict[str, Any] = {"file": file.name, "random": file.is_random}
    if file.preprocessing:
        data["preprocessing"] = file.preprocessing
    rows = []
    for key, name, runner in (("r0", "float", runners[0]), (RUN_ID, "quant", runners[1])):
        rows.append(
            RunRow(
                id=key,
                model="float" if name == "float" else "quant",
                kind=runner.kind if name == "quant" else "local",
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


def activation_rows(float_model: Model, quant_model: Model, run: RunResult) -> tuple[ActivationRow, ...]:
    """A row for each tapped value."""
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
                range_calibration=item.calibration,
                clipped_share=None if use is None or not use.n else use.clipped_share,
                range_used=None if use is None else use.range_used,
                observable=pair.observable and item.reason is None,
                reason=pair.reason or item.reason,
                layout=item.layout,
            )
        )
    return tuple(rows)


def output_rows(run: RunResult) -> tuple[OutputRow, ...]:
    """A row for each graph output."""
    rows = []
    for (ours, theirs), sums in run.outputs.items():
        metrics: dict[str, Number] = dict(sums.metrics())
        if ours not in run.states:
            metrics |= logit_metrics(run.float_outputs[ours], run.quant_outputs[theirs])
        steps = run.steps[ours, theirs].levels() if (ours, theirs) in run.steps else ()
        rows.append(OutputRow(RUN_ID, ours, theirs, metrics, steps, ours in run.states))
    return tuple(rows)


def task_rows(run: RunResult, facts: DataFacts) -> tuple[TaskRow, ...]:
    """The task against the labels, for the first output that fits them."""
    if facts.labels is None:
        return ()
    for ours, theirs in run.outputs:
        if ours in run.states:
            continue
        outputs, labels = _labelled(
            run.float_outputs[ours], run.quant_outputs[theirs], facts.labels, run.sequence_steps
        )
        decisions = decide(*outputs, labels)
        if decisions is not None:
            return (task_row(RUN_ID, decisions, facts.groups),)
    return ()


def _labelled(ours: Array, theirs: Array, labels: Array, steps: int) -> tuple[tuple[Array, Array], Array]:
    """Outputs and labels of one length; of sequences, labels of each step, or of the last one."""
    if not steps or ours.ndim < 2:
        return (ours, theirs), labels
    if labels.ndim >= 2 and labels.shape[1] == steps:
        n = min(labels.shape[0], ours.shape[0])
        flat = [a[:n].reshape(n * steps, *a.shape[2:]) for a in (ours, theirs, labels)]
        return (flat[0], flat[1]), flat[2]
    return (ours[:, -1], theirs[:, -1]), labels


def latency_row(run: str, profile: Profile) -> LatencyRow:
    """Node times with the share that goes into conversions."""
    total = sum(n.p50_us for n in profile.nodes)
    spent = sum(n.p50_us for n in profile.nodes if n.op_type in CONVERSIONS)
    nodes = tuple(NodeTimeRow(n.node, n.op_type, n.p50_us, n.p90_us, n.provider) for n in profile.nodes)
    return LatencyRow(run, profile.total_p50_us, profile.repeats, spent / total if total else 0.0, nodes)

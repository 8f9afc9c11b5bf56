"""Runs both models on samples and measures what happens between: wires runners, taps and statistics."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.findings.context import value_range
from visualquant.analysis.layouts import reconcile
from visualquant.analysis.measured import MeasuredActivation, RunResult
from visualquant.analysis.tap_plan import Renamed, code_site, follow_renames, plan_taps, quantize, sites_by_value
from visualquant.core.activations import PairSums, RangeUse
from visualquant.core.alignment import Alignment
from visualquant.core.graph import ValueId
from visualquant.core.model import Model
from visualquant.core.quant import QuantSite
from visualquant.errors import CancelledError, InputError
from visualquant.runtime.feeds import Batch, Feeder
from visualquant.runtime.isolated import IsolatedModel, Part
from visualquant.runtime.local import LocalRunner
from visualquant.session.pipeline import align_models, load_model

Array = npt.NDArray[Any]


def run_and_measure(
    float_model: Model,
    quant_model: Model,
    alignment: Alignment,
    runners: tuple[LocalRunner, LocalRunner],
    feeder: Feeder,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> RunResult:
    """Streams all samples through both models.

    Raises:
        CancelledError: `cancel` said so.
        InputError: a model fails on the samples.
    """
    job = _Job(float_model, quant_model, alignment, runners)
    done = 0
    for batch in feeder.batches():
        if cancel is not None and cancel():
            raise CancelledError("Stopped before all samples were run.")
        job.batch(batch)
        done = batch.samples.stop
        if progress is not None:
            progress(done, feeder.count)
    return job.result(done, feeder.notes)


class _Job:
    def __init__(
        self, float_model: Model, quant_model: Model, alignment: Alignment, runners: tuple[LocalRunner, LocalRunner]
    ) -> None:
        self.float_model, self.quant_model, self.alignment = float_model, quant_model, alignment
        self.runners = runners
        names = [{out for n in r.optimised().graph.node for out in n.output if out} for r in runners]
        renamed = _renamed(quant_model, runners[1])
        self.pairs = plan_taps(float_model, quant_model, alignment, names[0], names[1], renamed)
        self.measured = [MeasuredActivation(p, PairSums(), range_use=_range_of(p.site)) for p in self.pairs]
        self.float_taps = {p.float_tap for p in self.pairs if p.float_tap is not None}
        self.quant_taps = {p.quant_tap for p in self.pairs if p.observable and p.quant_tap is not None}
        self.outputs: dict[tuple[str, str], PairSums] = {}
        self.kept: tuple[dict[str, list[Array]], dict[str, list[Array]]] = ({}, {})
        self.verified: dict[str, bool] = {}
        self.first_feeds: dict[str, Array] = {}
        self.notes: list[str] = []
        self.isolated = self._isolated()

    def batch(self, batch: Batch) -> None:
        """Runs one batch through the float model, the quantized one, and the groups alone."""
        if not self.verified:
            for name, runner, feeds, taps in (
                ("float", self.runners[0], batch.float_feeds, self.float_taps),
                ("quant", self.runners[1], batch.quant_feeds, self.quant_taps),
            ):
                self.verified[name] = runner.taps_are_neutral(feeds, taps)
            self.first_feeds = dict(batch.quant_feeds)
        floats: dict[str, Array] = {}
        for event in self.runners[0].tap([(batch.samples, batch.float_feeds)], self.float_taps):
            if event.value:
                floats[event.value] = event.array
            else:
                float_outputs = event.outputs
        by_tap: dict[str, list[MeasuredActivation]] = {}
        for item in self.measured:
            seen = floats.get(item.pair.float_tap or "")
            if seen is not None:
                item.see(seen)
            if item.pair.observable and item.pair.quant_tap is not None:
                by_tap.setdefault(item.pair.quant_tap, []).append(item)
        for event in self.runners[1].tap([(batch.samples, batch.quant_feeds)], self.quant_taps):
            for item in by_tap.get(event.value, ()):
                x = floats[item.pair.float_tap or ""]
                if event.array.dtype.kind in "iu" and item.pair.params is None and x.dtype.kind == "f":
                    item.reason = "only codes without a known scale exist in the graph that runs"
                    continue
                found = reconcile(x, item.pair.value_of(event.array))
                if found is not None:
                    item.cumulative.update(x, found[0])
                    item.layout = found[1] or item.layout
                else:
                    item.reason = f"shapes differ: {list(x.shape)} and {list(event.array.shape)}"
            if not event.value:
                self._outputs(float_outputs, event.outputs)
        self._run_isolated(batch, floats)

    def _outputs(self, ours: Any, theirs: Any) -> None:
        named = {n: n for n in ours if n in theirs}
        rest = zip([n for n in ours if n not in named], [n for n in theirs if n not in named.values()], strict=False)
        for name, other in (named | dict(rest)).items():
            x, y = ours[name], theirs[other]
            found = reconcile(x, y) if x.dtype.kind in "fiu" and y.dtype.kind in "fiu" else None
            if found is not None:
                self.outputs.setdefault((name, other), PairSums()).update(x, found[0])
            self.kept[0].setdefault(name, []).append(x)
            self.kept[1].setdefault(other, []).append(y)

    def _isolated(self) -> tuple[IsolatedModel, list[Part], dict[str, dict[str, tuple[str, QuantSite | None]]]] | None:
        """The groups that can be cut out, and the float tap (or input) that feeds each of their inputs."""
        graph, sites = self.quant_model.graph, sites_by_value(self.quant_model)
        feeds = self._float_names()
        parts, wiring = [], {}
        for group in self.alignment.groups:
            outputs = [p for p in self.pairs if p.group == group.id and p.float_tap is not None]
            nodes = [n for n in group.quant_nodes if graph.nodes[n].parent is None]
            if not outputs or not nodes or len(nodes) != len(group.quant_nodes):
                continue
            own = {out for n in nodes for out in graph.nodes[n].outputs if out is not None}
            reads = {v for n in nodes for v in graph.nodes[n].inputs if v is not None and v not in own}
            outside = [v for v in reads if graph.const(v) is None]
            if any(v not in feeds for v in outside) or any(graph.nodes[n].bodies for n in nodes):
                continue
            given = [p for p in outputs if p.quant_value in own]
            if not given:
                continue
            inputs = {}
            for v in outside:
                coded = code_site(graph, v, sites)
                dtype = graph.values[v].dtype
                if coded is not None and coded.params is not None:
                    dtype = coded.params.code_type
                inputs[graph.values[v].name] = "float32" if dtype is None else dtype.name
            kinds = {n: "float" if k == "float32" else "double" if k == "float64" else k for n, k in inputs.items()}
            parts.append(
                Part(
                    group.id, tuple(nodes), kinds, tuple(dict.fromkeys(graph.values[p.quant_value].name for p in given))
                )
            )
            wiring[group.id] = {graph.values[v].name: (feeds[v], code_site(graph, v, sites)) for v in outside}
        if not parts:
            return None
        try:
            return IsolatedModel(self.runners[1].path, parts, self.runners[1].options), parts, wiring
        except Exception as error:
            self.notes.append(f"Groups could not be run alone: {error}")
            return None

    def _float_names(self) -> dict[ValueId, str]:
        """The float tap, or the float input ("<input>NAME"), that holds the value of each quant value."""
        graph = self.quant_model.graph
        sites = sites_by_value(self.quant_model)
        found: dict[ValueId, str] = {}
        by_site: dict[int, str] = {}
        for pair in self.pairs:
            if pair.float_tap is None:
                continue
            found.setdefault(pair.quant_value, pair.float_tap)
            if pair.site is not None:
                by_site.setdefault(id(pair.site), pair.float_tap)
        ours = self.float_model.graph
        for mine, theirs in zip(ours.inputs, graph.inputs, strict=False):
            name = "<input>" + ours.values[mine].name
            found[theirs] = name
            for node, _ in graph.readers_of(theirs):
                for out in node.outputs:
                    if out is not None and out in sites and sites[out].value == out:
                        by_site[id(sites[out])] = name
        for value, site in sites.items():
            if id(site) in by_site:
                found.setdefault(value, by_site[id(site)])
        return found

    def _run_isolated(self, batch: Batch, floats: dict[str, Array]) -> None:
        if self.isolated is None:
            return
        model, parts, wiring = self.isolated
        feeds: dict[tuple[str, str], Array] = {}
        for part in parts:
            for name, (source, site) in wiring[part.key].items():
                array = batch.float_feeds.get(source[7:]) if source.startswith("<input>") else floats.get(source)
                if array is None:
                    return
                feeds[part.key, name] = _as_input(array, part.inputs[name], site)
        try:
            found = model.run(feeds)
        except Exception as error:
            self.notes.append(f"Groups could not be run alone: {str(error)[:200]}")
            self.isolated = None
            return
        graph, sites = self.quant_model.graph, sites_by_value(self.quant_model)
        for item in self.measured:
            name = graph.values[item.pair.quant_value].name
            got = found.get((item.pair.group or "", name))
            if got is None or item.pair.float_tap is None:
                continue
            x = floats[item.pair.float_tap]
            coded = code_site(graph, item.pair.quant_value, sites)
            value = dataclasses.replace(item.pair, params=None if coded is None else coded.params).value_of(got)
            fitted = reconcile(x, value)
            if fitted is not None:
                item.isolated = item.isolated or PairSums()
                item.isolated.update(x, fitted[0])

    def result(self, samples: int, notes: Sequence[str]) -> RunResult:
        """All that was gathered."""
        joined = tuple({n: _joined(a) for n, a in side.items()} for side in self.kept)
        return RunResult(
            self.measured,
            self.outputs,
            joined[0],
            joined[1],
            samples,
            self.verified,
            [*notes, *self.notes],
            self.first_feeds,
        )


def _renamed(quant_model: Model, runner: LocalRunner) -> dict[object, Renamed]:
    """Where the values of the user's quantized graph are in the optimised one."""
    with contextlib.suppress(InputError):
        optimised = load_model(runner.optimised_path, data_root=runner.path.parent)
        tied = align_models(quant_model, optimised)
        return follow_renames(quant_model, optimised.graph, tied)
    return {}


def _joined(arrays: list[Array]) -> Array:
    shapes = {a.shape[1:] for a in arrays if a.ndim}
    return np.concatenate(arrays) if len(shapes) == 1 and all(a.ndim for a in arrays) else arrays[0]


def _range_of(site: QuantSite | None) -> RangeUse | None:
    limits = None if site is None else value_range(site.params)
    if site is None or site.params is None or limits is None or site.params.scale.size != 1:
        return None
    return RangeUse(limits[0], limits[1], abs(float(site.params.scale.reshape(-1)[0])))


def _as_input(array: Array, kind: str, site: QuantSite | None) -> Array:
    """A float array as what a group takes: codes are made by the site's own parameters."""
    if site is not None and site.params is not None and site.params.code_type.is_integer:
        made: Array = quantize(array, site.params).astype(site.params.code_type.numpy)
        return made
    with np.errstate(over="ignore", invalid="ignore"):  # what float16 can't hold becomes infinite, as it will there
        return array.astype({"float": np.float32, "double": np.float64, "float16": np.float16}.get(kind, array.dtype))

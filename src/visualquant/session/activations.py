"""Runs both models on samples and measures what happens between: wires runners, taps and statistics."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.findings.context import value_range
from visualquant.analysis.layouts import reconcile
from visualquant.analysis.measured import MeasuredActivation, MeasuredSite, RunResult
from visualquant.analysis.tap_plan import INPUT, Renamed, follow_renames, plan_inputs, plan_taps, unpaired_sites
from visualquant.core.activations import PairSums, RangeUse, StepSums
from visualquant.core.alignment import Alignment
from visualquant.core.model import Model
from visualquant.core.quant import QuantSite
from visualquant.errors import CancelledError, InputError
from visualquant.kernels.pair_sums import add_pair, add_range
from visualquant.runtime.feeds import Batch, Feeder
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.memory_watch import MemoryWatch
from visualquant.runtime.runner import Runner
from visualquant.runtime.states import States
from visualquant.session.groups_alone import GroupsAlone
from visualquant.session.pipeline import align_models, load_model
from visualquant.session.tap_store import TapStore

Array = npt.NDArray[Any]
MOST_WORKERS = 8


def run_and_measure(
    float_model: Model,
    quant_model: Model,
    alignment: Alignment,
    runners: tuple[Runner, Runner],
    feeder: Feeder,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    watch: MemoryWatch | None = None,
) -> RunResult:
    """Streams all samples through both models.

    Raises:
        CancelledError: `cancel` said so.
        InputError: a model fails on the samples.
    """
    states = States(feeder.options.state, feeder.partner, runners[0].outputs, runners[1].outputs)
    with contextlib.ExitStack() as stack:
        job = Job(float_model, quant_model, alignment, runners, feeder.partner, states, stack)
        done = 0
        for batch in feeder.batches():
            if cancel is not None and cancel():
                raise CancelledError("Stopped before all samples were run.")
            job.batch(batch)
            if not done and watch is not None:
                watch.check()
            done = batch.samples.stop
            if progress is not None:
                progress(done, feeder.count)
        return job.result(done, feeder.notes, feeder.steps)


class Job:
    """Both models' taps, the statistics that they feed, and the groups that run alone."""

    def __init__(
        self,
        float_model: Model,
        quant_model: Model,
        alignment: Alignment,
        runners: tuple[Runner, Runner],
        partner: Mapping[str, str],
        states: States,
        stack: contextlib.ExitStack,
    ) -> None:
        self.float_model, self.quant_model, self.alignment = float_model, quant_model, alignment
        self.runners = runners
        names = [{out for n in r.optimised().graph.node for out in n.output if out} for r in runners]
        renamed = _renamed(quant_model, runners[1])
        self.partner = partner
        self.pairs = plan_inputs(float_model, quant_model, partner)
        self.pairs += plan_taps(float_model, quant_model, alignment, names[0], names[1], renamed)
        self.measured = [MeasuredActivation(p, PairSums(), range_use=_range_of(p.site)) for p in self.pairs]
        self.float_taps = {p.float_tap for p in self.pairs if p.float_tap is not None and not p.is_input}
        self.quant_taps = {p.quant_tap for p in self.pairs if p.observable and p.quant_tap is not None}
        self.outputs: dict[tuple[str, str], PairSums] = {}
        self.kept: tuple[dict[str, list[Array]], dict[str, list[Array]]] = ({}, {})
        self.verified: dict[str, bool] = {}
        self.first_feeds: dict[str, Array] = {}
        self.notes: list[str] = []
        self.states = states
        self.steps: dict[tuple[str, str], StepSums] = {}
        # NOTE: kernels let go of the interpreter, so statistics of several tensors are gathered side by side; where
        # memory is bounded one after the other, since tensors that wait for their turn take room
        workers = 1 if runners[0].options.memory_bytes is not None else min(os.cpu_count() or 1, MOST_WORKERS)
        self.pool = stack.enter_context(ThreadPoolExecutor(workers)) if workers > 1 else None
        self.waiting: list[Future[None]] = []
        self._plan_sites(stack)
        self.alone = GroupsAlone(
            float_model, quant_model, alignment, self.pairs, runners[1].path, runners[1].host_options
        )

    def batch(self, batch: Batch) -> None:
        """Runs one batch through the float model, the quantized one, and the groups alone."""
        batch = self.states.applied(batch)
        if not self.verified:
            for name, runner, feeds, taps in (
                ("float", self.runners[0], batch.float_feeds, self.float_taps),
                ("quant", self.runners[1], batch.quant_feeds, self.quant_taps),
            ):
                self.verified[name] = runner.taps_are_neutral(feeds, taps)
            self.first_feeds = dict(batch.quant_feeds)
        with contextlib.closing(TapStore(on_disk=self.runners[0].options.memory_bytes is not None)) as floats:
            self._run(batch, floats)

    def _run(self, batch: Batch, floats: TapStore) -> None:
        by_float: dict[str, list[MeasuredActivation]] = {}
        by_quant: dict[str, list[MeasuredActivation]] = {}
        for item in self.measured:
            if item.pair.float_tap is not None:
                by_float.setdefault(item.pair.float_tap, []).append(item)
            if item.pair.observable and item.pair.quant_tap is not None:
                by_quant.setdefault(item.pair.quant_tap, []).append(item)
        self._inputs(batch, floats)
        for event in self.runners[0].tap([(batch.samples, batch.float_feeds)], self.float_taps):
            if event.value:
                floats.put(event.value, event.array)
                for item in by_float.get(event.value, ()):
                    self._do(item.see, event.array)
            else:
                float_outputs = event.outputs
        for event in self.runners[1].tap([(batch.samples, batch.quant_feeds)], self.quant_taps):
            for item in by_quant.get(event.value, ()):
                self._do(self._compare, item, floats[item.pair.float_tap or ""], event.array)
            if not event.value:
                self._outputs(batch, float_outputs, event.outputs)
                self.states.keep(float_outputs, event.outputs)
        if self.sites:
            for event in self.as_written.tap([(batch.samples, batch.quant_feeds)], set(self.sites)):
                if event.value in self.sites:
                    self._do(add_range, self.sites[event.value].range_use, event.array)
        self._settle()
        for item, x, y in self.alone.run(self.measured, floats):
            item.isolated = item.isolated or PairSums()
            self._do(add_pair, item.isolated, x, y)
        self._settle()

    def _do(self, work: Callable[..., None], *args: Any) -> None:
        """Runs work now, or beside other work until `_settle`."""
        if self.pool is None:
            work(*args)
        else:
            self.waiting.append(self.pool.submit(work, *args))

    def _settle(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.result()

    def _compare(self, item: MeasuredActivation, x: Array, tapped: Array) -> None:
        if tapped.dtype.kind in "iu" and item.pair.params is None and x.dtype.kind == "f":
            item.reason = "only codes without a known scale exist in the graph that runs"
            return
        found = reconcile(x, item.pair.value_of(tapped), item.layout)
        if found is None:
            item.reason = f"shapes differ: {list(x.shape)} and {list(tapped.shape)}"
        else:
            add_pair(item.cumulative, x, found[0])
            item.layout = found[1] or item.layout

    def _plan_sites(self, stack: contextlib.ExitStack) -> None:
        """Quantizers without a float counterpart are seen in the quantized model, run as it is written."""
        values = unpaired_sites(self.quant_model, self.pairs)
        self.sites = {
            self.quant_model.graph.values[v].name: MeasuredSite(v, use)
            for v, site in values.items()
            if (use := _range_of(site)) is not None
        }
        if self.sites:
            runner = self.runners[1]
            options = dataclasses.replace(runner.host_options, level="none")
            self.as_written = stack.enter_context(LocalRunner(runner.path, options))
            made = {out for n in self.as_written.optimised().graph.node for out in n.output}
            self.sites = {name: site for name, site in self.sites.items() if name in made}

    def _inputs(self, batch: Batch, floats: TapStore) -> None:
        """The float model's inputs by the names that taps have; what quantizing them at once costs is noted."""
        theirs = {ours: name for name, ours in self.partner.items()}
        for item in self.measured:
            if not item.pair.is_input or item.pair.float_tap is None:
                continue
            name = item.pair.float_tap.removeprefix(INPUT)
            x = batch.float_feeds[name]
            item.see(x)
            found = reconcile(x, batch.quant_feeds[theirs[name]])
            if found is not None:
                add_pair(item.cumulative, x, item.pair.value_of(found[0]))
        for name, array in batch.float_feeds.items():
            floats.put(INPUT + name, array, held=True)

    def _outputs(self, batch: Batch, ours: Any, theirs: Any) -> None:
        named = {n: n for n in ours if n in theirs}
        rest = zip([n for n in ours if n not in named], [n for n in theirs if n not in named.values()], strict=False)
        for name, other in (named | dict(rest)).items():
            x, y = ours[name], theirs[other]
            found = reconcile(x, y) if x.dtype.kind in "fiu" and y.dtype.kind in "fiu" else None
            if found is not None:
                add_pair(self.outputs.setdefault((name, other), PairSums()), x, found[0])
                if batch.steps > 1:
                    add_pair(self.steps.setdefault((name, other), StepSums()).at(batch.step), x, found[0])
            self.kept[0].setdefault(name, []).append(x)
            self.kept[1].setdefault(other, []).append(y)

    def result(self, samples: int, notes: Sequence[str], steps: int) -> RunResult:
        """All that was gathered."""
        joined = tuple({n: _joined(a, steps) for n, a in side.items()} for side in self.kept)
        return RunResult(
            self.measured,
            self.outputs,
            joined[0],
            joined[1],
            samples,
            self.verified,
            [*notes, *self.notes, *self.alone.notes],
            self.first_feeds,
            self.steps,
            self.states.outputs,
            steps,
            list(self.sites.values()),
        )


def _renamed(quant_model: Model, runner: Runner) -> dict[object, Renamed]:
    """Where the values of the user's quantized graph are in the optimised one."""
    with contextlib.suppress(InputError):
        optimised = load_model(runner.optimised_path, data_root=runner.path.parent)
        tied = align_models(quant_model, optimised)
        return follow_renames(quant_model, optimised.graph, tied)
    return {}


def _joined(arrays: list[Array], steps: int) -> Array:
    """All samples of an output; of sequences [samples, steps, ...]."""
    if steps:
        arrays = [np.stack(arrays[k : k + steps], axis=1) for k in range(0, len(arrays), steps) if arrays[k].ndim]
    shapes = {a.shape[1:] for a in arrays if a.ndim}
    return np.concatenate(arrays) if len(shapes) == 1 and all(a.ndim for a in arrays) else arrays[0]


def _range_of(site: QuantSite | None) -> RangeUse | None:
    limits = None if site is None else value_range(site.params)
    if site is None or site.params is None or limits is None or site.params.scale.size != 1:
        return None
    return RangeUse(limits[0], limits[1], abs(float(site.params.scale.reshape(-1)[0])))

"""Isolated error: each group of the quantized model, fed with what the float model had at that place."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from visualquant.analysis.layouts import reconcile
from visualquant.analysis.measured import MeasuredActivation
from visualquant.analysis.tap_plan import INPUT, TapPair, code_site, quantize, sites_by_value
from visualquant.core.alignment import Alignment, MatchGroup
from visualquant.core.graph import NodeId, ValueId
from visualquant.core.model import Model
from visualquant.core.quant import QuantSite
from visualquant.core.taps import RunOptions
from visualquant.runtime.isolated import IsolatedModel, Part
from visualquant.session.tap_store import TapStore

Array = npt.NDArray[Any]
# Codes whose parameters exist only at run time can't be made here: the node that makes them goes along.
RUN_TIME_QUANTIZERS = frozenset({"DynamicQuantizeLinear"})
_RUNTIME_SPELLING = {"float32": "float", "float64": "double"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Feed:
    """Where an input of a part comes from: a float tap or a float model's input; `site` makes codes of it."""

    source: str
    site: QuantSite | None


class GroupsAlone:
    """All groups that can be cut out of a quantized model.

    Attributes:
        notes: what could not be run, and why.
    """

    def __init__(
        self,
        float_model: Model,
        quant_model: Model,
        alignment: Alignment,
        pairs: Sequence[TapPair],
        path: Path,
        options: RunOptions,
    ) -> None:
        """Finds the groups; their models are made when the first batch shows how large their tensors are.

        Args:
            float_model: the reference.
            quant_model: its counterpart.
            alignment: of the two.
            pairs: what is tapped.
            path: of the quantized model.
            options: how it runs; `memory_bytes` bounds what runs at once.
        """
        self.notes: list[str] = []
        self._float_model, self._model = float_model, quant_model
        self._path, self._options = path, options
        self._pairs = pairs
        self._sites = sites_by_value(quant_model)
        self._feeds: dict[str, dict[str, _Feed]] = {}
        sources = self._sources()
        found = (self._part(group, sources) for group in alignment.groups)
        self._parts = [part for part in found if part is not None]
        self._models: list[tuple[IsolatedModel, list[Part]]] | None = None

    def _sources(self) -> dict[ValueId, str]:
        """The float tap, or the float input, that holds the value of each quant value."""
        graph = self._model.graph
        found: dict[ValueId, str] = {}
        by_site: dict[int, str] = {}
        for pair in self._pairs:
            if pair.float_tap is not None:
                found.setdefault(pair.quant_value, pair.float_tap)
                if pair.site is not None:
                    by_site.setdefault(id(pair.site), pair.float_tap)
        ours = self._float_model.graph
        for mine, theirs in zip(ours.inputs, graph.inputs, strict=False):
            name = INPUT + ours.values[mine].name
            found[theirs] = name
            for node, _ in graph.readers_of(theirs):
                for out in node.outputs:
                    if out is not None and out in self._sites and self._sites[out].value == out:
                        by_site[id(self._sites[out])] = name
        for value, site in self._sites.items():
            if id(site) in by_site:
                found.setdefault(value, by_site[id(site)])
        return found

    def _part(self, group: MatchGroup, sources: Mapping[ValueId, str]) -> Part | None:
        graph = self._model.graph
        outputs = [p for p in self._pairs if p.group == group.id and p.float_tap is not None]
        if not outputs or not group.quant_nodes or any(graph.nodes[n].parent is not None for n in group.quant_nodes):
            return None
        nodes = self._with_quantizers(group.quant_nodes)
        own, outside = self._ends(nodes)
        given = [p for p in outputs if p.quant_value in own]
        if not given or any(v not in sources for v in outside) or any(graph.nodes[n].bodies for n in nodes):
            return None
        inputs, feeds = {}, {}
        for value in outside:
            site = code_site(graph, value, self._sites)
            dtype = graph.values[value].dtype if site is None or site.params is None else site.params.code_type
            name = "float32" if dtype is None else dtype.name
            inputs[graph.values[value].name] = _RUNTIME_SPELLING.get(name, name)
            feeds[graph.values[value].name] = _Feed(sources[value], site)
        self._feeds[group.id] = feeds
        names = dict.fromkeys(graph.values[p.quant_value].name for p in given)
        return Part(group.id, tuple(sorted(nodes)), inputs, tuple(names))

    def _ends(self, nodes: Collection[NodeId]) -> tuple[set[ValueId], list[ValueId]]:
        """Values that the nodes make, and values that they take from outside."""
        graph = self._model.graph
        own = {out for n in nodes for out in graph.nodes[n].outputs if out is not None}
        reads = dict.fromkeys(v for n in nodes for v in graph.nodes[n].inputs if v is not None and v not in own)
        return own, [v for v in reads if graph.const(v) is None]

    def _with_quantizers(self, nodes: Collection[NodeId]) -> set[NodeId]:
        graph, found = self._model.graph, set(nodes)
        for value in self._ends(nodes)[1]:
            made = graph.producer_of(value)
            if made is not None and made.op_type in RUN_TIME_QUANTIZERS:
                found.add(made.id)
        return found

    def run(
        self, measured: Sequence[MeasuredActivation], floats: TapStore
    ) -> Iterator[tuple[MeasuredActivation, Array, Array]]:
        """(activation, float value, the same of the group alone) for one batch.

        Args:
            measured: the activations.
            floats: inputs and tapped values of the float model.
        """
        wanted: dict[tuple[str, str], list[MeasuredActivation]] = {}
        for item in measured:
            if item.pair.float_tap is not None and item.pair.group is not None:
                name = self._model.graph.values[item.pair.quant_value].name
                wanted.setdefault((item.pair.group, name), []).append(item)
        if self._models is None:
            proto = onnx.load(self._path) if self._parts else onnx.ModelProto()
            self._models = []
            for parts in self._portions(floats):
                self._open(proto, parts)
        for model, parts in list(self._models):
            for key, got in self._run(model, parts, floats).items():
                for item in wanted.get(key, ()):
                    x = floats[item.pair.float_tap or ""]
                    coded = code_site(self._model.graph, item.pair.quant_value, self._sites)
                    pair = dataclasses.replace(item.pair, params=None if coded is None else coded.params)
                    fitted = reconcile(x, pair.value_of(got), item.layout)
                    if fitted is not None:
                        yield item, x, fitted[0]

    def _portions(self, floats: TapStore) -> Iterator[list[Part]]:
        """Parts whose inputs and outputs together fit the budget; all at once without one."""
        budget = self._options.portion_bytes
        made: dict[str, int] = {}
        for pair in self._pairs:
            if pair.group is not None and pair.float_tap is not None and pair.float_tap in floats:
                made[pair.group] = made.get(pair.group, 0) + (floats.nbytes(pair.float_tap) or 0)
        portion: list[Part] = []
        held = 0
        for part in self._parts:
            taken = [floats.nbytes(feed.source) for feed in self._feeds[part.key].values()]
            if any(nbytes is None for nbytes in taken):
                continue
            size = sum(nbytes or 0 for nbytes in taken) + made.get(part.key, 0)
            if portion and budget is not None and held + size > budget:
                yield portion
                portion, held = [], 0
            portion.append(part)
            held += size
        if portion:
            yield portion

    def _open(self, proto: onnx.ModelProto, parts: list[Part]) -> None:
        """Models of the parts; where the runtime refuses some, of halves of them, down to the one at fault."""
        assert self._models is not None
        try:
            self._models.append((IsolatedModel(proto, parts, self._options), parts))
        except Exception as error:  # NOTE: the runtime and protobuf raise classes of their own
            self._open_halves(proto, parts, error)

    def _open_halves(self, proto: onnx.ModelProto, parts: list[Part], error: Exception) -> None:
        """After a failure of all parts at once; a single one is left out."""
        if len(parts) == 1:
            self._leave_out(parts[0], error)
            return
        for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]):
            self._open(proto, half)

    def _run(self, model: IsolatedModel, parts: list[Part], floats: TapStore) -> dict[tuple[str, str], Array]:
        feeds = {}
        for part in parts:
            for name, feed in self._feeds[part.key].items():
                feeds[part.key, name] = _as_input(floats[feed.source], part.inputs[name], feed.site)
        try:
            return model.run(feeds)
        except Exception as error:  # NOTE: the runtime raises classes of its own
            assert self._models is not None
            self._models.remove((model, parts))
            start = len(self._models)
            self._open_halves(onnx.load(self._path), parts, error)
            found: dict[tuple[str, str], Array] = {}
            for smaller, fewer in self._models[start:]:
                found |= self._run(smaller, fewer, floats)
            return found

    def _leave_out(self, part: Part, error: Exception) -> None:
        graph = self._model.graph
        names = ", ".join(graph.nodes[n].name or graph.nodes[n].op_type for n in part.nodes[:3])
        self.notes.append(f"Group {part.key} ({names}) could not be run alone: {' '.join(str(error).split())[:160]}")


def _as_input(array: Array, kind: str, site: QuantSite | None) -> Array:
    """A float array as what a group takes: codes are made by the site's own parameters."""
    if site is not None and site.params is not None and site.params.code_type.is_integer:
        made: Array = quantize(array, site.params).astype(site.params.code_type.numpy)
        return made
    with np.errstate(over="ignore", invalid="ignore"):  # what float16 can't hold becomes infinite, as it will there
        return array.astype({"float": np.float32, "double": np.float64, "float16": np.float16}.get(kind, array.dtype))

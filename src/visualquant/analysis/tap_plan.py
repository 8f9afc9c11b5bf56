"""Which tensors to tap on both sides, and how the quantized one becomes a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView, ValueId
from visualquant.core.model import Model
from visualquant.core.operators import QUANTIZE_OPS
from visualquant.core.quant import QuantParams, QuantSite, code_limits
from visualquant.core.trace import LAYOUT_OPS
from visualquant.kernels.codes import from_codes, to_codes

Array = npt.NDArray[Any]
MAX_LAYOUT_OPS = 8
INPUT = "<input>"
"""Before the name of a float model's input, where a tap's name is expected: inputs are fed, not tapped."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TapPair:
    """One value on both sides.

    Attributes:
        float_value, quant_value: value ids.
        group: of the float node that makes it (of the quant node where the float side has none).
        depth: place in the dataflow order of the float graph.
        float_tap, quant_tap: names in the graphs that really run; None where the value no longer exists there.
        params: how tapped codes become values; None where the tap is a float.
        site: the quantizer behind the value, if any.
        reason: why it can't be observed.
        before_quantizer: the tap stands before Q → DQ, which are applied to it here.
    """

    float_value: ValueId
    quant_value: ValueId
    group: str | None
    depth: int
    float_tap: str | None
    quant_tap: str | None
    params: QuantParams | None
    site: QuantSite | None
    reason: str | None = None
    before_quantizer: bool = False

    @property
    def observable(self) -> bool:
        """True where both taps exist, or inputs need none."""
        return self.float_tap is not None and (self.quant_tap is not None or self.is_input)

    @property
    def is_input(self) -> bool:
        """True for a graph input that is quantized at once."""
        return self.float_tap is not None and self.float_tap.startswith(INPUT)

    def value_of(self, tapped: Array) -> Array:
        """The tapped array as float values: codes are dequantized as the runtime does, in float32."""
        if self.params is None:
            return tapped
        if tapped.dtype.kind == "f":
            return dequantize(quantize(tapped, self.params), self.params) if self.before_quantizer else tapped
        return dequantize(tapped, self.params)


def quantize(x: Array, params: QuantParams) -> npt.NDArray[np.int32]:
    """saturate(round_half_even(x / scale) + zero_point) in float32, as QuantizeLinear; NaN becomes code 0."""
    scale = params.broadcast(params.scale, x.shape)
    return to_codes(x, scale, _zero_point(params, scale, x.shape), code_limits(params) or (-128, 127))


def dequantize(codes: Array, params: QuantParams) -> npt.NDArray[np.float32]:
    """(code − zero_point)·scale in float32, the subtraction in int32.

    The runtime may turn int8 codes into uint8 (shifted by half the range) or back: the tapped type decides.
    """
    if not params.code_type.is_integer:  # float codes come out of the runtime as bytes
        stored = params.code_type.numpy
        values = codes.view(stored) if codes.dtype != stored and codes.dtype.itemsize == stored.itemsize else codes
        return values.astype(np.float32) * params.broadcast(params.scale, codes.shape).astype(np.float32)
    scale = params.broadcast(params.scale, codes.shape)
    zero = _zero_point(params, scale, codes.shape)
    half = 1 << (8 * codes.dtype.itemsize - 1) if codes.dtype.itemsize < 4 else 0
    if codes.dtype.kind == "u" and params.code_type.kind == "int":
        zero = zero + half
    elif codes.dtype.kind == "i" and params.code_type.kind == "uint":
        zero = zero - half
    return from_codes(codes, scale, zero)


def _zero_point(params: QuantParams, scale: Array, shape: tuple[int, ...]) -> Array:
    if params.zero_point is None:
        return np.zeros(scale.shape, np.int32)
    return np.broadcast_to(params.broadcast(params.zero_point.astype(np.int32), shape), scale.shape)


def sites_by_value(model: Model) -> dict[ValueId, QuantSite]:
    """The activation site by each value that it makes: codes and dequantized tensors."""
    found: dict[ValueId, QuantSite] = {}
    graph = model.graph
    for site in model.activation_sites:
        for value in (site.value, site.dequantized):
            if value is not None:
                found.setdefault(value, site)
        for node_id in site.nodes:
            for out in graph.nodes[node_id].outputs:
                if out is not None:
                    found.setdefault(out, site)
    return found


def code_site(graph: GraphView, value: ValueId, sites: Mapping[ValueId, QuantSite]) -> QuantSite | None:
    """The site whose codes a value holds, None for float values; codes pass layout operators unchanged.

    Args:
        graph: of the quantized model.
        value: any.
        sites: see `sites_by_value`.
    """
    at: ValueId | None = value
    for _ in range(MAX_LAYOUT_OPS):
        site = None if at is None else sites.get(at)
        if site is not None:
            moved = at != value and (site.params is None or site.params.scale.size != 1)
            return site if site.value == at and not moved else None
        node = graph.producer_of(at)
        if node is None or node.op_type not in LAYOUT_OPS or node.op_type == "Cast":
            return None
        at = node.input(0)
    return None


def sites_behind(model: Model) -> dict[ValueId, QuantSite]:
    """The activation site by the float value that it quantizes, where no other reader sees the value unquantized."""
    found: dict[ValueId, QuantSite] = {}
    graph = model.graph
    for site in model.activation_sites:
        for node_id in site.nodes:
            node = graph.nodes[node_id]
            value = node.input(0)
            if node.op_type in QUANTIZE_OPS and value is not None and site.value in node.outputs:
                others = [n for n, _ in graph.readers_of(value) if n.op_type not in QUANTIZE_OPS]
                if not others:
                    found.setdefault(value, site)
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Renamed:
    """A value in the optimised graph.

    Attributes:
        name: there.
        params: how codes become values, where codes are what is found there.
        before_quantizer: it stands before Q → DQ.
    """

    name: str
    params: QuantParams | None
    before_quantizer: bool = False


def key_of(site: QuantSite | None, value: ValueId) -> object:
    """One key for all forms of a quantized value: before Q, codes, after DQ."""
    return ("site", id(site)) if site is not None else value


def blocked_values(optimised: GraphView) -> set[ValueId]:
    """Values that the runtime keeps in blocks of channels (NCHWc): the shape is the same, the order is not.

    They come out of its own operators, and pass element-wise ones as they are.
    """
    found: set[ValueId] = set()
    for node_id in optimised.topological:
        node = optimised.nodes[node_id]
        own = node.domain == "com.microsoft.nchwc"
        if node.op_type != "ReorderOutput" and (own or any(v in found for v in node.inputs)):
            found.update(v for v in node.outputs if v is not None)
    return found


def follow_renames(quant_model: Model, optimised: GraphView, tied: Alignment) -> dict[object, Renamed]:
    """Where each value of the user's quantized graph is in the graph that runs, by another alignment.

    Args:
        quant_model: the user's graph.
        optimised: what the runtime made of it.
        tied: alignment of the two.
    """
    made_by, behind = sites_by_value(quant_model), sites_behind(quant_model)
    found: dict[object, Renamed] = {}
    blocked = blocked_values(optimised)
    # A value behind its quantizer is taken first: what stands before it has to be quantized here.
    for before in (False, True):
        for tie in tied.values:
            if tie.quant_value in blocked:
                continue
            site = (behind if before else made_by).get(tie.float_value)
            if before and (site is None or tie.float_value in made_by):
                continue
            params = None if site is None else site.params
            early = before and params is not None and params.code_type.is_integer
            renamed = Renamed(optimised.values[tie.quant_value].name, params, early)
            found.setdefault(key_of(site, tie.float_value), renamed)
    return found


def plan_taps(
    float_model: Model,
    quant_model: Model,
    alignment: Alignment,
    float_names: Collection[str],
    quant_names: Collection[str],
    renamed: Mapping[object, Renamed] | None = None,
) -> tuple[TapPair, ...]:
    """A pair for each aligned value, in dataflow order.

    Values are compared after Q → DQ: only there a removed Relu shows what it still does. Where several float values
    end in one quantized value, the last of them is it.

    Args:
        float_model: the reference.
        quant_model: its counterpart.
        alignment: of the two.
        float_names: names of values in the float graph that really runs.
        quant_names: the same of the quantized graph.
        renamed: what became of values whose names are gone, by `key_of` (see `follow_renames`).
    """
    float_graph, quant_graph = float_model.graph, quant_model.graph
    order = {n: k for k, n in enumerate(float_graph.topological)}
    made_by, behind = sites_by_value(quant_model), sites_behind(quant_model)
    pairs: dict[object, TapPair] = {}
    for tie in alignment.values:
        made = float_graph.values[tie.float_value].producer
        if made is None or float_graph.values[tie.float_value].scope or quant_graph.values[tie.quant_value].scope:
            continue
        site = made_by.get(tie.quant_value) or behind.get(tie.quant_value)
        key = key_of(site, tie.quant_value)
        old = pairs.get(key)
        if old is not None and old.depth >= order[made]:
            continue
        name = float_graph.values[tie.float_value].name
        quant_value, quant_tap, params = _quant_tap(quant_graph, tie.quant_value, site, quant_names)
        if site is None:
            coded = code_site(quant_graph, tie.quant_value, made_by)
            params = None if coded is None else coded.params
        early = False
        if quant_tap is None and renamed is not None and key in renamed:
            quant_tap, params, early = renamed[key].name, renamed[key].params, renamed[key].before_quantizer
        if quant_tap is None and site is not None and quant_graph.values[tie.quant_value].name in quant_names:
            early = site.params is not None and site.params.code_type.is_integer
            quant_tap, params = (quant_graph.values[tie.quant_value].name, site.params) if early else (None, None)
        reason = None
        if name not in float_names:
            reason = "fused away in the float model by the runtime"
        elif quant_tap is None:
            reason = "fused away in the quantized model by the runtime"
        group = alignment.group_of_float.get(made)
        pairs[key] = TapPair(
            float_value=tie.float_value,
            quant_value=quant_value,
            group=None if group is None else group.id,
            depth=order[made],
            float_tap=name if name in float_names else None,
            quant_tap=quant_tap,
            params=params,
            site=site,
            reason=reason,
            before_quantizer=early,
        )
    return tuple(sorted(pairs.values(), key=lambda p: (p.depth, p.float_value, p.quant_value)))


def plan_inputs(float_model: Model, quant_model: Model, partner: Mapping[str, str]) -> tuple[TapPair, ...]:
    """A pair for each graph input that is quantized at once.

    Args:
        float_model: the reference.
        quant_model: its counterpart.
        partner: float input by quant input.
    """
    ours = {float_model.graph.values[v].name: v for v in float_model.graph.inputs}
    behind = sites_behind(quant_model)
    found = []
    for theirs in quant_model.graph.inputs:
        site, name = behind.get(theirs), partner.get(quant_model.graph.values[theirs].name)
        if site is not None and site.params is not None and site.params.code_type.is_integer and name in ours:
            after = site.value if site.dequantized is None else site.dequantized
            found.append(TapPair(ours[name], after, None, -1, INPUT + name, None, site.params, site, None, True))
    return tuple(found)


def unpaired_sites(quant_model: Model, pairs: Collection[TapPair]) -> dict[ValueId, QuantSite]:
    """The site behind each value that a QuantizeLinear takes and that no pair covers.

    Such values stand inside what is one operator in the float model (a HardSwish function, say): their ranges can
    still be seen in the quantized model itself.
    """
    covered = {id(p.site) for p in pairs if p.site is not None}
    behind = sites_behind(quant_model)
    return {
        v: s
        for v, s in behind.items()
        if id(s) not in covered
        and s.params is not None
        and s.params.code_type.is_integer
        and s.params.scale.size == 1
        and quant_model.graph.producer_of(v) is not None
        and not quant_model.graph.values[v].scope
    }


def _quant_tap(
    graph: GraphView, value: ValueId, site: QuantSite | None, names: Collection[str]
) -> tuple[ValueId, str | None, QuantParams | None]:
    """(value, its name in the graph that runs, parameters where the tap holds codes)."""
    candidates: list[tuple[ValueId, QuantParams | None]] = []
    if site is not None:
        if site.dequantized is not None:
            candidates.append((site.dequantized, None))
        if site.params is not None:
            candidates.append((site.value, site.params))
    else:
        candidates.append((value, None))
    for candidate, params in candidates:
        if graph.values[candidate].name in names:
            return candidate, graph.values[candidate].name, params
    return candidates[0][0] if candidates else value, None, None

"""Constant operands of nodes, whoever decodes them, and the other layouts in which they may be stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from visualquant.align.elements import Floats, Index, Shape, behind, dequantized, shapes_along
from visualquant.align.folding import Folder
from visualquant.core.graph import GraphView, NodeId, NodeView, ValueId
from visualquant.core.quant import QuantSite, ViewStep

BLOCKED_DOMAIN = "com.microsoft.nchwc"
_BLOCKS = (16, 8)
_LARGEST = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """A constant operand whose elements can be asked for.

    Attributes:
        shape: as the reader sees it (after `steps`).
        value: the value at the slot.
        site: the site that decodes it, where one does.
        steps: how the operand is seen here, where that is not how it is stored.
    """

    shape: Shape
    value: ValueId | None = None
    site: QuantSite | None = None
    steps: tuple[ViewStep, ...] = ()


class Operands:
    """The constant operands of one graph.

    Attributes:
        folder: evaluates constant sub-graphs.
    """

    def __init__(self, graph: GraphView, sites: Sequence[QuantSite]) -> None:
        self.graph = graph
        self.folder = Folder(graph)
        self._sites: dict[tuple[NodeId, int], QuantSite] = {}
        self._got: dict[tuple[NodeId, int], Operand | None] = {}
        for site in sites:
            if (
                site.role != "activation"
                and site.reader is not None
                and site.params is not None
                and site.codes is not None
            ):
                self._sites.setdefault((site.reader, site.slot), site)

    def get(self, node: NodeView, slot: int) -> Operand | None:
        """The constant operand at a slot; None where data reach it or it can't be followed."""
        key = (node.id, slot)
        if key not in self._got:
            self._got[key] = self._get(node, slot)
        return self._got[key]

    def _get(self, node: NodeView, slot: int) -> Operand | None:
        site = self._sites.get((node.id, slot))
        value = node.input(slot)
        if site is not None and site.codes is not None:
            return Operand(shapes_along(site.view, site.codes.shape)[-1], value, site)
        if value is None:
            return None
        shape = self.folder.shape(value)
        return None if shape is None else Operand(shape, value)

    def scalar(self, node: NodeView, slot: int) -> float | None:
        """The value of an operand of one element."""
        operand = self.get(node, slot)
        if operand is None or math.prod(operand.shape) != 1:
            return None
        got = self.elements(operand, np.zeros(1, np.int64))
        return None if got is None else float(got[0])

    def elements(self, operand: Operand, index: Index) -> Floats | None:
        """The elements at flat positions of an operand, None where they are no numbers."""
        if operand.steps:
            index = behind(operand.steps, self._stored_shape(operand), index)
        site = operand.site
        if site is None or self._stays_float(operand):
            assert operand.value is not None
            return self.folder.at(operand.value, index)
        assert site.codes is not None and site.params is not None
        inside = behind(site.view, site.codes.shape, index)
        if site.permutation is not None:
            inside = _unpermuted(site, inside)
        values = dequantized(site.params, site.codes, inside)
        return values if site.pre_scale is None else _unscaled(site, inside, values)

    def _stays_float(self, operand: Operand) -> bool:
        """Whether the file holds float values that are rounded when it runs; they are cheaper to read."""
        site = operand.site
        if site is None or not site.quantized_at_run_time or operand.value is None:
            return False
        return self.folder.shape(operand.value) == operand.shape

    def _stored_shape(self, operand: Operand) -> Shape:
        if operand.site is not None and operand.site.codes is not None:
            return shapes_along(operand.site.view, operand.site.codes.shape)[-1]
        assert operand.value is not None
        shape = self.folder.shape(operand.value)
        assert shape is not None
        return shape

    def layouts(self, node: NodeView, slot: int) -> list[Operand]:
        """The operand as stored, then as it would be if its channels were interleaved in blocks.

        Source: onnxruntime's nchwc transformer: the weights of its blocked Conv are stored as O/b I/b H W i o, or as
        O/b I H W o where the input is not blocked or the Conv is depthwise; shapes still say O I H W.
        """
        plain = self.get(node, slot)
        if plain is None:
            return []
        if node.domain != BLOCKED_DOMAIN or slot != 1 or len(plain.shape) != 4:
            return [plain]
        o, i, h, w = plain.shape
        found = []
        for block in _BLOCKS:
            if o % block:
                continue
            if i % block == 0:
                inner = ViewStep("reshape", (o // block, i // block, h, w, block, block))
                found.append((inner, ViewStep("transpose", (0, 5, 1, 4, 2, 3)), ViewStep("reshape", plain.shape)))
            if i < block or i % block:
                outer = ViewStep("reshape", (o // block, i, h, w, block))
                found.append((outer, ViewStep("transpose", (0, 4, 1, 2, 3)), ViewStep("reshape", plain.shape)))
        return [self._without_padding(dataclasses.replace(plain, steps=steps)) for steps in found] or [plain]

    def _without_padding(self, operand: Operand) -> Operand:
        """The operand without the channels of zeros that fill the last block."""
        size = math.prod(operand.shape)
        values = self.elements(operand, np.arange(size, dtype=np.int64)) if size <= _LARGEST else None
        if values is None:
            return operand
        steps, shape = operand.steps, list(operand.shape)
        for axis in (0, 1):
            used = np.flatnonzero(values.reshape(operand.shape).any(axis=tuple(k for k in range(4) if k != axis)))
            real = int(used[-1]) + 1 if len(used) else shape[axis]
            if real < shape[axis]:
                steps = (*steps, ViewStep("slice", (axis, 0, real)))
                shape[axis] = real
        return dataclasses.replace(operand, steps=steps, shape=tuple(shape))


def _unpermuted(site: QuantSite, index: Index) -> Index:
    """Positions among the stored codes, whose last axis stands in the order of their groups."""
    assert site.codes is not None and site.permutation is not None
    width = site.codes.shape[-1]
    place = np.empty(width, np.int64)
    place[site.permutation] = np.arange(width)
    return index // width * width + place[index % width]


def _unscaled(site: QuantSite, index: Index, values: Floats) -> Floats:
    """The float weight before a factor was multiplied into it."""
    assert site.codes is not None and site.pre_scale is not None
    factor = np.broadcast_to(site.pre_scale, site.codes.shape) if site.pre_scale.ndim else site.pre_scale
    with np.errstate(all="ignore"):
        return values / (factor.reshape(-1)[index] if factor.ndim else factor)

"""What a user says about an alignment: nodes that belong together, and nodes that do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from visualquant.core.alignment import Alignment
from visualquant.core.graph import GraphView, NodeId
from visualquant.errors import UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class Pins:
    """A user's word; it wins over all evidence.

    Attributes:
        together: (float node ids, quant node ids) that form one group. One of the two may be empty: then the nodes
            have no counterpart.
        apart: (float node id, quant node id) that must not share a group.
    """

    together: tuple[tuple[tuple[NodeId, ...], tuple[NodeId, ...]], ...] = ()
    apart: tuple[tuple[NodeId, NodeId], ...] = ()

    def __bool__(self) -> bool:
        """True where anything is pinned."""
        return bool(self.together or self.apart)


def parse_pins(data: object, float_graph: GraphView, quant_graph: GraphView) -> Pins:
    """Pins from the content of a pins file.

    The form is `{"together": [{"float": [...], "quant": [...]}], "apart": [{"float": ..., "quant": ...}]}`. A node is
    named by its id ("n12"), by its name, or by the name of a value that it makes.

    Raises:
        UsageError: another form, a node that is not there, or one that is named twice in different places.
    """
    if not isinstance(data, Mapping) or not set(data) <= {"together", "apart"}:
        raise UsageError('A pins file holds {"together": [...], "apart": [...]} and nothing else.')
    finders = {"float": _Finder(float_graph, "float"), "quant": _Finder(quant_graph, "quantized")}
    together, apart = [], []
    seen: dict[tuple[str, NodeId], int] = {}
    for number, entry in enumerate(_entries(data, "together")):
        sides = []
        for side in ("float", "quant"):
            ids = tuple(dict.fromkeys(finders[side].node(ref) for ref in _refs(entry.get(side, []))))
            for node in ids:
                if seen.setdefault((side, node), number) != number:
                    raise UsageError(f"The pins file names the {side} node n{node} in two groups; a node is in one.")
            sides.append(ids)
        if sides[0] or sides[1]:
            together.append((sides[0], sides[1]))
    for entry in _entries(data, "apart"):
        some, others = ([finders[s].node(ref) for ref in _refs(entry.get(s, []))] for s in ("float", "quant"))
        apart += [(a, b) for a in some for b in others]
    for a, b in apart:
        if seen.get(("float", a), -1) == seen.get(("quant", b), -2):
            raise UsageError(f"The pins file wants the float node n{a} and the quantized node n{b} together and apart.")
    return Pins(tuple(together), tuple(apart))


def pins_of(alignment: Alignment) -> dict[str, Any]:
    """An alignment in the form of a pins file, nodes by their ids."""
    return {
        "together": [
            {"float": [f"n{k}" for k in g.float_nodes], "quant": [f"n{k}" for k in g.quant_nodes]}
            for g in alignment.groups
        ],
        "apart": [],
    }


def _entries(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = data.get(key, [])
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(e, Mapping) for e in found):
        raise UsageError(f'"{key}" of a pins file is a list of {{"float": ..., "quant": ...}}.')
    return list(found)


def _refs(value: object) -> list[str]:
    refs = [value] if isinstance(value, str) else value
    if not isinstance(refs, Sequence) or not all(isinstance(r, str) for r in refs):
        raise UsageError("Nodes in a pins file are names or ids such as n12, one or a list of them.")
    return list(refs)


class _Finder:
    """Nodes of one graph by reference."""

    def __init__(self, graph: GraphView, label: str) -> None:
        self._label = label
        self._count = len(graph.nodes)
        self._named: dict[str, set[NodeId]] = {}
        self._made: dict[str, set[NodeId]] = {}
        for node in graph.nodes:
            if node.name:
                self._named.setdefault(node.name, set()).add(node.id)
            for out in node.outputs:
                if out is not None:
                    self._made.setdefault(graph.values[out].key, set()).add(node.id)

    def node(self, ref: str) -> NodeId:
        """The node that a reference means; node names first, then value names, then ids."""
        for table in (self._named, self._made):
            found = table.get(ref, set())
            if len(found) == 1:
                return next(iter(found))
            if found:
                raise UsageError(
                    f"The pins file names {ref!r}, but {len(found)} nodes of the {self._label} model have that name: "
                    "use an id (n12) or the name of a value that the node makes."
                )
        if ref[:1] == "n" and ref[1:].isdigit() and int(ref[1:]) < self._count:
            return int(ref[1:])
        raise UsageError(f"The pins file names {ref!r}, which the {self._label} model does not have.")

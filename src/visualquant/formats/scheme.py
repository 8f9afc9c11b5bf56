"""What a scheme reader is, the explicit list of them, and what they find together in one graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from visualquant.core.graph import GraphView, NodeId, ValueId
from visualquant.core.quant import QuantSite
from visualquant.formats.operators import is_known_operator
from visualquant.formats.registry import load
from visualquant.formats.schemes._unclaimed import unclaimed_weights
from visualquant.formats.schemes.aimet import not_encoded


@runtime_checkable
class SchemeReader(Protocol):
    """A module (or object) that finds the quantized tensors of one scheme."""

    NAME: str

    def find(self, graph: GraphView) -> Iterable[QuantSite]:
        """One site for each stored quant tensor and compute node that reads it; activations as well."""


# NOTE: order decides who keeps a site that two readers claim. A reader is imported when a graph is read, never before.
SCHEMES: tuple[str, ...] = (
    "visualquant.formats.schemes.qdq",
    "visualquant.formats.schemes.qoperator",
    "visualquant.formats.schemes.dynamic",
    "visualquant.formats.schemes.matmul_nbits",
    "visualquant.formats.schemes.gather_block",
    "visualquant.formats.schemes.matmul_bnb4",
    "visualquant.formats.schemes.qmoe",
    "visualquant.formats.schemes.float_weights",
    "visualquant.formats.schemes.qonnx",
    "visualquant.formats.schemes.block_formats",
    "visualquant.formats.schemes.fake_quantize",
    "visualquant.formats.schemes.arithmetic",
    "visualquant.formats.schemes.aimet",
    "visualquant.formats.schemes.float_reduction",
    "visualquant.formats.schemes.stored_float",
)


@dataclasses.dataclass(frozen=True)
class Sites:
    """What all scheme readers found in one graph.

    Findings see: `site.problem` (SCALE_SHAPE), `site.quantized_at_run_time` (WEIGHT_AT_RUN_TIME), the scheme
    "stored_float" (WEIGHT_STORED_FLOAT), `unclaimed` (WEIGHT_UNCLAIMED) and `unknown_operators` (UNKNOWN_OPERATOR).

    Attributes:
        sites: in order of reader node and slot; at most one for each (value, reader, slot, role).
        unclaimed: stored tensors of a code type that no reader understands.
        conflicts: sentences on sites that two readers claimed; the first one kept it.
        schemes: names of the schemes of weights and biases, that of most elements first; where no weight is quantized,
            those of the activations.
        unknown_operators: nodes of operators that nobody here knows (calls of functions in the file are known).
        not_encoded: operands that an encodings file leaves out though their layer is quantized (NOT_ENCODED).
    """

    sites: tuple[QuantSite, ...]
    unclaimed: tuple[ValueId, ...] = ()
    conflicts: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    unknown_operators: tuple[NodeId, ...] = ()
    not_encoded: tuple[ValueId, ...] = ()


def find_sites(graph: GraphView) -> Sites:
    """Runs every scheme reader over a graph."""
    found: dict[tuple[object, ...], QuantSite] = {}
    conflicts: list[str] = []
    for reader in load(SCHEMES):
        for site in reader.find(graph):
            key = (site.value, site.reader, site.slot, site.role == "activation")
            first = found.setdefault(key, site)
            if first is not site and first.scheme != site.scheme:
                tensor = graph.values[site.value].key
                conflicts.append(
                    f"{tensor!r} is claimed as {first.scheme} and as {site.scheme}; {first.scheme} counts."
                )
    # what plumbing of another weight reads is a scale or zero point, however it is stored
    plumbing = {node for s in found.values() if s.role != "activation" for node in s.nodes}
    kept = [s for s in found.values() if s.role == "activation" or s.reader is None or s.reader not in plumbing]
    sites = sorted(kept, key=lambda s: (len(graph.nodes) if s.reader is None else s.reader, s.slot, s.value))
    return Sites(
        tuple(sites),
        tuple(unclaimed_weights(graph, sites)),
        tuple(conflicts),
        _scheme_names(sites),
        tuple(n.id for n in graph.nodes if not n.is_call and not is_known_operator(graph, n)),
        not_encoded(graph),
    )


def _scheme_names(sites: list[QuantSite]) -> tuple[str, ...]:
    named = [s for s in sites if s.scheme != "stored_float"]  # a trace of a scheme, not one
    plain = ("qdq", "qoperator", "dynamic")  # activations at the edges of another scheme carry these names, too
    named = [s for s in named if s.role != "activation" or s.scheme not in plain] or named
    elements: dict[str, int] = {}
    for site in named:
        elements[site.scheme] = elements.get(site.scheme, 0) + (0 if site.codes is None else site.codes.size)
    return tuple(sorted(elements, key=lambda name: (-elements[name], name)))

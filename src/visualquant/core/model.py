"""One model as every later step sees it: its graph and the quantization found in it."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from visualquant.core.graph import GraphView, NodeId, ValueId
from visualquant.core.quant import QuantSite


@dataclasses.dataclass(frozen=True)
class Model:
    """A graph, its quantization sites, and facts of its file.

    Attributes:
        name: file name without folders.
        sites: everything that the scheme readers found.
        schemes: names of the schemes in use, in order of their number of sites.
        unclaimed: integer weights that no reader understands.
        conflicts: sentences on tensors that two readers claimed.
        unknown_operators: nodes whose operator nobody knows.
        not_encoded: operands that an encodings file leaves out though their layer is quantized.
        bytes, bytes_external: of the file, and of its external tensor data.
        sha256: of the file, external data left out.
        quantizer: the toolchain that probably wrote the file, or None.
    """

    name: str
    graph: GraphView
    sites: tuple[QuantSite, ...] = ()
    schemes: tuple[str, ...] = ()
    unclaimed: tuple[ValueId, ...] = ()
    conflicts: tuple[str, ...] = ()
    unknown_operators: tuple[NodeId, ...] = ()
    not_encoded: tuple[ValueId, ...] = ()
    bytes: int = 0
    bytes_external: int = 0
    sha256: str | None = None
    quantizer: str | None = None

    @cached_property
    def site_at(self) -> dict[tuple[NodeId, int], QuantSite]:
        """The weight or bias site that a node reads at a slot."""
        return {(s.reader, s.slot): s for s in self.sites if s.reader is not None and s.role in ("weight", "bias")}

    @cached_property
    def activation_sites(self) -> tuple[QuantSite, ...]:
        """Sites of role activation."""
        return tuple(s for s in self.sites if s.role == "activation")

    def key(self, value: ValueId) -> str:
        """The unique name of a value."""
        return self.graph.values[value].key


def node_key(node: NodeId) -> str:
    """The id of a node in reports."""
    return f"n{node}"

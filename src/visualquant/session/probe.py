"""A first run over a few samples: which values of the two models are measured to be the same."""

from __future__ import annotations

from typing import cast

from visualquant.analysis.likeness import Print, alike, print_of
from visualquant.analysis.tap_plan import code_site, dequantize, sites_by_value
from visualquant.core.evidence import ActivationEvidence
from visualquant.core.graph import GraphView, ValueId
from visualquant.core.model import Model
from visualquant.core.trace import LAYOUT_OPS
from visualquant.runtime.feeds import Batch
from visualquant.runtime.runner import Feeds, Runner


def measured_likeness(models: tuple[Model, Model], runners: tuple[Runner, Runner], batch: Batch) -> ActivationEvidence:
    """Runs one batch through both models, all values tapped; of each tensor only a print is kept.

    Args:
        models: float and quantized.
        runners: of the same.
        batch: a few samples.
    """
    prints = [
        _prints(model, runner, feeds)
        for model, runner, feeds in zip(models, runners, (batch.float_feeds, batch.quant_feeds), strict=True)
    ]
    same = cast(list[tuple[ValueId, ValueId, float]], alike(*prints))
    return ActivationEvidence(same=tuple(same), samples=len(batch.samples))


def _prints(model: Model, runner: Runner, feeds: Feeds) -> list[Print]:
    """Of every computed value that exists in the graph that runs, codes as the values that they stand for."""
    graph, sites = model.graph, sites_by_value(model)
    running = {out for n in runner.optimised().graph.node for out in n.output if out}
    wanted = {
        v.name: k for k, v in enumerate(graph.values) if v.name in running and not v.scope and _computes(graph, k)
    }
    found = []
    for event in runner.tap([(range(1), feeds)], set(wanted)):
        if not event.value:
            continue
        value = wanted[event.value]
        array = event.array
        if array.dtype.kind in "iu":
            coded = code_site(graph, value, sites)
            if coded is None or coded.params is None:
                continue
            array = dequantize(array, coded.params)
        one = print_of(value, array)
        if one is not None:
            found.append(one)
    return found


def _computes(graph: GraphView, value: ValueId) -> bool:
    node = graph.producer_of(value)
    return node is not None and node.op_type not in LAYOUT_OPS

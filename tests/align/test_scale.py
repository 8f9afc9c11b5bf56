"""Alignment of large graphs: everything is tied, and time grows about as n·log n."""

from __future__ import annotations

import math
import random
import time

import pytest

from tests.align.build import decoder, quantized
from visualquant.align import align


def seconds(layers: int) -> tuple[int, float]:
    net = decoder(layers)
    float_graph, quant_graph = net.view(), quantized(net).view(random.Random(1), rename=True)
    start = time.process_time()
    alignment = align(float_graph, quant_graph)
    spent = time.process_time() - start
    assert all(len(g.float_nodes) == 1 for g in alignment.groups)
    return len(float_graph.nodes), spent


@pytest.mark.slow
def test_time_grows_about_as_n_log_n() -> None:
    seconds(5)
    (small, short), (large, long) = seconds(60), seconds(600)
    # NOTE: CPU time on a busy machine; the limit leaves room for that, a square law would give 8 and more
    assert long / short < 2 * large * math.log(large) / (small * math.log(small))

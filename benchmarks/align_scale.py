"""Time and memory of alignment on generated decoders: python benchmarks/align_scale.py [NODES ...].

Prints one line a size and the ratio of times over the ratio of n·log n (1 or less: no worse than n·log n).
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "align"))

from build import decoder, quantized

from visualquant.align import align

NODES_A_LAYER = 32


def measure(nodes: int) -> tuple[int, float, float]:
    """(float nodes, CPU seconds, share of float nodes grouped with their own counterpart)."""
    net = decoder(max(nodes // NODES_A_LAYER, 1))
    float_graph = net.view()
    quant_graph = quantized(net).view(random.Random(1), rename=True)
    start = time.process_time()
    alignment = align(float_graph, quant_graph)
    seconds = time.process_time() - start
    tied = sum(len(g.float_nodes) == 1 and bool(g.quant_nodes) for g in alignment.groups)
    return len(float_graph.nodes), seconds, tied / len(float_graph.nodes)


def main() -> None:
    sizes = [int(x) for x in sys.argv[1:]] or [5_000, 50_000]
    rows = [measure(n) for n in sizes]
    for (nodes, seconds, share), n in zip(rows, sizes, strict=True):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{n:7} asked  {nodes:7} float nodes  {seconds:7.2f} s  {share:.4f} tied  peak {peak:.0f} MB")
    if len(rows) > 1:
        (n0, t0, _), (n1, t1, _) = rows[0], rows[-1]
        print(f"time ratio / (n log n ratio): {t1 / t0 / (n1 * math.log(n1) / (n0 * math.log(n0))):.2f}")


if __name__ == "__main__":
    main()

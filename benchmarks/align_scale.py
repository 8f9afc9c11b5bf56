"""Time and memory of alignment on generated decoders: python benchmarks/align_scale.py [NODES ...].

Three pairs a size: one with that many nodes on either side (weights in 4-bit blocks), one whose larger (QDQ) side has
that many, and one whose float side does; each in a process of its own, the quantized side scrambled (inner names
replaced, order shuffled), its schemes read beforehand. Prints CPU seconds and the peak resident memory, graphs
included, and how the time grew against n·log n (1 or less: no faster).
"""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "align"))

from build import blocked, decoder, quantized

from visualquant.align import align
from visualquant.formats.scheme import find_sites

# Nodes of one layer of the generated decoder, float and quantized.
FLOAT_NODES, QUANT_NODES = 37, 66


FORMS = {
    "either": (blocked, FLOAT_NODES),
    "quantized": (quantized, QUANT_NODES),
    "float": (quantized, FLOAT_NODES),
}


def measure(form: str, layers: int) -> dict[str, float]:
    """Sizes, CPU seconds, peak memory, and the share of float nodes grouped with their own counterpart."""
    net = decoder(layers)
    float_graph, quant_graph = net.view(), FORMS[form][0](net).view(random.Random(1), rename=True)
    sites = find_sites(quant_graph).sites
    start = time.process_time()
    alignment = align(float_graph, quant_graph, quant_sites=sites)
    seconds = time.process_time() - start
    tied = sum(len(g.float_nodes) == 1 and bool(g.quant_nodes) for g in alignment.groups)
    return {
        "float": len(float_graph.nodes),
        "quant": len(quant_graph.nodes),
        "seconds": seconds,
        "tied": tied / len(float_graph.nodes),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    if sys.argv[1:2] == ["--layers"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
        return
    sizes = [int(x) for x in sys.argv[1:]] or [5_000, 50_000]
    for what, (_, nodes_a_layer) in FORMS.items():
        rows = []
        for size in sizes:
            command = [sys.executable, __file__, "--layers", what, str(size // nodes_a_layer)]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append(row)
            print(
                f"{size:7} nodes on the {what:9} side: {row['float']:6} float, {row['quant']:6} quantized, "
                f"{row['seconds']:6.2f} s, peak {row['peak']:4.0f} MB, {row['tied']:.2%} tied"
            )
        if len(rows) > 1:
            n0, n1 = (r["float"] for r in (rows[0], rows[-1]))
            growth = rows[-1]["seconds"] / rows[0]["seconds"] / (n1 * math.log(n1) / (n0 * math.log(n0)))
            print(f"{'':8}time over n·log n, from the smallest to the largest: {growth:.2f}")


if __name__ == "__main__":
    main()

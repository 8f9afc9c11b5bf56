"""Writes a decoder-like float model of any size with its int8 and blocked int4 counterparts.

python benchmarks/make_large.py FOLDER [--size 1GB] [--seed 0]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from visualquant.testing.bench.large import make_large, size_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=size_of, default=size_of("1GB"), help="of the float weights (default 1GB)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    made = make_large(options.folder, options.size, seed=options.seed)
    print(f"{made.float_model} {made.int8_model} {made.int4_model}")
    print(f"{made.float_bytes / 1e9:.2f} GB of float weights in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()

"""Writes a large decoder-like model and its int8 and int4 counterparts: python benchmarks/make_large.py FOLDER [SIZE].

SIZE is that of the float model, 1GB by default; `float.onnx`, `int8.onnx` and `int4.onnx` with a data file each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from visualquant.cli.units import parse_bytes
from visualquant.testing.bench.large import write_large


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    size = parse_bytes(sys.argv[2] if len(sys.argv) > 2 else "1GB")
    assert size is not None
    start = time.monotonic()
    for name, path in write_large(Path(sys.argv[1]), size, progress=_show).items():
        length = path.with_suffix(".data").stat().st_size
        print(f"{name:6} {path}  {length / 1e9:.2f} GB")
    print(f"{time.monotonic() - start:.0f} s")


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done / total:4.0%}", end="\r", file=sys.stderr)


if __name__ == "__main__":
    main()

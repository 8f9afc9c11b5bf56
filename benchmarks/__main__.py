"""`make bench`: speed as ratios with their spread, rivals taking turns in one process.

python -m benchmarks [--size 1GB] [--rounds 7] [--folder F] [--quick]: the same as `visualquant bench`.
"""

from __future__ import annotations

from visualquant.cli.bench import command

if __name__ == "__main__":
    command()

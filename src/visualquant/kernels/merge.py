"""Merging of records in index order."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualquant.kernels._jit import f32, f64, i64, inline, kernel, larger, read, write
from visualquant.kernels.records import (
    CODE_MAX,
    CODE_MIN,
    E_MAX,
    FIELDS,
    HIGH_CODE,
    HIGH_COUNT,
    HIGH_SQ,
    LOW_CODE,
    LOW_COUNT,
    LOW_SQ,
    REST_SQ,
    X_MAX,
    X_MIN,
    Y_MAX,
    Y_MIN,
)


@kernel((write(f64, 2), read(f64, 3), i64, i64), strict=True)
def fold(total: Any, records: Any, first_row: int, rows_per_channel: int) -> None:
    """Merges records into the channels that they belong to, row by row and leaf by leaf.

    Args:
        total: float64 [channels, FIELDS], in and out.
        records: float64 [rows, leaves, FIELDS].
        first_row: index of records[0] in the tensor.
        rows_per_channel: consecutive rows of one channel.
    """
    for r in range(records.shape[0]):
        out = total[(first_row + r) // rows_per_channel]
        for k in range(records.shape[1]):
            rec = records[r, k]
            for low in (True, False):
                code, count, square = (LOW_CODE, LOW_COUNT, LOW_SQ) if low else (HIGH_CODE, HIGH_COUNT, HIGH_SQ)
                if rec[code] == out[code]:
                    out[count] += rec[count]
                    out[square] += rec[square]
                elif (rec[code] < out[code]) != low:
                    out[REST_SQ] += rec[square]
                else:
                    # NOTE: what was clipped at a code that is not the extreme one after all is rounding
                    out[REST_SQ] += out[square]
                    out[code] = rec[code]
                    out[count] = rec[count]
                    out[square] = rec[square]
            for j in range(FIELDS):
                if j in (LOW_CODE, LOW_COUNT, LOW_SQ, HIGH_CODE, HIGH_COUNT, HIGH_SQ):
                    continue
                if j in (X_MIN, Y_MIN, CODE_MIN):
                    out[j] = min(out[j], rec[j])
                elif j in (X_MAX, Y_MAX, E_MAX, CODE_MAX):
                    out[j] = max(out[j], rec[j])
                else:
                    out[j] += rec[j]


@inline
def _ratios(signal: Any, noise: Any, out: Any) -> Any:
    """Σe²/Σx² of each block (−1 without a pair); blocks with a pair, those below 20 dB, and the largest ratio."""
    valid = 0.0
    below = 0.0
    worst = -1.0
    for b in range(out.size):
        e = np.float64(noise[b])
        ratio = float(e / np.float64(signal[b]))
        ratio = 0.0 if e == 0.0 else ratio
        ratio = ratio if e >= 0.0 else -1.0
        out[b] = ratio
        valid += 1.0 if ratio >= 0.0 else 0.0
        below += 1.0 if ratio > 0.01 else 0.0
        worst = larger(worst, ratio)
    return int(valid), int(below), worst


def _signature(sums: Any) -> Any:
    return (
        read(sums, 3), i64, i64, i64, i64, f64, write(i64), write(i64), write(f64, 3), write(i64), write(f64, 2)
    )  # fmt: skip


@kernel(_signature(f32), _signature(f64), strict=True)
def add_blocks(
    blocks: Any,
    first_row: int,
    first_block: int,
    rows: int,
    blocks_per_row: int,
    threshold: float,
    counts: Any,
    totals: Any,
    pooled: Any,
    places: Any,
    sums: Any,
) -> int:
    """Adds the sums of blocks, in index order, to their summary; returns how many candidates for the worst it found.

    Args:
        blocks: float32 or float64 [2, rows here, blocks here], Σx² and Σe²; NaN where a block has no finite pair.
        first_row: row of blocks[·, 0, 0] in the tensor.
        first_block: block of its row where blocks[·, 0, 0] stands.
        rows: of the whole grid.
        blocks_per_row: of the whole grid.
        threshold: least Σe²/Σx² of a candidate.
        counts: int64 [bins], in and out: blocks by ratio; bin 0 ends at 2^-60, then four bins a factor of two, the
            last one begins at 2^20.
        totals: int64 [2], in and out: blocks, and blocks below 20 dB.
        pooled: float64 [2, pooled rows, pooled columns], in and out.
        places: out, int64 [blocks here], row · blocks_per_row + block of the candidates.
        sums: out, float64 [blocks here, 2], Σx² and Σe² of the candidates.
    """
    last = counts.size - 1
    here = blocks.shape[2]
    ratios = np.empty(here)
    patterns = ratios.view(np.int64)
    # NOTE: blocks are alike, so four tables take turns; one would wait for its own last store
    tables = np.zeros((4, last + 2), np.int64)
    found = 0
    pools = pooled.shape[2]
    for r in range(blocks.shape[1]):
        valid, below, worst = _ratios(blocks[0, r], blocks[1, r], ratios)
        totals[0] += valid
        totals[1] += below
        for b in range(here):
            # NOTE: exponent and two bits of the mantissa: four bins a factor of two without a logarithm; bin `last + 1`
            # takes the blocks without a pair
            k = min(max(1 + (patterns[b] >> 50) - 4 * (1023 - 60), 0), last)
            tables[b & 3, k if ratios[b] >= 0.0 else last + 1] += 1
        if worst >= threshold:
            for b in range(here):
                if ratios[b] >= threshold:
                    places[found] = (first_row + r) * blocks_per_row + first_block + b
                    sums[found, 0] = blocks[0, r, b]
                    sums[found, 1] = blocks[1, r, b]
                    found += 1
        pr = (first_row + r) * pooled.shape[1] // rows
        if pools == blocks_per_row:
            for b in range(here):
                if ratios[b] >= 0.0:
                    pooled[0, pr, first_block + b] += blocks[0, r, b]
                    pooled[1, pr, first_block + b] += blocks[1, r, b]
            continue
        # NOTE: pool p holds the blocks b with b·pools // blocks_per_row = p
        for p in range(first_block * pools // blocks_per_row, (first_block + here - 1) * pools // blocks_per_row + 1):
            begin = max(first_block, (p * blocks_per_row + pools - 1) // pools) - first_block
            end = min(first_block + here, ((p + 1) * blocks_per_row + pools - 1) // pools) - first_block
            for b in range(begin, end):
                if ratios[b] >= 0.0:
                    pooled[0, pr, p] += blocks[0, r, b]
                    pooled[1, pr, p] += blocks[1, r, b]
    for k in range(last + 1):
        counts[k] += tables[0, k] + tables[1, k] + tables[2, k] + tables[3, k]
    return found

"""Small weights with their codes, in any scheme."""

from __future__ import annotations

import numpy as np

from visualquant.core.quant import QuantParams
from visualquant.core.tensors import ELEMENT_TYPES

NF4 = np.array(
    [-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626,
     0.723, 1.0],
    np.float32,
)  # fmt: skip


def make_case(
    shape: tuple[int, ...],
    code_type: str,
    granularity: str,
    *,
    axis: int = 0,
    block: int = 32,
    seed: int = 0,
    clip: float = 0.8,
) -> tuple[np.ndarray, np.ndarray, QuantParams]:
    """x float32, codes in their numpy type, params; some elements clip, unsigned types have zero points."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(4, shape).astype(np.float32)
    table = NF4 if code_type == "nf4" else None
    kind = ELEMENT_TYPES["uint4" if code_type == "nf4" else code_type]
    want: tuple[int, ...] = ()
    size = None
    if granularity == "per_channel":
        want = (shape[axis],)
    elif granularity == "blocked":
        want = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
        size = block
    where = None if granularity == "per_tensor" else axis
    low, high, zero = None, None, None
    if table is not None:
        top = 1.0
    elif kind.is_integer:
        low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
        high = low + (1 << kind.bits) - 1
        top = 2.0 ** (kind.bits - 1)
        if kind.kind == "uint":
            zero = rng.integers(max(0, high // 2 - 3), high // 2 + 2, want).astype(np.int64)
    else:
        values = np.arange(1 << kind.bits).astype(np.uint8).view(kind.numpy).astype(np.float64)
        top = float(values[np.isfinite(values)].max())
    largest = float(np.abs(x).max(initial=0.5))
    scale = (largest * clip / top * rng.uniform(0.5, 1.0, want)).astype(np.float32).astype(np.float64)
    params = QuantParams(kind, np.asarray(scale), zero, where, size, low, high, table)
    s = np.broadcast_to(params.broadcast(params.scale, shape), shape)
    z = 0 if zero is None else np.broadcast_to(params.broadcast(zero, shape), shape)
    if table is not None:
        codes = np.abs((x / s)[..., None] - table).argmin(-1).astype(kind.numpy)
    elif kind.is_integer:
        codes = np.clip(np.rint(x / s) + z, low, high).astype(np.int64).astype(kind.numpy)
    else:
        codes = np.clip(x / s, -top, top).astype(kind.numpy)
    return x, codes, params

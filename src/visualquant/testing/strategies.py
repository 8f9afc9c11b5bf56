"""Hypothesis strategies for the parts of quantized models."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from visualquant.core.tensors import ELEMENT_TYPES, ElementType

Array = npt.NDArray[Any]

INTEGER_CODES = ("int8", "uint8", "int4", "uint4", "int16", "uint16", "int2", "uint2", "int32")
FLOAT_CODES = ("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "float4e2m1")


def generators() -> st.SearchStrategy[np.random.Generator]:
    """Random generators: one seed stands for all the data of a sample, so that hypothesis varies its structure."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def shapes(min_rank: int = 1, max_rank: int = 4, max_side: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of weights; sizes of 1 are frequent, since they are where readers go wrong."""
    side = st.one_of(st.just(1), st.integers(1, max_side))
    return st.lists(side, min_size=min_rank, max_size=max_rank).map(tuple)


def codes(rng: np.random.Generator, dtype: ElementType | str, shape: tuple[int, ...]) -> Array:
    """Random codes over the whole range of a type, in its numpy dtype; float codes are finite."""
    kind = ELEMENT_TYPES[str(dtype)]
    if kind.is_integer:
        low = 0 if kind.kind == "uint" else -(1 << (kind.bits - 1))
        high = low + (1 << kind.bits)
        return rng.integers(low, high, shape, dtype=np.int64).astype(kind.numpy)
    if kind.name in ("float4e2m1", "float6e2m3", "float6e3m2"):
        return rng.normal(0, 2, shape).astype(np.float32).astype(kind.numpy)
    top = float(ml_dtypes.finfo(kind.numpy).max)  # type: ignore[no-untyped-call]
    return np.clip(rng.normal(0, 20, shape), -top, top).astype(np.float32).astype(kind.numpy)


def scales(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Positive scales over three orders of magnitude."""
    return np.asarray(np.exp(rng.uniform(-6, 1, shape)), dtype)

"""What a runner is asked for, and what it emits: the same types for the host and for a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Level = Literal["none", "basic", "extended", "all"]


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How a model is run.

    Attributes:
        level: graph optimisation.
        threads: intra-operator threads; 0 leaves it to the runtime.
        provider: execution provider.
        memory_bytes: growth allowed over the idle process; None for no bound.
    """

    level: Level = "all"
    threads: int = 0
    provider: str = "CPUExecutionProvider"
    memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TapEvent:
    """One tensor of one batch of samples, or the end of the batch.

    Attributes:
        batch: index of the batch.
        samples: indices of its samples.
        value: name in the graph that really ran; "" for the event that ends a batch.
        array: the tensor; codes where only codes exist.
        outputs: graph outputs by name, on the event that ends a batch.
    """

    batch: int
    samples: Sequence[int]
    value: str = ""
    array: Array = dataclasses.field(default_factory=lambda: np.empty(0))
    outputs: Mapping[str, Array] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of one node over repeated runs.

    Attributes:
        node: name in the graph that ran.
        op_type: its operator.
        provider: execution provider that ran it.
        p50_us, p90_us: microseconds.
        kernel: the runtime's name of the kernel, where it tells.
    """

    node: str
    op_type: str
    provider: str
    p50_us: float
    p90_us: float
    kernel: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """Node times of a model.

    Attributes:
        nodes: in order of execution.
        total_p50_us, total_p90_us, total_p99_us: of whole runs with the profiler; 0 where not told.
        repeats: runs measured, after the warm-up.
        plain_p50_us: of whole runs without the profiler; 0 where not told.
        energy_joules: of `repeats` runs without the profiler; None where it can't be read. From `energy_source`.
        temperature_celsius: after the runs; None where unknown.
        throttled: throttling events during the runs; None where unknown.
    """

    nodes: tuple[NodeTime, ...]
    total_p50_us: float
    repeats: int
    total_p90_us: float = 0.0
    total_p99_us: float = 0.0
    plain_p50_us: float = 0.0
    energy_joules: float | None = None
    energy_source: str = ""
    temperature_celsius: float | None = None
    throttled: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TapNumbers:
    """What a device says of a tensor without sending it.

    Attributes:
        count: elements.
        min, max, mean, std, l1, l2: over finite values.
        nan_count, inf_count, zero_count: elements.
        p99: 99th percentile of |x|, over every k-th element of large tensors.
        shape, dtype: of the tensor.
        histogram: counts between the edges that were given; values beyond count into the outer bins.
    """

    count: int
    min: float
    max: float
    mean: float
    std: float
    l1: float
    l2: float
    nan_count: int
    inf_count: int
    zero_count: int
    p99: float
    shape: tuple[int, ...] = ()
    dtype: str = ""
    histogram: tuple[int, ...] = ()

"""What a run over samples gave."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.tap_plan import TapPair
from visualquant.core.activations import PairSums, RangeUse, StepSums
from visualquant.core.device import DeviceComparison
from visualquant.core.graph import ValueId
from visualquant.kernels.pair_sums import add_range, finite_extrema

Array = npt.NDArray[Any]
SAMPLE_ROWS = 4
SAMPLE_ELEMENTS = 1 << 16


@dataclasses.dataclass(slots=True, eq=False)
class MeasuredActivation:
    """One tapped value.

    Attributes:
        pair: what was tapped.
        cumulative: the whole quantized model against the float model.
        isolated: the group alone, fed with float values; None where it can't be cut out.
        range_use: float values against the range of the quantizer behind; None without one.
        layout: what had to be done to the quantized tensor ("transposed …").
        sample: float values of the first samples, for checks that need the values themselves.
        low, high: of the finite float values.
        reason: why the tapped tensor could not be compared although it was seen.
        calibration: smallest and largest float value over the calibration samples, where they are at hand.
    """

    pair: TapPair
    cumulative: PairSums
    isolated: PairSums | None = None
    range_use: RangeUse | None = None
    layout: str | None = None
    sample: Array | None = None
    low: float = math.inf
    high: float = -math.inf
    reason: str | None = None
    calibration: tuple[float, float] | None = None

    @property
    def beyond_calibration(self) -> bool | None:
        """True where values leave what calibration showed by a tenth of it; None where that is not known."""
        if self.calibration is None or self.range_use is None or not self.range_use.n:
            return None
        low, high = self.calibration
        margin = (high - low) / 10
        return self.range_use.seen_low < low - margin or self.range_use.seen_high > high + margin

    def see(self, x: Array) -> None:
        """Takes note of float values: range, use of the quantizer's range, and the first of them as a sample."""
        if self.range_use is not None:
            add_range(self.range_use, x)
            low, high = self.range_use.seen_low, self.range_use.seen_high
        elif x.dtype.kind == "f":
            low, high = finite_extrema(x)
        else:
            low, high = math.inf, -math.inf
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.sample is None and x.ndim:
            self.sample = few_rows(x)


def few_rows(x: Array) -> Array:
    """A copy of the first samples; of large tensors only the first elements of the axes behind the second one."""
    rows = x[:SAMPLE_ROWS]
    while rows.size > SAMPLE_ELEMENTS and max(rows.shape[2:], default=1) > 1:
        rows = rows[(slice(None), slice(None), *(slice(0, (n + 1) // 2) for n in rows.shape[2:]))]
    return np.array(rows)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MeasuredSite:
    """A quantizer without a float counterpart: what enters it in the quantized model.

    Attributes:
        value: before the quantizer.
        range_use: of it.
    """

    value: ValueId
    range_use: RangeUse


@dataclasses.dataclass(slots=True, eq=False)
class RunResult:
    """Everything that a run over samples gave.

    Attributes:
        activations: in dataflow order.
        outputs: sums by (float output, quant output).
        float_outputs, quant_outputs: whole arrays of outputs, by position.
        samples: how many.
        taps_verified: outputs with taps equal outputs without, to the last bit.
        notes: what a user should know.
        feeds: the quantized model's inputs of the first batch.
        steps: sums by step of a sequence, by (float output, quant output); empty where samples are no sequences.
        states: float outputs that are fed back.
        sites: quantizers without a float counterpart.
        sequence_steps: of each sample along its step axis (axis 1 of the whole outputs); 0 without.
    """

    activations: list[MeasuredActivation]
    outputs: dict[tuple[str, str], PairSums]
    float_outputs: dict[str, Array]
    quant_outputs: dict[str, Array]
    samples: int
    taps_verified: dict[str, bool]
    notes: list[str]
    feeds: dict[str, Array] = dataclasses.field(default_factory=dict)
    steps: dict[tuple[str, str], StepSums] = dataclasses.field(default_factory=dict)
    states: frozenset[str] = frozenset()
    sequence_steps: int = 0
    sites: list[MeasuredSite] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False)
class DataFacts:
    """What is known of the samples beside the run.

    Attributes:
        labels: of the samples, or None.
        groups: conditions by name.
        is_random: made up.
        reused: samples that are in calibration and validation alike.
        refusal: why the quantized model could not be run at all, or None.
        fallback: why it ran unoptimised, or None.
        devices: what differs between this host and each device on the same samples.
    """

    labels: Array | None = None
    groups: dict[str, Array] = dataclasses.field(default_factory=dict)
    is_random: bool = False
    reused: int = 0
    refusal: str | None = None
    fallback: str | None = None
    devices: list[DeviceComparison] = dataclasses.field(default_factory=list)

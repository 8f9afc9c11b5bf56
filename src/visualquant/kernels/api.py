"""What the rest of visualquant calls: measure a weight, and ask what another scheme would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from visualquant.core.quant import QuantParams
from visualquant.core.stats import WeightStats, WhatIf
from visualquant.core.tensors import FileSource, TensorRef

Array = npt.NDArray[Any]


@runtime_checkable
class BlockSource(Protocol):
    """A float tensor that is not one plain array: concatenated, scaled, or transposed from a map.

    Attributes:
        shape: sizes of the axes.
    """

    shape: tuple[int, ...]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements [start, stop) of the flattened (C order) tensor, float32 or float64 [stop - start]."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What to measure, and how.

    Attributes:
        channel_axis: axis of the codes that counts channels; None for none.
        histogram_bins: most bins of the shared-edge histograms, up to 4,096; 0 for none.
        error_histogram: with histograms, one of the error too.
        channel_histograms: with histograms, a channel × bin matrix as well, at most 32 MB.
        quantiles: probabilities in [0, 1]; costs two more reads of x.
        outliers: count outliers of each channel; costs more reads only where a channel exceeds 16 MiB.
        code_counts: count the codes (code_utilisation, effective_bits).
        threads: worker threads; the result has the same bits for any number.
        chunk_bytes: bytes of x that one task takes; the result has the same bits for any size.
        progress: called with (bytes done, bytes in all) after each task, from the calling thread.
        cancel: asked before each task; True raises CancelledError. `threading.Event().is_set` fits.
    """

    channel_axis: int | None = None
    histogram_bins: int = 0
    error_histogram: bool = True
    channel_histograms: bool = False
    quantiles: tuple[float, ...] = ()
    outliers: bool = True
    code_counts: bool = True
    threads: int = 1
    chunk_bytes: int = 16 << 20
    progress: Callable[[int, int], None] | None = None
    cancel: Callable[[], bool] | None = None


def measure(
    x: Array | TensorRef | BlockSource,
    codes: TensorRef | Array | None = None,
    params: QuantParams | None = None,
    options: MeasureOptions | None = None,
) -> WeightStats:
    """Statistics of a float tensor, against dequantized codes where there are any.

    Args:
        x: float tensor of the shape of the codes, in their layout; any strides, read-only is fine.
            float16, bfloat16, float32 or float64.
        codes: stored codes; with `params` None a second float tensor whose values are x̂; None for x alone.
        params: how codes become values.
        options: what to measure.

    Returns:
        Sums, distributions and the metrics that follow. Non-finite pairs are left out of sums and counted.

    Raises:
        InputError: shapes or types that do not fit.
        QuantParamsError: params that do not fit the codes.
        CancelledError: `options.cancel` said so.
    """
    from visualquant.kernels import measuring

    return measuring.measure(x, codes, params, options or MeasureOptions())


def prefetch(tensor: Array | TensorRef) -> None:
    """Asks the system to read a tensor that lies in a read-only file map, while something else is measured.

    Returns at once; arrays of any other kind are left alone.
    """
    from visualquant.kernels.tasks import Advisor, file_region

    memory = tensor.raw() if isinstance(tensor, TensorRef) else tensor
    Advisor().will_need(file_region(memory), 0, memory.nbytes)


def release(stored: Array | TensorRef) -> None:
    """Lets the pages of a read-only file map leave this process, when whoever read them is done.

    They stay in the system's cache and come back when touched. Whatever is no file map is left alone.
    """
    from visualquant.kernels.tasks import Advisor, file_region

    if isinstance(stored, TensorRef) and not isinstance(stored.source, FileSource):
        return
    array = stored.raw() if isinstance(stored, TensorRef) else stored
    Advisor().drop(file_region(array), 0, array.nbytes)


def what_if(
    x: Array | TensorRef | BlockSource,
    *,
    channel_axis: int | None,
    reduction_axis: int | None = None,
    threads: int = 1,
    cancel: Callable[[], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[WhatIf, ...]:
    """What int8 and int4 would make of a float weight: symmetric and asymmetric, by tensor, channel and block.

    Args:
        x: float tensor.
        channel_axis: axis that counts output channels, or None.
        reduction_axis: axis along which blocks run; by default all axes but the channel axis, in their order
            (without channels: the last axis).
        threads: worker threads; the result does not depend on them.
        cancel: as in `MeasureOptions`.
        progress: as in `MeasureOptions`.

    Returns:
        One row a scheme, in equal order for every tensor; per-channel ones only with a channel axis. NaN and
        infinities count as 0. The clip is the best of a fixed list of shares of the range.
    """
    from visualquant.kernels import alternatives

    return alternatives.what_if(x, channel_axis, reduction_axis, threads, cancel, progress)


def fake_quantize(x: Array, params: QuantParams) -> npt.NDArray[np.float64]:
    """x̂ of a whole float array under `params` (integer codes): quantize, then dequantize, in float64.

    q = saturate(round_half_even(x/scale) + zero_point) within the declared range; elements whose scale is 0 or
    not finite, and NaN, give NaN. Source: ONNX QuantizeLinear.
    """
    from visualquant.kernels import alternatives

    return alternatives.fake_quantize(x, params)

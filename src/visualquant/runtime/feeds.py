"""Which slice of which array goes into which input: batches for both models at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError
from visualquant.runtime.local import LocalRunner
from visualquant.runtime.samples import SampleFile

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class FeedOptions:
    """How samples are given.

    Attributes:
        constants: `--set`: one value for an input, for all samples.
        state: `--state`: input that takes this output of the step before.
        sample_axis: `--sample-axis`: by input.
        map_input: `--map-input`: quant input by float input.
        limit: at most so many samples; 0 for all.
        batch: at most so many samples at once.
    """

    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    state: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sample_axis: Mapping[str, int] = dataclasses.field(default_factory=dict)
    map_input: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limit: int = 0
    batch: int = 16


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """An input's array and its sample axis; `extra` where the array has one axis more than the input."""

    array: Array
    axis: int
    extra: bool

    @property
    def count(self) -> int:
        return int(self.array.shape[self.axis])

    def take(self, start: int, stop: int) -> Array:
        index: list[Any] = [slice(None)] * self.array.ndim
        index[self.axis] = start if self.extra else slice(start, stop)
        return np.asarray(self.array[tuple(index)])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples of both models.

    Attributes:
        samples: indices.
        float_feeds, quant_feeds: by input name.
    """

    samples: range
    float_feeds: dict[str, Array]
    quant_feeds: dict[str, Array]


class Feeder:
    """Binds a sample file to two models.

    Attributes:
        count: samples.
        notes: what was mapped, cast or transposed.
    """

    def __init__(
        self, file: SampleFile, float_runner: LocalRunner, quant_runner: LocalRunner, options: FeedOptions
    ) -> None:
        """Finds an array for every input of the float model, and a float input for every quant input.

        Raises:
            InputError: an input has no data, or shapes can't be reconciled.
        """
        self.options = options
        self.notes: list[str] = []
        self._file = file
        self._runners = (float_runner, quant_runner)
        self._sources: dict[str, _Source] = {}
        self._constants: dict[str, Array] = {}
        self._know_names()
        for name in float_runner.inputs:
            self._bind(name, float_runner)
        self._partner = self._partners()
        counts = {n: s.count for n, s in self._sources.items()}
        if not counts:
            raise InputError(f"{file.name!r} gives no samples to any input of {float_runner.path.name!r}.")
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{n!r} {c}" for n, c in counts.items())
            raise InputError(f"The inputs have different numbers of samples in {file.name!r}: {listed}.")
        self.count = min(next(iter(counts.values())), options.limit or 1 << 62)
        if self.count == 0:
            raise InputError(f"{file.name!r} holds no samples.")
        self._step = self._samples_a_run()
        left = self.count % self._step if self._fixed() else 0
        if left:
            self.count -= left
            self.notes.append(f"the last {left} samples are left out: the models take {self._step} at once")

    def _know_names(self) -> None:
        """Options that name an input which does not exist are refused."""
        options, (ours, theirs) = self.options, self._runners
        for option, names, runner in (
            ("--set", options.constants, ours),
            ("--sample-axis", options.sample_axis, ours),
            ("--map-input", options.map_input, ours),
            ("--map-input", options.map_input.values(), theirs),
        ):
            for name in names:
                if name not in runner.inputs:
                    listed = ", ".join(repr(n) for n in runner.inputs)
                    raise InputError(f"{option}: {runner.path.name!r} has no input {name!r} (it has {listed}).")

    def _bind(self, name: str, runner: LocalRunner) -> None:
        shape: Dims = runner.inputs[name].shape
        dtype = runner.input_dtype(name)
        if name in self.options.constants:
            self._constants[name] = _constant(self.options.constants[name], shape, dtype, name)
            return
        array = self._file.validation(name, only=len(runner.inputs) - len(self.options.constants) == 1)
        if array is None:
            keys = ", ".join(repr(k) for k in self._file.arrays) or "nothing"
            raise InputError(
                f"{self._file.name!r} has no samples for input {name!r} of {runner.path.name!r} (it holds {keys}). "
                f"Name the array {name!r} or 'val_{name}', or give one value with --set {name}=VALUE."
            )
        if array.dtype.kind not in "fiub":
            raise InputError(f"The samples of {name!r} are of type {array.dtype}: numbers are needed.")
        source = _source(array, shape, self.options.sample_axis.get(name))
        self._check(name, source, shape, runner.path.name)
        self._sources[name] = source

    def _check(self, name: str, source: _Source, shape: Dims, model: str) -> None:
        sample = [n for k, n in enumerate(source.array.shape) if not (source.extra and k == source.axis)]
        if len(sample) != len(shape):
            raise InputError(
                f"Input {name!r} of {model!r} has shape {list(shape)}; samples of shape "
                f"{list(source.array.shape)} do not fit it."
            )
        for k, (have, want) in enumerate(zip(sample, shape, strict=True)):
            if isinstance(want, int) and want > 0 and have != want and (source.extra or k != source.axis):
                raise InputError(
                    f"Input {name!r} of {model!r} has shape {list(shape)}; axis {k} of the samples "
                    f"({list(source.array.shape)}) has {have} elements instead of {want}."
                )

    def _partners(self) -> dict[str, str]:
        """Float input by quant input: by name, by --map-input, else by position."""
        ours, theirs = list(self._runners[0].inputs), list(self._runners[1].inputs)
        named = {v: k for k, v in self.options.map_input.items()}
        found = {q: named.get(q, q) for q in theirs if named.get(q, q) in ours}
        free = [n for n in ours if n not in found.values()]
        rest = [q for q in theirs if q not in found]
        if len(rest) > len(free):
            raise InputError(
                f"{self._runners[1].path.name!r} has inputs {theirs}, {self._runners[0].path.name!r} has {ours}: say "
                "which is which with --map-input FLOAT=QUANT."
            )
        for q, f in zip(rest, free, strict=False):
            found[q] = f
            self.notes.append(f"input {q!r} of the quantized model takes the samples of {f!r} (by position)")
        return found

    def batches(self) -> Iterator[Batch]:
        """All samples in order. With state, consecutive samples are steps and run one by one (see `run_steps`)."""
        for start in range(0, self.count, self._step):
            stop = min(start + self._step, self.count)
            feeds = {n: s.take(start, stop) for n, s in self._sources.items()}
            feeds |= {n: self._repeated(n, a, stop - start) for n, a in self._constants.items()}
            ours = {n: self._cast(a, n, self._runners[0]) for n, a in feeds.items()}
            theirs = {q: self._fitted(feeds[f], q) for q, f in self._partner.items()}
            yield Batch(range(start, stop), ours, theirs)

    def _fixed(self) -> set[int]:
        """Fixed sizes of the sample axes of both models' inputs."""
        found: set[int] = set()
        shapes = [(n, self._runners[0].inputs[n].shape) for n in self._sources]
        shapes += [(f, self._runners[1].inputs[q].shape) for q, f in self._partner.items() if f in self._sources]
        for name, shape in shapes:
            source = self._sources[name]
            size = shape[source.axis] if not source.extra and source.axis < len(shape) else None
            if isinstance(size, int) and size > 0:
                found.add(size)
        return found

    def _samples_a_run(self) -> int:
        """How many samples go into one run: as many as the models' fixed batches say, else the option's."""
        if self.options.state or any(s.extra for s in self._sources.values()):
            return 1
        fixed = self._fixed()
        if len(fixed) > 1:
            raise InputError(
                f"The inputs take different numbers of samples ({', '.join(map(str, sorted(fixed)))}): say with "
                "--sample-axis NAME=K which axis counts samples."
            )
        size = fixed.pop() if fixed else self.options.batch
        if self._fixed() and size > self.count:
            raise InputError(f"The models take {size} samples at once; {self._file.name!r} has only {self.count}.")
        return size

    def _repeated(self, name: str, constant: Array, count: int) -> Array:
        """A constant with as many rows as the batch, where its shape names the batch axis of the samples."""
        batch = {
            self._runners[0].inputs[n].shape[s.axis]
            for n, s in self._sources.items()
            if not s.extra and s.axis < len(self._runners[0].inputs[n].shape)
        }
        for axis, size in enumerate(self._runners[0].inputs[name].shape):
            if isinstance(size, str) and size in batch and constant.shape[axis] == 1:
                constant = np.repeat(constant, count, axis)
        return constant

    def _cast(self, array: Array, name: str, runner: LocalRunner) -> Array:
        """An array in the type of an input; fractions and what lies outside its range are refused, not cut off."""
        dtype = runner.input_dtype(name)
        if dtype.kind in "iu" and dtype != array.dtype and array.size:
            limits = np.iinfo(dtype)
            whole = array.dtype.kind != "f" or bool((np.isfinite(array) & (array == np.rint(array))).all())
            if not whole or array.min() < limits.min or array.max() > limits.max:
                raise InputError(
                    f"Input {name!r} of {runner.path.name!r} takes whole numbers from {limits.min} to {limits.max}; "
                    f"the samples reach from {array.min():.6g} to {array.max():.6g}"
                    f"{'' if whole else ' and have fractions'}."
                )
        with np.errstate(over="ignore"):  # float16 makes an infinity of what it can't hold
            return np.asarray(array, dtype, order="C")

    def _fitted(self, array: Array, name: str) -> Array:
        """An array in the type and layout of a quant input."""
        runner = self._runners[1]
        shape: Dims = runner.inputs[name].shape
        if len(shape) == array.ndim and not _fits(array.shape, shape):
            for order in itertools.permutations(range(array.ndim)):
                if order[0] == 0 and _fits([array.shape[k] for k in order], shape):
                    self._note(f"samples are transposed {list(order)} for input {name!r} of the quantized model")
                    array = array.transpose(order)
                    break
            else:
                raise InputError(
                    f"Input {name!r} of {runner.path.name!r} has shape {list(shape)}; samples of shape "
                    f"{list(array.shape)} do not fit it in any layout."
                )
        elif len(shape) != array.ndim and array.size == 1:
            array = array.reshape((1,) * len(shape))
        elif len(shape) != array.ndim:
            raise InputError(
                f"Input {name!r} of {runner.path.name!r} has shape {list(shape)}; samples of shape "
                f"{list(array.shape)} do not fit it."
            )
        dtype = runner.input_dtype(name)
        if dtype != array.dtype:
            self._note(f"samples are cast to {dtype} for input {name!r} of the quantized model")
        return self._cast(array, name, runner)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _fits(have: Sequence[int], want: Dims) -> bool:
    return all(not isinstance(w, int) or w <= 0 or w == h for h, w in zip(have, want, strict=True))


def _source(array: Array, shape: Dims, stated: int | None) -> _Source:
    if stated is not None:
        if not -array.ndim <= stated < array.ndim:
            raise InputError(f"--sample-axis {stated} does not exist in an array of shape {list(array.shape)}.")
        return _Source(array, stated % array.ndim, array.ndim > len(shape))
    if array.ndim == len(shape) + 1:
        return _Source(array, 0, True)
    symbolic = [k for k, n in enumerate(shape) if not isinstance(n, int) or n <= 0]
    if symbolic or not shape:
        return _Source(np.atleast_1d(array), symbolic[0] if symbolic else 0, False)
    return _Source(array, 0, False)


def _constant(text: str, shape: Dims, dtype: np.dtype[Any], name: str) -> Array:
    try:
        numbers = [int(x) if x.strip().lstrip("+-").isdecimal() else float(x) for x in text.split(",")]
    except ValueError as error:
        raise InputError(f"--set {name}={text}: numbers are needed, separated by commas.") from error
    try:
        if dtype.kind in "iu" and any(x != int(x) for x in numbers):
            raise OverflowError
        values = np.array([int(x) if dtype.kind in "iu" else x for x in numbers], dtype)
    except (OverflowError, ValueError) as error:
        raise InputError(f"--set {name}={text}: the input takes {dtype}, which can't hold that.") from error
    sizes = [n if isinstance(n, int) and n > 0 else 1 for n in shape]
    if values.size == 1:
        return np.full(sizes, values[0], dtype)
    if int(np.prod(sizes)) != values.size:
        raise InputError(f"--set {name}={text}: {values.size} numbers do not fill shape {list(shape)}.")
    return values.reshape(sizes)

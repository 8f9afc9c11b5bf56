"""Which slice of which array goes into which input: batches for both models at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from visualquant.errors import InputError
from visualquant.runtime.runner import Runner
from visualquant.runtime.samples import SampleFile
from visualquant.runtime.sources import Array, Dims, Source, constant, fits, source


@dataclasses.dataclass(frozen=True, slots=True)
class FeedOptions:
    """How samples are given.

    Attributes:
        constants: `--set`: one value for an input, for all samples.
        state: `--state`: float input that takes this float output of the step before.
        sample_axis: `--sample-axis`: by input.
        step_axis: `--step-axis`: by input; where none is given and there is a state, consecutive samples are steps.
        map_input: `--map-input`: quant input by float input.
        limit: at most so many samples; 0 for all.
        batch: at most so many samples at once, where the models leave it open.
    """

    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    state: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sample_axis: Mapping[str, int] = dataclasses.field(default_factory=dict)
    step_axis: Mapping[str, int] = dataclasses.field(default_factory=dict)
    map_input: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limit: int = 0
    batch: int = 16


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples of both models.

    Attributes:
        samples: indices.
        float_feeds, quant_feeds: by input name; those of a state hold what it starts with.
        step: of a sequence.
        steps: of the sequence that these samples belong to.
    """

    samples: range
    float_feeds: dict[str, Array]
    quant_feeds: dict[str, Array]
    step: int = 0
    steps: int = 1


class Feeder:
    """Binds a sample file to two models.

    Attributes:
        count: samples.
        steps: of each sample along its step axis; 0 where samples have none.
        partner: float input by quant input.
        notes: what was mapped, cast or transposed.
    """

    def __init__(self, file: SampleFile, float_runner: Runner, quant_runner: Runner, options: FeedOptions) -> None:
        """Finds an array for every input of the float model, and a float input for every quant input.

        Raises:
            InputError: an input has no data, or shapes can't be reconciled.
        """
        self.options = options
        self.notes: list[str] = []
        self._file = file
        self._runners = (float_runner, quant_runner)
        self._sources: dict[str, Source] = {}
        self._constants: dict[str, Array] = {}
        self._know_names()
        for name in float_runner.inputs:
            self._bind(name, float_runner)
        self.partner = self._partners()
        counts = {n: s.count for n, s in self._sources.items()}
        if not counts:
            raise InputError(f"{file.name!r} gives no samples to any input of {float_runner.path.name!r}.")
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{n!r} {c}" for n, c in counts.items())
            raise InputError(f"The inputs have different numbers of samples in {file.name!r}: {listed}.")
        self.count = min(next(iter(counts.values())), options.limit or 1 << 62)
        if self.count == 0:
            raise InputError(f"{file.name!r} holds no samples.")
        self.steps = self._steps_of_sequences()
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
            ("--state", options.state, ours),
            ("--sample-axis", options.sample_axis, ours),
            ("--step-axis", options.step_axis, ours),
            ("--map-input", options.map_input, ours),
            ("--map-input", options.map_input.values(), theirs),
        ):
            for name in names:
                if name not in runner.inputs:
                    listed = ", ".join(repr(n) for n in runner.inputs)
                    raise InputError(f"{option}: {runner.path.name!r} has no input {name!r} (it has {listed}).")

    def _bind(self, name: str, runner: Runner) -> None:
        shape: Dims = runner.inputs[name].shape
        dtype = runner.input_dtype(name)
        if name in self.options.constants:
            self._constants[name] = constant(self.options.constants[name], shape, dtype, name)
            return
        given = len(runner.inputs) - len(set(self.options.constants) | set(self.options.state))
        array = self._file.validation(name, only=given == 1 and name not in self.options.state)
        if array is None and name in self.options.state:
            return  # it starts with zeros
        if array is None:
            keys = ", ".join(repr(k) for k in self._file.arrays) or "nothing"
            raise InputError(
                f"{self._file.name!r} has no samples for input {name!r} of {runner.path.name!r} (it holds {keys}). "
                f"Name the array {name!r} or 'val_{name}', or give one value with --set {name}=VALUE."
            )
        if array.dtype.kind not in "fiub":
            raise InputError(f"The samples of {name!r} are of type {array.dtype}: numbers are needed.")
        found = source(array, shape, self.options.sample_axis.get(name), self.options.step_axis.get(name))
        self._check(name, found, shape, runner.path.name)
        self._sources[name] = found

    def _check(self, name: str, given: Source, shape: Dims, model: str) -> None:
        sample = given.sample_shape
        if len(sample) != len(shape):
            raise InputError(
                f"Input {name!r} of {model!r} has shape {list(shape)}; samples of shape "
                f"{list(given.array.shape)} do not fit it."
            )
        for k, (have, want) in enumerate(zip(sample, shape, strict=True)):
            if isinstance(want, int) and want > 0 and have != want and k != given.axis_of_input:
                raise InputError(
                    f"Input {name!r} of {model!r} has shape {list(shape)}; axis {k} of the samples "
                    f"({list(given.array.shape)}) has {have} elements instead of {want}."
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

    def _steps_of_sequences(self) -> int:
        found = {n: s.steps for n, s in self._sources.items() if s.step_axis is not None}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{n!r} {c}" for n, c in found.items())
            raise InputError(f"The inputs have different numbers of steps in {self._file.name!r}: {listed}.")
        steps = next(iter(found.values()), 0)
        if found and not steps:
            raise InputError(f"{self._file.name!r} holds no whole step along --step-axis.")
        return steps

    def batches(self) -> Iterator[Batch]:
        """All samples in order; of sequences all steps of some samples, then all steps of the next."""
        for start in range(0, self.count, self._step):
            stop = min(start + self._step, self.count)
            for step in range(self.steps or 1):
                feeds = {n: s.take(start, stop, step) for n, s in self._sources.items()}
                feeds |= {n: self._repeated(n, a, stop - start) for n, a in self._constants.items()}
                feeds |= {n: self._zeros(n, stop - start) for n in self.options.state if n not in feeds}
                ours = {n: self._cast(a, n, self._runners[0]) for n, a in feeds.items()}
                theirs = {q: self._fitted(feeds[f], q) for q, f in self.partner.items()}
                if self.options.state and not self.steps:  # consecutive samples are the steps of one sequence
                    yield Batch(range(start, stop), ours, theirs, start, self.count)
                else:
                    yield Batch(range(start, stop), ours, theirs, step, self.steps or 1)

    def _zeros(self, name: str, count: int) -> Array:
        """What a state starts with: open sizes are the batch, or empty (a cache without entries)."""
        shape: Dims = self._runners[0].inputs[name].shape
        open_axes = [k for k, n in enumerate(shape) if not isinstance(n, int) or n <= 0]
        batch = self._batch_names()
        named = [k for k in open_axes if shape[k] in batch] or open_axes[:1]
        sizes = [count if k in named else 0 if k in open_axes else n for k, n in enumerate(shape)]
        return np.zeros(sizes, self._runners[0].input_dtype(name))  # type: ignore[arg-type]

    def _batch_names(self) -> set[int | str | None]:
        """How the float model's inputs name the axis that counts samples."""
        found: set[int | str | None] = set()
        for name, given in self._sources.items():
            axis, shape = given.axis_of_input, self._runners[0].inputs[name].shape
            if axis is not None and axis < len(shape):
                found.add(shape[axis])
        return found - {None}

    def _fixed(self) -> set[int]:
        """Fixed sizes of the sample axes of both models' inputs."""
        found: set[int] = set()
        shapes = [(n, self._runners[0].inputs[n].shape) for n in self._sources]
        shapes += [(f, self._runners[1].inputs[q].shape) for q, f in self.partner.items() if f in self._sources]
        for name, shape in shapes:
            axis = self._sources[name].axis_of_input
            size = shape[axis] if axis is not None and axis < len(shape) else None
            if isinstance(size, int) and size > 0:
                found.add(size)
        return found

    def _samples_a_run(self) -> int:
        """How many samples go into one run: as many as the models' fixed batches say, else the option's."""
        if (self.options.state and not self.options.step_axis) or any(s.extra for s in self._sources.values()):
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

    def _repeated(self, name: str, value: Array, count: int) -> Array:
        """A constant with as many rows as the batch, where its shape names the batch axis of the samples."""
        batch = self._batch_names()
        for axis, size in enumerate(self._runners[0].inputs[name].shape):
            if isinstance(size, str) and size in batch and value.shape[axis] == 1:
                value = np.repeat(value, count, axis)
        return value

    def _cast(self, array: Array, name: str, runner: Runner) -> Array:
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
        if len(shape) == array.ndim and not fits(array.shape, shape):
            for order in itertools.permutations(range(array.ndim)):
                if order[0] == 0 and fits([array.shape[k] for k in order], shape):
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

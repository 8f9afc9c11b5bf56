"""Layout steps and joined operands equal plain numpy."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from visualquant.analysis.operands import JoinedSource, apply_steps, axis_before, inverse_steps, shape_after
from visualquant.core.quant import ViewStep


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[ViewStep, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    steps: list[ViewStep] = []
    current = shape
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            steps.append(ViewStep("transpose", tuple(draw(st.permutations(range(len(current)))))))
        else:
            size = math.prod(current)
            divisor = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
            steps.append(ViewStep("reshape", (divisor, size // divisor)))
        current = shape_after(steps, shape)[-1]
    return shape, tuple(steps)


@given(layouts())
@settings(deadline=None)
def test_inverse_steps_undo(layout: tuple[tuple[int, ...], tuple[ViewStep, ...]]) -> None:
    shape, steps = layout
    array = np.arange(math.prod(shape)).reshape(shape)
    there = apply_steps(array, steps)
    assert there.shape == shape_after(steps, shape)[-1]
    np.testing.assert_array_equal(apply_steps(there, inverse_steps(steps, shape)), array)


@given(layouts(), st.data())
@settings(deadline=None)
def test_axis_before_is_where_elements_of_an_axis_were(
    layout: tuple[tuple[int, ...], tuple[ViewStep, ...]], data: st.DataObject
) -> None:
    shape, steps = layout
    after = shape_after(steps, shape)[-1]
    axis = data.draw(st.integers(0, len(after) - 1))
    before = axis_before(steps, shape, axis)
    if before is None:
        return
    index = np.broadcast_to(
        np.arange(shape[before]).reshape([-1 if k == before else 1 for k in range(len(shape))]), shape
    )
    moved = apply_steps(np.ascontiguousarray(index), steps)
    want = np.broadcast_to(np.arange(after[axis]).reshape([-1 if k == axis else 1 for k in range(len(after))]), after)
    np.testing.assert_array_equal(moved, want)


@given(st.data())
@settings(deadline=None)
def test_joined_source_reads_any_range(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    base = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    axis = data.draw(st.integers(0, rank - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        shape = list(base)
        shape[axis] = data.draw(st.integers(1, 4))
        parts.append(rng.normal(size=shape).astype(np.float32))
    whole = np.concatenate(parts, axis=axis).astype(np.float64)
    factor = order = None
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, rank - 1))
        order = (at, rng.permutation(whole.shape[at]))
        whole = np.take(whole, order[1], axis=at)
    if data.draw(st.booleans()):
        factor = rng.normal(size=whole.shape)
        whole = whole * factor
    source = JoinedSource(tuple(parts), axis, factor, order)
    assert source.shape == whole.shape
    start = data.draw(st.integers(0, whole.size))
    stop = data.draw(st.integers(start, whole.size))
    np.testing.assert_array_equal(source.read(start, stop), whole.reshape(-1)[start:stop])

"""Samples as pictures."""

from __future__ import annotations

import numpy as np
import pytest

from visualquant.errors import InputError
from visualquant.session.sample_picture import as_picture, sample_picture


@pytest.mark.parametrize("shape", [(8, 6), (1, 8, 6), (3, 8, 6), (8, 6, 3), (8, 6, 1), (1, 3, 8, 6)])
def test_pictures(shape: tuple[int, ...]) -> None:
    found = as_picture(np.random.default_rng(0).normal(size=shape))
    assert found is not None and found.shape == (8, 6, 3) and found.min() == 0 and found.max() == 1


@pytest.mark.parametrize("shape", [(9,), (5, 8, 6), (1, 6), (2, 8, 6, 3)])
def test_no_pictures(shape: tuple[int, ...]) -> None:
    assert as_picture(np.zeros(shape)) is None


def test_values_that_are_no_numbers() -> None:
    array = np.array([[np.nan, 1.0], [np.inf, 0.0]])
    found = as_picture(array)
    assert found is not None and found[:, :, 0].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert as_picture(np.full((2, 2), np.nan)) is not None


def test_of_real_data(corpus) -> None:
    data = str(corpus / "data" / "digits.npz")
    assert sample_picture(data, ["input"], 3).shape == (8, 8, 3)
    with pytest.raises(InputError):
        sample_picture(data, ["input"], 10**6)
    with pytest.raises(InputError):
        sample_picture("random", ["input"], 0)

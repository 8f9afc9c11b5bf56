"""The shipped task metrics against answers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from visualquant.analysis import metrics
from visualquant.analysis.tasks import score_row


def test_mean_iou_counts_each_class_of_an_image() -> None:
    truth = np.array([[[0, 0], [1, 1]], [[0, 0], [0, -1]]])
    scores = np.zeros((2, 2, 2, 2))
    scores[0, 1, 1, :] = scores[0, 1, 0, 0] = 1  # one of two zeros is taken for a one
    scores[1, 1, 1, 1] = 1  # where nothing counts
    assert metrics.mean_iou({"out": scores}, {"val_label": truth}) == pytest.approx([(1 / 2 + 2 / 3) / 2, 1.0])
    one = np.where(truth[:, None] > 0, 0.9, 0.1)
    assert metrics.mean_iou({"out": one}, {"mask": truth}) == pytest.approx([1.0, 1.0])


def test_ctc_merges_repeats_and_drops_blanks() -> None:
    path = np.array([[1, 1, 0, 1, 2, 3, 3], [2, 0, 0, 2, 3, 1, 1]])
    outputs = {"logits": np.eye(4)[path]}
    labels = {"label": np.array([[1, 1, 2, 3], [2, 2, 1, -1]])}
    assert metrics.ctc_word_error(outputs, labels) == pytest.approx([0.0, 1 / 3])
    # With 3 as the space: "1 1 2" and "" against "1 1 2"; "2 2", "1" against "2 2 1".
    labels["space"] = np.array(3)
    assert metrics.ctc_word_error(outputs, labels) == pytest.approx([0.0, 2.0])
    assert not metrics.ctc_word_error.higher_is_better  # type: ignore[attr-defined]


def test_average_precision_is_the_area_under_the_envelope() -> None:
    true_boxes = np.array([[[0, 0, 10, 10], [20, 20, 30, 30]], [[0, 0, 4, 4], [0, 0, 0, 0]]], float)
    labels = {"boxes": true_boxes, "label": np.array([[0, 0], [1, -1]])}
    boxes = np.array(
        [[[0, 0, 10, 9], [50, 50, 60, 60], [20, 20, 30, 31]], [[0, 0, 4, 4], [9, 9, 9, 9], [0, 0, 1, 1]]], float
    )
    scores = np.zeros((2, 3, 2))
    scores[0, :, 0] = [0.9, 0.8, 0.7]  # right, wrong, right: 1·½ + ⅔·½
    scores[1, :, 1] = [0.6, 0.1, 0.2]
    assert metrics.average_precision({"boxes": boxes, "scores": scores}, labels) == pytest.approx((5 / 6 + 1) / 2)
    twice = {"boxes": np.repeat(boxes[:, :1], 3, axis=1), "scores": scores}
    assert metrics.average_precision(twice, labels) == pytest.approx((1 / 2 + 1) / 2)  # a box counts once


def test_a_missing_label_is_named() -> None:
    with pytest.raises(KeyError, match="label"):
        metrics.ctc_word_error({"o": np.zeros((1, 2, 3))}, {"other": np.zeros(1)})


def test_scores_of_samples_have_intervals_and_a_sign_test() -> None:
    ours, theirs = np.array([1.0, 1.0, 0.5, 0.0]), np.array([0.5, 1.0, 0.25, 0.5])
    row = score_row("r1", "m", (ours, theirs), higher_is_better=True)
    assert (row.lost, row.won, row.n) == (2, 1, 4) and row.p_value == 1.0
    half = 1.959963984540054 * ours.std(ddof=1) / 2
    assert row.ci95_float == pytest.approx((0.625 - half, 0.625 + half))
    turned = score_row("r1", "m", (ours, theirs), higher_is_better=False)
    assert (turned.lost, turned.won) == (1, 2)
    single = score_row("r1", "m", (np.array(0.5), np.array(0.25)), higher_is_better=True)
    assert single.float == 0.5 and single.ci95_float is None and single.lost is None

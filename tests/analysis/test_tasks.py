"""Intervals, p-values, decisions of every kind of task, and the figures of logits, against plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualquant.analysis.tasks import decide, log_softmax, logit_metrics, mcnemar_p, task_row, wilson

RNG = np.random.default_rng(6)


def test_wilson_against_published_numbers() -> None:
    # Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(right, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors(pair: tuple[int, int]) -> None:
    right, n = pair
    low, high = wilson(right, n)
    assert 0 <= low <= right / n <= high <= 1
    mirrored = wilson(n - right, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_mcnemar_against_known_numbers() -> None:
    # exact binomial: P(X ≤ 5 | 20, ½)·2 = 0.0413895; 121 against 59 is Edwards' example
    assert mcnemar_p(5, 15) == pytest.approx(0.04138947, rel=1e-6)
    assert mcnemar_p(15, 5) == mcnemar_p(5, 15)
    assert mcnemar_p(121, 59) == pytest.approx(4.434e-06, rel=1e-3)
    assert mcnemar_p(0, 0) == mcnemar_p(3, 3) == mcnemar_p(1, 0) == 1.0
    assert mcnemar_p(0, 10) == 2 / 2**10
    assert 0 <= mcnemar_p(1200, 3000) < 1e-150
    assert mcnemar_p(6000, 6010) == pytest.approx(0.9346, abs=1e-3)


def test_top1() -> None:
    labels = np.int64([0, 1, 2, 2, 1])
    ours = np.float32([[3, 1, 0], [0, 2, 1], [0, 1, 2], [0, 1, 2], [5, 1, 0]])
    theirs = np.float32([[3, 1, 0], [4, 2, 1], [0, 1, 2], [0, 3, 2], [0, 1, 0]])
    decisions = decide(ours, theirs, labels)
    assert decisions is not None and decisions.metric == "top1" and decisions.classes == 3
    groups = {"light": np.array(["day", "night", "day", "night", "day"]), "short": np.array(["a"])}
    row = task_row("r1", decisions, groups)
    assert (row.float, row.quant, row.n, row.lost, row.won) == (0.8, 0.6, 5, 2, 1)
    assert row.p_value == mcnemar_p(2, 1) and row.ci95_float == wilson(4, 5)
    assert [(f.sample, f.label, f.float, f.quant) for f in row.flipped] == [(1, 1, 1, 0), (3, 2, 2, 1)]
    assert (row.flipped[0].float_margin, row.flipped[0].quant_margin) == (1, -2)
    assert row.flipped[1].groups == {"light": "night"}
    assert row.by_class["2"] == {"n": 2, "float": 1.0, "quant": 0.5}
    assert row.by_group == {
        "light": {"day": {"n": 3, "float": 2 / 3, "quant": 1.0}, "night": {"n": 2, "float": 1.0, "quant": 0.0}}
    }


def test_labels_outside_the_classes_are_wrong_and_no_error() -> None:
    scores = RNG.normal(size=(3, 4)).astype(np.float32)
    decisions = decide(scores, scores, np.int64([-1, 4, 0]))
    assert decisions is not None
    row = task_row("r1", decisions, {})
    assert row.float in (0.0, 1 / 3) and row.n == 3 and row.flipped == ()


def test_more_labels_than_samples_were_run() -> None:
    scores = np.eye(4, dtype=np.float32)[:2]
    decisions = decide(scores, scores, np.int64([0, 1, 3, 3]))
    assert decisions is not None and decisions.labels.tolist() == [0, 1]
    assert decide(scores, scores, np.int64([0])) is None, "fewer labels than samples"


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("kind", ["probability", "logit"])
def test_binary(shape: tuple[int, ...], kind: str) -> None:
    p = np.float32([0.9, 0.2, 0.6, 0.4])
    q = np.float32([0.8, 0.7, 0.3, 0.1])
    ours, theirs = (p, q) if kind == "probability" else (np.log(p / (1 - p)), np.log(q / (1 - q)))
    decisions = decide(ours.reshape(shape), theirs.reshape(shape), np.int64([1, 0, 1, 1]))
    assert decisions is not None and decisions.metric == "accuracy" and decisions.classes == 2
    assert decisions.float_says.tolist() == [1, 0, 1, 0] and decisions.quant_says.tolist() == [1, 1, 0, 0]
    row = task_row("r1", decisions, {})
    assert (row.float, row.quant, row.lost, row.won) == (0.75, 0.25, 2, 0)
    assert row.flipped[0].float_margin is None


def test_segmentation() -> None:
    labels = RNG.integers(0, 3, size=(2, 4, 5))
    ours = np.eye(3, dtype=np.float32)[labels].transpose(0, 3, 1, 2)
    theirs = ours.copy()
    theirs[0, :, 0, 0] = np.roll(theirs[0, :, 0, 0], 1)
    decisions = decide(ours, theirs, labels)
    assert decisions is not None and decisions.metric == "pixel_accuracy"
    row = task_row("r1", decisions, {})
    assert (row.float, row.n, row.lost, row.won, row.flipped) == (1.0, 40, 1, 0, ())
    assert row.quant == pytest.approx(39 / 40)
    mask = decide(ours[:, :1], theirs[:, :1], (labels == 0).astype(np.int64))
    assert mask is not None and mask.metric == "pixel_accuracy" and (mask.float_says == mask.labels).all()


@pytest.mark.parametrize(
    ("ours", "theirs", "labels"),
    [
        ((4, 3), (4, 2), np.zeros(4, np.int64)),
        ((4, 3), (4, 3), np.zeros(4, np.float32)),
        ((4, 3), (4, 3), np.zeros((4, 2), np.int64)),
        ((), (), np.zeros(4, np.int64)),
        ((4,), (4,), np.int64([0, 1, 2, 3])),
        ((2, 3, 4, 4), (2, 3, 4, 4), np.zeros((2, 5, 5), np.int64)),
        ((2, 3, 4, 4), (2, 3, 4, 4), np.zeros(2, np.int64)),
    ],
)
def test_other_outputs_have_no_task(ours: tuple[int, ...], theirs: tuple[int, ...], labels: np.ndarray) -> None:
    assert decide(np.zeros(ours, np.float32), np.zeros(theirs, np.float32), labels) is None


def test_scores_that_are_not_numbers_are_never_right() -> None:
    ours = np.float32([[3, 1], [0, 2]])
    theirs = np.float32([[np.nan, np.nan], [0, 2]])
    decisions = decide(ours, theirs, np.int64([0, 1]))
    assert decisions is not None
    row = task_row("r1", decisions, {})
    assert (row.float, row.quant, row.lost) == (1.0, 0.5, 1), "argmax of NaN is index 0: no decision"
    binary = decide(np.float32([0.2, 0.9]), np.float32([np.nan, 0.9]), np.int64([0, 1]))
    assert binary is not None and task_row("r1", binary, {}).quant == 0.5
    nothing = decide(np.full(2, np.nan, np.float32), np.float32([0.1, 0.9]), np.int64([0, 1]))
    assert nothing is not None and task_row("r1", nothing, {}).float == 0


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(2, 12), st.integers(0, 2**31), st.booleans())
def test_logits_against_numpy(n: int, classes: int, seed: int, probabilities: bool) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, classes)) * 3
    b = a + rng.normal(size=a.shape) * 0.5
    p, q = _softmax(a), _softmax(b)
    got = logit_metrics(*((p, q) if probabilities else (a, b)))
    kl = (p * np.log(p / q)).sum(axis=1)
    assert got["logit_kl"] == pytest.approx(kl.mean(), rel=1e-5, abs=1e-9)
    assert got["logit_kl_p99"] == pytest.approx(np.percentile(kl, 99), rel=1e-5, abs=1e-9)
    assert got["top1_agreement"] == (a.argmax(1) == b.argmax(1)).mean()
    if classes > 5:
        top = np.argsort(-b, axis=1)[:, :5]
        assert got["top5_agreement"] == np.mean([x in row for x, row in zip(a.argmax(1), top, strict=True)])
    else:
        assert "top5_agreement" not in got


def test_logits_of_tokens_are_taken_row_by_row() -> None:
    a = RNG.normal(size=(2, 3, 7)).astype(np.float32)
    b = a + RNG.normal(size=a.shape).astype(np.float32)
    assert logit_metrics(a, b) == logit_metrics(a.reshape(6, 7), b.reshape(6, 7))


def test_logits_of_other_kinds_are_absent() -> None:
    a = np.zeros((2, 3), np.float32)
    assert logit_metrics(a, a[:, :2]) == {} and logit_metrics(a[0], a[0]) == {}
    assert logit_metrics(np.zeros((2, 1)), np.zeros((2, 1))) == {}
    assert logit_metrics(np.full((2, 3), np.nan), a) == {}
    assert logit_metrics(np.zeros((0, 3)), np.zeros((0, 3))) == {}
    half = np.float32([[1, np.inf, 0], [1, 2, 3]])
    assert logit_metrics(half, half)["top1_agreement"] == 1.0


def test_equal_logits_have_no_divergence_and_huge_ones_do_not_overflow() -> None:
    a = np.float32([[1e4, -1e4, 0], [3, 2, 1]])
    got = logit_metrics(a, a)
    assert got["logit_kl"] == 0 and got["top1_agreement"] == 1
    assert math.isfinite(float(logit_metrics(a, -a)["logit_kl"]))
    np.testing.assert_allclose(np.exp(log_softmax(a)).sum(axis=1), 1)

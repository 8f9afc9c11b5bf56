"""The third level: what the outputs mean, against labels and against each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.core.report import FlippedRow, Number, TaskRow

Array = npt.NDArray[Any]
Z95 = 1.959963984540054
FLIPPED_SHOWN = 200
UNDECIDED = -1


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share. Source: Wilson 1927."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = right / n, Z95 * Z95
    middle, half = p + z2 / (2 * n), Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return max(0.0, min(low, p)), min(1.0, max(high, p))


def mcnemar_p(lost: int, won: int) -> float:
    """Exact two-sided p that changes in both directions are equally likely. Source: McNemar 1947, binomial form."""
    n = lost + won
    if n == 0:
        return 1.0
    k = np.arange(1, min(lost, won) + 1)
    # NOTE: logarithms of C(n, k) / 2ⁿ by recurrence: whole numbers would take hours where millions of pixels change
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) / k))]) - n * math.log(2)
    top = float(logs.max())
    return float(min(1.0, 2 * math.exp(top) * float(np.exp(logs - top).sum())))


def log_softmax(logits: Array) -> npt.NDArray[np.float64]:
    """Over the last axis; of rows that are probabilities already, their logarithm."""
    a = logits.astype(np.float64)
    sums = a.sum(axis=-1)
    with np.errstate(all="ignore"):
        if a.size and a.min() >= 0 and np.allclose(sums, 1, atol=1e-3):
            return np.log(np.maximum(a, 1e-12))
        shifted = a - a.max(axis=-1, keepdims=True)
        out: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def logit_metrics(float_out: Array, quant_out: Array) -> dict[str, Number]:
    """KL(float ‖ quantized) a sample or token in nats, top-1 and top-5 agreement; empty for outputs of other kinds."""
    if float_out.shape != quant_out.shape or float_out.ndim not in (2, 3) or not 2 <= float_out.shape[-1] <= 300_000:
        return {}
    a, b = (x.reshape(-1, x.shape[-1]) for x in (float_out, quant_out))
    good = np.isfinite(a.astype(np.float64)).all(axis=1) & np.isfinite(b.astype(np.float64)).all(axis=1)
    a, b = a[good], b[good]
    if not a.shape[0]:
        return {}
    p, q = log_softmax(a), log_softmax(b)
    kl = np.maximum((np.exp(p) * (p - q)).sum(axis=1), 0)
    found: dict[str, Number] = {
        "logit_kl": float(kl.mean()),
        "logit_kl_p99": float(np.percentile(kl, 99)),
        "top1_agreement": float((a.argmax(axis=1) == b.argmax(axis=1)).mean()),
    }
    if a.shape[1] > 5:
        best = np.argpartition(-b, 4, axis=1)[:, :5]
        found["top5_agreement"] = float((best == a.argmax(axis=1)[:, None]).any(axis=1).mean())
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What both models decide for each labelled thing.

    Attributes:
        metric: "top1", "accuracy" or "pixel_accuracy".
        labels, float_says, quant_says: [N]; -1 where the scores are not numbers.
        float_margin, quant_margin: score of the label minus the best other, [N]; None where there is none.
        classes: how many there are.
    """

    metric: str
    labels: Array
    float_says: Array
    quant_says: Array
    float_margin: Array | None
    quant_margin: Array | None
    classes: int


def decide(float_out: Array, quant_out: Array, labels: Array) -> Decisions | None:
    """Decisions where outputs and labels fit one of the known tasks, else None.

    Known: [N, C] scores, [N, 1] or [N] probabilities of one class, [N, C, ...] scores with labels [N, ...].
    """
    if float_out.shape != quant_out.shape or float_out.ndim == 0 or labels.dtype.kind not in "iub":
        return None
    if labels.ndim == 1 and labels.shape[0] >= float_out.shape[0]:
        labels = labels[: float_out.shape[0]]
        if float_out.ndim == 2 and float_out.shape[1] > 1:
            return Decisions(
                "top1",
                labels,
                _best(float_out),
                _best(quant_out),
                _margin(float_out, labels),
                _margin(quant_out, labels),
                float_out.shape[1],
            )
        if float_out.size == labels.size and set(np.unique(labels)) <= {0, 1}:
            return _binary("accuracy", float_out, quant_out, labels)
        return None
    if float_out.ndim != labels.ndim + 1 or float_out.shape[:1] + float_out.shape[2:] != labels.shape:
        return None
    if float_out.shape[1] == 1:
        return _binary("pixel_accuracy", float_out, quant_out, labels)
    says = tuple(_best(x).reshape(-1) for x in (float_out, quant_out))
    return Decisions("pixel_accuracy", labels.reshape(-1), says[0], says[1], None, None, float_out.shape[1])


def _best(scores: Array) -> Array:
    """The class with the largest score on axis 1; undecided where a score is NaN (argmax would name it)."""
    out: Array = np.where(np.isnan(scores).any(axis=1), UNDECIDED, scores.argmax(axis=1))
    return out


def _binary(metric: str, float_out: Array, quant_out: Array, labels: Array) -> Decisions:
    """One score a thing: above 0.5 for probabilities, above 0 for logits."""
    a, b = float_out.reshape(-1), quant_out.reshape(-1)
    finite = a[np.isfinite(a)]
    threshold = 0.5 if finite.size and finite.min() >= 0 and finite.max() <= 1 else 0.0
    says = tuple(np.where(np.isnan(x), UNDECIDED, x > threshold) for x in (a, b))
    return Decisions(metric, labels.reshape(-1), says[0], says[1], None, None, 2)


def _margin(scores: Array, labels: Array) -> Array:
    rows = np.arange(labels.size)
    inside = (labels >= 0) & (labels < scores.shape[1])
    at = np.where(inside, labels, 0)
    own = np.where(inside, scores[rows, at], -np.inf)
    others = scores.astype(np.float64).copy()
    others[rows[inside], at[inside]] = -np.inf
    out: Array = own - others.max(axis=1)
    return out


def task_row(run: str, decisions: Decisions, groups: Mapping[str, Array]) -> TaskRow:
    """Accuracy of both, the interval of the difference, and every sample that flipped."""
    labels = decisions.labels
    good_float, good_quant = ((s == labels) & (s != UNDECIDED) for s in (decisions.float_says, decisions.quant_says))
    n = int(labels.size)
    lost = np.flatnonzero(good_float & ~good_quant)
    won = int((~good_float & good_quant).sum())
    fitting = {k: v[:n] for k, v in groups.items() if v.ndim == 1 and v.shape[0] >= n}
    flipped = []
    for k in lost[:FLIPPED_SHOWN] if decisions.metric != "pixel_accuracy" else ():
        flipped.append(
            FlippedRow(
                sample=int(k),
                label=int(labels[k]),
                float=int(decisions.float_says[k]),
                quant=int(decisions.quant_says[k]),
                float_margin=None if decisions.float_margin is None else float(decisions.float_margin[k]),
                quant_margin=None if decisions.quant_margin is None else float(decisions.quant_margin[k]),
                groups={name: str(values[k]) for name, values in fitting.items()},
            )
        )
    return TaskRow(
        run=run,
        metric=decisions.metric,
        float=float(good_float.mean()),
        quant=float(good_quant.mean()),
        n=n,
        ci95_float=wilson(int(good_float.sum()), n),
        ci95_quant=wilson(int(good_quant.sum()), n),
        p_value=mcnemar_p(len(lost), won),
        lost=len(lost),
        won=won,
        flipped=tuple(flipped),
        by_class=_split(labels, good_float, good_quant) if decisions.classes <= 1000 else {},
        by_group={name: _split(values, good_float, good_quant) for name, values in fitting.items()},
    )


def _split(key: Array, good_float: Array, good_quant: Array) -> dict[str, dict[str, Number]]:
    found: dict[str, dict[str, Number]] = {}
    for value in np.unique(key):
        here = key == value
        found[str(value)] = {
            "n": int(here.sum()),
            "float": float(good_float[here].mean()),
            "quant": float(good_quant[here].mean()),
        }
    return found

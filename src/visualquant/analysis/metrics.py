"""Task metrics for `--metric visualquant.analysis.metrics:NAME`, and patterns for metrics of your own.

A metric is a function `f(outputs, labels)`. `outputs` holds all samples of each graph output by name, `labels` every
array of the sample file that is no input, by key ("label", "boxes", ...). It gives one score a sample [N], which makes
intervals, p and the samples that got worse possible, or one number for all. Errors set
`f.higher_is_better = False`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
IOU_AT_LEAST = 0.5


def mean_iou(outputs: Arrays, labels: Arrays) -> npt.NDArray[np.float64]:
    """Segmentation: intersection over union of each image, mean over the classes in it or in its prediction, [N].

    Args:
        outputs: the first output of shape [N, C, ...]: scores; with C = 1 a probability or logit of one class.
        labels: "label" or "mask", whole numbers of shape [N, ...]; negative ones are left out.
    """
    scores = next(a for a in outputs.values() if a.ndim >= 3)
    truth = _first(labels, "label", "mask")
    says = _classes(scores)
    n = min(len(says), len(truth))
    found = np.empty(n)
    for k in range(n):
        inside = truth[k] >= 0
        ours, theirs = says[k][inside], truth[k][inside]
        shares = [
            np.count_nonzero((ours == c) & (theirs == c)) / np.count_nonzero((ours == c) | (theirs == c))
            for c in np.union1d(ours, theirs)
        ]
        found[k] = np.mean(shares) if shares else 1.0
    return found


def ctc_word_error(outputs: Arrays, labels: Arrays) -> npt.NDArray[np.float64]:
    """Speech and text: word errors a word of the truth, [N], from the best path of a CTC output (blank = token 0).

    Args:
        outputs: the first output of shape [N, T, C].
        labels: "label" [N, L], padded with negative numbers; "space", the token between words (without it, each token
            is a word).
    """
    scores = next(a for a in outputs.values() if a.ndim == 3)
    truth, space = _first(labels, "label"), labels.get("space")
    mark = None if space is None else int(space.reshape(-1)[0])
    found = np.empty(min(len(scores), len(truth)))
    for k in range(found.size):
        path = scores[k].argmax(axis=-1)
        kept = path[np.concatenate([[True], path[1:] != path[:-1]])]
        said, told = (_words(tokens, mark) for tokens in (kept[kept != 0], truth[k][truth[k] >= 0]))
        found[k] = _edits(said, told) / max(len(told), 1)
    return found


ctc_word_error.higher_is_better = False  # type: ignore[attr-defined]


def average_precision(outputs: Arrays, labels: Arrays) -> float:
    """Detection: mean over classes of the average precision at an overlap of 0.5 (area under the precision envelope).

    Args:
        outputs: boxes [N, K, 4] as corners (x1, y1, x2, y2), and scores [N, K, C] or [N, K].
        labels: "boxes" [N, M, 4] and "label" [N, M], padded with negative labels.
    """
    boxes = next(a for a in outputs.values() if a.ndim == 3 and a.shape[2] == 4)
    scores = next(a for a in outputs.values() if a is not boxes and a.ndim in (2, 3) and a.shape[1] == boxes.shape[1])
    scores = scores[..., None] if scores.ndim == 2 else scores
    true_boxes, truth = _first(labels, "boxes"), _first(labels, "label")
    found = [_precision(boxes, scores[..., c], true_boxes, truth == c) for c in np.unique(truth[truth >= 0])]
    return float(np.mean(found)) if found else 0.0


def _precision(boxes: Array, scores: Array, true_boxes: Array, wanted: Array) -> float:
    hits: list[bool] = []
    taken = np.zeros_like(wanted)
    for place in np.argsort(-scores, axis=None, kind="stable"):
        image, box = np.unravel_index(int(place), scores.shape)
        if image >= len(wanted):
            continue
        overlap = np.where(wanted[image], _iou(boxes[image, box], true_boxes[image]), 0.0)
        best = int(overlap.argmax()) if overlap.size else -1
        hit = best >= 0 and overlap[best] >= IOU_AT_LEAST and not taken[image, best]
        if hit:
            taken[image, best] = True
        hits.append(hit)
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((envelope * np.asarray(hits)).sum() / max(int(wanted.sum()), 1))


def _iou(box: Array, others: Array) -> Array:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=1)
    whole = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    out: Array = shared / np.maximum(whole, 1e-12)
    return out


def _classes(scores: Array) -> Array:
    if scores.shape[1] > 1:
        return np.asarray(scores.argmax(axis=1))
    threshold = 0.5 if scores.min() >= 0 and scores.max() <= 1 else 0.0
    return np.asarray((scores[:, 0] > threshold).astype(np.int64))


def _first(labels: Arrays, *names: str) -> Array:
    for name in names:
        for key in (f"val_{name}", name):
            if key in labels:
                return labels[key]
    raise KeyError(f"the sample file holds no {' or '.join(map(repr, names))} (it holds {', '.join(labels) or 'none'})")


def _words(tokens: Array, space: int | None) -> list[tuple[int, ...]]:
    if space is None:
        return [(int(t),) for t in tokens]
    words: list[list[int]] = [[]]
    for token in tokens:
        if token == space:
            words.append([])
        else:
            words[-1].append(int(token))
    return [tuple(w) for w in words if w]


def _edits(said: Sequence[Any], told: Sequence[Any]) -> int:
    """Insertions, deletions and substitutions between two sequences. Source: Levenshtein 1966."""
    row = list(range(len(told) + 1))
    for i, ours in enumerate(said, start=1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(told, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (ours != theirs))
    return row[-1]

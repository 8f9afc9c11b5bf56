"""`--metric module:function`: a user's own score of a model's outputs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.analysis.measured import RunResult
from visualquant.analysis.tasks import score_row
from visualquant.core.report import TaskRow
from visualquant.errors import InputError, UsageError

Array = npt.NDArray[Any]
Metric = Callable[[Mapping[str, Array], Mapping[str, Array]], Any]


def load_metric(name: str) -> Metric:
    """The function behind "module:function" or "path/to/file.py:function".

    Raises:
        UsageError: nothing callable is there.
    """
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function:
        raise UsageError(f"--metric wants MODULE:FUNCTION or FILE.py:FUNCTION, not {name!r}.")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, "")  # a module beside the user, as with `python -m`
            try:
                module = importlib.import_module(place)
            finally:
                sys.path.remove("")
    except Exception as error:  # NOTE: a user's module may raise anything
        raise UsageError(f"--metric: {place!r} can't be imported: {type(error).__name__}: {error}.") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"--metric: {place!r} has no function {function!r}.")
    return found  # type: ignore[no-any-return]


def metric_row(run_id: str, name: str, metric: Metric, run: RunResult, labels: Mapping[str, Array]) -> TaskRow:
    """What the metric gives for both models.

    Args:
        run_id: of the quantized model.
        name: as the user wrote it.
        metric: the function.
        run: holds the outputs of all samples.
        labels: all arrays of the sample file that are no inputs, as many rows as were run.

    Raises:
        InputError: the function fails, or gives no numbers.
    """
    # The quantized model's outputs under the float model's names, so that one function serves both.
    theirs = {ours: run.quant_outputs[quant] for ours, quant in run.outputs}
    ours = {name: run.float_outputs[name] for name in theirs}
    scores = []
    for side, outputs in (("float", ours), ("quantized", theirs)):
        try:
            score = np.asarray(metric(outputs, labels), np.float64)
        except Exception as error:  # NOTE: a user's function may raise anything
            raise InputError(
                f"The metric {name!r} fails on the {side} model's outputs: {type(error).__name__}: {error}."
            ) from error
        if score.ndim > 1 or not score.size or not np.isfinite(score).all():
            raise InputError(f"The metric {name!r} must give one finite number, or one a sample.")
        scores.append(score)
    if scores[0].shape != scores[1].shape:
        raise InputError(f"The metric {name!r} gives {scores[0].size} and {scores[1].size} scores for the two models.")
    direction = bool(getattr(metric, "higher_is_better", True))
    return score_row(run_id, name.rpartition(":")[2], (scores[0], scores[1]), higher_is_better=direction)

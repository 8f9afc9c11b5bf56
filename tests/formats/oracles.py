"""Programs that compute an operand on their own: onnxruntime, and onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

ONNX_IS_OLD = tuple(int(n) for n in onnx.__version__.split(".")[:2]) < (1, 22)


def skip_old_onnxruntime() -> None:
    """Older ones lack operators and types, and round some of them otherwise."""
    import onnxruntime as ort

    if tuple(int(n) for n in ort.__version__.split(".")[:2]) < (1, 22):
        pytest.skip("an onnxruntime this old is no oracle")


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output, without graph optimisation."""
    import onnxruntime as ort

    skip_old_onnxruntime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output by onnx.reference."""
    from onnx.reference import ReferenceEvaluator

    if ONNX_IS_OLD:
        pytest.skip("an onnx this old does not round to all float types")
    return np.asarray(ReferenceEvaluator(model).run(None, dict(feeds))[0])

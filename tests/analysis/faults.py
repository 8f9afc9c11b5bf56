"""Faults planted in quantized files of the corpus, one at a time, over every layer in turn.

python -m tests.analysis.faults [MODEL/FILE ...] prints what the first finding says of each.
"""

# ruff: noqa: T201
from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import visualquant
from tests.shared import CORPUS
from visualquant.core.report import Report
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

DATA = {"digits_resnet": "digits", "mnist_mbnet": "mnist"}
SAMPLES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault.

    Attributes:
        kind: what was done.
        place: name of the value that it was done to, without suffixes.
        code: the finding that must come first.
        edit: does it to the quantized model; None where the pair is made anew.
    """

    kind: str
    place: str
    code: str
    edit: Callable[[onnx.ModelProto], None] | None


def array_of(proto: onnx.ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(i for i in proto.graph.initializer if i.name == name))


def put(proto: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    old = next(i for i in proto.graph.initializer if i.name == name)
    old.CopyFrom(numpy_helper.from_array(np.asarray(array), name))


def faults(proto: onnx.ModelProto) -> Iterator[Fault]:
    """Range cut to a third, zero point at the other end, bias scale eightfold: over each activation and bias."""
    constants = {i.name for i in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            yield Fault("range", node.input[0], "ACT_CLIPPED", functools.partial(_cut, scale=node.input[1]))
            zero = array_of(proto, node.input[2])
            low, high = np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max
            if abs(int(zero) - (low + high - int(zero))) > (high - low) // 3:  # else nothing was swapped
                swap = functools.partial(_swap, zero_point=node.input[2])
                yield Fault("zero_point", node.input[0], "ACT_CLIPPED", swap)
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            codes = array_of(proto, node.input[0])
            if codes.dtype == np.int32:
                place = node.input[0].removesuffix("_quantized")
                yield Fault("bias", place, "BIAS_SCALE", functools.partial(_scale_bias, scale=node.input[1]))


def _cut(proto: onnx.ModelProto, *, scale: str) -> None:
    put(proto, scale, array_of(proto, scale) / np.float32(3))


def _swap(proto: onnx.ModelProto, *, zero_point: str) -> None:
    zero = array_of(proto, zero_point)
    limits = np.iinfo(zero.dtype)
    put(proto, zero_point, (limits.min + limits.max - zero.astype(int)).astype(zero.dtype))


def _scale_bias(proto: onnx.ModelProto, *, scale: str) -> None:
    put(proto, scale, array_of(proto, scale) * np.float32(8))


def hot_weights(proto: onnx.ModelProto) -> list[str]:
    """Weights of convolutions with more than one channel: those of one channel have nothing to compare with."""
    constants = {i.name: list(i.dims) for i in proto.graph.initializer}
    names = [n.input[1] for n in proto.graph.node if n.op_type == "Conv" and n.input[1] in constants]
    return [n for n in names if constants[n][0] > 1]


def hot_pair(float_path: Path, weight: str, folder: Path) -> tuple[Path, Path]:
    """One channel of a weight times 50, and the result quantized per tensor by ONNX Runtime."""
    proto = onnx.load(float_path)
    array = array_of(proto, weight).copy()
    array[array.shape[0] // 2] *= 50
    put(proto, weight, array)
    ours, theirs = folder / "float.onnx", folder / "quant.onnx"
    onnx.save(proto, ours)
    quantize_static(
        str(ours),
        str(theirs),
        _Calibration(float_path.parent.name, proto.graph.input[0].name),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=False,
    )
    return ours, theirs


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: str, name: str) -> None:
        with np.load(CORPUS / "data" / f"{DATA[model]}.npz") as arrays:
            self._feeds = iter([{name: arrays["calib_input"][:SAMPLES]}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def compared(model: str, paths: tuple[Path, Path]) -> Report:
    data = str(CORPUS / "data" / f"{DATA[model]}.npz")
    options = DataOptions(data, feeds=FeedOptions(limit=SAMPLES, batch=SAMPLES), profile=False)
    return visualquant.compare(*paths, data=options)


def planted(model: str, file: str, fault: Fault) -> Report:
    """The report on a corpus pair with one fault."""
    float_path = CORPUS / model / "fp32.onnx"
    with tempfile.TemporaryDirectory() as folder:
        if fault.edit is None:
            return compared(model, hot_pair(float_path, fault.place, Path(folder)))
        proto = onnx.load(CORPUS / model / f"{file}.onnx")
        fault.edit(proto)
        path = Path(folder) / "quant.onnx"
        onnx.save(proto, path)
        return compared(model, (float_path, path))


def first(report: Report) -> tuple[str, set[str]]:
    """The code of the first finding that is not information, and all names that it points to."""
    finding = next((f for f in report.findings if f.severity != "info"), None)
    if finding is None:
        return "", set()
    names = {finding.value, finding.float_value, finding.node, *map(str, finding.where.values())}
    for group in (g for g in report.alignment if g.group in finding.groups):
        for side, ids in (("float", group.float), ("quant", group.quant)):
            names |= {n.name for n in report.nodes[side] if n.id in ids}
            names |= {out for n in report.nodes[side] if n.id in ids for out in n.outputs}
    return finding.code, {n for n in names if n}


def is_right(report: Report, fault: Fault) -> bool:
    """The right code first, at the right place."""
    code, names = first(report)
    return code == fault.code and any(n.startswith(fault.place) for n in names)


def all_faults(model: str, file: str) -> list[Fault]:
    found = list(faults(onnx.load(CORPUS / model / f"{file}.onnx")))
    weights = hot_weights(onnx.load(CORPUS / model / "fp32.onnx"))
    return found + [Fault("channel", w, "WEIGHT_ONE_SCALE", None) for w in weights]


def main() -> None:
    """Prints every miss, and the share of hits by kind."""
    ort.set_default_logger_severity(4)
    for item in sys.argv[1:] or ["digits_resnet/ort_qdq_s8s8_pc", "mnist_mbnet/ort_qdq_s8s8_pc"]:
        model, file = item.split("/")
        right: dict[str, list[bool]] = collections.defaultdict(list)
        for fault in all_faults(model, file):
            report = planted(model, file, fault)
            right[fault.kind].append(is_right(report, fault))
            if not right[fault.kind][-1]:
                code, names = first(report)
                more = [f"{f.code}@{f.float_value or f.value}" for f in report.findings if f.severity != "info"][:4]
                levels = [round(float(o.metrics.get("sqnr_db", 0)), 1) for o in report.outputs]
                print(
                    f"{item} {fault.kind} {fault.place}: {code} {sorted(names)[:2]} … {more} output {levels}",
                    flush=True,
                )
        print(item, {kind: f"{sum(hits)}/{len(hits)}" for kind, hits in right.items()}, flush=True)


if __name__ == "__main__":
    main()

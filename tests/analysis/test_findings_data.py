"""Faults planted in real quantized files: the right layer and code come first; and no error on the sound file."""

from __future__ import annotations

import pytest

from tests.analysis import faults
from tests.analysis.faults import Fault
from tests.shared import CORPUS, corpus_folder

PAIRS = (("digits_resnet", "ort_qdq_s8s8_pc"), ("mnist_mbnet", "ort_qdq_s8s8_pc"))
EVERY = 40  # the quick test takes every so many faults; the slow one takes them all
SOUND = (
    *[("digits_resnet", f) for f in ("ort_qdq_s8s8_pc", "ort_qdq_u8u8_pt", "ort_qop_u8u8_pt", "ort_qdq_u8s8_pc_rr")],
    *[("mnist_mbnet", f) for f in ("ort_qdq_u8u8_pt", "ort_qdq_s8s8_pc", "fp16_ortt_keepio")],
)


def _some() -> list[tuple[str, str, Fault]]:
    if corpus_folder() is None:
        return []
    return [(m, f, fault) for m, f in PAIRS for fault in faults.all_faults(m, f)[::EVERY]]


@pytest.mark.parametrize(("model", "file"), SOUND)
def test_sound_files_have_no_error(model: str, file: str, corpus: object) -> None:
    folder = CORPUS / model
    report = faults.compared(model, (folder / "fp32.onnx", folder / f"{file}.onnx"))
    assert [(f.code, f.value) for f in report.findings if f.severity == "error"] == []


@pytest.mark.parametrize(("model", "file", "fault"), _some(), ids=lambda x: x.kind if isinstance(x, Fault) else x)
def test_some_faults_are_named_first(model: str, file: str, fault: Fault, corpus: object) -> None:
    report = faults.planted(model, file, fault)
    assert faults.is_right(report, fault), (fault.kind, fault.place, faults.first(report))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "file"), PAIRS)
def test_faults_of_every_layer_are_named_first(model: str, file: str, corpus: object) -> None:
    every = faults.all_faults(model, file)
    missed = [f"{f.kind} {f.place}" for f in every if not faults.is_right(faults.planted(model, file, f), f)]
    assert len(every) > 40 and len(missed) <= 0.05 * len(every), missed

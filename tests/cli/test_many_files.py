"""Several quantized files at once, the encodings diff, and pins."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import visualquant
from tests.models import mlp, mlp_qdq, quantized_mlp, save
from visualquant.cli.main import run
from visualquant.reports.json_report import schema, to_plain

WEIGHT = np.random.default_rng(31).normal(size=(16, 8)).astype(np.float32)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    step = np.float32(np.abs(WEIGHT).max() / 7)
    coarse = mlp_qdq(np.clip(np.rint(WEIGHT / step), -7, 7).astype(np.int8), step)
    models = {"float": mlp(WEIGHT), "int8": quantized_mlp(WEIGHT), "coarse": coarse}
    return [str(save(m, tmp_path / f"{name}.onnx")) for name, m in models.items()]


def test_one_table_of_several_files(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, archive = tmp_path / "r.json", tmp_path / "r.vqz"
    assert run(["compare", *files, "--json", str(out), "--save", str(archive)]) == 0
    shown = capsys.readouterr().out
    assert "int8.onnx" in shown and "coarse.onnx" in shown
    report = json.loads(out.read_text())
    jsonschema.validate(report, schema())
    assert [row["model"] for row in report["compared"]] == ["quant", "q2"]
    assert report["compared"][0]["sqnr_db_worst"] > report["compared"][1]["sqnr_db_worst"] + 15
    assert report["models"]["others"]["q2"]["name"] == "coarse.onnx"
    assert len({g["group"] for g in report["alignment"]}) == len(report["alignment"])
    assert {w.get("model") for w in report["weights"]} == {None, "q2"}
    assert to_plain(visualquant.load(archive)) == report


def test_map_belongs_to_one_pair(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *files, "--map", "nowhere.json"]) == 2
    assert "one pair" in capsys.readouterr().err


def test_diff_of_encodings(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", files[1], files[2], "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["first"]["granularity"] == "per_channel" and row["second"]["granularity"] == "per_tensor"
    assert {"granularity", "axis", "scale"} <= set(row["changed"])
    assert run(["diff", files[1], files[1], "--changes-only"]) == 0
    assert "alike" in capsys.readouterr().out


def test_pins_fix_and_forbid_ties(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = tmp_path / "map.json"
    assert run(["align", files[0], files[1], "-o", str(pins)]) == 0
    written = json.loads(pins.read_text())
    assert {"float": ["n0"], "quant": ["n0", "n1"]} in written["together"]
    assert run(["compare", *files[:2], "--map", str(pins), "--json", "-"]) == 0
    groups = json.loads(capsys.readouterr().out)["alignment"]
    assert all("user" in g["evidence"] for g in groups)

    pins.write_text(json.dumps({"apart": [{"float": "fc", "quant": "fc"}]}))
    assert run(["compare", *files[:2], "--map", str(pins), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = {s: {n["id"]: n["name"] for n in report["nodes"][s]} for s in ("float", "quant")}
    for group in report["alignment"]:
        members = [{names[s][n] for n in group[s]} for s in ("float", "quant")]
        assert not ("fc" in members[0] and "fc" in members[1])


@pytest.mark.parametrize("text", ["{", "[]", '{"together": [{"float": ["nowhere"], "quant": ["fc"]}]}'])
def test_bad_pins_are_a_sentence(
    text: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "map.json"
    pins.write_text(text)
    assert run(["compare", *files[:2], "--map", str(pins)]) == 2
    assert "pins file" in capsys.readouterr().err


def test_samples_are_told_of_the_first_file_only(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(8, 16)).astype(np.float32))
    assert run(["compare", *files, "--data", str(tmp_path / "d.npz")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("8 samples of d.npz") == 1 and shown.count("\noutput ") == 1

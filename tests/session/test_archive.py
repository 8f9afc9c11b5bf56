"""A saved .vqz gives the same report without the models, and a damaged or hostile one a sentence."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import visualquant
from tests.models import mlp, quantized_mlp, save
from visualquant.cli.main import run
from visualquant.core.report import Report
from visualquant.errors import ArchiveError
from visualquant.reports.json_report import to_plain
from visualquant.session.archive_columns import read_text_column, text_column

WEIGHT = np.random.default_rng(5).normal(size=(12, 6)).astype(np.float32)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    float_model = mlp(WEIGHT)
    float_model.graph.node[0].name = "weird \\0 \0 имя\n"
    folder = tmp_path / "models"
    folder.mkdir()
    paths = save(float_model, folder / "f.onnx"), save(quantized_mlp(WEIGHT), folder / "q.onnx")
    made = visualquant.compare(*paths)
    shutil.rmtree(folder)
    return made


def test_same_report_without_the_models(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    again = visualquant.load(path)
    assert to_plain(again) == to_plain(report)
    assert len(again.details) == len(report.details)
    for ours, theirs in zip(report.details, again.details, strict=True):
        for field in ours.__dataclass_fields__:
            a, b = getattr(ours, field), getattr(theirs, field)
            assert (a is None) == (b is None), field
            if a is not None:
                np.testing.assert_array_equal(a, b)


def test_command_shows_it_again(report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    assert run(["report", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "int8 per channel" in shown and "w_q" in shown
    assert run(["report", str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == to_plain(report)


def test_archive_rules(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["r.vqz"], "no temporary file stays"
    with zipfile.ZipFile(path) as archive:
        first = archive.infolist()[0]
        assert first.filename == "mimetype" and first.compress_type == zipfile.ZIP_STORED
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["format"] == "vqz" and manifest["version"] == [1, 0] and manifest["complete"] is True
        assert set(manifest["members"]) == set(archive.namelist()) - {"mimetype", "manifest.json"}
        text = b"".join(archive.read(n) for n in archive.namelist())
    assert str(tmp_path).encode() not in text, "no folder of the user's machine is in what is shared"


def _rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _newer(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["min_reader"] = [2, 0]
    members["manifest.json"] = json.dumps(manifest).encode()


def _edited(members: dict[str, bytes]) -> None:
    members["report.json"] = members["report.json"].replace(b"visualquant", b"vizualquant")


DAMAGE: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "digest": (_edited, "another digest"),
    "member": (lambda m: m.pop("align/groups.txt") and None, "lacks"),
    "manifest": (lambda m: m.pop("manifest.json") and None, "no manifest"),
    "newer": (_newer, "Update"),
    "escape": (lambda m: m.update({"../evil": b""}), "outside"),
    "absolute": (lambda m: m.update({"/evil": b""}), "outside"),
    "format": (lambda m: m.update({"manifest.json": b"{}"}), "no .vqz"),
    "json": (lambda m: m.update({"manifest.json": b"{"}), "damaged"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_a_sentence(name: str, report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = DAMAGE[name]
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    _rewrite(path, change)
    assert run(["report", str(path)]) == 2
    message = capsys.readouterr().err
    assert words in message and "r.vqz" in message and "Traceback" not in message


def test_any_cut_is_a_sentence(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    data = path.read_bytes()
    for cut in (0, 1, 30, len(data) // 3, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(ArchiveError):
            visualquant.load(path)


def test_flipped_bits_are_a_sentence(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(2)
    refused = 0
    for _ in range(60):
        broken = bytearray(data)
        broken[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(broken))
        try:
            visualquant.load(path)
        except ArchiveError:
            refused += 1
    assert refused > 30  # a flip in a time stamp or attribute of the zip changes nothing that is read


def test_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.vqz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", bytes(50_000_000))
    with pytest.raises(ArchiveError, match="unreasonable"):
        visualquant.load(path)


def test_repeated_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.vqz"
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", b"{}")
        archive.writestr("manifest.json", b"{}")
    with pytest.raises(ArchiveError, match="two members"):
        visualquant.load(path)


def test_pickled_arrays_are_refused(report: Report, tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "r.vqz"
    visualquant.save(report, path)
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], object), allow_pickle=True)

    def change(members: dict[str, bytes]) -> None:
        members["align/confidence.npy"] = out.getvalue()
        manifest = json.loads(members["manifest.json"])
        manifest["members"]["align/confidence.npy"] = {
            "sha256": hashlib.sha256(out.getvalue()).hexdigest(),
            "bytes": len(out.getvalue()),
        }
        members["manifest.json"] = json.dumps(manifest).encode()

    _rewrite(path, change)
    with pytest.raises(ArchiveError, match="damaged"):
        visualquant.load(path)


def test_folder_that_cannot_be_written(report: Report, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="can't be written"):
        visualquant.save(report, tmp_path / "nowhere" / "r.vqz")


@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=8), max_size=6))
@settings(deadline=None)
def test_text_columns_keep_every_text(texts: list[str]) -> None:
    assert read_text_column(text_column(texts)) == texts

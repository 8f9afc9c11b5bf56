"""Real windows under Xvfb, each in a process of its own, driven by xdotool. Pictures go to build/screens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import visualquant
from visualquant.gui.display import is_software, ui_scale
from visualquant.runtime.feeds import FeedOptions
from visualquant.session.with_data import DataOptions

ROOT = Path(__file__).parents[2]
SIZES = ["1280x800", pytest.param("2560x1440", marks=pytest.mark.slow)]
pytestmark = pytest.mark.window


@pytest.fixture
def display() -> Iterator[str]:
    if shutil.which("Xvfb") is None or shutil.which("xdotool") is None:
        pytest.skip("no Xvfb or xdotool: `make test` installs them when root")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "2560x1440x24", "-nolisten", "tcp"],
        pass_fds=(write,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read) as pipe:
            yield f":{pipe.readline().strip()}"
    finally:
        server.terminate()
        server.wait(10)


def play(display: str, tmp_path: Path, *arguments: str | Path) -> None:
    environment = os.environ | {"DISPLAY": display, "VISUALQUANT_CONFIG": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.gui.scenarios", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


@pytest.fixture(scope="session")
def archive(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = corpus / "digits_resnet"
    data = DataOptions(str(corpus / "data" / "digits.npz"), feeds=FeedOptions(limit=24))
    report = visualquant.compare(folder / "fp32.onnx", folder / "ort_qdq_s8s8_pt.onnx", data=data)
    path = tmp_path_factory.mktemp("archive") / "digits.vqz"
    visualquant.save(report, path)
    return path


@pytest.mark.parametrize("size", SIZES)
def test_a_pair_from_files(display: str, corpus: Path, tmp_path: Path, size: str) -> None:
    folder = corpus / "digits_resnet"
    play(display, tmp_path, "pair", size, folder / "fp32.onnx", folder / "ort_qdq_s8s8_pt.onnx", tmp_path)


@pytest.mark.parametrize("size", SIZES)
def test_pan_zoom_panels_and_plots(display: str, archive: Path, tmp_path: Path, size: str) -> None:
    play(display, tmp_path, "hands", size, archive)


def test_names_in_other_scripts_and_errors(display: str, tmp_path: Path) -> None:
    play(display, tmp_path, "names", "1280x800", tmp_path)


def test_flipped_samples_are_shown(display: str, corpus: Path, tmp_path: Path) -> None:
    folder, data = corpus / "digits_resnet", corpus / "data" / "digits.npz"
    play(display, tmp_path, "flipped", "1280x800", folder / "fp32.onnx", folder / "nncf_int8_perf.onnx", data)


def test_watch_and_settings(display: str, archive: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "a.vqz", tmp_path / "b.vqz"
    for path in (copy, other):
        shutil.copy(archive, path)
    os.utime(other)
    play(display, tmp_path, "watch", "1280x800", copy, other)
    play(display, tmp_path, "again", "1280x800", copy)


def test_the_command_itself(display: str, archive: Path, tmp_path: Path) -> None:
    environment = os.environ | {"DISPLAY": display, "VISUALQUANT_CONFIG": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-m", "visualquant", "gui", str(archive)]
    window = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        xdotool = ["xdotool", "search", "--sync", "--name", "visualquant"]
        subprocess.run(xdotool, env=environment, check=True, timeout=60, capture_output=True)
        subprocess.run(["xdotool", "mousemove", "300", "300"], env=environment, check=True, timeout=10)
        for _ in range(40):  # until the window has started to listen
            subprocess.run(["xdotool", "keydown", "ctrl", "keydown", "q"], env=environment, check=True, timeout=10)
            time.sleep(0.5)
            subprocess.run(["xdotool", "keyup", "q", "keyup", "ctrl"], env=environment, check=True, timeout=10)
            if window.poll() is not None:
                break
        out, errors = window.communicate(timeout=30)
    finally:
        window.kill()
        window.wait(10)
    assert window.returncode == 0 and not out and not errors, errors
    assert str(archive) in (tmp_path / "window.json").read_text()


@pytest.mark.parametrize("name", [None, ":987"])
def test_without_a_display(name: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | ({"DISPLAY": name} if name else {})
    done = subprocess.run(
        [sys.executable, "-m", "visualquant", "gui"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "display" in done.stderr.lower()


def test_bad_usage(tmp_path: Path) -> None:
    for arguments in (["a", "b", "c"], [str(tmp_path / "gone.vqz")], [__file__], [__file__, "--data", "random"]):
        done = subprocess.run(
            [sys.executable, "-m", "visualquant", "gui", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and done.stderr.startswith("visualquant: "), done.stderr


def test_scales_and_renderers() -> None:
    assert ui_scale(800) == 1.0 and 1.2 < ui_scale(1440) < 1.5 and ui_scale(2160) == 2.0
    assert is_software("llvmpipe (LLVM 15.0.6, 256 bits)") and not is_software("NVIDIA GeForce RTX 4090/PCIe/SSE2")

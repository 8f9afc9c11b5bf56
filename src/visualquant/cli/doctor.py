"""`visualquant doctor`: does this installation work?"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from importlib import metadata

import click

PACKAGES = (
    "numpy",
    "numba",
    "onnx",
    "onnxruntime",
    "grpcio",
    "protobuf",
    "ml_dtypes",
    "msgspec",
    "rich",
    "click",
    "dearpygui",
)


@click.command(name="doctor")
def command() -> int:
    """Check packages, compiler cache, readers and terminal. Exit code 2 where something needed is broken."""
    lines: list[tuple[bool, str, str]] = [
        (sys.version_info >= (3, 11), "python", f"{platform.python_version()} on {platform.platform(terse=True)}"),
        (True, "cores", str(os.cpu_count())),
    ]
    for name in PACKAGES:
        try:
            lines.append((True, name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            lines.append((False, name, f"missing: pip install {name}"))
    lines.append(_kernels())
    lines += _readers()
    encoding = (sys.stdout.encoding or "ascii").lower()
    lines.append(_window())
    lines.append((True, "terminal", f"{encoding}, {'colour' if sys.stdout.isatty() else 'plain'}"))
    for good, name, text in lines:
        click.echo(f"{'ok ' if good else 'BAD'} {name:<24}{text}")
    return 0 if all(good for good, _, _ in lines) else 2


def _window() -> tuple[bool, str, str]:
    """Whether a window can be opened, and by which renderer; no window is no fault of the installation."""
    from visualquant.errors import UsageError
    from visualquant.gui.display import is_software, probe_renderer, require_display

    try:
        require_display()
    except UsageError as error:
        return True, "window", str(error).split(", so ")[0]
    renderer = probe_renderer()
    if not renderer:
        return False, "window", "Dear PyGui can't open one here: update the graphics driver (OpenGL 3)"
    return True, "window", renderer + (": software renderer, slow" if is_software(renderer) else "")


def _kernels() -> tuple[bool, str, str]:
    """Compiles (or loads) a kernel on a small tensor."""
    import time

    import numpy as np

    from visualquant.kernels.api import measure

    start = time.perf_counter()
    try:
        measure(np.ones((2, 8), np.float32))
    except Exception as error:
        return False, "kernels", f"{type(error).__name__}: {error}"
    return True, "kernels", f"first call {time.perf_counter() - start:.1f} s; cache {_cache_place()}"


def _cache_place() -> str:
    try:
        jit = importlib.import_module("visualquant.kernels._jit")
    except ModuleNotFoundError:
        return "not in use"
    describe = getattr(jit, "cache_place", None)
    return str(describe()) if describe is not None else "of numba"


def _readers() -> list[tuple[bool, str, str]]:
    from visualquant.formats.container import CONTAINERS
    from visualquant.formats.registry import status
    from visualquant.formats.scheme import SCHEMES

    found = []
    for kind, modules in (("container", CONTAINERS), ("scheme", SCHEMES)):
        readers = status(modules)
        found.append((True, f"{kind} readers", ", ".join(r.name for r in readers if r.error is None)))
        found += [(False, f"{kind} reader {r.name}", r.error) for r in readers if r.error is not None]
    return found

"""Is there a display? Asked before Dear PyGui is started, which would abort the process without one."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys

from visualquant.errors import UsageError

_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software")
_GL_RENDERER = 0x1F01
_HELP = "`visualquant report F.vqz` shows the same report in the terminal."


def require_display() -> int:
    """Height of the screen in pixels; 0 where it is not known.

    Raises:
        UsageError: there is no display, or no OpenGL library; one sentence that says what to do.
    """
    if sys.platform != "linux":
        return 0
    name = os.environ.get("DISPLAY")
    if not name:
        raise UsageError(f"There is no display (DISPLAY is not set), so no window can be opened: {_HELP}")
    library = _library("X11")
    if library is None:
        raise UsageError(f"libX11 is missing, so no window can be opened (Debian: libx11-6): {_HELP}")
    if _library("GL") is None:
        raise UsageError(f"libGL is missing, so no window can be opened (Debian: libgl1 libgl1-mesa-dri): {_HELP}")
    library.XOpenDisplay.restype = ctypes.c_void_p
    library.XOpenDisplay.argtypes = [ctypes.c_char_p]
    display = library.XOpenDisplay(name.encode())
    if not display:
        raise UsageError(f"The display {name!r} can't be opened, so there is no window: {_HELP}")
    library.XDisplayHeight.argtypes = [ctypes.c_void_p, ctypes.c_int]
    height = int(library.XDisplayHeight(display, 0))
    library.XCloseDisplay.argtypes = [ctypes.c_void_p]
    library.XCloseDisplay(display)
    return height


def _library(name: str) -> ctypes.CDLL | None:
    for found in (ctypes.util.find_library(name), f"lib{name}.so.6", f"lib{name}.so.1"):
        if found:
            try:
                return ctypes.CDLL(found)
            except OSError:
                continue
    return None


def ui_scale(screen_height: int) -> float:
    """How much larger than at 1080 lines text and controls are."""
    if screen_height < 1300:
        return 1.0
    return min(screen_height / 1080, 2.5)


def current_renderer() -> str:
    """Name of the OpenGL renderer of the window that is open; "" where it can't be told."""
    if sys.platform != "linux":
        return ""
    library = _library("GL")
    if library is None:
        return ""
    library.glGetString.restype = ctypes.c_char_p
    library.glGetString.argtypes = [ctypes.c_uint]
    found = library.glGetString(_GL_RENDERER)
    return found.decode(errors="replace") if found else ""


def is_software(renderer: str) -> bool:
    """True for a renderer that draws on the processor."""
    return any(word in renderer.lower() for word in _SOFTWARE)


def probe_renderer(seconds: float = 20.0) -> str:
    """Name of the renderer that a window would have, found in a process of its own; "" where there is none."""
    try:
        found = subprocess.run(
            [sys.executable, "-m", "visualquant.gui.probe"],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""

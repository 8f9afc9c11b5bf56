"""What is kept between starts: panels, theme, recent files. A file that can't be read or written costs nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

MOST_RECENT = 12


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes are shares of the window, so that they fit any screen.

    Attributes:
        details: width of the details panel; 0 hides it.
        tables: height of the panel below the graphs; 0 hides it.
        split: width of the left pane, of both.
        recent: the latest first; a pair is two paths.
    """

    theme: str = "dark"
    details: float = 0.27
    tables: float = 0.28
    split: float = 0.5
    metric: str = "weight_sqnr"
    recent: tuple[tuple[str, ...], ...] = ()

    def opened(self, paths: tuple[str, ...]) -> Settings:
        """With files on top of the recent ones."""
        rest = tuple(r for r in self.recent if r != paths)
        return dataclasses.replace(self, recent=(paths, *rest)[:MOST_RECENT])


def settings_path() -> Path:
    """Where settings live on this system; `VISUALQUANT_CONFIG` names another folder."""
    given = os.environ.get("VISUALQUANT_CONFIG")
    if given:
        return Path(given) / "window.json"
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA", Path.home()))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "visualquant" / "window.json"


def read_settings(path: Path) -> Settings:
    """Settings of a file; what is missing or makes no sense has its default."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Settings()
    if not isinstance(plain, dict):
        return Settings()
    default = Settings()

    def share(name: str, low: float, high: float) -> float:
        value = plain.get(name)
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        return min(max(float(value), low), high) if usable else float(getattr(default, name))  # type: ignore[arg-type]

    return Settings(
        theme="light" if plain.get("theme") == "light" else "dark",
        details=share("details", 0.0, 0.6),
        tables=share("tables", 0.0, 0.7),
        split=share("split", 0.15, 0.85),
        metric=str(plain.get("metric", default.metric)),
        recent=_recent(plain.get("recent")),
    )


def _recent(plain: Any) -> tuple[tuple[str, ...], ...]:
    if not isinstance(plain, list):
        return ()
    kept = [tuple(r) for r in plain if isinstance(r, list) and 1 <= len(r) <= 2 and all(isinstance(p, str) for p in r)]
    return tuple(kept[:MOST_RECENT])


def write_settings(settings: Settings, path: Path) -> None:
    """Keeps settings; without a place to write nothing happens."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(settings), indent=1), encoding="utf-8")

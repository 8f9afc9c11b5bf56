"""Opening, saving, and the list of keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dearpygui.dearpygui as dpg

from visualquant.gui.keys import MOUSE, VIEWS, table

MODEL_SUFFIXES = (".onnx", ".xml", ".json", ".vqz")


class Dialogs:
    """Windows above the main one; `open_paths` gets the paths and the samples, `save_path` a path."""

    def __init__(
        self,
        scale: float,
        open_paths: Callable[[tuple[Path, ...], str | None], None],
        save_path: Callable[[Path], None],
        recent: Callable[[], tuple[tuple[str, ...], ...]],
    ) -> None:
        self._scale, self._open, self._save, self._recent = scale, open_paths, save_path, recent
        self._target: Any = None
        size = {"width": int(720 * scale), "height": int(460 * scale)}
        with dpg.file_dialog(show=False, modal=True, callback=self._picked, **size) as self._file:
            for suffix in (".*", *MODEL_SUFFIXES, ".npz"):
                dpg.add_file_extension(suffix)
        with dpg.file_dialog(
            show=False, modal=True, callback=self._saved, default_filename="report", **size
        ) as self._save_file:
            for suffix in (".vqz", ".json"):
                dpg.add_file_extension(suffix)
        with dpg.window(label="Open", show=False, no_collapse=True, width=int(620 * scale)) as self._open_window:
            dpg.add_text("A saved .vqz, or a float model and its quantized counterpart.")
            self._fields = [
                self._field("first", "float model, or .vqz"),
                self._field("second", "quantized model"),
                self._field("samples", "samples, optional"),
            ]
            with dpg.group(horizontal=True):
                dpg.add_button(label="Open", callback=self._confirmed)
                dpg.add_button(label="Cancel", callback=lambda: dpg.hide_item(self._open_window))
            dpg.add_separator()
            self._recent_group = dpg.add_group()
        with dpg.window(label="Keys", show=False, no_collapse=True, autosize=True) as self._help:
            self._keys()

    def _field(self, name: str, hint: str) -> Any:
        with dpg.group(horizontal=True):
            field = dpg.add_input_text(hint=hint, width=int(490 * self._scale))
            dpg.add_button(label="Browse …", callback=self._browse, user_data=field, tag=f"browse_{name}")
        return field

    def _keys(self) -> None:
        keys = table()
        half = (len(keys) + 1) // 2
        with dpg.table(header_row=False, policy=dpg.mvTable_SizingFixedFit):
            for _ in range(4):
                dpg.add_table_column()
            for k in range(half):
                with dpg.table_row():
                    for key in (keys[k], keys[k + half] if k + half < len(keys) else None):
                        dpg.add_text(key.shown if key else "")
                        dpg.add_text(f"{key.what}    " if key else "")
        dpg.add_separator()
        dpg.add_text(VIEWS)
        for name, what in MOUSE:
            dpg.add_text(f"{name}: {what}")

    @property
    def busy(self) -> bool:
        """True while a dialog is open, which the mouse then belongs to."""
        return any(dpg.is_item_shown(w) for w in (self._file, self._save_file, self._open_window, self._help))

    def toggle_help(self) -> None:
        """The list of keys."""
        self._place(self._help, 0.18)
        dpg.configure_item(self._help, show=not dpg.is_item_shown(self._help))

    def close(self) -> bool:
        """Closes what is open; False where nothing is."""
        if not self.busy:
            return False
        for window in (self._help, self._open_window, self._file, self._save_file):
            dpg.hide_item(window)
        return True

    def ask_open(self) -> None:
        """Which files?"""
        dpg.delete_item(self._recent_group, children_only=True)
        for paths in self._recent():
            label = "  |  ".join(Path(p).name for p in paths)
            dpg.add_selectable(label=label, parent=self._recent_group, callback=self._reopen, user_data=paths)
        self._place(self._open_window, 0.2)
        dpg.show_item(self._open_window)

    def _place(self, window: Any, share: float) -> None:
        left, top = dpg.get_viewport_client_width() * share, dpg.get_viewport_client_height() * 0.08
        dpg.set_item_pos(window, [int(left), int(top)])

    def ask_save(self) -> None:
        """Where to?"""
        dpg.show_item(self._save_file)

    def _browse(self, _sender: Any, _data: Any, field: Any) -> None:
        self._target = field
        dpg.show_item(self._file)

    def _picked(self, _sender: Any, data: Any) -> None:
        paths = list((data.get("selections") or {}).values()) or [data.get("file_path_name", "")]
        if self._target is not None and paths:
            dpg.set_value(self._target, paths[0])

    def _saved(self, _sender: Any, data: Any) -> None:
        path = Path(data.get("file_path_name", ""))
        if path.suffix not in (".vqz", ".json"):
            path = path.with_suffix(".vqz")
        self._save(path)

    def _confirmed(self) -> None:
        first, second, samples = (str(dpg.get_value(f)).strip() for f in self._fields)
        dpg.hide_item(self._open_window)
        self._open(tuple(Path(p) for p in (first, second) if p), samples or None)

    def _reopen(self, _sender: Any, _data: Any, paths: tuple[str, ...]) -> None:
        dpg.hide_item(self._open_window)
        self._open(tuple(Path(p) for p in paths), None)

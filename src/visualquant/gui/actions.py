"""What keys and menus do; the names are those of the table of keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import dearpygui.dearpygui as dpg

from visualquant.core.alignment import SideName
from visualquant.gui.keys import Key, table
from visualquant.viewmodel.colours import METRICS

if TYPE_CHECKING:
    from visualquant.gui.app import App

# what a held key may do again and again
REPEATABLE = frozenset({"walk", "zoom_in", "zoom_out", "next_match", "previous_match", "undo", "redo"})


class Actions:
    """Finds what an action calls: a method here, of the dialogs, or of the workspace."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._keys: dict[tuple[int, bool, bool], Key] = {(k.key, k.ctrl, k.shift): k for k in table()}
        self._pictures = 0
        self.held: set[int] = set()

    def pressed(self, key: int) -> None:
        """A key went down, or repeats."""
        ctrl = dpg.is_key_down(dpg.mvKey_LControl) or dpg.is_key_down(dpg.mvKey_RControl)
        shift = dpg.is_key_down(dpg.mvKey_LShift) or dpg.is_key_down(dpg.mvKey_RShift)
        typing = self._typing()
        if typing and not ctrl and key not in (dpg.mvKey_Return, dpg.mvKey_NumPadEnter, dpg.mvKey_Escape, dpg.mvKey_F1):
            return
        if dpg.mvKey_1 <= key <= dpg.mvKey_9 and not shift:
            number = key - dpg.mvKey_0
            (self._app.workspace.save_view if ctrl else self._app.workspace.recall_view)(number)
            return
        key = dpg.mvKey_Return if key == dpg.mvKey_NumPadEnter else key
        repeated = key in self.held
        self.held.add(key)
        found = self._keys.get((key, ctrl, shift)) or (
            self._keys.get((key, ctrl, False)) if key == dpg.mvKey_Plus else None
        )
        if found is not None and (not repeated or found.action in REPEATABLE):
            self.do(found.action, found.argument)

    def _typing(self) -> bool:
        fields = [self._app.search_box, *(g.filter for g in self._app.grids.values())]
        return self._app.dialogs.busy or any(dpg.is_item_active(f) for f in fields)

    def do(self, action: str, argument: str = "") -> None:
        """Runs an action by its name in the table of keys."""
        own = getattr(self, f"do_{action}", None)
        if own is not None:
            own(argument)
        elif hasattr(self._app.dialogs, action):
            getattr(self._app.dialogs, action)()
        elif argument:
            getattr(self._app.workspace, action)(argument)
        else:
            getattr(self._app.workspace, action)()

    def do_quit(self, _argument: str) -> None:
        """Leaves."""
        self._app.quit()

    def do_escape(self, _argument: str) -> None:
        """Closes a dialog; else stops work; else clears the selection."""
        dpg.focus_item("main")
        if self._app.dialogs.close():
            return
        if self._app.workspace.requests.busy():
            self._app.workspace.cancel()
        else:
            self._app.workspace.clear()

    def do_focus_search(self, _argument: str) -> None:
        """Into the search field."""
        dpg.focus_item(self._app.search_box)

    def do_next_match(self, _argument: str) -> None:
        """The next match."""
        self._app.workspace.step_match()

    def do_previous_match(self, _argument: str) -> None:
        """The match before."""
        self._app.workspace.step_match(forward=False)

    def do_other_side(self, _argument: str) -> None:
        """Makes the counterpart the picked node."""
        selection, pair = self._app.workspace.selection, self._app.workspace.pair
        if pair is not None and selection.group is not None:
            far: SideName = "quant" if selection.side == "float" else "float"
            members = pair.members[far][selection.group]
            plain = members[~pair.sides[far].plumbing[members]]
            if members.size:
                self._app.workspace.select_node(far, int((plain if plain.size else members)[0]))

    def do_walk_through(self, _argument: str) -> None:
        """One number of the selection through its quantizer."""
        self._app.workspace.walk_through(self._app.files)

    def do_enter(self, _argument: str) -> None:
        """Enters the sub-graph of the selected node."""
        selection = self._app.workspace.selection
        if selection.node is not None:
            self._app.workspace.enter(selection.side, selection.node)

    def do_zoom_in(self, _argument: str) -> None:
        """Larger, about the middle."""
        self._zoom(1.3)

    def do_zoom_out(self, _argument: str) -> None:
        """Smaller, about the middle."""
        self._zoom(1 / 1.3)

    def _zoom(self, factor: float) -> None:
        side = self._app.workspace.selection.side
        pane = self._app.workspace.panes[side]
        self._app.workspace.zoom(side, factor, pane.width / 2, pane.height / 2)

    def do_next_metric(self, argument: str) -> None:
        """Colours by the next metric that this report has."""
        names = [m.name for m in METRICS]
        at = names.index(self._app.workspace.metric)
        for k in range(1, len(names) + 1):
            name = names[(at + k * int(argument)) % len(names)]
            if self._app.workspace.pair is not None and self._app.workspace.colours(name).measured:
                self._app.workspace.set_metric(name)
                return

    def do_toggle_tables(self, _argument: str) -> None:
        """Tables shown or hidden."""
        self._app.settings = dataclasses.replace(self._app.settings, tables=0.0 if self._app.settings.tables else 0.28)

    def do_toggle_details(self, _argument: str) -> None:
        """Details shown or hidden."""
        self._app.settings = dataclasses.replace(
            self._app.settings, details=0.0 if self._app.settings.details else 0.27
        )

    def do_toggle_theme(self, _argument: str) -> None:
        """Dark or light."""
        self._app.settings = dataclasses.replace(
            self._app.settings, theme="light" if self._app.settings.theme == "dark" else "dark"
        )
        self._app.bind_theme()
        self._app.workspace.changed()

    def do_picture(self, _argument: str) -> None:
        """A PNG of the window in the present folder."""
        self._pictures += 1
        name = self._app.files[-1].stem if self._app.files else "visualquant"
        path = Path(f"{name}-{self._pictures}.png")
        self._app.picture(path)
        self._app.workspace.say(f"{path.name} is saved.")

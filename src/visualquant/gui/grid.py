"""A table of any length: only the rows in view exist. Sorts by its headers, filters by words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dearpygui.dearpygui as dpg

from visualquant.viewmodel.tables import Table, show

WIDE = {"what": 4.0, "fix": 4.0, "layer": 2.4, "group": 2.4, "weight": 2.0, "pattern": 2.2, "evidence": 2.2}
WIDE |= {"why alone": 3.0, "before": 1.6, "after": 1.6}
_LONGEST = 160


class Grid:
    """Shows a `Table`; `on_pick` is called with a group when a row is clicked."""

    def __init__(self, parent: Any, scale: float, on_pick: Callable[[int, int], None]) -> None:
        self._scale, self._on_pick = scale, on_pick
        self._table: Table | None = None
        self._order: list[int] = []
        self._column: int | None = None
        self._descending = False
        self._first = 0
        self._selected: int | None = None
        self._cells: list[list[Any]] = []
        self._height = 0.0
        with dpg.group(horizontal=True, parent=parent):
            self.filter = dpg.add_input_text(
                hint="filter", width=int(220 * scale), callback=lambda: self.refresh(rewind=True)
            )
            self._count = dpg.add_text("")
        with dpg.group(horizontal=True, parent=parent):
            self._slider = dpg.add_slider_int(
                vertical=True, width=int(14 * scale), height=100, format="", callback=self._slid, max_value=1
            )
            self._holder = dpg.add_group()
        self.grid: Any = None

    def set_table(self, table: Table) -> None:
        """Another table; sorting starts afresh."""
        if table is self._table:
            return
        self._table = table
        self._column, self._descending, self._first, self._selected = None, False, 0, None
        dpg.set_value(self.filter, "")
        self._build()
        self.refresh()

    def resize(self, height: float) -> None:
        """The pixels that rows may take."""
        if abs(height - self._height) > 1:
            self._height = height
            dpg.configure_item(self._slider, height=max(int(height), 20))
            self._build()
            self.refresh()

    @property
    def rows_in_view(self) -> int:
        """How many rows fit."""
        return max(int((self._height - 26 * self._scale) / (20.4 * self._scale)), 1)

    def _build(self) -> None:
        dpg.delete_item(self._holder, children_only=True)
        self._cells = []
        if self._table is None:
            return
        with dpg.table(
            parent=self._holder,
            header_row=True,
            sortable=True,
            sort_tristate=True,
            callback=self._sorted,
            resizable=True,
            row_background=True,
            borders_innerV=True,
            policy=dpg.mvTable_SizingStretchProp,
        ) as self.grid:
            for k, name in enumerate(self._table.columns):
                weight = WIDE.get(name, 0.8 if self._table.numeric[k] else 1.2)
                dpg.add_table_column(label=name, init_width_or_weight=weight, width_stretch=True, no_sort=False)
            for row in range(self.rows_in_view):
                with dpg.table_row():
                    first = dpg.add_selectable(label="", span_columns=True, callback=self._clicked, user_data=row)
                    # NOTE: texts would stand lower than a selectable, so every cell is one; the first takes clicks
                    self._cells.append([first, *(dpg.add_selectable(label=" ") for _ in self._table.columns[1:])])

    def _sorted(self, _sender: Any, specs: Any) -> None:
        if self._table is None:
            return
        if not specs:  # the third click on a header: the order of the report
            self._column = None
            self.refresh(rewind=True)
            return
        columns = dpg.get_item_children(self.grid, 0)
        if specs[0][0] in columns:
            self.sort(columns.index(specs[0][0]), specs[0][1] < 0)

    def sort(self, column: int, descending: bool) -> None:
        """Sorts by a column; what was not measured comes last either way."""
        self._column, self._descending = column, descending
        self.refresh(rewind=True)

    def refresh(self, rewind: bool = False) -> None:
        """Filters and sorts again, then shows the rows in view."""
        if self._table is None:
            return
        self._order = self._table.order(self._column, self._descending, dpg.get_value(self.filter) or "")
        if rewind:
            self._first = 0
        total, shown = len(self._table.rows), len(self._order)
        dpg.set_value(self._count, f"{shown:,} rows" if shown == total else f"{shown:,} of {total:,} rows")
        self._show()

    def scroll(self, rows: int) -> None:
        """Moves by rows."""
        self._first += rows
        self._show()

    def _slid(self, _sender: Any, value: int) -> None:
        most = max(len(self._order) - self.rows_in_view, 0)
        self._first = most - value
        self._show()

    def _show(self) -> None:
        if self._table is None:
            return
        most = max(len(self._order) - self.rows_in_view, 0)
        self._first = min(max(self._first, 0), most)
        dpg.configure_item(self._slider, max_value=max(most, 1), show=most > 0)
        dpg.set_value(self._slider, most - self._first)
        for k, cells in enumerate(self._cells):
            at = self._first + k
            if at >= len(self._order):
                dpg.configure_item(cells[0], label="", enabled=False)
                dpg.set_value(cells[0], False)
                for cell in cells[1:]:
                    dpg.configure_item(cell, label=" ")
                continue
            row = self._order[at]
            texts = [_short(show(c)) for c in self._table.rows[row]]
            dpg.configure_item(cells[0], label=texts[0] or " ", enabled=True, user_data=k)
            dpg.set_value(cells[0], row == self._selected)
            for cell, text in zip(cells[1:], texts[1:], strict=True):
                dpg.configure_item(cell, label=text or " ")

    def _clicked(self, _sender: Any, _value: Any, place: int) -> None:
        at = self._first + place
        if self._table is not None and at < len(self._order):
            self._selected = self._order[at]
            self._show()
            self._on_pick(self._table.groups[self._selected], self._selected)

    def select_group(self, group: int | None) -> None:
        """Marks the row of a group and brings it into view."""
        if self._table is None:
            return
        keep = self._selected is not None and group is not None and self._table.groups[self._selected] == group
        self._selected = self._selected if keep else (None if group is None else self._table.row_of(group))
        if self._selected in self._order:
            at = self._order.index(self._selected)
            if not self._first <= at < self._first + self.rows_in_view:
                self._first = at - self.rows_in_view // 2
        self._show()

    def row_text(self, place: int, column: int) -> str:
        """What a cell in view shows."""
        cell = self._cells[place][column]
        return str(dpg.get_item_label(cell)).strip()


def _short(text: str) -> str:
    text = text.replace("\n", " ").replace("##", "# #")  # NOTE: Dear ImGui hides what follows ##
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

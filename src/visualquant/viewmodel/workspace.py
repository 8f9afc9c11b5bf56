"""The state of the window and every action on it; a toolkit only draws this and calls these methods."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from visualquant.core.alignment import SideName
from visualquant.errors import UsageError
from visualquant.viewmodel import opening, tables
from visualquant.viewmodel.boxes import ViewOptions
from visualquant.viewmodel.camera import READABLE
from visualquant.viewmodel.colours import F64, METRICS, Coloured, MetricName, colour_by
from visualquant.viewmodel.details import channels, quantized_weight
from visualquant.viewmodel.history import History, Selection, View
from visualquant.viewmodel.opening import Extras, Job, Message, Opened, keep, prepare
from visualquant.viewmodel.pane import (
    Pane,
    Picture,
    boxes_of_group,
    describe_box,
    draw_picture,
    selection_words,
)
from visualquant.viewmodel.requests import Requests
from visualquant.viewmodel.search import Hits, search
from visualquant.viewmodel.sides import I64, SIDES, Pair, other
from visualquant.viewmodel.tables import Table

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions

NOTHING = np.zeros(0, np.int64)


class Workspace:
    """Everything that is open.

    Attributes:
        version: rises with every change that has to be drawn again.
        order: the panes from left to right.
        linked: pan and zoom of one pane move the other.
        dim: what is no ancestor or descendant of the selection fades.
    """

    def __init__(self, requests: Requests | None = None) -> None:
        self.requests = requests or Requests()
        self.pair: Pair | None = None
        self.panes: dict[SideName, Pane] = {s: Pane(s) for s in SIDES}
        self.order: tuple[SideName, SideName] = SIDES
        self.options = ViewOptions()
        self.linked = True
        self.dim = True
        self.metric: MetricName = "weight_sqnr"
        self.message = Message("Open a .vqz file, or a float and a quantized model.")
        self.source = ""
        self.hovered: tuple[SideName, int] | None = None
        self.version = 0
        self.hits = Hits(())
        self.query = ""
        self.search_side: SideName = "quant"
        self._history: History[View] = History(self._view(Selection()))
        self._views: dict[int, View] = {}
        self.run: str | None = None
        self._coloured: dict[tuple[MetricName, str | None], Coloured] = {}
        self.extras = Extras()
        self._tables: dict[str, Table] = {}
        self._wanted: Selection | None = None

    # opening

    def open(self, job: Job, source: str) -> None:
        """Loads or makes a report in the background; what is open stays until it is there."""
        self.say(f"Opening {source} …")
        self.requests.submit("open", lambda task: prepare(job(task.say, task.cancelled), source))

    def take(self, opened: Opened) -> None:
        """Shows a pair; a reload keeps the selection, the options and the cameras."""
        pair, source = opened.pair, opened.source
        kept = self._selected_name()
        again = self.pair is not None and source == self.source
        self.pair, self.source = pair, source
        self._coloured = {(name, None): c for name, c in opened.coloured.items()}
        self._tables = {"layers": opened.layers}
        self.run, self.extras = None, Extras()
        self.hits = Hits(())
        self.hovered = None
        if not again:
            self.options = ViewOptions()
            self._history = History(self._view(Selection()))
            self._views = {}
            for pane in self.panes.values():
                pane.picture = None
            if not self.colours("weight_sqnr").measured:
                self.metric = next((m.name for m in METRICS if self.colours(m.name).measured), "confidence")
        elif kept is not None:
            self._reselect(*kept)
        self.say(pair.report.summary.verdict)
        self.lay_out()

    def _selected_name(self) -> tuple[SideName, str] | None:
        selection = self.selection
        if self.pair is None or selection.node is None:
            return None
        return selection.side, self.pair.sides[selection.side].nodes[selection.node].name

    def _reselect(self, side: SideName, name: str) -> None:
        assert self.pair is not None
        self._history = History(self._view(Selection()))
        found = next((k for k, n in enumerate(self.pair.sides[side].nodes) if n.name == name and name), None)
        if found is not None:
            group = int(self.pair.sides[side].group[found])
            self._push(Selection(group if group >= 0 else None, side, found))

    def lay_out(self) -> None:
        """Asks for the drawings of both sides under the present options."""
        if self.pair is None:
            return
        pair, options = self.pair, self.options
        for side in SIDES:
            if pair.sides[side].nodes:
                self._draw(pair, side, options)
        self.changed()

    def _draw(self, pair: Pair, side: SideName, options: ViewOptions) -> None:
        self.requests.submit(("layout", side), lambda task: draw_picture(pair, side, options, task))

    def drain(self) -> None:
        """Takes finished background work; called once a frame."""
        for done in self.requests.drain():
            if done.error:
                self.say(done.error, error=True)
            elif done.slot == "open":
                self.take(done.value)
            elif isinstance(done.value, Picture) and isinstance(done.slot, tuple):
                self._take_picture(done.slot[1], done.value)
            elif done.slot in ("walked", "heat_map", "sample"):
                self.extras = dataclasses.replace(self.extras, **{str(done.slot): done.value})
                self.say(self.extras.title(str(done.slot)))
            elif isinstance(done.value, Message):
                self.message = done.value
            self.changed()

    def _take_picture(self, side: SideName, picture: Picture) -> None:
        if self.pair is None or picture.options != self.options:
            return
        self.panes[side].show(self.pair, picture, self.selection)
        if self.selection.group is not None and not self._in_view(side):
            self._reveal(side)

    def cancel(self) -> None:
        """Stops all background work; what is shown stays."""
        if self.requests.busy():
            for slot in self.requests.busy():
                self.requests.cancel(slot)
            self.say("Cancelled.")

    def changed(self) -> None:
        """Something has to be drawn again."""
        self.version += 1

    def say(self, text: str, error: bool = False) -> None:
        """A line in the status bar."""
        self.message = Message(text, error)
        self.changed()

    # selection

    @property
    def selection(self) -> Selection:
        """What is selected."""
        return self._history.current.selection

    def click(self, side: SideName, x: float, y: float) -> None:
        """Selects the box under a pixel of a pane, or nothing."""
        box = self.panes[side].box_at(x, y)
        if box is None:
            self.clear()
        else:
            self.select_box(side, box)

    def double_click(self, side: SideName, x: float, y: float) -> None:
        """Opens or closes what is under a pixel: a module, a fusion, or the sub-graph of a node."""
        pane = self.panes[side]
        box = pane.box_at(x, y)
        if box is None or pane.picture is None or self.pair is None:
            return
        boxes = pane.picture.boxes
        if boxes.kinds[box] == "module":
            self.toggle_module(boxes.modules[box])
        elif boxes.kinds[box] == "fusion" or int(boxes.group[box]) in self.pair.fusions:
            self.toggle_fusion(int(boxes.group[box]))
        elif boxes.members[box].size:
            self.enter(side, int(boxes.members[box][0]))

    def select_box(self, side: SideName, box: int) -> None:
        """Selects what a box shows, and moves the other pane to its counterpart."""
        picture = self.panes[side].picture
        if self.pair is None or picture is None:
            return
        members = picture.boxes.members[box]
        if not members.size:
            self.say(f"{picture.boxes.kinds[box]} {picture.boxes.labels[box]!r} of the model")
            return
        plain = members[~self.pair.sides[side].plumbing[members]]
        self.select_node(side, int((plain if plain.size else members)[0]), reveal_own=False)

    def select_node(self, side: SideName, node: int, *, reveal_own: bool = True) -> None:
        """Selects the group of a node."""
        if self.pair is None:
            return
        group = int(self.pair.sides[side].group[node])
        self._go(Selection(group if group >= 0 else None, side, node), reveal_own)

    def select_group(self, group: int) -> None:
        """Selects a group from a table, a plot or a finding; both panes move to it."""
        if self.pair is None or not 0 <= group < len(self.pair.groups):
            return
        side: SideName = "quant" if self.pair.members["quant"][group].size else "float"
        members = self.pair.members[side][group]
        plain = members[~self.pair.sides[side].plumbing[members]]
        picked = plain if plain.size else members
        self._go(Selection(group, side, int(picked[0]) if picked.size else None), reveal_own=True)

    def clear(self) -> None:
        """Nothing selected."""
        self._push(Selection())
        self.changed()

    def undo(self) -> None:
        """The selection and the view before."""
        self._history.replace(self._view(self.selection))
        self._restore(self._history.undo())

    def redo(self) -> None:
        """The selection and the view that were undone."""
        self._history.replace(self._view(self.selection))
        self._restore(self._history.redo())

    def _view(self, selection: Selection) -> View:
        return View(tuple((s, self.panes[s].camera) for s in SIDES), selection)

    def _restore(self, view: View) -> None:
        for side, camera in view.cameras:
            self.panes[side].camera = camera
        self.changed()

    def _push(self, selection: Selection) -> None:
        """A new selection; the state that is left keeps the cameras as they are now."""
        if selection != self.selection:
            self._history.replace(self._view(self.selection))
            self._history.push(self._view(selection))

    def _go(self, selection: Selection, reveal_own: bool) -> None:
        self._push(selection)
        self._show_selection(selection, reveal_own)

    def _show_selection(self, selection: Selection, reveal_own: bool = True) -> None:
        self.changed()
        if self.pair is None or selection.group is None:
            if selection.node is not None:
                self.say("This node belongs to no group of the alignment.")
            return
        readable = self.panes[selection.side].camera.scale >= READABLE
        if reveal_own and not (readable and self._in_view(selection.side)):
            self._reveal(selection.side)
        far = other(selection.side)
        self._reveal(far, beside=selection.side)
        hidden = None if self.panes[far].picture is None else not self.marked(far).size
        self.say(selection_words(self.pair, selection.group, hidden, self.options))

    def _in_view(self, side: SideName) -> bool:
        own = self.marked(side)
        return not own.size or any(self.panes[side].in_view(int(b)) for b in own[:50])

    def _reveal(self, side: SideName, beside: SideName | None = None) -> None:
        own = self.marked(side)
        at_y = None
        if beside is not None:
            near = self.marked(beside)
            if near.size and self.panes[beside].in_view(int(near[0])):
                ys = [self.panes[beside].screen_of(int(b))[1] for b in near[:50]]
                at_y = sum(ys) / len(ys)
        self.panes[side].go_to(own, at_y)

    def marked(self, side: SideName) -> I64:
        """The boxes of a side that show the selected group."""
        picture, selection = self.panes[side].picture, self.selection
        if self.pair is None or picture is None:
            return NOTHING
        if selection.group is not None:
            return boxes_of_group(self.pair, side, picture.boxes, selection.group)
        if selection.node is not None and selection.side == side:
            box = int(picture.boxes.box_of[selection.node])
            return NOTHING if box < 0 else np.array([box], np.int64)
        return NOTHING

    def hover(self, side: SideName, x: float, y: float) -> None:
        """What the pointer is over; its counterpart is marked too."""
        box = self.panes[side].box_at(x, y)
        found = None if box is None else (side, box)
        if found != self.hovered:
            self.hovered = found
            self.changed()

    def unhover(self) -> None:
        """The pointer left both panes."""
        if self.hovered is not None:
            self.hovered = None
            self.changed()

    def hovered_on(self, side: SideName) -> I64:
        """The boxes of a side that the pointer is over, here or across."""
        if self.hovered is None or self.pair is None:
            return NOTHING
        at, box = self.hovered
        picture, target = self.panes[at].picture, self.panes[side].picture
        if picture is None or target is None or box >= len(picture.boxes.labels):
            return NOTHING
        if at == side:
            return np.array([box], np.int64)
        group = int(picture.boxes.group[box])
        return NOTHING if group < 0 else boxes_of_group(self.pair, side, target.boxes, group)

    def hover_text(self) -> str:
        """What the tooltip says: name, operator, metric, and why there is no counterpart."""
        if self.hovered is None or self.pair is None:
            return ""
        side, box = self.hovered
        picture = self.panes[side].picture
        if picture is None or box >= len(picture.boxes.labels):
            return ""
        return describe_box(self.pair, side, picture, box, self.colours(self.metric))

    def walk(self, direction: str) -> None:
        """Selects the next box along an edge, or within the layer."""
        side = self.selection.side
        own = self.marked(side)
        picture = self.panes[side].picture
        if picture is None:
            return
        if not own.size:
            inside = picture.index.boxes(
                self.panes[side].camera.window(self.panes[side].width, self.panes[side].height)
            )
            plain = [b for b in inside.tolist() if picture.boxes.members[b].size]
            if plain:
                self.select_box(side, plain[0])
            return
        start = int(
            own[np.argmax(picture.drawing.y[own])] if direction == "down" else own[np.argmin(picture.drawing.y[own])]
        )
        found = self.panes[side].neighbour(start, direction)
        if found is not None and picture.boxes.members[found].size:
            self.select_box(side, found)
            if not self._in_view(side):
                self._reveal(side)

    # views

    def pan(self, side: SideName, dx: float, dy: float) -> None:
        """Moves a pane by pixels, and the other one with it when they are linked."""
        for s in SIDES if self.linked else (side,):
            self.panes[s].camera = self.panes[s].camera.panned(dx, dy)
        self.changed()

    def zoom(self, side: SideName, factor: float, x: float, y: float) -> None:
        """Zooms a pane at a pixel, and the other one when they are linked."""
        for s in SIDES if self.linked else (side,):
            self.panes[s].camera = self.panes[s].camera.zoomed(factor, x, y)
        self.changed()

    def fit(self) -> None:
        """All of both graphs."""
        for pane in self.panes.values():
            pane.fit()
        self.changed()

    def go_to_selection(self) -> None:
        """The selection in both panes."""
        for side in SIDES:
            self._reveal(side)
        self.changed()

    def resize(self, side: SideName, width: float, height: float) -> None:
        """The size of a pane in pixels; its middle stays in the middle."""
        pane = self.panes[side]
        if (width, height) != (pane.width, pane.height) and width > 1 and height > 1:
            pane.camera = pane.camera.panned((width - pane.width) / 2, 0)
            pane.width, pane.height = width, height
            self.changed()

    def save_view(self, key: int) -> None:
        """Keeps cameras and selection under a key from 1 to 9."""
        self._views[key] = self._view(self.selection)
        self.say(f"View {key} is saved; {key} recalls it.")

    def recall_view(self, key: int) -> None:
        """Back to a saved view."""
        view = self._views.get(key)
        if view is None:
            self.say(f"No view {key} is saved yet; Ctrl+{key} saves one.")
            return
        self._push(view.selection)
        self._restore(view)

    def swap(self) -> None:
        """The panes change places."""
        self.order = (self.order[1], self.order[0])
        self.changed()

    def toggle_linked(self) -> None:
        """Linked pan and zoom on or off."""
        self.linked = not self.linked
        self.say("Pan and zoom are linked." if self.linked else "Pan and zoom are no longer linked.")

    def toggle_dim(self) -> None:
        """Fading of what is unrelated to the selection, on or off."""
        self.dim = not self.dim
        self.changed()

    # what is shown

    def set_options(self, options: ViewOptions) -> None:
        """Other options: a new layout, unless nothing changed."""
        if options != self.options:
            self.options = options
            self.lay_out()

    def toggle_plumbing(self) -> None:
        """QuantizeLinear, DequantizeLinear and the like shown or hidden."""
        self.set_options(dataclasses.replace(self.options, plumbing=not self.options.plumbing))
        self.say("Q/DQ plumbing is shown." if self.options.plumbing else "Q/DQ plumbing is hidden.")

    def toggle_fusion(self, group: int | None = None) -> None:
        """Closes a fusion to one box on either side, or opens it; the selected one by default."""
        group = self.selection.group if group is None else group
        if self.pair is None or group is None or group not in self.pair.fusions:
            self.say("Select a node of a fusion first; the table of fusions lists them.")
            return
        closed = self.options.closed_fusions ^ {group}
        self.set_options(dataclasses.replace(self.options, closed_fusions=closed))
        self.say(f"{self.pair.fusions[group].pattern}: {'closed' if group in closed else 'open'}")

    def toggle_all_fusions(self) -> None:
        """Closes all fusions, or opens all."""
        if self.pair is not None:
            closed = frozenset() if self.options.closed_fusions else frozenset(self.pair.fusions)
            self.set_options(dataclasses.replace(self.options, closed_fusions=closed))

    def toggle_module(self, module: str | None = None) -> None:
        """Closes a module to one box on both sides, or opens it; that of the selection by default."""
        if module is None and self.pair is not None and self.selection.group is not None:
            module = (
                self.pair.modules[self.selection.group].rpartition("/")[0] or self.pair.modules[self.selection.group]
            )
        if not module:
            self.say("The names of these nodes hold no module path.")
            return
        self.set_options(dataclasses.replace(self.options, closed_modules=self.options.closed_modules ^ {module}))

    def toggle_all_modules(self) -> None:
        """Closes the outermost modules, or opens all."""
        if self.pair is None:
            return
        if self.options.closed_modules:
            closed: frozenset[str] = frozenset()
        else:
            paths = [m.split("/") for m in self.pair.modules if m]
            closed = frozenset("/".join(p[: 2 if len(p) > 2 else 1]) for p in paths)
        if not closed and not self.options.closed_modules:
            self.say("The names of these nodes hold no module paths.")
        self.set_options(dataclasses.replace(self.options, closed_modules=closed))

    def enter(self, side: SideName, node: int) -> None:
        """Enters the sub-graph or function of a node."""
        assert self.pair is not None
        row = self.pair.sides[side].nodes[node]
        start = f"{row.scope}/{row.name}/" if row.scope else f"{row.name}/"
        inside = [s for s in self.pair.sides[side].scopes if s.startswith(start)]
        if inside:
            self.set_options(dataclasses.replace(self.options, scope=min(inside, key=len)))
            self.say(f"Inside {self.options.scope}; Backspace leaves.")

    def leave(self) -> None:
        """Back to the main graph."""
        if self.options.scope:
            self.set_options(dataclasses.replace(self.options, scope=""))

    # colours

    def colours(self, name: MetricName) -> Coloured:
        """A metric over all groups."""
        key = (name, self.run)
        if key not in self._coloured:
            assert self.pair is not None
            self._coloured[key] = colour_by(self.pair, name, self.run)
        return self._coloured[key]

    def runs(self) -> tuple[str, ...]:
        """The runs of the quantized model that have activations, e.g. one a device."""
        rows = () if self.pair is None else self.pair.report.activations
        return tuple(dict.fromkeys(a.run for a in rows))

    def set_run(self, run: str | None) -> None:
        """Colours by one run; None takes the worst of all."""
        self.run = run
        self.changed()

    def set_metric(self, name: MetricName) -> None:
        """Colours by another metric; nothing is laid out again."""
        self.metric = name
        if self.pair is not None and not self.colours(name).measured:
            title = next(m.title for m in METRICS if m.name == name)
            self.say(f"{title} is not in this report: {'run it with --data' if name != 'bits' else 'no weights'}.")
        self.changed()

    # search

    def search(self, query: str, side: SideName | None = None) -> None:
        """Looks for nodes; the first match is selected."""
        if self.pair is None:
            return
        self.query = query
        self.search_side = side or self.search_side
        try:
            self.hits = search(self.pair, self.pair.sides[self.search_side], query, self._values)
        except UsageError as error:
            self.hits = Hits(())
            self.say(str(error), error=True)
            return
        if self.hits.nodes:
            self.step_match()
        elif query.strip():
            self.say(f"Nothing matches {query!r} on the {self.search_side} side.")

    def _values(self, name: str) -> F64:
        return self.colours(next(m.name for m in METRICS if m.name == name)).values

    def step_match(self, forward: bool = True) -> None:
        """Selects the next match, or the one before."""
        selection = self.selection
        current = selection.node if selection.side == self.search_side else None
        found = self.hits.step(current, forward)
        if found is not None:
            self.select_node(self.search_side, found)
            self.say(f"match {self.hits.nodes.index(found) + 1} of {len(self.hits.nodes)}")

    # tables

    def table(self, name: str) -> Table:
        """A table, made once."""
        assert self.pair is not None
        if name not in self._tables:
            self._tables[name] = tables.MAKERS[name](self.pair)
        return self._tables[name]

    def walk_through(self, files: tuple[Path, ...]) -> None:
        """Looks into the selected weight: one number through its quantizer, and a map of its channels."""
        group = self.selection.group
        found = None if self.pair is None or group is None else quantized_weight(self.pair, group)
        if group is None or found is None:
            self.say("Select a layer with a quantized weight first.")
        elif len(files) != 2:
            self.say("No number can be walked through: an archive holds no weights, open the two models.")
        else:
            weight, chart = found[0], channels(*found)
            self.say(f"Walking a number of {weight.value} through its quantizer …")
            self.requests.submit("walked", lambda _task: opening.walk_number(group, files, weight.value))
            if chart is not None and weight.channel_axis is not None:
                self.requests.submit(
                    "heat_map", lambda task: opening.map_channels(group, files, weight, chart, task.cancelled)
                )

    def show_sample(self, row: int, data: DataOptions | str | None) -> None:
        """The input of a flipped sample as a picture; that needs the data."""
        if self.pair is None:
            return
        self.clear()
        if data is None:
            self.say("An archive holds no samples: open the two models with --data to see this one.")
            return
        pair, sample = self.pair, int(self.table("flipped").rows[row][0])
        self.requests.submit("sample", lambda _task: opening.picture_of(data, pair, sample))

    # keeping

    def save(self, path: Path) -> None:
        """Writes the report as .vqz or .json in the background."""
        if self.pair is None:
            return
        report = self.pair.report
        self.requests.submit("save", lambda _task: keep(report, path))

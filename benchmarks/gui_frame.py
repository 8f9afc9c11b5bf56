"""`python -m benchmarks.gui_frame`: what a frame costs with 50,000 nodes a pane, against 200, in one process.

Needs a display: `xvfb-run -a -s "-screen 0 1600x1000x24" python -m benchmarks.gui_frame`. Software renderers take tens
of milliseconds for an empty window, so look at the ratios; "own" is the time of our code in a frame, without rendering.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dearpygui.dearpygui as dpg
from benchmarks.large_pair import large_report

from visualquant.gui.app import App
from visualquant.session.archive import save

FRAMES = 25


def until_drawn(app: App) -> float:
    start = time.perf_counter()
    app.frame()
    while app.workspace.requests.busy() or any(p.picture is None for p in app.workspace.panes.values()):
        app.paced_frame()
    app.frame()
    return time.perf_counter() - start


def first_picture(app: App) -> float:
    start = time.perf_counter()
    app.frame()
    while all(p.picture is None for p in app.workspace.panes.values()):
        app.paced_frame()
    app.frame()
    return time.perf_counter() - start


def frames(app: App, step: Callable[[int], None]) -> float:
    times = []
    for k in range(FRAMES):
        step(k)
        start = time.perf_counter()
        app.frame()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def pan(app: App) -> Callable[[int], None]:
    return lambda k: app.workspace.pan("float", 3.0 if k % 2 else -3.0, -31.0)


def own_time(app: App, action: Callable[[], None]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        action()
        for canvas in app.canvases.values():
            canvas.draw(app.look)
        times.append(time.perf_counter() - start)
        app.frame()
    return statistics.median(times)


def measure(app: App) -> dict[str, float]:
    workspace = app.workspace
    for pane in workspace.panes.values():
        pane.start_view()
        pane.camera = pane.camera.zoomed(0.8 / pane.camera.scale, pane.width / 2, 40)
    app.frame()
    found = {"panning, readable": frames(app, pan(app))}
    assert workspace.pair is not None
    names = iter(["weight_sqnr", "confidence"] * 10)
    found["own: recolour all"] = own_time(app, lambda: workspace.set_metric(next(names)))  # type: ignore[arg-type]
    count = len(workspace.pair.groups)
    places = iter([count // 2, 3, count // 3, count - 5, count // 5] * 3)
    found["own: select to counterpart"] = own_time(app, lambda: workspace.select_group(next(places)))
    workspace.clear()
    workspace.fit()
    app.frame()
    found["zoomed out, panning"] = frames(app, pan(app))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for nodes in (200, 50_000):
            paths.append(Path(folder) / f"{nodes}.vqz")
            save(large_report(nodes), paths[-1])
        app = App((paths[0],), size=(1600, 1000))
        app.start()
        until_drawn(app)
        empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        small = measure(app)
        app.open((paths[1],))
        start = time.perf_counter()
        pair = app.workspace.pair
        longest = 0.0
        while app.workspace.pair is pair:
            before = time.perf_counter()
            app.paced_frame()
            longest = max(longest, time.perf_counter() - before)
        first = first_picture(app)
        opened = time.perf_counter() - start
        until_drawn(app)
        both = time.perf_counter() - start
        large = measure(app)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - empty
        print(f"renderer: {dpg.get_value(app.renderer_text)}")
        print(f"{'':<30}{'200':>10}{'50,000':>10}   ratio")
        for name in small:
            print(
                f"{name:<30}{small[name] * 1e3:>8.1f} ms{large[name] * 1e3:>7.1f} ms   {large[name] / small[name]:.2f}"
            )
        print(
            f"open 50,000 a side: {opened:.2f} s to the first picture ({first:.2f} s after reading), {both:.2f} s both"
        )
        print(f"longest frame meanwhile {longest * 1e3:.0f} ms; memory grew by {grown / 1024:.0f} MB")
        app.stop()


if __name__ == "__main__":
    main()

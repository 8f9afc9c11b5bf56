"""Runs models on this host, with taps that change nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visualquant.core.taps import Level, NodeTime, Profile, RunOptions, TapEvent
from visualquant.runtime.runner import Array, Feeds, InputInfo, Runner
from visualquant.runtime.segments import Segment
from visualquant.runtime.sessions import FailedRunError, RefusedError, make_session
from visualquant_agent import engine, memory, profiling


class LocalRunner(Runner):
    """One model on this host's ONNX Runtime."""

    def __init__(self, path: Path, options: RunOptions) -> None:
        """Creates the plain session.

        Raises:
            RefusedError: the runtime refuses the file at every level.
        """
        super().__init__(path, options)
        if options.memory_bytes is not None:
            memory.keep_no_spare()
        self._segments: dict[tuple[str, ...], list[tuple[Any, Segment]]] = {}
        try:
            self._plain: Any = self._open()
        except BaseException:
            self._folder.cleanup()
            raise
        self.inputs = {i.name: InputInfo(i.name, i.type, tuple(i.shape)) for i in self._plain.get_inputs()}
        self.outputs = tuple(o.name for o in self._plain.get_outputs())

    def _open(self) -> Any:
        try:
            return make_session(self.path, self.options, optimised_path=self.optimised_path)
        except RefusedError as refusal:
            if self.level == "none":
                raise
            self.level = "none"
            self.notes.append(f"The runtime refuses it optimised ({refusal}); it was run without optimisation.")
            return make_session(self.path, self.options, level="none", optimised_path=self.optimised_path)

    def close(self) -> None:
        """Frees sessions and temporary files."""
        self._segments.clear()
        super().close()

    def _types(self) -> dict[str, str]:
        return {}  # what this host's runtime can tell is known without asking

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """All graph outputs of one batch, without taps.

        Raises:
            FailedRunError: the runtime fails on these samples.
        """
        if self._plain is None:
            self._plain = make_session(self.path, self.options, level=self.level)
        return dict(zip(self.outputs, self._call(self._plain, None, feeds), strict=True))

    def taps_are_neutral(self, feeds: Feeds, taps: Collection[str]) -> bool:
        """True where outputs with taps equal outputs without, to the last bit."""
        plain = self.run(feeds)
        if self.options.memory_bytes is not None:
            self._plain = None  # both forms of the model at once would take its weights twice
        return self._is_neutral(plain, feeds, taps)

    def _call(self, session: Any, outputs: Sequence[str] | None, feeds: Feeds) -> list[Array]:
        try:
            return engine.call(session, outputs, feeds)
        except Exception as error:  # NOTE: the runtime raises classes of its own without a common base
            raise FailedRunError(self.path, engine.first_line(str(error))) from error

    def tap(self, batches: Iterable[tuple[Sequence[int], Feeds]], taps: Collection[str]) -> Iterator[TapEvent]:
        """Runs batches and emits each tapped tensor as soon as it exists, then the outputs.

        Args:
            batches: (sample indices, feeds).
            taps: names of values in `optimised()`.
        """
        for number, (samples, feeds) in enumerate(batches):
            pieces = self._pieces(tuple(sorted(taps)), feeds)
            sessions = {id(segment): session for session, segment in pieces}
            outputs: dict[str, Array] = {}

            def run(segment: Segment, given: dict[str, Array], sessions: dict[int, Any] = sessions) -> list[Array]:
                return self._call(sessions[id(segment)], list(segment.outputs), given)

            for name, is_output, array in engine.run_pieces([s for _, s in pieces], run, feeds, self.outputs):
                if is_output:
                    outputs[name] = array
                else:
                    yield TapEvent(number, samples, name, array)
            if len(outputs) < len(self.outputs):  # an output that is a constant comes out of no segment
                outputs = self.run(feeds) | outputs
            yield TapEvent(number, samples, outputs={n: outputs[n] for n in self.outputs})

    def _pieces(self, taps: tuple[str, ...], feeds: Feeds) -> list[tuple[Any, Segment]]:
        if taps not in self._segments:
            made = []
            for segment in self._segments_of(taps, feeds):
                session = make_session(segment.model, self.options, level="none")
                made.append((session, dataclasses.replace(segment, model=b"")))  # its weights live in the session now
            self._segments[taps] = made
            if self.options.memory_bytes is not None:
                self._optimised = None  # read again where it is asked for
        return self._segments[taps]

    def profile(self, feeds: Feeds, *, level: Level | None = None, warm_up: int = 3, repeats: int = 20) -> Profile:
        """Node times by the runtime's own profiler, at the runner's level or another one."""
        prefix = str(Path(self._folder.name) / "profile")
        session = make_session(self.path, self.options, level=level or self.level, profile_prefix=prefix)
        for _ in range(warm_up + repeats):
            self._call(session, None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        return parse_profile(events, warm_up)


def parse_profile(events: Sequence[Mapping[str, Any]], warm_up: int) -> Profile:
    """Node times from ONNX Runtime's profile (a list of trace events)."""
    nodes, totals = profiling.node_times(events, warm_up)
    found = tuple(NodeTime(n["node"], n["op_type"], n["provider"], n["p50_us"], n["p90_us"]) for n in nodes)
    return Profile(found, profiling.percentiles(totals)[0], len(totals))

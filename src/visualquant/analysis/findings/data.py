"""Rules that need a run over samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from visualquant.analysis.findings.context import Context, Draft, label
from visualquant.analysis.findings.device import device_differs
from visualquant.analysis.measured import SAMPLE_ROWS, Array, DataFacts, MeasuredActivation, RunResult
from visualquant.analysis.saturation import saturating_share
from visualquant.analysis.settings import exclude_setting
from visualquant.core.activations import PairSums, RangeUse
from visualquant.core.graph import GraphView, NodeId, NodeView
from visualquant.core.quant import QuantSite
from visualquant.core.trace import LAYOUT_OPS

FINE_STEPS = frozenset({"Softmax", "Sigmoid", "LayerNormalization", "LogSoftmax", "HardSigmoid", "Tanh", "Exp"})
NARROW_SITES = 2
DRIFT_STEPS = 8


@dataclasses.dataclass(frozen=True)
class DataContext:
    """The files' context, and the run."""

    files: Context
    run: RunResult
    facts: DataFacts

    def name(self, item: MeasuredActivation) -> str:
        """The float value's name."""
        return self.files.float_model.graph.values[item.pair.float_value].key

    def maker(self, item: MeasuredActivation) -> NodeView | None:
        """The float node that makes the value, layout operators skipped."""
        graph = self.files.float_model.graph
        node = graph.producer_of(item.pair.float_value)
        for _ in range(8):
            if node is None or node.op_type not in LAYOUT_OPS:
                return node
            node = graph.producer_of(node.input(0))
        return node

    def draft(
        self, item: MeasuredActivation, code: str, severity: str, what: str, effect: float, **numbers: float
    ) -> Draft:
        """A draft that names the value, its maker and its group."""
        graph = self.files.float_model.graph
        direct = graph.producer_of(item.pair.float_value)
        group = self.files.alignment.group_of_float.get(direct.id) if direct is not None else None
        nodes = () if group is None else group.quant_nodes
        names = [self.files.graph.nodes[n].name for n in nodes]
        return Draft(
            code,
            severity,  # type: ignore[arg-type]
            what,
            effect=effect,
            node=nodes[0] if nodes else None,
            value=self.files.quant_model.key(item.pair.quant_value),
            float_value=self.name(item),
            groups=() if item.pair.group is None else (item.pair.group,),
            where={"value": self.name(item), "float_node": "" if direct is None else direct.name},
            numbers=numbers,
            settings=exclude_setting(self.files.quant_model, names) if code.startswith("ACT") else None,
        )


def clip_level_db(use: RangeUse) -> float | None:
    """SQNR in dB that the range alone allows, Σx² over Σ(what lies outside)²; None where next to nothing is clipped."""
    if use.excess <= 0 or use.sum_sq <= 0 or use.clipped_share < 1e-5:
        return None
    level = 10 * math.log10(use.sum_sq / use.excess)
    return None if level > 25 else level


def clipping(context: DataContext) -> Iterator[Draft]:
    """ACT_CLIPPED, and DATA_NARROW_CALIBRATION where several ranges are too narrow at once."""
    narrow: list[tuple[Draft, tuple[float, float] | None]] = []
    for item in context.run.activations:
        use, maker = item.range_use, context.maker(item)
        if use is None or (level := clip_level_db(use)) is None:
            continue
        if maker is not None and maker.op_type in ("Relu", "Clip") and use.below > 0.5 * (use.below + use.above):
            continue
        draft = context.draft(item, "ACT_CLIPPED", *_clipped(context.name(item), use, level))
        draft = dataclasses.replace(draft, numbers={"clipped_share": use.clipped_share, "sqnr_db_of_range": level})
        if level < 20 and item.beyond_calibration is not False:  # calibration that showed it chose to clip it
            narrow.append((draft, item.calibration))
        yield draft
    for site in context.run.sites:
        level = clip_level_db(site.range_use)
        if level is not None:
            value = context.files.graph.values[site.value]
            severity, what, effect = _clipped(value.key, site.range_use, level)
            yield Draft(
                "ACT_CLIPPED",
                severity,  # type: ignore[arg-type]
                what,
                effect,
                node=value.producer,
                value=value.key,
                where={"value": value.key},
                numbers={"clipped_share": site.range_use.clipped_share, "sqnr_db_of_range": level},
                settings=exclude_setting(context.files.quant_model, _name_of(context.files.graph, value.producer)),
            )
    if len(narrow) >= NARROW_SITES:
        first, shown = narrow[0]
        saw = "" if shown is None else f" It reached [{shown[0]:.4g}, {shown[1]:.4g}] there."
        yield dataclasses.replace(
            first,
            code="DATA_NARROW_CALIBRATION",
            severity="warning",
            what=f"{len(narrow)} activation ranges are too narrow for these samples, the first {first.float_value!r}: "
            f"the calibration data did not show such inputs.{saw}",
            effect=19.0,
            numbers={"ranges": len(narrow)},
            settings=None,
        )


def _clipped(name: str, use: RangeUse, level: float) -> tuple[str, str, float]:
    """Severity, words and effect of a range that is too narrow."""
    what = (
        f"{use.clipped_share:.2%} of {name!r} lie outside its range [{use.low:.4g}, {use.high:.4g}]; values reach "
        f"[{use.seen_low:.4g}, {use.seen_high:.4g}], so the range alone allows {level:.1f} dB."
    )
    return "error" if level < 15 else "warning", what, max(40 - level, 0.0) + 20


def _name_of(graph: GraphView, node: NodeId | None) -> list[str]:
    return [] if node is None else [graph.nodes[node].name]


def coarse(context: DataContext) -> Iterator[Draft]:
    """ACT_COARSE and ACT_RANGE_WASTED: values that matter lie below half a step."""
    for item in context.run.activations:
        use = item.range_use
        if use is None or use.n < 32:
            continue
        total = float(use.bulk.sum())
        share = use.small / total if total else 0.0
        maker = context.maker(item)
        op = maker.op_type if maker is not None else ""
        if op in ("Concat",) or share < 0.3:
            used = use.range_used
            if used is not None and used < 0.2 and share >= 0.1:
                yield _wasted(context, item, share, used)
            continue
        if op in FINE_STEPS:
            yield context.draft(
                item,
                "ACT_COARSE",
                "error" if share > 0.6 else "warning",
                f"{share:.0%} of the non-zero values of {context.name(item)!r} ({op}) lie below half a step "
                f"({use.step:.3g}) and become 0.",
                20 + 40 * share,
                share_below_half_a_step=share,
                step=use.step,
            )
        elif _bulk_ratio(item) > 64:
            yield _wasted(context, item, share, use.range_used or 0.0)


def _bulk_ratio(item: MeasuredActivation) -> float:
    """How far the range reaches beyond the magnitude of most values."""
    use = item.range_use
    if use is None:
        return 0.0
    middle = use.bulk_abs(0.5)
    return max(abs(use.low), abs(use.high)) / middle if middle > 0 else 0.0


def _wasted(context: DataContext, item: MeasuredActivation, share: float, used: float) -> Draft:
    use = item.range_use
    assert use is not None
    return context.draft(
        item,
        "ACT_RANGE_WASTED",
        "error" if share > 0.5 else "warning",
        f"The range [{use.low:.4g}, {use.high:.4g}] of {context.name(item)!r} is far wider than most of its values: "
        f"half of them are below {use.bulk_abs(0.5):.3g}, and {share:.0%} of the non-zero ones fall below half a step.",
        20 + 40 * share,
        share_below_half_a_step=share,
        range_used=used,
    )


def outlier_channels(context: DataContext) -> Iterator[Draft]:
    """ACT_OUTLIER_CHANNELS: few channels dwarf the rest under one scale."""
    for item in context.run.activations:
        sums = item.cumulative if item.cumulative.n else item.isolated
        use = item.range_use
        if sums is None or use is None or sums.channel_max is None or sums.channel_max.size < 8:
            continue
        peaks = np.sort(sums.channel_max)
        median = float(np.median(peaks))
        large = int((peaks > 16 * median).sum())
        if median <= 0 or peaks[-1] < 32 * median or large > peaks.size // 4 or median > 8 * use.step:
            continue
        yield context.draft(
            item,
            "ACT_OUTLIER_CHANNELS",
            "warning",
            f"{large} of {peaks.size} channels of {context.name(item)!r} dwarf the rest: the largest reaches "
            f"{peaks[-1]:.4g}, the median channel {median:.4g}, {median / use.step:.1f} steps.",
            15 + min(25.0, 10 * math.log10(peaks[-1] / median)),
            channels=large,
            ratio=float(peaks[-1] / median),
        )


def state_drift(context: DataContext) -> Iterator[Draft]:
    """STATE_DRIFT: equal steps in a chain, each sound alone, whose error grows from step to step."""
    graph = context.files.float_model.graph
    series: dict[tuple[str, object], list[MeasuredActivation]] = {}
    for item in context.run.activations:
        maker = context.maker(item)
        if maker is not None and item.cumulative.n:
            shape = graph.values[item.pair.float_value].shape
            series.setdefault((maker.op_type, shape), []).append(item)
    best: tuple[tuple[bool, float], list[MeasuredActivation]] | None = None
    for found in series.values():
        chain = _chain(context, found)
        if len(chain) < DRIFT_STEPS:
            continue
        levels = [i.cumulative.sqnr_db or 0.0 for i in chain]
        quarter = max(len(levels) // 4, 1)
        fall = float(np.median(levels[:quarter]) - np.median(levels[-quarter:]))
        alone = [i.isolated.sqnr_db for i in chain if i.isolated is not None and i.isolated.sqnr_db is not None]
        sound = not alone or float(np.median(alone)) > float(np.median(levels[-quarter:])) + 8
        if fall >= 8 and sound:
            # NOTE: of several series through one state, the one that is itself rounded is the cause
            rounded = bool(alone) and math.isfinite(float(np.median(alone)))
            key = (rounded, fall)
            if best is None or key > best[0]:
                best = key, chain
    if best is not None:
        (_, fall), chain = best
        levels = [i.cumulative.sqnr_db or 0.0 for i in chain]
        yield context.draft(
            chain[0],
            "STATE_DRIFT",
            "error" if levels[-1] < 15 else "warning",
            f"The error of the state grows over {len(chain)} steps: {levels[0]:.1f} dB at {context.name(chain[0])!r}, "
            f"{levels[-1]:.1f} dB at {context.name(chain[-1])!r}, while each step alone is sound.",
            50.0,
            steps=len(chain),
            fall_db=fall,
        )


def state_steps(context: DataContext) -> Iterator[Draft]:
    """STATE_DRIFT over the steps of a sequence: the error of a state that is fed back grows."""
    for (ours, theirs), sums in context.run.steps.items():
        levels = [min(level, 120.0) for _, level in sums.levels()]
        if ours not in context.run.states or len(levels) < DRIFT_STEPS:
            continue
        quarter = max(len(levels) // 4, 1)
        first, last = float(np.median(levels[:quarter])), float(np.median(levels[-quarter:]))
        if first - last >= 8:
            steps = sums.width * len(sums.ranges)
            yield Draft(
                "STATE_DRIFT",
                "error" if last < 15 else "warning",
                f"The error of the state {ours!r} grows over {steps} steps: {first:.1f} dB in the first quarter of "
                f"them, {last:.1f} dB in the last.",
                effect=50.0,
                value=theirs,
                float_value=ours,
                where={"value": ours},
                numbers={"steps": steps, "fall_db": first - last},
            )


def _chain(context: DataContext, items: Sequence[MeasuredActivation]) -> list[MeasuredActivation]:
    """Values of which each is computed from the one before within one step (at most 12 nodes apart)."""
    graph = context.files.float_model.graph
    by_value = {i.pair.float_value: i for i in items}
    following: dict[int, MeasuredActivation] = {}
    for item in items:
        stack, seen = [(item.pair.float_value, 0)], set()
        while stack:
            value, steps = stack.pop()
            made = graph.producer_of(value)
            if made is None or steps > 12 or value in seen:
                continue
            seen.add(value)
            for source in made.inputs:
                if source is None:
                    continue
                if source in by_value and source != item.pair.float_value:
                    following.setdefault(source, item)
                else:
                    stack.append((source, steps + 1))
    longest: list[MeasuredActivation] = []
    heads = [i for i in items if i.pair.float_value not in {f.pair.float_value for f in following.values()}]
    for head in heads:
        chain, visited = [head], {head.pair.float_value}
        while (after := following.get(chain[-1].pair.float_value)) is not None:
            if after.pair.float_value in visited:
                break
            visited.add(after.pair.float_value)
            chain.append(after)
        if len(chain) > len(longest):
            longest = chain
    return longest


def half_overflow(context: DataContext) -> Iterator[Draft]:
    """FP16_OVERFLOW as the device will see it: float values beyond float16 where the file computes in float16.

    A host that computes float16 operators in float32 hides it.
    """
    graph = context.files.graph
    for item in context.run.activations:
        dtype = graph.values[item.pair.quant_value].dtype
        peak = max(abs(item.low), abs(item.high)) if item.high >= item.low else 0.0
        if dtype is not None and dtype.name == "float16" and peak > 65504:
            maker = context.maker(item)
            yield context.draft(
                item,
                "FP16_OVERFLOW",
                "error",
                f"{context.name(item)!r}{'' if maker is None else f' ({label(maker)})'} reaches {peak:.4g}, beyond "
                "float16 (65504): it is the first value that becomes infinite where float16 is computed as such.",
                78.0,
                max_abs=peak,
            )
            return


def non_finite(context: DataContext) -> Iterator[Draft]:
    """FP16_OVERFLOW: the first operator that makes an infinity or NaN that the float model does not have."""
    for item in context.run.activations:
        sums = item.cumulative
        if sums.non_finite_quant > sums.non_finite_float:
            lost = _vanished_constant(context)
            if lost is not None:
                yield lost
                return
            maker = context.maker(item)
            half = any(s in ("float16", "bfloat16") for s in context.files.quant_model.schemes)
            where = "" if maker is None else f" ({label(maker)})"
            yield context.draft(
                item,
                "FP16_OVERFLOW" if half else "ACT_CLIPPED",
                "error",
                f"{context.name(item)!r}{where} is the first value with infinities or NaN: {sums.non_finite_quant} "
                f"elements over {context.run.samples} samples; in the float model it reaches "
                f"{_peak(sums):.4g}.",
                80.0,
                elements=sums.non_finite_quant,
            )
            return


def _vanished_constant(context: DataContext) -> Draft | None:
    """A small constant (an epsilon) that is 0 in float16: what NaN behind it come from."""
    for item in context.files.weights:
        stats = item.stats
        if stats is None or stats.x_hat is None or item.row.code_type != "float16" or item.row.elements > 16:
            continue
        if int(stats.x_hat.zeros) > int(stats.x.zeros):
            return Draft(
                "FP16_UNDERFLOW",
                "error",
                f"The constant {item.row.value!r} is 0 in float16: infinities or NaN follow where it kept a division "
                "from them.",
                effect=85,
                node=None if item.reader is None else item.reader.id,
                value=item.row.value,
            )
    return None


def _peak(sums: PairSums) -> float:
    return max(abs(sums.low), abs(sums.high)) if sums.n else math.nan


def diverging(context: DataContext) -> MeasuredActivation | None:
    """The first value in dataflow order whose own error is above what its bits explain.

    Own error is the isolated one. Bits explain rounding of the output's range (step²/12 an element) and the error of
    the group's weights; 6 dB beyond that is a fault of its own.
    """
    for item in context.run.activations:
        if item.isolated is None or item.isolated.sqnr_db is None or not item.isolated.n:
            continue
        own = item.isolated.sqnr_db
        if own >= 30:
            continue
        weights = [
            float(w.row.metrics["sqnr_db"])
            for w in context.files.weights
            if w.row.group == item.pair.group and "sqnr_db" in w.row.metrics and w.row.role == "weight"
        ]
        noise = sum(10 ** (-level / 10) for level in weights)
        if item.range_use is not None and item.isolated.xx > 0:
            noise += item.isolated.n * item.range_use.step**2 / 12 / item.isolated.xx
        explained = -10 * math.log10(noise) if noise > 0 else math.inf
        if own < min(explained - 6, 25):
            return item
    return None


def data_quality(context: DataContext) -> Iterator[Draft]:
    """DATA_RANDOM and DATA_REUSED."""
    if context.facts.is_random:
        yield Draft("DATA_RANDOM", "warning", "The samples are random: ranges and accuracy say little.", effect=1)
    if context.facts.reused:
        yield Draft(
            "DATA_REUSED",
            "warning",
            f"{context.facts.reused} samples are in calibration and validation alike: the figures flatter.",
            effect=5,
            numbers={"samples": context.facts.reused},
        )


def labels(context: DataContext) -> Iterator[Draft]:
    """DATA_LABELS: labels that fit the float model only after a shift."""
    given = context.facts.labels
    if given is None or given.ndim != 1 or given.dtype.kind not in "iu":
        return
    for output in context.run.float_outputs.values():
        if output.ndim != 2 or output.shape[1] < 2 or output.shape[0] > given.shape[0]:
            continue
        says, truth, classes = output.argmax(axis=1), given[: output.shape[0]], output.shape[1]
        plain = float((says == truth).mean())
        shifts = {k: float((says == truth + k).mean()) for k in range(-classes, classes + 1) if k}
        shift = max(shifts, key=lambda k: shifts[k])
        if plain < 0.5 * shifts[shift] and shifts[shift] > 1.5 / classes + 0.1:
            yield Draft(
                "DATA_LABELS",
                "error",
                f"Not even the float model fits the labels ({plain:.1%} right); with {shift:+d} added to them it has "
                f"{shifts[shift]:.1%}.",
                effect=95,
                numbers={"accuracy": plain, "accuracy_shifted": shifts[shift], "shift": shift},
            )
        return


def saturates(context: DataContext) -> Iterator[Draft]:
    """RUNTIME_SATURATES: the share of adjacent products that leave int16, computed: the same on every processor."""
    graph = context.files.graph
    samples = {id(i.pair.site): i.sample for i in context.run.activations if i.pair.site is not None}
    worst: tuple[float, QuantSite, NodeView] | None = None
    for site in context.files.quant_model.sites:
        if site.role != "weight" or site.params is None or site.params.code_type.name != "int8" or site.codes is None:
            continue
        reader = None if site.reader is None else graph.nodes[site.reader]
        value = None if reader is None or not reader.inputs else reader.inputs[0]
        data = None if value is None else context.files.activation_at.get(value)
        if reader is None or data is None or data.params is None or data.params.code_type.name != "uint8":
            continue
        x = samples.get(id(data))
        if x is None:
            x = _input_sample(context, data)
        share = None if x is None else saturating_share(x, data, site, reader)
        if share is not None and share > 1e-4 and (worst is None or share > worst[0]):
            worst = share, site, reader
    if worst is not None:
        share, site, reader = worst
        yield Draft(
            "RUNTIME_SATURATES",
            "warning",
            f"{share:.2%} of the adjacent products of {label(reader)} leave 16 bits on these samples: on x86 without "
            "VNNI (and on some boards) the result saturates there, elsewhere it does not.",
            effect=25 + 100 * min(share, 0.5),
            node=reader.id,
            value=context.files.quant_model.key(site.value),
            numbers={"share": share},
            settings="reduce_range=True",
        )


def _input_sample(context: DataContext, site: QuantSite) -> Array | None:
    """First feeds of the graph input that a site quantizes."""
    graph = context.files.graph
    for node_id in site.nodes:
        value = graph.nodes[node_id].input(0)
        if value is not None and graph.values[value].role == "input":
            found = context.run.feeds.get(graph.values[value].name)
            return None if found is None or found.dtype.kind != "f" else found[:SAMPLE_ROWS]
    return None


def refusals(context: DataContext) -> Iterator[Draft]:
    """RUNTIME_REFUSES: the runtime takes the file not at all, or only unoptimised."""
    if context.facts.refusal is not None:
        yield Draft(
            "RUNTIME_REFUSES",
            "warning",
            f"ONNX Runtime refuses {context.files.quant_model.name}: {context.facts.refusal}",
            effect=60,
        )
    elif context.facts.fallback is not None:
        yield Draft("RUNTIME_REFUSES", "warning", context.facts.fallback, effect=20)


RULES = (
    refusals,
    labels,
    data_quality,
    non_finite,
    half_overflow,
    saturates,
    clipping,
    coarse,
    outlier_channels,
    state_drift,
    state_steps,
    device_differs,
)

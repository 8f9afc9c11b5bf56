"""The report: one result for every face. Field names are the JSON keys (see the schema in reports/).

What was not measured is None here and absent in JSON. Keys may be added; none is renamed or removed
without raising `SCHEMA_VERSION`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 1

Real = float  # NOTE: some rows have a field named `float`, which would hide the type in their annotations
NonFinite = Literal["inf", "-inf", "nan"]
Number = int | Real | NonFinite
Severity = Literal["error", "warning", "info"]
Status = Literal["complete", "partial", "cancelled"]


@dataclasses.dataclass(frozen=True, slots=True)
class ToolRow:
    """Which program wrote the report."""

    name: str
    version: str


@dataclasses.dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """Where it ran."""

    python: str
    platform: str
    cpu_features: tuple[str, ...] = ()
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Coverage:
    """Shares in [0, 1] of the float model's compute that runs on quantized weights.

    Attributes:
        nodes: of the nodes with weights (Conv, MatMul, Gemm, recurrent, Gather tables).
        parameters: of the elements of their weights.
        macs: of the multiply-adds, where shapes are known.
    """

    nodes: Real | None = None
    parameters: Real | None = None
    macs: Real | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SummaryRow:
    """What a person reads first.

    Attributes:
        sentence: what kind of quantization this is.
        verdict: the answer in one sentence.
        worst: group of the worst weight.
        first_diverging: group of the first diverging activation, with data only.
    """

    sentence: str
    verdict: str
    coverage: Coverage = dataclasses.field(default_factory=Coverage)
    worst: str | None = None
    first_diverging: str | None = None
    sqnr_db_median: Number | None = None
    sqnr_db_worst: Number | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StorageRow:
    """What the weights cost. Bits count scales and zero points in.

    Attributes:
        bits_per_weight: (codes + scales + zero points) bits per weight element.
        weight_bytes: codes, and weights left in float.
        scale_bytes: scales and zero points.
        compression: bytes as float32 over bytes now.
    """

    bits_per_weight: Real
    weight_bytes: int
    scale_bytes: int
    compression: Real


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRow:
    """One model file."""

    name: str
    bytes: int
    bytes_external: int
    nodes: int
    sha256: str | None = None
    container: str = "onnx"
    opset: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ir_version: int | None = None
    producer: str = ""
    quantizer: str | None = None
    schemes: tuple[str, ...] = ()
    storage: StorageRow | None = None
    calibration: Mapping[str, Any] | str = "not recorded"
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ModelsRow:
    """The float model, the quantized one, and further ones by key ("q2", ...)."""

    float: ModelRow
    quant: ModelRow | None = None
    others: Mapping[str, ModelRow] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRow:
    """One node; ids are stable for unnamed and equally named nodes."""

    id: str
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scope: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ValueRow:
    """One tensor. A size is a number, a symbol, or "?"."""

    role: Literal["input", "output", "initializer", "activation"]
    dtype: str | None = None
    shape: tuple[int | str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of the alignment."""

    group: str
    kind: Literal["1:1", "n:1", "1:n", "n:m", "inserted", "removed"]
    float: tuple[str, ...]
    quant: tuple[str, ...]
    confidence: Real
    evidence: tuple[str, ...] = ()
    reason: str | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FusionRow:
    """A pattern that stands in other nodes on the other side.

    Attributes:
        quant_points: tensors of the group that are quantized (weights, biases, activations).
        blocked: a Q/DQ pair stands inside the pattern: the runtime can't fuse it.
        changed_value: relative error (max|e| over max|x|) of folded weights or of the fused form, when known.
    """

    pattern: str
    group: str
    float: tuple[str, ...]
    quant: tuple[str, ...]
    quant_points: tuple[str, ...] = ()
    blocked: bool = False
    changed_value: Number | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelRow:
    """One channel (or block) among the worst."""

    index: int
    sqnr_db: Number | None = None
    max_abs_error: Number | None = None
    range: tuple[Number, Number] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIfRow:
    """What another scheme would give for the same float weight."""

    scheme: str
    bits: int
    sqnr_db: Number | None = None
    sqnr_db_worst_channel: Number | None = None
    bits_per_weight: Real | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WeightRow:
    """One stored quant tensor as one layer reads it.

    Attributes:
        value: the stored tensor of the quantized model.
        float_value: the tensor of the float model; a list where several were packed into one.
        axis: of the stored codes.
        range: smallest and largest finite float value.
        effective_range: lowest and highest code that occur.
        problem: why there is no number, in words.
    """

    group: str | None
    node: str | None
    value: str
    role: Literal["weight", "bias"]
    scheme: str
    code_type: str
    elements: int
    float_value: str | tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    granularity: Literal["per_tensor", "per_channel", "blocked"] | None = None
    axis: int | None = None
    block_size: int | None = None
    bits_per_weight: Real | None = None
    range: tuple[Number, Number] | None = None
    effective_range: tuple[int, int] | None = None
    rounding: str | None = None
    metrics: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    zero_channels: tuple[int, ...] = ()
    worst_channels: tuple[ChannelRow, ...] = ()
    channel_axis: int | None = None
    quantiles: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    transform: str | None = None
    what_if: tuple[WhatIfRow, ...] = ()
    problem: str | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What, where, why, how to fix.

    Attributes:
        id: stable hash of code and place.
        numbers: the figures behind it.
        settings: ready to paste, in the words of the quantizer that made the file.
        measured_gain: what the fix gained where it was measured.
    """

    id: str
    code: str
    severity: Severity
    what: str
    why: str
    fix: str
    groups: tuple[str, ...] = ()
    node: str | None = None
    value: str | None = None
    float_value: str | None = None
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: str | None = None
    numbers: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    measured_gain: Mapping[str, Number] | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RunRow:
    """One run of one model over the samples."""

    id: str
    model: Literal["float", "quant"]
    kind: Literal["local", "device"]
    provider: str
    optimisation: str
    threads: int
    samples: int
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    taps_verified: bool | Literal["not checked"] = "not checked"
    complete: bool = True
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ActivationRow:
    """One value on both sides, over all samples.

    Attributes:
        depth: place in the dataflow order of the float graph; -1 for graph inputs, which belong to no group.
        cumulative: the whole quantized model against the float model.
        isolated: the group alone, fed with float values.
        range_float: observed; range_quant: of the quantizer's codes.
        range_calibration: observed over the calibration samples, where they are at hand.
        observable: False where the value no longer exists in a graph that runs; `reason` says why.
    """

    run: str
    float_value: str
    quant_value: str
    samples: int
    depth: int
    group: str | None = None
    cumulative: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    isolated: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    range_float: tuple[Number, Number] | None = None
    range_quant: tuple[Number, Number] | None = None
    range_calibration: tuple[Number, Number] | None = None
    clipped_share: Real | None = None
    range_used: Real | None = None
    observable: bool = True
    reason: str | None = None
    layout: str | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class OutputRow:
    """A graph output on both sides.

    Attributes:
        steps: of sequences, (first step, SQNR in dB) of equal ranges of steps.
        state: it is fed back as an input of the next step.
    """

    run: str
    float_value: str
    quant_value: str
    metrics: Mapping[str, Number] = dataclasses.field(default_factory=dict)
    steps: tuple[tuple[int, Number], ...] = ()
    state: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FlippedRow:
    """A sample that is right in float and wrong quantized; margin: score of the label minus the best other."""

    sample: int
    label: int
    float: int
    quant: int
    float_margin: Number | None = None
    quant_margin: Number | None = None
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class TaskRow:
    """Accuracy of both models against the labels, or a metric of the user's.

    Attributes:
        ci95_float, ci95_quant: Wilson intervals of accuracy; of other scores a sample mean ± 1.96 standard errors.
        p_value: exact McNemar; of other scores the sign test.
        lost, won: samples right in float only, and right quantized only; of other scores, worse and better quantized.
        higher_is_better: the direction; an error rate has the other one.
    """

    run: str
    metric: str
    float: Real
    quant: Real
    n: int
    ci95_float: tuple[Real, Real] | None = None
    ci95_quant: tuple[Real, Real] | None = None
    p_value: Real | None = None
    lost: int | None = None
    won: int | None = None
    higher_is_better: bool = True
    flipped: tuple[FlippedRow, ...] = ()
    by_class: Mapping[str, Mapping[str, Number]] = dataclasses.field(default_factory=dict)
    by_group: Mapping[str, Mapping[str, Mapping[str, Number]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device that ran the quantized model, against this host on the same inputs.

    Attributes:
        run: id of its run.
        name: as it was addressed.
        machine, processor, features, runtime: as the device tells.
        codes: integer activations compared with the host's, elements over all samples.
        differing: share of them that differ; None where none was compared.
        off_by: how many differ by 1, 2 and so on; the last counts everything beyond.
        max_difference: in codes.
        first: the first value in the order of the graph where more than 1 % of the codes differ.
        complete: False where the device was lost before all samples were run.
    """

    run: str
    name: str
    machine: str = ""
    processor: str = ""
    features: tuple[str, ...] = ()
    runtime: str = ""
    codes: int = 0
    differing: Real | None = None
    off_by: tuple[int, ...] = ()
    max_difference: int | None = None
    first: str | None = None
    complete: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTimeRow:
    """Time of one node of the graph that ran, in microseconds."""

    node: str
    op_type: str
    p50_us: Real
    p90_us: Real
    provider: str


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyRow:
    """Node times of one run.

    Attributes:
        total_p50_us: of whole runs.
        conversion_share: time in Q/DQ, Cast, Reorder and Transpose, of all node time.
    """

    run: str
    total_p50_us: Real
    repeats: int
    conversion_share: Real
    nodes: tuple[NodeTimeRow, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WeightDetail:
    """Full tables of one weight row: not in JSON, kept in the .vqz.

    Attributes:
        channel_sqnr_db, channel_max_abs_error, channel_max_abs, channel_clipped: [C] each, NaN where absent.
        edges, counts_float, counts_quant, counts_error: shared-edge histograms [bins + 1], [bins].
    """

    channel_sqnr_db: npt.NDArray[np.float64] | None = None
    channel_max_abs_error: npt.NDArray[np.float64] | None = None
    channel_max_abs: npt.NDArray[np.float64] | None = None
    channel_clipped: npt.NDArray[np.int64] | None = None
    edges: npt.NDArray[np.float64] | None = None
    counts_float: npt.NDArray[np.int64] | None = None
    counts_quant: npt.NDArray[np.int64] | None = None
    error_edges: npt.NDArray[np.float64] | None = None
    counts_error: npt.NDArray[np.int64] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorRow:
    """How often an operator occurs, and how often on quantized weights or activations."""

    op_type: str
    domain: str
    count: int
    quantized: int


@dataclasses.dataclass(frozen=True, slots=True)
class CheckRow:
    """A check of the file: onnx's checker, shape inference, ..."""

    name: str
    ok: bool
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class SiteRow:
    """The parameters of one stored quantized tensor (or of one activation)."""

    value: str
    role: Literal["weight", "bias", "activation"]
    scheme: str
    code_type: str | None = None
    granularity: Literal["per_tensor", "per_channel", "blocked"] | None = None
    axis: int | None = None
    block_size: int | None = None
    symmetric: bool | None = None
    scale: tuple[Number, Number] | None = None
    range: tuple[Number, Number] | None = None
    node: str | None = None
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedRow:
    """One quantized file among several of the same float model.

    Attributes:
        model: "quant", "q2", "q3", ...
        bytes: external data included.
        coverage: share of the parameters that are quantized.
        metric, value: of the task, where labels were given.
        errors: findings of that severity.
    """

    model: str
    name: str
    bytes: int
    quantizer: str | None = None
    schemes: tuple[str, ...] = ()
    bits_per_weight: Real | None = None
    coverage: Real | None = None
    sqnr_db_worst: Number | None = None
    sqnr_db_median: Number | None = None
    output_sqnr_db: Number | None = None
    metric: str | None = None
    value: Real | None = None
    errors: int = 0
    first_finding: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class EncodingRow:
    """How two files quantize one tensor; what a file does not quantize is empty.

    Attributes:
        changed: which of code_type, granularity, axis, scale and zero_point differ.
    """

    role: Literal["weight", "bias", "activation"]
    first_value: str | None
    second_value: str | None
    first: Mapping[str, str] = dataclasses.field(default_factory=dict)
    second: Mapping[str, str] = dataclasses.field(default_factory=dict)
    changed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """What is in one model.

    Attributes:
        sentence: what kind of quantization it has.
        operators: by count.
        left_float: nodes with weights that are not quantized, where others are.
        weights: with what-if rows where they were asked for.
    """

    tool: ToolRow
    model: ModelRow
    sentence: str
    operators: tuple[OperatorRow, ...]
    checks: tuple[CheckRow, ...]
    sites: tuple[SiteRow, ...]
    weights: tuple[WeightRow, ...]
    left_float: tuple[str, ...]
    findings: tuple[Finding, ...]
    schema_version: int = SCHEMA_VERSION


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Report:
    """All that reporters, archive, gates and windows read."""

    tool: ToolRow
    environment: EnvironmentRow
    summary: SummaryRow
    models: ModelsRow
    nodes: Mapping[str, tuple[NodeRow, ...]]
    values: Mapping[str, Mapping[str, ValueRow]]
    alignment: tuple[GroupRow, ...]
    fusions: tuple[FusionRow, ...]
    weights: tuple[WeightRow, ...]
    findings: tuple[Finding, ...]
    runs: tuple[RunRow, ...] = ()
    activations: tuple[ActivationRow, ...] = ()
    outputs: tuple[OutputRow, ...] = ()
    task: tuple[TaskRow, ...] = ()
    latency: tuple[LatencyRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    compared: tuple[ComparedRow, ...] = ()
    timings: Mapping[str, Real] = dataclasses.field(default_factory=dict)
    status: Status = "complete"
    status_reason: str | None = None
    schema_version: int = SCHEMA_VERSION
    details: tuple[WeightDetail, ...] = ()

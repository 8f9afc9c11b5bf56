"""The catalogue of findings: codes that do not change, each with what it means, why it hurts and how to fix it."""

from __future__ import annotations

import dataclasses
from typing import Literal

Area = Literal["weights", "activations", "graph and scheme", "runtime and device", "data"]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding.

    Attributes:
        code: stable name.
        area: the part of the catalogue.
        title: what it is, in one line.
        why: why it hurts.
        fix: how to fix it.
        seen_by: what the tool looks at, and the threshold.
    """

    code: str
    area: Area
    title: str
    why: str
    fix: str
    seen_by: str


_TABLE: tuple[tuple[str, Area, str, str, str, str], ...] = (
    (
        "WEIGHT_CLIPPED",
        "weights",
        "codes at the end of the range with an error above half a step",
        "The range was cut: values beyond it are all stored as its end, which is an error far above rounding.",
        "Quantize this weight with its full range (min-max), or with scales per channel so that one large channel does "
        "not force the cut.",
        "elements whose code is the lowest or highest of their scale group and whose error points outward by more than "
        "half a step",
    ),
    (
        "WEIGHT_NON_FINITE",
        "weights",
        "NaN or infinity in a weight",
        "One such value makes every output that it touches NaN, and calibration that sees it sets useless ranges.",
        "Go back to the checkpoint: training diverged or a conversion overflowed. Do not quantize this file.",
        "a count of NaN and infinities in the float and in the dequantized weight",
    ),
    (
        "WEIGHT_DEAD_CHANNEL",
        "weights",
        "a channel of zeros, or with a scale that says so",
        "The channel carries nothing. Worse: its tiny scale makes input scale times weight scale so small that the "
        "int32 bias of the channel overflows and is lost as well.",
        "Give the channel a scale of ordinary size (many quantizers clamp scales from below), or prune it.",
        "channels whose float values are all 0, or whose scale is 0 or far below every other",
    ),
    (
        "WEIGHT_ONE_SCALE",
        "weights",
        "one scale over channels of very different size",
        "The largest channel sets the step for all: small channels keep one or two codes, or none.",
        "Quantize per channel along the output channel. For depthwise convolutions this is a must.",
        "channels whose SQNR under the shared scale is far below what their own scale would give",
    ),
    (
        "WEIGHT_OUTLIER_IN_BLOCK",
        "weights",
        "one value spends the block's range",
        "A single large value sets the block's step; the rest of the block falls on a few codes.",
        "Use smaller blocks or 8 bits for this layer, clip the range (MSE search), or a method that moves outliers "
        "(AWQ, GPTQ, rotation).",
        "blocks whose largest value is far above the others' spread and whose SQNR is far below the median block's",
    ),
    (
        "WEIGHT_WRONG_AXIS",
        "weights",
        "per-channel scales along an axis that is not the output channel",
        "Per-channel was asked for, but the scales run along the input channels: output channels of different size "
        "share steps, and an integer kernel can't use such scales.",
        "Set the quantization axis to the output channel: axis 0 for Conv, axis 1 for ConvTranspose, the last axis for "
        "MatMul.",
        "the axis of the scales against the operator's output-channel axis, and what the right axis would give",
    ),
    (
        "WEIGHT_MISMATCH",
        "weights",
        "the weights are not those of the float model",
        "The quantized file was made from another checkpoint, or edited since: every comparison behind it is moot.",
        "Quantize the float model that you compare with, or compare with the float model that was quantized.",
        "dequantized weights that do not correlate with the float weights of the aligned layer",
    ),
    (
        "WEIGHT_UNCLAIMED",
        "weights",
        "an integer weight that no scheme reader understands",
        "Its error can't be measured, so this report says nothing about that layer.",
        "Report the file's toolchain, or write a scheme reader (see the README).",
        "integer tensors of two or more axes that feed an operator and that no reader claims",
    ),
    (
        "WEIGHT_AT_RUN_TIME",
        "weights",
        "stored in float and quantized at run time",
        "The file is not smaller, and the conversion is paid at every start or every run.",
        "Make the weight an initializer before quantizing (fold Constant nodes), or fold Quantize into stored codes.",
        "a Quantize operator on a constant",
    ),
    (
        "WEIGHT_STORED_FLOAT",
        "weights",
        "already dequantized in the file, between quantized activations",
        "The layer carries the quantization error but runs in float: neither smaller nor faster.",
        "Run the graph simplifier before quantizing, not after, or keep it from folding DequantizeLinear.",
        "a float weight that lies on a grid of few values, read by a layer with quantized input",
    ),
    (
        "WEIGHT_FLOAT_COPY",
        "weights",
        "the float twin of a quantized weight is still in the file",
        "The file is larger than expected and one branch still runs in float.",
        "Quantize every reader of the shared weight (embedding and output head), or remove the unused copy.",
        "a float tensor equal to the float model's weight, beside its quantized form",
    ),
    (
        "BIAS_OVERFLOW",
        "weights",
        "an int32 bias saturates",
        "The bias needs more than 32 bits at the step input scale times weight scale; what is stored is cut and the "
        "channel's output is wrong.",
        "Clamp the weight scale of the channel from below, quantize the layer per tensor, or keep its bias in float.",
        "stored int32 codes at the end of the range with an error above half a step",
    ),
    (
        "BIAS_SCALE",
        "weights",
        "a bias with a scale other than input times weight",
        "Integer kernels add the bias to the accumulator as it is: with another step it is wrong by that factor.",
        "Set the bias scale to input scale times weight scale per channel, zero point 0.",
        "the bias's scale against the product, beyond 0.1 %",
    ),
    (
        "ACT_CLIPPED",
        "activations",
        "observed values leave the quantized range",
        "Everything beyond the range becomes its end.",
        "Calibrate with data that shows such values, or use a wider range (min-max, higher percentile).",
        "share of elements outside the range of the Q that follows",
    ),
    (
        "ACT_RANGE_WASTED",
        "activations",
        "the range is far wider than what is observed",
        "Few codes are left for the values that matter: an outlier, a mask constant or a padding value set the range.",
        "Calibrate with a percentile, keep mask arithmetic in float, or use smaller mask constants.",
        "overlap of observed and quantized range over the quantized range",
    ),
    (
        "ACT_COARSE",
        "activations",
        "too few steps where they matter",
        "Softmax, Sigmoid, normalisation or logits need fine steps near an end of their range.",
        "16-bit activations for this tensor, or leave the operator in float.",
        "share of non-zero values below half a step, and sums that no longer hold",
    ),
    (
        "ACT_OUTLIER_CHANNELS",
        "activations",
        "few channels dwarf the rest",
        "One scale per tensor serves the large channels only.",
        "SmoothQuant or equalisation, 16-bit activations for this tensor, or mixed precision.",
        "ratio of the largest channel's range to the median channel's",
    ),
    (
        "ACT_PAD_ZERO_POINT",
        "activations",
        "padding with code 0 where zero is another code",
        "The border is filled with the value −zero_point·scale instead of 0.",
        "Pad with the zero point, or pad before quantizing.",
        "a Pad on codes whose constant differs from the zero point",
    ),
    (
        "ACT_LOST",
        "activations",
        "an activation function is gone in the quantized model",
        "Relu or Clip was removed because a range was to cut instead; the range that follows does not cut there.",
        "Use unsigned (or asymmetric) activations, or keep the activation function.",
        "a float activation without counterpart whose cut the following range does not make",
    ),
    (
        "STATE_DRIFT",
        "activations",
        "error grows over the steps of a recurrent state",
        "Updates below half a step are rounded away; the state drifts from the float one.",
        "Keep the state in float or 16 bits.",
        "error of the state over the steps",
    ),
    (
        "JOIN_MIXED_RANGES",
        "activations",
        "inputs of very different range under one scale at a join",
        "The large input sets the step; the small one (class scores beside boxes in pixels) rounds to nothing.",
        "Do not quantize the join, or scale the inputs to one range before it; quantize the branches apart.",
        "ratio of the input ranges of Concat and the step against the smaller range",
    ),
    (
        "JOIN_REQUANTIZED",
        "activations",
        "mismatched scales at a join cost a requantization",
        "Each input is converted to the output's scale, with one more rounding and more time.",
        "Let the quantizer tie the scales of the inputs to that of the output.",
        "scales of the inputs of Concat, Add and the like against the output's",
    ),
    (
        "FP16_OVERFLOW",
        "activations",
        "a value or constant beyond the range of float16",
        "It becomes infinity, and NaN soon after.",
        "Keep the operator in float32, use bfloat16, or scale the tensor.",
        "constants beyond 65,504; with data the first operator that makes an infinity",
    ),
    (
        "FP16_UNDERFLOW",
        "activations",
        "a value or constant below the range of float16",
        "It becomes 0: a division by it gives infinity or NaN, a normalisation loses its epsilon.",
        "Keep the operator in float32, or raise the constant (epsilon 1e-5 and above).",
        "non-zero constants that are 0 in float16",
    ),
    (
        "NOT_QUANTIZED",
        "graph and scheme",
        "nothing in the second model is quantized",
        "What was asked for was skipped: wrong file, unsupported operators, or names that match nothing.",
        "Check which file you compare, and the quantizer's log for skipped operators.",
        "no quantization site at all, or none on the weights",
    ),
    (
        "FLOAT_ISLAND",
        "graph and scheme",
        "operators left in float between quantized ones",
        "Each island costs two conversions, often more time than it saves in accuracy.",
        "Quantize the operators between, or leave the whole stretch in float.",
        "compute operators without quantized input between a Dequantize and a Quantize",
    ),
    (
        "QDQ_BLOCKS_FUSION",
        "graph and scheme",
        "a Q/DQ pair inside a pattern that the runtime would fuse",
        "The chain runs as separate operators, often in float, and pays a rounding that the fused form does not have.",
        "Place Q/DQ around the pattern, not inside: fold BatchNormalization first, and leave the value between Conv "
        "and its activation unquantized.",
        "Q/DQ between members of a known pattern (Conv, BatchNormalization, bias Add, activation)",
    ),
    (
        "QDQ_REDUNDANT",
        "graph and scheme",
        "back-to-back or doubled Q/DQ pairs",
        "Each pair rounds again and costs time.",
        "Remove the second pair (a graph simplifier does it when the scales agree).",
        "a Quantize right behind a Dequantize",
    ),
    (
        "SCALE_SHAPE",
        "graph and scheme",
        "scale or zero point does not fit the tensor, axis or block",
        "Runtimes refuse the file or read the scales in another way.",
        "Write one scale per element of the axis (or block), and zero points of the same shape and of the codes' type.",
        "shape and type of scale and zero point against the tensor",
    ),
    (
        "SCALE_VALUE",
        "graph and scheme",
        "a scale that is zero, negative, denormal or no number",
        "Codes times such a scale are 0, NaN, of the wrong sign, or flushed to 0 by processors without denormals.",
        "Clamp scales from below when quantizing, and look for NaN in the calibration data.",
        "the values of every scale in the file",
    ),
    (
        "OPSET_TOO_OLD",
        "graph and scheme",
        "the file uses an attribute or type that its opset lacks",
        "Runtimes ignore the attribute or refuse the file: per-channel may silently become per-tensor.",
        "Raise the opset when exporting (13 for per-channel, 21 for blocks and 4 bits).",
        "attributes and types of Q/DQ against the declared opset",
    ),
    (
        "NOT_ENCODED",
        "graph and scheme",
        "an encodings file says nothing of a tensor that its neighbours quantize",
        "The next tool fills the gap by itself, and figures no longer agree.",
        "Export encodings for it, or say that it stays in float.",
        "tensors of the graph that the encodings leave out",
    ),
    (
        "DUPLICATE_NAMES",
        "graph and scheme",
        "nodes share a name",
        "Legal in ONNX, but runtimes and tools that key nodes by name lose some of them.",
        "Give every node a name of its own.",
        "names of the main graph",
    ),
    (
        "UNKNOWN_OPERATOR",
        "graph and scheme",
        "an operator that nobody here knows",
        "It is kept as it is: what happens inside can't be compared.",
        "Export with standard operators, or report the domain.",
        "operators outside the ONNX standard, ONNX Runtime's domains and those of known quantizers",
    ),
    (
        "WIRED_DIFFERENTLY",
        "graph and scheme",
        "an input comes from another value than in the float model",
        "The quantized graph computes something else.",
        "Export again; look for a rewrite that swapped inputs.",
        "inputs of aligned nodes whose sources are not aligned",
    ),
    (
        "OPERATOR_REPLACED",
        "graph and scheme",
        "the aligned operator computes something else",
        "The quantized graph computes another function.",
        "Export again; look for an approximation that the toolchain chose.",
        "operator families of aligned nodes",
    ),
    (
        "FUSION_CHANGED_VALUE",
        "graph and scheme",
        "a folded weight or a fused form differs from its float members beyond rounding",
        "The fusion itself changed the model before any quantization.",
        "Fold with the right epsilon and statistics, or leave the pattern unfused.",
        "the folded weight against the float members",
    ),
    (
        "ATTRIBUTES_DIFFER",
        "graph and scheme",
        "aligned operators differ in an attribute that changes the result",
        "Another epsilon, rounding or coordinate mode, padding or axis: the output differs with no quantizer at fault.",
        "Export both models with the same attribute.",
        "attributes of aligned operators, defaults filled in",
    ),
    (
        "PREPROCESSING_ONE_SIDE",
        "graph and scheme",
        "one model holds a normalisation that the other lacks",
        "The same input is normalised twice, or not at all.",
        "Feed each model what it expects, or take the normalisation out of one.",
        "affine operators between the input and the first layer on one side only",
    ),
    (
        "LAYOUT_DIFFERS",
        "graph and scheme",
        "inputs or tensors in another layout",
        "NCHW data fed to an NHWC model gives nonsense without an error.",
        "Transpose the input, or export with the same layout.",
        "shapes of the inputs of both models",
    ),
    (
        "SENSITIVE_LAYER",
        "graph and scheme",
        "sound in itself, but costs the output most",
        "Its rounding error is what the task feels.",
        "Keep it in higher precision.",
        "measured output error when only this layer is quantized",
    ),
    (
        "RUNTIME_SATURATES",
        "runtime and device",
        "16-bit accumulation can or does saturate",
        "x86 processors without VNNI add two uint8×int8 products in saturating 16 bits: the same file gives other "
        "results there.",
        "Use reduce_range (7-bit weights), uint8 weights, or int8 activations.",
        "share of adjacent products a0·w0 + a1·w1 outside int16, from codes and weights",
    ),
    (
        "RUNTIME_INT8_COMPUTE",
        "runtime and device",
        "the runtime computes a weight-only operator with 8-bit activations",
        "MatMulNBits with accuracy_level 4 quantizes its activations to int8: an error that no weight comparison sees.",
        "Set accuracy_level to 0 or 1 where accuracy matters more than speed.",
        "the accuracy_level attribute; with data the measured difference",
    ),
    (
        "RUNTIME_REFUSES",
        "runtime and device",
        "the runtime will not run the file, or only without optimisation",
        "It can't be deployed as it is.",
        "See the runtime's message; often an opset or an operator type.",
        "creating a session",
    ),
    (
        "DEVICE_DIFFERS",
        "runtime and device",
        "host and device codes differ beyond rounding",
        "The host's check says little about the board.",
        "Compare on the device.",
        "integer codes of both, element by element",
    ),
    (
        "DATA_NARROW_CALIBRATION",
        "data",
        "ranges come from data that does not show what validation shows",
        "Real inputs are clipped from the first layers on.",
        "Calibrate with data like the real one, and more of it.",
        "calibration range against validation range per value",
    ),
    (
        "DATA_LABELS",
        "data",
        "labels do not fit even the float model",
        "Accuracy says nothing while labels are shifted or shuffled.",
        "Check label order and offset.",
        "accuracy of the float model, also under shifted labels",
    ),
    (
        "DATA_UNLIKE",
        "data",
        "data does not look like what the first layer expects",
        "Normalised twice, not at all, or with other channel order.",
        "Apply the preprocessing of training.",
        "input statistics against the first quantizer's range",
    ),
    (
        "DATA_REUSED",
        "data",
        "calibration and validation are the same",
        "The figures flatter the quantized model.",
        "Validate with samples that calibration did not see.",
        "digests of samples",
    ),
    (
        "DATA_RANDOM",
        "data",
        "random data: ranges and accuracy say little",
        "Networks behave otherwise on noise than on their own inputs.",
        "Give real samples.",
        "the --data option",
    ),
)

CATALOGUE: dict[str, Entry] = {row[0]: Entry(*row) for row in _TABLE}

"""Vector operations as LLVM code: what `_simd.py` is written in.

The code is written for 16 lanes; LLVM splits them where registers are narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visualquant.kernels._jit import cgutils, ir

LANES = 16

FLOAT = ir.FloatType()
INT = ir.IntType(32)
LONG = ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(INT, LANES)
SHORTS = ir.VectorType(ir.IntType(16), LANES)
BYTES = ir.VectorType(ir.IntType(8), LANES)
INFINITY = float("inf")
_FLAGS = ("reassoc", "contract", "nsz")


def splat_constant(value: float) -> Any:
    """A constant in every lane."""
    return ir.Constant(VECTOR, [value] * LANES)


def _order(indices: list[int]) -> Any:
    return ir.Constant(ir.VectorType(INT, LANES), indices)


class Emitter:
    """Vector operations on one IR builder."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def call(self, name: str, *args: Any) -> Any:
        """The result of an LLVM intrinsic whose operands and result have one type."""
        kind = ir.FunctionType(args[0].type, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), list(args))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c, rounded once."""
        return self.call("llvm.fma.v16f32", a, b, c)

    def magnitude(self, a: Any) -> Any:
        """|a|."""
        return self.call("llvm.fabs.v16f32", a)

    def add(self, a: Any, b: Any) -> Any:
        """A + b; sums may be reordered."""
        return self.b.fadd(a, b, flags=_FLAGS)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of each lane; b where one is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        """The smaller of each lane; b where one is NaN."""
        return self.b.select(self.b.fcmp_ordered("<", a, b), a, b)

    def bytes_limit(self, order: str, a: Any, b: Any) -> Any:
        """The lower or higher of each lane of int8."""
        return self.b.select(self.b.icmp_signed(order, a, b), a, b)

    def splat(self, scalar: Any) -> Any:
        """A scalar in every lane."""
        none = ir.Constant(VECTOR, ir.Undefined)
        first = self.b.insert_element(none, scalar, INT(0))
        return self.b.shuffle_vector(first, none, _order([0] * LANES))

    def splat_bytes(self, scalar: Any) -> Any:
        """An int8 in every lane."""
        none = ir.Constant(BYTES, ir.Undefined)
        first = self.b.insert_element(none, scalar, INT(0))
        return self.b.shuffle_vector(first, none, _order([0] * LANES))

    def load(self, pointer: Any, kind: Any, align: int) -> Any:
        """A vector from memory."""
        return self.b.load(self.b.bitcast(pointer, ir.PointerType(kind)), align=align)

    def store(self, value: Any, pointer: Any, align: int = 4) -> None:
        """A vector to memory."""
        self.b.store(value, self.b.bitcast(pointer, ir.PointerType(value.type)), align=align)

    def subtract(self, a: Any, b: Any) -> Any:
        """A − b."""
        return self.b.fsub(a, b, flags=_FLAGS)

    def count(self, mask: Any) -> Any:
        """How many lanes of a mask are set."""
        bits = self.b.bitcast(mask, ir.IntType(LANES))
        return self.b.zext(self.call("llvm.ctpop.i16", bits), LONG)

    def zeros(self, a: Any) -> Any:
        """How many lanes are 0."""
        return self.count(self.b.fcmp_ordered("==", a, splat_constant(0.0)))

    def tree(self, combine: Any, vectors: list[Any]) -> Any:
        """One vector whose lane k is vector k, combined over its lanes."""
        groups = range(0, LANES, 4)
        steps = [
            # halves of each 128-bit lane interleaved by element, then by pair, then whole lanes side by side
            ([v for g in groups for v in (g, LANES + g, g + 1, LANES + g + 1)], 2),
            ([v for g in groups for v in (g, g + 1, LANES + g, LANES + g + 1)], 2),
            ([v for g in range(0, 2 * LANES, 8) for v in range(g, g + 4)], 4),
            ([v for g in range(0, 2 * LANES, 8) for v in range(g, g + 4)], 4),
        ]
        for order, distance in steps:
            low, high = _order(order), _order([v + distance for v in order])
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [combine(self.b.shuffle_vector(a, c, low), self.b.shuffle_vector(a, c, high)) for a, c in pairs]
        return vectors[0]

    def horizontal(self, combine: Any, vector: Any) -> Any:
        """All lanes combined."""
        none = ir.Constant(VECTOR, ir.Undefined)
        width = LANES
        while width > 1:
            width //= 2
            turned = [(lane + width) % LANES for lane in range(LANES)]
            vector = combine(vector, self.b.shuffle_vector(vector, none, _order(turned)))
        return self.b.extract_element(vector, INT(0))


class Sums:
    """Running figures of a tile, kept in stack slots that LLVM turns into registers.

    Figures are named by numbers, which are also their places in the result. How one is combined and what it starts
    with follows from its kind: "add", "min", "max", "count", and "code_min", "code_max" (bytes where codes are bytes).
    """

    def __init__(self, emitter: Emitter, kinds: Mapping[int, str], from_bytes: bool) -> None:
        self.e = emitter
        self.kinds = kinds
        self.from_bytes = from_bytes
        self.slots = {name: cgutils.alloca_once_value(emitter.b, self._start(kind)) for name, kind in kinds.items()}

    def _start(self, kind: str) -> Any:
        if kind == "count":
            return LONG(0)
        if kind.startswith("code") and self.from_bytes:
            return ir.Constant(BYTES, [127 if kind == "code_min" else -128] * LANES)
        return splat_constant(INFINITY if kind.endswith("min") else -INFINITY if kind.endswith("max") else 0.0)

    def _combine(self, name: int) -> Any:
        kind, e = self.kinds[name], self.e
        if kind == "count":
            return e.b.add
        if kind.startswith("code") and self.from_bytes:
            order = "<" if kind == "code_min" else ">"
            return lambda a, b: e.bytes_limit(order, a, b)
        return e.smaller if kind.endswith("min") else e.larger if kind.endswith("max") else e.add

    def update(self, name: int, value: Any) -> None:
        """Takes a vector (or a count) in."""
        self.e.b.store(self._combine(name)(value, self.e.b.load(self.slots[name])), self.slots[name])

    def multiply_add(self, name: int, a: Any, b: Any) -> None:
        """Adds a·b, rounded once."""
        self.e.b.store(self.e.fma(a, b, self.e.b.load(self.slots[name])), self.slots[name])

    def absorb(self, other: Sums) -> None:
        """Takes in the figures of another set of the same kinds."""
        for name, slot in other.slots.items():
            self.update(name, self.e.b.load(slot))

    def write(self, totals: Any) -> None:
        """Stores the horizontal results as float32."""
        e, b = self.e, self.e.b
        for name, slot in self.slots.items():
            value, kind = b.load(slot), self.kinds[name]
            if kind == "count":
                result = b.sitofp(value, FLOAT)
            else:
                if kind.startswith("code") and self.from_bytes:
                    value = b.sitofp(b.sext(value, INTS), VECTOR)
                combine = e.smaller if kind.endswith("min") else e.larger if kind.endswith("max") else e.add
                result = e.horizontal(combine, value)
            b.store(result, b.gep(totals, [LONG(name)]))

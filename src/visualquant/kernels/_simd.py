"""One loop in explicit vector code, where the compiler's own vectorizer gives up.

A block of 32 elements needs two horizontal sums, which cost more than all other work on it. Here 16 blocks are
kept as 16 vectors and summed by a tree of 15 pairwise shuffles instead of 16 times four steps each. The code is
written for 16 lanes; LLVM splits them where registers are narrower.
"""

from __future__ import annotations

from typing import Any

from visualquant.kernels._jit import JIT, cgutils, ir
from visualquant.kernels._jit import numba_intrinsic as intrinsic
from visualquant.kernels._jit import numba_types as types

LANES = 16
PIECE = 32  # elements of one straight run: two vectors
GROUP = 16  # pieces of one call of the tree
# Where sums of a tile stand in `totals`.
X_SUM, E_SUM, E_ABS, CROSS, X_MIN, X_MAX, Y_MIN, Y_MAX, X_ZEROS, Y_ZEROS, D_MIN, D_MAX = range(12)
X_SQ, E_SQ, SCALED, E_MAX, EXCESS = range(12, 17)
TOTALS = 17

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTS = ir.VectorType(_INT, LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_FLAGS = ("reassoc", "contract", "nsz")
_INFINITY = float("inf")


def _splat_constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [value] * LANES)


def _order(indices: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT, LANES), indices)


class _Emitter:
    """Vector operations on one IR builder."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def call(self, name: str, *args: Any) -> Any:
        kind = ir.FunctionType(args[0].type, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), list(args))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("llvm.fma.v16f32", a, b, c)

    def magnitude(self, a: Any) -> Any:
        return self.call("llvm.fabs.v16f32", a)

    def add(self, a: Any, b: Any) -> Any:
        return self.b.fadd(a, b, flags=_FLAGS)

    def larger(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.fcmp_ordered("<", a, b), a, b)

    def bytes_limit(self, order: str, a: Any, b: Any) -> Any:
        return self.b.select(self.b.icmp_signed(order, a, b), a, b)

    def splat(self, scalar: Any) -> Any:
        none = ir.Constant(_VECTOR, ir.Undefined)
        first = self.b.insert_element(none, scalar, _INT(0))
        return self.b.shuffle_vector(first, none, _order([0] * LANES))

    def load(self, pointer: Any, kind: Any, align: int) -> Any:
        return self.b.load(self.b.bitcast(pointer, ir.PointerType(kind)), align=align)

    def store(self, value: Any, pointer: Any) -> None:
        self.b.store(value, self.b.bitcast(pointer, ir.PointerType(value.type)), align=4)

    def zeros(self, a: Any) -> Any:
        mask = self.b.bitcast(self.b.fcmp_ordered("==", a, _splat_constant(0.0)), ir.IntType(LANES))
        return self.b.zext(self.call("llvm.ctpop.i16", mask), _LONG)

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
        none = ir.Constant(_VECTOR, ir.Undefined)
        width = LANES
        while width > 1:
            width //= 2
            turned = [(lane + width) % LANES for lane in range(LANES)]
            vector = combine(vector, self.b.shuffle_vector(vector, none, _order(turned)))
        return self.b.extract_element(vector, _INT(0))


class _Sums:
    """Running sums of a tile, kept in stack slots that LLVM turns into registers."""

    def __init__(self, emitter: _Emitter, from_bytes: bool) -> None:
        self.e = emitter
        self.from_bytes = from_bytes
        start = dict.fromkeys((X_MIN, Y_MIN, D_MIN), _INFINITY)
        start |= dict.fromkeys((X_MAX, Y_MAX, D_MAX, EXCESS), -_INFINITY)
        self.slots = {}
        for name in range(TOTALS):
            value = _splat_constant(start.get(name, 0.0))
            if name in (X_ZEROS, Y_ZEROS):
                value = _LONG(0)
            elif name in (D_MIN, D_MAX) and from_bytes:
                value = ir.Constant(_BYTES, [127 if name == D_MIN else -128] * LANES)
            self.slots[name] = cgutils.alloca_once_value(emitter.b, value)

    def update(self, name: int, combine: Any, value: Any) -> None:
        self.e.b.store(combine(value, self.e.b.load(self.slots[name])), self.slots[name])

    def write(self, totals: Any) -> None:
        """Stores the horizontal results as float32."""
        e, b = self.e, self.e.b
        combine = dict.fromkeys((X_MIN, Y_MIN, D_MIN), e.smaller)
        combine |= dict.fromkeys((X_MAX, Y_MAX, D_MAX, E_MAX, EXCESS), e.larger)
        for name, slot in self.slots.items():
            value = b.load(slot)
            if name in (X_ZEROS, Y_ZEROS):
                result = b.sitofp(value, _FLOAT)
            else:
                if value.type == _BYTES:
                    value = b.sitofp(b.sext(value, _INTS), _VECTOR)
                result = e.horizontal(combine.get(name, e.add), value)
            b.store(result, b.gep(totals, [_LONG(name)]))


def _half_piece(e: _Emitter, sums: _Sums, x: Any, d: Any, s: Any, z: Any) -> tuple[Any, Any, Any]:
    """16 elements: updates the sums of the tile, returns x, e and |e|."""
    b = e.b
    v = e.load(x, _VECTOR, 4)
    if sums.from_bytes:
        code = e.load(d, _BYTES, 1)
        sums.update(D_MIN, lambda p, q: e.bytes_limit("<", p, q), code)
        sums.update(D_MAX, lambda p, q: e.bytes_limit(">", p, q), code)
        value = b.sitofp(b.sext(code, _INTS), _VECTOR)
    else:
        value = e.load(d, _VECTOR, 4)
        sums.update(D_MIN, e.smaller, value)
        sums.update(D_MAX, e.larger, value)
    back = b.fsub(value, z, flags=_FLAGS)
    error = e.fma(b.fneg(back), s, v)
    y = b.fmul(back, s)
    size = e.magnitude(error)
    sums.update(X_SUM, e.add, v)
    sums.update(E_SUM, e.add, error)
    sums.update(E_ABS, e.add, size)
    sums.update(CROSS, lambda p, q: e.fma(v, p, q), error)
    sums.update(X_MIN, e.smaller, v)
    sums.update(X_MAX, e.larger, v)
    sums.update(Y_MIN, e.smaller, y)
    sums.update(Y_MAX, e.larger, y)
    sums.update(X_ZEROS, b.add, e.zeros(v))
    sums.update(Y_ZEROS, b.add, e.zeros(y))
    return v, error, size


def _emit_tile(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    e = _Emitter(builder)
    b = builder
    views = [
        context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, args, strict=True)
    ]
    x, first, d, first_code, s, z, limits, groups, out, first_out, totals = views
    x_data, d_data = b.gep(x.data, [first]), b.gep(d.data, [first_code])
    sums = _Sums(e, signature.args[2].dtype == types.int8)
    rows = [cgutils.alloca_once(b, _VECTOR, size=GROUP) for _ in range(2)]
    out_row = b.sdiv(b.extract_value(out.strides, 0), _LONG(4))
    with cgutils.for_range(b, groups) as outer:
        base = b.mul(outer.index, _LONG(GROUP))
        with cgutils.for_range(b, _LONG(GROUP)) as inner:
            piece = b.add(base, inner.index)
            start = b.mul(piece, _LONG(PIECE))
            scale = e.splat(b.load(b.gep(s.data, [piece])))
            zero = e.splat(b.load(b.gep(z.data, [piece])))
            halves = []
            for half in (0, LANES):
                at = b.add(start, _LONG(half))
                halves.append(_half_piece(e, sums, b.gep(x_data, [at]), b.gep(d_data, [at]), scale, zero))
            (v0, e0, m0), (v1, e1, m1) = halves
            worst = e.larger(m0, m1)
            sums.update(E_MAX, e.larger, worst)
            sums.update(EXCESS, e.larger, b.fsub(worst, e.splat(b.load(b.gep(limits.data, [piece])))))
            squares = e.fma(v1, v1, b.fmul(v0, v0)), e.fma(e1, e1, b.fmul(e0, e0))
            for row, value in zip(rows, squares, strict=True):
                b.store(value, b.gep(row, [inner.index]))
        results = []
        for k, row in enumerate(rows):
            results.append(e.tree(e.add, [b.load(b.gep(row, [_LONG(i)])) for i in range(GROUP)]))
            place = b.add(b.add(b.mul(out_row, _LONG(k)), first_out), base)
            e.store(results[k], b.gep(out.data, [place]))
        scales = e.load(b.gep(s.data, [base]), _VECTOR, 4)
        noise_in_steps = b.fdiv(results[1], b.fmul(scales, scales))
        sums.update(X_SQ, e.add, results[0])
        sums.update(E_SQ, e.add, results[1])
        sums.update(SCALED, e.add, noise_in_steps)
    sums.write(totals.data)
    return context.get_dummy_value()


def _typed_tile(
    typing: Any,
    x: Any,
    first: Any,
    d: Any,
    first_code: Any,
    s: Any,
    z: Any,
    limits: Any,
    groups: Any,
    out: Any,
    first_out: Any,
    totals: Any,
) -> Any:
    del typing
    return types.void(x, first, d, first_code, s, z, limits, groups, out, first_out, totals), _emit_tile


def _no_tile(*args: Any) -> None:
    del args
    raise AssertionError("without compilation there are no vector tiles: see HAS_TILES")


# block_tile(x, first, d, first_code, s, z, limits, groups, out, first_out, totals): sums of 16·groups pieces of 32
# elements of x from x[first] against d from d[first_code], each piece with its scale s, zero point z and limit of
# |e| (float32 [pieces]). out[0..1, first_out + piece] = Σx², Σe² (float32 [2, n], rows contiguous); totals = sums
# of the whole tile by the names above, float32; EXCESS is the largest |e| − limit.
block_tile: Any = intrinsic(_typed_tile) if JIT else _no_tile
HAS_TILES = JIT

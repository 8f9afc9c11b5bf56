"""Sums, extrema and counts that merge: of one float tensor, and of the error of another against it.

Every field is a numpy array of one common shape: `()` for a whole tensor, `[C]` for its channels. `merge` is
associative and has an identity; float sums are associative up to rounding, so whoever needs the same bits
merges in a fixed order (see kernels/driver.py).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOWEST_CODE = np.iinfo(np.int64).min
HIGHEST_CODE = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TensorStats:
    """Counts, extrema and sums of a float tensor, over elements that are finite (and whose partner is).

    Attributes:
        count: int64, elements that were summed.
        zeros: int64, of these equal to 0.
        minimum, maximum: float64; +inf and -inf where count is 0.
        sum, sum_sq: float64, Σx and Σx².
    """

    count: IntArray
    zeros: IntArray
    minimum: FloatArray
    maximum: FloatArray
    sum: FloatArray
    sum_sq: FloatArray

    @staticmethod
    def identity(shape: tuple[int, ...] = ()) -> TensorStats:
        """Statistics of nothing: `identity(s).merge(a)` equals `a`."""
        zero, none = np.zeros(shape), np.zeros(shape, np.int64)
        return TensorStats(none, none, np.full(shape, np.inf), np.full(shape, -np.inf), zero, zero)

    def merge(self, other: TensorStats) -> TensorStats:
        """Statistics of both parts together, element by element of the arrays."""
        return TensorStats(
            self.count + other.count,
            self.zeros + other.zeros,
            np.minimum(self.minimum, other.minimum),
            np.maximum(self.maximum, other.maximum),
            self.sum + other.sum,
            self.sum_sq + other.sum_sq,
        )

    def total(self) -> TensorStats:
        """All channels together, shape ()."""
        return TensorStats(
            np.asarray(self.count.sum()),
            np.asarray(self.zeros.sum()),
            np.asarray(self.minimum.min(initial=np.inf)),
            np.asarray(self.maximum.max(initial=-np.inf)),
            np.asarray(self.sum.sum()),
            np.asarray(self.sum_sq.sum()),
        )

    def max_abs(self) -> FloatArray:
        """max|x|; 0 where count is 0."""
        return np.where(self.count > 0, np.maximum(np.abs(self.minimum), np.abs(self.maximum)), 0.0)

    def rms(self) -> FloatArray:
        """√(Σx²/n); 0 where count is 0."""
        out: FloatArray = np.sqrt(self.sum_sq / np.maximum(self.count, 1))
        return out


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClipStats:
    """Elements at one end of the codes whose error points outward by more than half a step.

    The end is the lowest (or highest) code that OCCURS in the scale group, so a part of a group knows it only
    for itself: on merging, the part with the more extreme code wins and equal codes add up.

    Attributes:
        code: int64, the extreme code seen; the identity is the code that no other loses against.
        count: int64, elements clipped there.
        sum_sq: float64, Σe² over them.
    """

    code: IntArray
    count: IntArray
    sum_sq: FloatArray

    @staticmethod
    def identity(shape: tuple[int, ...] = (), *, low: bool) -> ClipStats:
        """Nothing seen yet."""
        code = np.full(shape, HIGHEST_CODE if low else LOWEST_CODE, np.int64)
        return ClipStats(code, np.zeros(shape, np.int64), np.zeros(shape))

    def merge(self, other: ClipStats, *, low: bool) -> ClipStats:
        """Both parts together."""
        code = np.minimum(self.code, other.code) if low else np.maximum(self.code, other.code)
        mine, theirs = self.code == code, other.code == code
        return ClipStats(
            code,
            np.where(mine, self.count, 0) + np.where(theirs, other.count, 0),
            np.where(mine, self.sum_sq, 0.0) + np.where(theirs, other.sum_sq, 0.0),
        )

    def lost_to(self, whole: ClipStats) -> FloatArray:
        """Σe² that counted as clipped here, but lies at a code that is not the extreme one of the whole."""
        out: FloatArray = np.where(self.code == whole.code, 0.0, self.sum_sq)
        return out

    def settle(self, code: IntArray | int) -> ClipStats:
        """Only what was clipped at `code`, the extreme code of the whole scale group."""
        ours = self.code == code
        return ClipStats(self.code, np.where(ours, self.count, 0), np.where(ours, self.sum_sq, 0.0))

    def total(self) -> ClipStats:
        """All channels together, after `settle`."""
        return ClipStats(np.asarray(np.int64(0)), np.asarray(self.count.sum()), np.asarray(self.sum_sq.sum()))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ErrorStats:
    """Sums over e = x − x̂, over pairs in which both are finite.

    Attributes:
        count: int64, pairs.
        sum, sum_abs, sum_sq: float64, Σe, Σ|e|, Σe².
        max_abs: float64, max|e|; 0 where count is 0.
        dot: float64, Σx·x̂.
        scaled_count, scaled_sq: int64 and float64, pairs whose scale is finite and not 0, and Σ(e/scale)².
        non_finite_float, non_finite_quant: int64, elements of x (of x̂) that are NaN or infinite.
        clipped_low, clipped_high: see `ClipStats`.
        unclipped_sq: float64, Σe² over elements that are not clipped.
    """

    count: IntArray
    sum: FloatArray
    sum_abs: FloatArray
    sum_sq: FloatArray
    max_abs: FloatArray
    dot: FloatArray
    scaled_count: IntArray
    scaled_sq: FloatArray
    non_finite_float: IntArray
    non_finite_quant: IntArray
    clipped_low: ClipStats
    clipped_high: ClipStats
    unclipped_sq: FloatArray

    @staticmethod
    def identity(shape: tuple[int, ...] = ()) -> ErrorStats:
        """Statistics of nothing."""
        zero, none = np.zeros(shape), np.zeros(shape, np.int64)
        low, high = ClipStats.identity(shape, low=True), ClipStats.identity(shape, low=False)
        return ErrorStats(none, zero, zero, zero, zero, zero, none, zero, none, none, low, high, zero)

    def merge(self, other: ErrorStats) -> ErrorStats:
        """Statistics of both parts together, element by element of the arrays."""
        low = self.clipped_low.merge(other.clipped_low, low=True)
        high = self.clipped_high.merge(other.clipped_high, low=False)
        demoted = [
            side.lost_to(whole) + partner.lost_to(whole)
            for side, partner, whole in (
                (self.clipped_low, other.clipped_low, low),
                (self.clipped_high, other.clipped_high, high),
            )
        ]
        return ErrorStats(
            self.count + other.count,
            self.sum + other.sum,
            self.sum_abs + other.sum_abs,
            self.sum_sq + other.sum_sq,
            np.maximum(self.max_abs, other.max_abs),
            self.dot + other.dot,
            self.scaled_count + other.scaled_count,
            self.scaled_sq + other.scaled_sq,
            self.non_finite_float + other.non_finite_float,
            self.non_finite_quant + other.non_finite_quant,
            low,
            high,
            self.unclipped_sq + other.unclipped_sq + demoted[0] + demoted[1],
        )

    def settle(self, low_code: IntArray | int, high_code: IntArray | int) -> ErrorStats:
        """Clip counts against the extreme codes of the whole scale group (see `ClipStats.settle`)."""
        low, high = self.clipped_low.settle(low_code), self.clipped_high.settle(high_code)
        rest = self.unclipped_sq + (self.clipped_low.sum_sq - low.sum_sq) + (self.clipped_high.sum_sq - high.sum_sq)
        return dataclasses.replace(self, clipped_low=low, clipped_high=high, unclipped_sq=rest)

    def total(self) -> ErrorStats:
        """All channels together, shape (); clip counts must be settled."""
        return ErrorStats(
            np.asarray(self.count.sum()),
            np.asarray(self.sum.sum()),
            np.asarray(self.sum_abs.sum()),
            np.asarray(self.sum_sq.sum()),
            np.asarray(self.max_abs.max(initial=0.0)),
            np.asarray(self.dot.sum()),
            np.asarray(self.scaled_count.sum()),
            np.asarray(self.scaled_sq.sum()),
            np.asarray(self.non_finite_float.sum()),
            np.asarray(self.non_finite_quant.sum()),
            self.clipped_low.total(),
            self.clipped_high.total(),
            np.asarray(self.unclipped_sq.sum()),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RoundingEvidence:
    """What the codes say about how they were rounded; e/s is the error in steps.

    Attributes:
        elements: pairs with a usable scale and integer codes.
        over_low, over_high: elements with e/s below −½ (above +½) by more than 1e-3, clipped ones included.
        clipped_low, clipped_high: of these, clipped ones.
        far: elements beyond 2.5 steps, clipped ones included.
        negative: elements with e/s < −1e-3 in tiles that hold an element over half a step.
        ties_even, ties_away: exact ties on which the two rules differ, by the rule that the code follows.
    """

    elements: int = 0
    over_low: int = 0
    over_high: int = 0
    clipped_low: int = 0
    clipped_high: int = 0
    far: int = 0
    negative: int = 0
    ties_even: int = 0
    ties_away: int = 0

    def merge(self, other: RoundingEvidence) -> RoundingEvidence:
        """Both parts together."""
        names = [field.name for field in dataclasses.fields(self)]
        return RoundingEvidence(*(getattr(self, name) + getattr(other, name) for name in names))

    def rule(self) -> str:
        """half_even, half_away, floor, learned, or unknown.

        Ties decide between the two nearest rules; where no tie occurs both give the same codes, and the
        standard's own rule (half_even) is named. `learned` means errors above half a step in both directions but
        near (AdaRound, GPTQ and the like); errors of many steps are another tensor, not a rounding rule.
        """
        low = self.over_low - self.clipped_low
        high = self.over_high - self.clipped_high
        beyond = low + high
        clipped = self.clipped_low + self.clipped_high
        if self.elements - clipped <= 0:
            return "unknown"
        if beyond <= 1e-3 * self.elements:
            return "half_away" if self.ties_away > self.ties_even else "half_even"
        if max(self.far - clipped, 0) > 0.01 * self.elements:
            return "unknown"
        if low == 0 and self.negative - self.clipped_low <= 0:
            return "floor"
        return "learned" if low > 0 and high > 0 else "unknown"

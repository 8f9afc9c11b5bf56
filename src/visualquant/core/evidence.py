"""What running both models on the same samples says about which values are the same."""

from __future__ import annotations

import dataclasses

from visualquant.core.graph import ValueId


@dataclasses.dataclass(frozen=True, slots=True)
class ActivationEvidence:
    """Measured likeness of values, compared in the float domain (after Q and DQ).

    Attributes:
        same: (float value, quant value, correlation) that agree over the samples; only pairs where each is the other's
            best, best first.
        different: (float value, quant value) that were compared and do not agree.
        samples: how many samples were run.
    """

    same: tuple[tuple[ValueId, ValueId, float], ...] = ()
    different: frozenset[tuple[ValueId, ValueId]] = frozenset()
    samples: int = 0

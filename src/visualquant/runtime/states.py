"""Recurrent states: what a model gives at one step, it takes at the next; each model its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from visualquant.errors import InputError
from visualquant.runtime.feeds import Batch

Array = npt.NDArray[Any]
Names = tuple[str, ...]


class States:
    """The states of a float and a quantized model that run side by side."""

    def __init__(
        self, state: Mapping[str, str], partner: Mapping[str, str], float_outputs: Names, quant_outputs: Names
    ) -> None:
        """Finds the quantized model's inputs and outputs of each state.

        Args:
            state: float output by the float input that takes it.
            partner: float input by quant input.
            float_outputs: names in order.
            quant_outputs: names in order.

        Raises:
            InputError: an output does not exist.
        """
        self._pairs: tuple[dict[str, str], dict[str, str]] = dict(state), {}
        self._kept: tuple[dict[str, Array], dict[str, Array]] = {}, {}
        back = {f: q for q, f in partner.items()}
        for name, output in state.items():
            if output not in float_outputs:
                listed = ", ".join(map(repr, float_outputs))
                raise InputError(f"--state: the float model has no output {output!r} (it has {listed}).")
            if name not in back:
                continue
            place = float_outputs.index(output)
            theirs = output if output in quant_outputs else quant_outputs[place : place + 1]
            if not theirs:
                raise InputError(f"--state: the quantized model has no output that matches {output!r}.")
            self._pairs[1][back[name]] = theirs if isinstance(theirs, str) else theirs[0]

    @property
    def outputs(self) -> frozenset[str]:
        """The float model's outputs that are states."""
        return frozenset(self._pairs[0].values())

    def applied(self, batch: Batch) -> Batch:
        """The batch with the states that the step before ended with; the first step of a sequence starts anew."""
        if batch.step == 0 or not self._kept[0]:
            return batch
        return dataclasses.replace(
            batch, float_feeds=batch.float_feeds | self._kept[0], quant_feeds=batch.quant_feeds | self._kept[1]
        )

    def keep(self, float_outputs: Mapping[str, Array], quant_outputs: Mapping[str, Array]) -> None:
        """Takes note of the states that a step ended with."""
        for pairs, kept, outputs in zip(self._pairs, self._kept, (float_outputs, quant_outputs), strict=True):
            kept.update({name: np.ascontiguousarray(outputs[output]) for name, output in pairs.items()})

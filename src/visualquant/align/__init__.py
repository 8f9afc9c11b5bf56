"""Finds which nodes of two graphs do the same thing, and what was fused or decomposed between them."""

from visualquant.align.engine import align

__all__ = ["align"]

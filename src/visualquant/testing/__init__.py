"""Helpers for authors of readers: model builders, strategies, conformance classes."""

"""Renderers of the one report."""

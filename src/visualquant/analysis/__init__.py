"""Measures and findings."""

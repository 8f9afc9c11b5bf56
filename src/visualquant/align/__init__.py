"""Alignment of two graphs by meaning."""

"""Layered drawing of a graph: positions for the window, HTML and the archive."""

"""Frozen types that every layer shares: no models, no files formats, arrays only."""

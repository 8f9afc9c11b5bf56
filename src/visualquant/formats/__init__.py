"""Container and scheme readers."""

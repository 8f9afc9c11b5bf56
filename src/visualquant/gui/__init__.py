"""The window: the only place that imports Dear PyGui; one panel a file."""

"""The device side of visualquant: runs models and streams what happened."""

"""Runners: where models are executed."""

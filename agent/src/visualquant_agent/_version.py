"""The version of the device distribution."""

__version__ = "0.1.0"

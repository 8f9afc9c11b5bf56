"""The version of the host distribution, read by hatchling and by the command line without any import."""

__version__ = "0.1.0"

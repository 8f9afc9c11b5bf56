"""The exception tree.

::

    VisualQuantError                exit code 2 unless stated
    ├── UsageError                  wrong options or arguments
    ├── InputError                  bad input: what is wrong, where, what to do
    │   ├── ModelFileError          the file is not a readable model            (also ValueError)
    │   ├── ExternalDataError       tensor data missing, short or out of bounds (also ValueError)
    │   └── ArchiveError            a .vqz file is damaged or too new           (also ValueError)
    ├── DeviceError                 device or network failure, exit code 3      (also ConnectionError)
    └── CancelledError              the user stopped the work, exit code 130

Messages are one paragraph for a person: what is wrong, where, and what to do. Errors outside this
tree are faults of visualquant itself.
"""

from __future__ import annotations


class VisualQuantError(Exception):
    """Base of every error that a user can cause or cure."""

    exit_code = 2


class UsageError(VisualQuantError, ValueError):
    """Wrong options or arguments."""


class InputError(VisualQuantError):
    """Input that cannot be used."""


class ModelFileError(InputError, ValueError):
    """A file that is not a readable model."""


class ExternalDataError(InputError, ValueError):
    """Tensor data in another file that is missing, too short, or outside the allowed folder."""


class ArchiveError(InputError, ValueError):
    """A .vqz file that is damaged, hostile, or written by a newer version."""


class DeviceError(VisualQuantError, ConnectionError):
    """A device or the network failed."""

    exit_code = 3


class CancelledError(VisualQuantError):
    """The user stopped the work."""

    exit_code = 130

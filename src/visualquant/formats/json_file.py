"""JSON files as Python objects, with one sentence where they are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from visualquant.errors import ModelFileError


def read_json(path: Path, what: str) -> Any:
    """The parsed file.

    Raises:
        ModelFileError: it can't be opened, or is no JSON; `what` names what was expected.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} can't be opened: {error.strerror}. Check the path.") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path.name!r} is not {what}: it is no readable JSON ({error}). It may be cut short; export it again."
        ) from error

"""The exception for Ctrl-C, with the results so far."""

from typing import Any

__all__ = ["Stopped"]


class Stopped(KeyboardInterrupt):
    """Ctrl-C ended a simulation or a sweep."""

    partial: Any
    """Results so far: a `Report` for a simulation, the DataFrame of complete rows for a sweep."""

"""Ctrl-C, with what there was by then."""

from typing import Any

__all__ = ["Stopped"]


class Stopped(KeyboardInterrupt):
    """Ctrl-C came while a simulation or a sweep was computed."""

    partial: Any
    """What there was by then: of a simulation a `Report`, of a sweep the rows that were complete."""

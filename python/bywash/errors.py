"""What can go wrong on a path, with a flow or with a plan.

All but misuse (ValueError, TypeError, BufferError) is an `Error`.
"""

from .records import Report

__all__ = [
    "Cancelled",
    "Closed",
    "DataError",
    "DescriptionError",
    "Error",
    "ForkedError",
    "IoError",
    "LostError",
    "MisfitError",
    "NotMappedError",
    "OptionError",
    "PeerDied",
    "PiecesError",
    "ProgramError",
    "ProtocolError",
    "TimedOut",
    "TooLargeError",
    "UnfitError",
]


class Error(OSError):
    """Something on a path, with a flow or with a plan went wrong."""

    report: Report | None = None
    """How far a flow came that was started and has failed; None for all else."""


class TimedOut(Error, TimeoutError):
    """It did not happen within the time that was given."""


class Closed(Error):
    """The peer has closed the path, and everything that it had shipped has been received."""


class PeerDied(Error):
    """The peer is gone without having closed the path."""

    pid: int
    """Its process, as the kernel knew it when the path was made."""


class ProtocolError(Error):
    """The peer did what no peer that keeps to the protocol does. The path is of no use any more."""

    pid: int
    """Its process."""


class MisfitError(Error):
    """The two ends cannot work together."""


class TooLargeError(Error, ValueError):
    """No container of this size can ever be had on this path."""


class PiecesError(Error, ValueError):
    """A message has from one to `MESSAGE_PIECES_MAX` containers (on sealed paths to 16)."""


class NotMappedError(Error, BufferError):
    """The contents cannot be looked at where they are."""


class UnfitError(Error, ValueError):
    """This container cannot be shipped on this path, or this mover cannot move this flow."""


class ForkedError(Error):
    """It belongs to the process that made it, and this one was forked off."""


class OptionError(Error, ValueError):
    """An option, or what a flow was told, is something that cannot be."""


class IoError(Error):
    """A call of the kernel failed; `errno` says how."""


class Cancelled(Error):
    """The flow was cancelled."""


class DataError(Error):
    """What a flow moved is not what it should be: shorter than it was, not compressed, not of the hash expected."""


class LostError(Error):
    """Datagrams were lost on the way."""


class ProgramError(Error):
    """A program that a flow went through failed."""


class DescriptionError(Error, ValueError):
    """A description of a server says something that cannot be, in the line that the message names."""

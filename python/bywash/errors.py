"""What can go wrong on a path, with a flow, with a volume or with a plan.

All but misuse (ValueError, TypeError, BufferError) is an `Error`.
"""

from .records import Report

__all__ = [
    "BusyError",
    "Cancelled",
    "Closed",
    "DataError",
    "DeniedError",
    "DescriptionError",
    "DeviceError",
    "DiffersError",
    "Error",
    "ForkedError",
    "IdleError",
    "IoError",
    "LostError",
    "MisfitError",
    "MissingError",
    "NoRoomError",
    "NotMappedError",
    "OptionError",
    "PeerDied",
    "PiecesError",
    "ProgramError",
    "ProtocolError",
    "RangeError",
    "RefusedError",
    "RevokedError",
    "ServerGone",
    "TimedOut",
    "TooLargeError",
    "UnfitError",
    "UnknownError",
]


class Error(OSError):
    """Something on a path, with a flow, with a volume or with a plan went wrong."""

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
    """The peer did what no peer that keeps to the protocol does. The path, or connection, is of no use any more."""

    pid: int | None = None
    """Its process; None of a device server."""


class MisfitError(Error):
    """The two ends cannot work together."""


class TooLargeError(Error, ValueError):
    """No container or buffer of this size can ever be had here."""


class PiecesError(Error, ValueError):
    """A message has from one to `MESSAGE_PIECES_MAX` containers (on sealed paths to 16), a request to volumes from one
    to 32 pieces."""


class NotMappedError(Error, BufferError):
    """The contents cannot be looked at where they are, or the volume cannot be mapped."""


class UnfitError(Error, ValueError):
    """This container cannot be shipped on this path, this mover cannot move this flow, or something is of another client
    or queue."""


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


class NoRoomError(Error):
    """As many requests are under way as may be, or the arena is used up: reap first."""


class BusyError(Error):
    """It is in use: requests of the volume are under way, or callbacks reap the queue."""


class IdleError(Error):
    """Nothing is under way that could be waited for."""


class ServerGone(Error, ConnectionError):
    """The device server is gone: it ended, or cut the connection."""


class RefusedError(Error):
    """The device server refused what it was asked, for the reason that the message tells."""


class MissingError(RefusedError, FileNotFoundError):
    """There is no such volume or device."""


class DeniedError(RefusedError, PermissionError):
    """One may not do that with the volume, or it was not opened for that."""


class RevokedError(Error):
    """The right to the volume was taken back. Open it again, if that is still allowed."""


class RangeError(Error, ValueError):
    """Not whole blocks, not all within the volume, or lengths that do not fit together."""


class DeviceError(Error):
    """The device failed, has no room, did not answer the server in time, or cannot do that."""


class DiffersError(Error):
    """The bytes were not what was expected, and nothing was written."""


class UnknownError(Error):
    """The server went while it compared and wrote: whether it wrote is unknown. Read the blocks to see."""


class DescriptionError(Error, ValueError):
    """A description of a server says something that cannot be, in the line that the message names."""

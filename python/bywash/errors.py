"""Exceptions of paths, flows, volumes and plans.

All errors except misuse (ValueError, TypeError, BufferError) are subclasses of `Error`.
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
    "DisplayGone",
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
    "PredictionError",
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
    """Base class: an operation on a path, a flow, a volume or a plan failed."""

    report: Report | None = None
    """Report of a flow that was started and has failed; None for all other errors."""


class TimedOut(Error, TimeoutError):
    """The timeout expired."""


class Closed(Error):
    """The peer has closed the path, and all messages that it shipped have been received; or the user has closed the
    window."""


class PeerDied(Error):
    """The peer died without closing the path."""

    pid: int
    """Process number of the peer, as the kernel reported it when the path was made."""


class ProtocolError(Error):
    """The peer broke the protocol. The path or connection cannot be used any more."""

    pid: int | None = None
    """Process number of the peer; None for a device server."""


class MisfitError(Error):
    """The two ends of a path cannot work together, because their versions or options do not match."""


class TooLargeError(Error, ValueError):
    """The container or buffer is larger than the arena can ever hold."""


class PiecesError(Error, ValueError):
    """The number of containers or ranges is out of bounds: a message has 1 to `MESSAGE_PIECES_MAX` containers
    (on sealed paths 1 to 16), a request to volumes 1 to 32 ranges."""


class NotMappedError(Error, BufferError):
    """The bytes cannot be read in place, or the volume cannot be mapped."""


class UnfitError(Error, ValueError):
    """The container cannot be shipped on this path, the mover cannot move this flow, the object belongs to another
    client, queue or surface, or the display cannot show a surface."""


class ForkedError(Error):
    """The object belongs to the process that made it, and this process was forked from that one."""


class OptionError(Error, ValueError):
    """An option, or an argument of a flow, has an invalid value, or no display is named."""


class IoError(Error):
    """A system call failed; `errno` gives the reason."""


class Cancelled(Error):
    """The flow was cancelled."""


class DataError(Error):
    """The data of a flow is invalid: shorter than announced, not compressed, or not of the expected hash."""


class LostError(Error):
    """Datagrams of a flow were lost."""


class ProgramError(Error):
    """A program among the stages of a flow failed."""


class NoRoomError(Error):
    """The queue has as many requests in flight as it may, or the arena is full: reap first. Or the program holds all
    frames of the surface: present one."""


class BusyError(Error):
    """The volume has requests in flight, or callbacks reap the queue."""


class IdleError(Error):
    """No request is in flight that a call could wait for."""


class ServerGone(Error, ConnectionError):
    """The device server is gone: it ended, or closed the connection."""


class DisplayGone(Error, ConnectionError):
    """The display is gone: its server ended or closed the connection, or the screen was unplugged."""


class RefusedError(Error):
    """The device server or the display refused the request; the message gives the reason."""


class MissingError(RefusedError, FileNotFoundError):
    """No such volume or device exists."""


class DeniedError(RefusedError, PermissionError):
    """The operation on the volume is not permitted, or the volume was not opened for it."""


class RevokedError(Error):
    """The grant to the volume was revoked. Open the volume again, if that is still permitted."""


class RangeError(Error, ValueError):
    """The range is not whole blocks or not within the volume, or lengths do not fit together."""


class DeviceError(Error):
    """The device failed, is full, did not complete the server's command in time, or does not support the
    operation."""


class DiffersError(Error):
    """The volume did not hold the expected bytes, and nothing was written."""


class UnknownError(Error):
    """The server went during a compare-and-write, and it is unknown if the new bytes were written. Read the
    blocks to see."""


class DescriptionError(Error, ValueError):
    """A description of a server is invalid, in the line that the message names."""


class PredictionError(Error):
    """A program cannot be predicted: the machine does other work, the program fails or takes a different time each run,
    it cannot be recorded, or the command `bywash` is not there."""

"""Memory that moves between programs instead of being copied, and flows that move data by the best mover.

A program allocates a container on a path to another program, fills it and ships it. The other program
receives it, reads it or not, and ships it on or frees it.

    here, there = bywash.socket_pair()  # there: to another process, say of multiprocessing
    path = bywash.Path.over(here)       # there: bywash.Path.over(there)
    container = path.alloc(5)
    container.copy_from(b"hello")
    path.ship(container)                # there: path.receive().tobytes()

A flow moves data between files, sockets, pipes and programs:

    bywash.Flow("video.raw", "tcp:backup.example:9000", stages=["compress:zstd"]).run()

- `Path`, `Listener`, `socket_pair`: make a path between two programs
- `Container`, `Received`, `Message`: containers to fill, and containers received
- `Credentials`, `Stats`: credentials of a peer, and counters of a path; `MemoryRange`: memory of a container
- `Surface`, `Frame`, `SurfaceStats`: a window of a display, or a screen, and the memory to draw into
- `Pool`, `PoolContainer`: containers for a process that maps their memory by itself
- `Flow`, `Running`: a flow, and a flow that was started
- `Plan`, `Choice`, `Promises`, `Report`, `Piece`, `Hash`: plan of a flow, and report of its run
- `bywash.errors`: the exceptions, all subclasses of `Error`
- `bywash.aio`: receiving, reaping, and waiting for flows, in asyncio
- `bywash.serve`: volumes of a device server, by calls that wait and by queues that do not
- `bywash.plan`: performance prediction for servers, by a model and a simulator
"""

from collections.abc import Sequence as _Sequence

from ._bywash import (
    MESSAGE_PIECES_MAX,
    Container,
    Flow,
    Frame,
    Listener,
    Message,
    Path,
    Pool,
    PoolContainer,
    Received,
    Running,
    Surface,
    __version__,
    socket_pair,
)
from .errors import (
    BusyError,
    Cancelled,
    Closed,
    DataError,
    DeniedError,
    DescriptionError,
    DeviceError,
    DiffersError,
    DisplayGone,
    Error,
    ForkedError,
    IdleError,
    IoError,
    LostError,
    MisfitError,
    MissingError,
    NoRoomError,
    NotMappedError,
    OptionError,
    PeerDied,
    PiecesError,
    PredictionError,
    ProgramError,
    ProtocolError,
    RangeError,
    RefusedError,
    RevokedError,
    ServerGone,
    TimedOut,
    TooLargeError,
    UnfitError,
    UnknownError,
)
from .records import Choice, Credentials, Hash, MemoryRange, Piece, Plan, Promises, Report, Stats, SurfaceStats

__all__ = [
    "BusyError",
    "Cancelled",
    "Choice",
    "Closed",
    "Container",
    "Credentials",
    "DataError",
    "DeniedError",
    "DescriptionError",
    "DeviceError",
    "DiffersError",
    "DisplayGone",
    "Error",
    "Flow",
    "ForkedError",
    "Frame",
    "Hash",
    "IdleError",
    "IoError",
    "Listener",
    "LostError",
    "MESSAGE_PIECES_MAX",
    "MemoryRange",
    "Message",
    "MisfitError",
    "MissingError",
    "NoRoomError",
    "NotMappedError",
    "OptionError",
    "Path",
    "PeerDied",
    "Piece",
    "PiecesError",
    "Plan",
    "Pool",
    "PoolContainer",
    "PredictionError",
    "ProgramError",
    "Promises",
    "ProtocolError",
    "RangeError",
    "Received",
    "RefusedError",
    "Report",
    "RevokedError",
    "Running",
    "ServerGone",
    "Stats",
    "Surface",
    "SurfaceStats",
    "TimedOut",
    "TooLargeError",
    "UnfitError",
    "UnknownError",
    "__version__",
    "socket_pair",
]

_Sequence.register(Message)

"""Memory that moves between programs instead of being copied.

Data lives in containers. A program allocates one on a path to another program, fills it and ships it; the other
receives it, looks inside or does not, and ships it on or frees it.

    here, there = bywash.socket_pair()  # there: to another process, say of multiprocessing
    path = bywash.Path.over(here)       # there: bywash.Path.over(there)
    container = path.alloc(5)
    container.copy_from(b"hello")
    path.ship(container)                # there: path.receive().tobytes()

- `Path`, `Listener`, `socket_pair`: how two programs come together
- `Container`, `Received`, `Message`: what moves
- `Credentials`, `Stats`: what a path tells
- `bywash.errors`: what can go wrong, all of it an `Error`
- `bywash.aio`: receiving in asyncio
"""

from collections.abc import Sequence as _Sequence

from ._bywash import (
    MESSAGE_PIECES_MAX,
    Container,
    Listener,
    Message,
    Path,
    Received,
    __version__,
    socket_pair,
)
from .errors import (
    Closed,
    Error,
    ForkedError,
    IoError,
    MisfitError,
    NotMappedError,
    OptionError,
    PeerDied,
    PiecesError,
    ProtocolError,
    TimedOut,
    TooLargeError,
    UnfitError,
)
from .records import Credentials, Stats

__all__ = [
    "Closed",
    "Container",
    "Credentials",
    "Error",
    "ForkedError",
    "IoError",
    "Listener",
    "MESSAGE_PIECES_MAX",
    "Message",
    "MisfitError",
    "NotMappedError",
    "OptionError",
    "Path",
    "PeerDied",
    "PiecesError",
    "ProtocolError",
    "Received",
    "Stats",
    "TimedOut",
    "TooLargeError",
    "UnfitError",
    "__version__",
    "socket_pair",
]

_Sequence.register(Message)

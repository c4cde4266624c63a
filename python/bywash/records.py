"""Plain values that paths and flows return."""

import pathlib
from typing import Any, NamedTuple

__all__ = ["Choice", "Credentials", "Hash", "MemoryRange", "Piece", "Plan", "Promises", "Report", "Stats", "SurfaceStats"]


class Credentials(NamedTuple):
    """Credentials of a process, as the kernel reports them."""

    pid: int
    """Process number, in this process's namespace; 0 if the process has no number there."""
    uid: int
    """User number."""
    gid: int
    """Group number."""


class MemoryRange(NamedTuple):
    """Memory of a container, for a process that maps it by itself."""

    fd: int
    """Descriptor of the memory file, which remains the library's."""
    offset: int
    """Offset of the first byte in the file, in bytes."""
    length: int
    """Length, in bytes."""


class SurfaceStats(NamedTuple):
    """Counts of a surface."""

    presented: int
    """Frames that were handed to the display."""
    returned: int
    """Frames that the display has returned."""
    unseen: int
    """Frames that followed though the display had not asked for them, since nobody sees the window."""


class Stats(NamedTuple):
    """Counters of one end of a path. They may be off by some where several threads use the end."""

    shipped: int
    """Messages shipped."""
    shipped_bytes: int
    """Bytes in the messages shipped."""
    received: int
    """Messages received."""
    received_bytes: int
    """Bytes in the messages received."""
    inline: int
    """Messages, shipped or received, that were small enough to be copied into a ring's entry."""
    copied_out_bytes: int
    """Bytes copied out of containers in an arena."""
    forwarded: int
    """Received containers that were shipped on."""
    spins: int
    """Waits that ended while spinning."""
    futex_sleeps: int
    """Sleeps on a futex."""
    socket_sleeps: int
    """Sleeps on the socket."""
    futex_wakes: int
    """Times that this end woke the peer by a futex."""
    doorbells: int
    """Times that this end woke the peer through the socket."""
    no_room: int
    """Allocations or ships that found no room at first."""
    arena_bytes: int
    """Size of this end's arena, in bytes."""
    arena_held: int
    """Containers of the arena that this program owns."""
    arena_held_bytes: int
    """Bytes of the arena in containers that this program owns."""
    arena_shipped: int
    """Containers of the arena that were shipped and have not returned."""
    arena_shipped_bytes: int
    """Bytes of the arena in containers that were shipped and have not returned."""
    arena_largest_free: int
    """Size of the largest container that could be allocated in the arena, in bytes."""


class Choice(NamedTuple):
    """A mover, with the reason why it was chosen or not."""

    mover: str
    """Name of the mover, as the keyword `via` of a flow takes it."""
    why: str
    """Reason why the mover fits, or was not used."""


class Promises(NamedTuple):
    """Guarantees of a plan about the data."""

    by_value: bool
    """True if the sink gets the bytes that the source held when they were read."""
    ordered: bool
    """True if the data arrives in order."""
    lossless: bool
    """True if the flow fails whenever data is lost."""
    durable: bool
    """True if the data is durable on the device when the flow ends."""


class Plan(NamedTuple):
    """Plan of a flow between two ends: the movers, and the reasons for them."""

    source: str
    """The source, as text."""
    sink: str
    """The sink, as text."""
    movers: tuple[Choice, ...]
    """Movers that fit, best first; never empty."""
    others: tuple[Choice, ...]
    """Movers that do not fit."""
    block: int
    """Size of a block, in bytes."""
    keeps_holes: bool
    """True if holes of the source stay holes."""
    promises: Promises
    """Guarantees about the data."""


class Piece(NamedTuple):
    """Account of the data that a flow moved between two ends."""

    source: str
    """The source, as text."""
    sink: str
    """The sink, as text."""
    mover: str
    """Name of the last mover used."""
    block: int
    """Size of a block, in bytes."""
    bytes: int
    """Bytes that were moved, without holes."""
    holes: int
    """Bytes of holes that stayed holes."""
    copies: int
    """Number of times that the processor copied each byte."""
    zerocopy_sends: int
    """Sends that asked the kernel not to copy the data."""
    zerocopy_copied: int
    """Those of the `zerocopy_sends` that the kernel reports as copied all the same."""
    datagrams: tuple[dict[str, Any], ...]
    """Account of each end that sends or receives datagrams, with the keys of the report's JSON."""
    fallbacks: tuple[Choice, ...]
    """Movers that were tried before the last one, with the reason why each stopped."""


class Hash(NamedTuple):
    """Hash of the data at a stage."""

    algorithm: str
    """Algorithm: sha256, sha512 or blake3."""
    digits: str
    """Hash in hexadecimal digits."""


class Report(NamedTuple):
    """Report of a flow that has ended."""

    bytes: int
    """Bytes taken from the source, holes included."""
    seconds: float
    """Duration of the flow, in seconds."""
    cpu_seconds: float
    """Processor time of the flow's threads and of the programs among its stages, in seconds."""
    pieces: tuple[Piece, ...]
    """Pieces of the flow: one, one more for each program, and one for the way back between sockets."""
    hashes: tuple[Hash, ...]
    """Hashes of the data, in the order of their stages."""
    accelerations: tuple[dict[str, Any], ...]
    """Work of each `accel:` stage, with the keys of the report's JSON."""
    presentations: tuple[dict[str, Any], ...]
    """Frames shown by each `display:`, with the keys of the report's JSON."""
    live_streams: tuple[dict[str, Any], ...]
    """Live stream at each `live:` and `rtp:`, with the keys of the report's JSON."""
    notes: tuple[str, ...]
    """Further remarks for people."""
    whole: bool
    """True if all data has arrived."""
    partial: pathlib.Path | None
    """Path of the partial file that holds the data of an incomplete file; None if no such file was kept."""

    @property
    def rate(self) -> float:
        """Throughput in bytes a second."""
        return self.bytes / max(self.seconds, 1e-9)

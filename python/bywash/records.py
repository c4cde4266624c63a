"""Plain values that paths and flows tell."""

import pathlib
from typing import Any, NamedTuple

__all__ = ["Choice", "Credentials", "Hash", "Piece", "Plan", "Promises", "Report", "Stats"]


class Credentials(NamedTuple):
    """Who somebody is, as the kernel says."""

    pid: int
    """Process, in this process's namespace; 0 if it has no number there."""
    uid: int
    """User."""
    gid: int
    """Group."""


class Stats(NamedTuple):
    """What one end of a path has done so far. Counts may be off by some where several threads use the end."""

    shipped: int
    """Messages shipped."""
    shipped_bytes: int
    """Bytes in them."""
    received: int
    """Messages received."""
    received_bytes: int
    """Bytes in them."""
    inline: int
    """Messages of so few bytes that these were copied into a ring's entry, shipped or received."""
    copied_out_bytes: int
    """Bytes that were copied out of containers in an arena."""
    forwarded: int
    """Containers shipped on as they came."""
    spins: int
    """Times that what was waited for came while spinning."""
    futex_sleeps: int
    """Sleeps on a futex."""
    socket_sleeps: int
    """Sleeps on the socket."""
    futex_wakes: int
    """Times that the peer was woken by a futex."""
    doorbells: int
    """Times that the peer was woken through the socket."""
    no_room: int
    """Times that there was no room at first."""
    arena_bytes: int
    """Size of this end's arena, in bytes."""
    arena_held: int
    """Containers of the arena that this program has and has not shipped."""
    arena_held_bytes: int
    """Bytes of the arena that this program has and has not shipped."""
    arena_shipped: int
    """Containers of the arena that the peer has and has not given back."""
    arena_shipped_bytes: int
    """Bytes of the arena that the peer has and has not given back."""
    arena_largest_free: int
    """Size of the largest container that could be allocated in the arena, in bytes."""


class Choice(NamedTuple):
    """A mover, and what is said of it."""

    mover: str
    """Its name, as `via` of a flow takes it."""
    why: str
    """Why it is a good one, or was not taken."""


class Promises(NamedTuple):
    """What a plan promises of the data."""

    by_value: bool
    """The sink gets what the source held when it was read."""
    ordered: bool
    """What comes, comes in order."""
    lossless: bool
    """Nothing is lost without the flow failing."""
    durable: bool
    """It is on the device when the flow ends."""


class Plan(NamedTuple):
    """Which way the bytes of a flow go between two ends, and why."""

    source: str
    """Where from."""
    sink: str
    """Where to."""
    movers: tuple[Choice, ...]
    """The movers that fit, best first; never empty."""
    others: tuple[Choice, ...]
    """Those that do not."""
    block: int
    """Bytes of a block."""
    keeps_holes: bool
    """Whether holes of the source stay holes."""
    promises: Promises
    """What is promised of the data."""


class Piece(NamedTuple):
    """What a flow moved between two ends."""

    source: str
    """Where from."""
    sink: str
    """Where to."""
    mover: str
    """How, in the end."""
    block: int
    """Bytes of a block."""
    bytes: int
    """Bytes that were moved, without holes."""
    holes: int
    """Bytes of holes that stayed holes."""
    copies: int
    """How often the processor copied each byte."""
    zerocopy_sends: int
    """Sends of which the kernel was asked not to copy them."""
    zerocopy_copied: int
    """Of those, the ones that the kernel says it has copied all the same."""
    datagrams: tuple[dict[str, Any], ...]
    """What became of datagrams, at each end that is of them, by the names that the report's JSON has."""
    fallbacks: tuple[Choice, ...]
    """The movers that were tried before, and why they did not go on."""


class Hash(NamedTuple):
    """A hash of what passed."""

    algorithm: str
    """Which: sha256, sha512 or blake3."""
    digits: str
    """In hexadecimal digits."""


class Report(NamedTuple):
    """What became of a flow."""

    bytes: int
    """Bytes taken from the source, holes included."""
    seconds: float
    """How long it took."""
    cpu_seconds: float
    """Processor time of the flow's threads, and of the programs that it went through."""
    pieces: tuple[Piece, ...]
    """The pieces that the flow consisted of: one, and one more for each program and for a way back."""
    hashes: tuple[Hash, ...]
    """The hashes of what passed, in the order of their stages."""
    notes: tuple[str, ...]
    """What else there is to know."""
    whole: bool
    """Whether everything has arrived."""
    partial: pathlib.Path | None
    """Where what there is of a file that is not whole is kept."""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / max(self.seconds, 1e-9)

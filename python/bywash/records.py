"""Plain values that paths tell."""

from typing import NamedTuple

__all__ = ["Credentials", "Stats"]


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

//! Counts of the operations of one end of a path, and the use of its arena.

bywash_link::counters! {
    "path";
    /// Messages shipped.
    shipped,
    /// Bytes in the shipped messages.
    shipped_bytes,
    /// Messages received.
    received,
    /// Bytes in the received messages.
    received_bytes,
    /// Messages shipped or received within a ring entry, so that their bytes were copied.
    inline,
    /// Bytes copied out of a peer's arena, by [`copy_to`](crate::Received::copy_to) and similar functions.
    copied_out_bytes,
    /// Received containers that were shipped on without a copy.
    forwarded,
    /// Times that an allocation or a shipment had to wait for room.
    no_room,
    =>
    /// Size of this end's arena, in bytes.
    arena_bytes,
    /// Containers in the arena that this program owns: allocated and not shipped.
    arena_held,
    /// Bytes of the arena in containers that this program owns.
    arena_held_bytes,
    /// Containers in the arena that were shipped and that the peer has not returned.
    arena_shipped,
    /// Bytes of the arena in containers that were shipped and that the peer has not returned.
    arena_shipped_bytes,
    /// Size of the largest container that could be allocated in the arena, in bytes.
    arena_largest_free,
}

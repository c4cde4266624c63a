//! What an end of a path has done so far.

bywash_link::counters! {
    "path";
    /// Messages shipped.
    shipped,
    /// Bytes in them.
    shipped_bytes,
    /// Messages received.
    received,
    /// Bytes in them.
    received_bytes,
    /// Messages shipped or received in a ring's entry itself, so that their bytes were copied.
    inline,
    /// Bytes that were copied out by [`copy_to`](crate::Received::copy_to) and its kin.
    copied_out_bytes,
    /// Containers shipped on as they came.
    forwarded,
    /// Times that there was no room at first.
    no_room,
    =>
    /// Size of this end's arena, in bytes.
    arena_bytes,
    /// Containers of the arena that this program has and has not shipped.
    arena_held,
    /// Bytes of the arena that this program has and has not shipped.
    arena_held_bytes,
    /// Containers of the arena that the peer has and has not given back.
    arena_shipped,
    /// Bytes of the arena that the peer has and has not given back.
    arena_shipped_bytes,
    /// Size of the largest container that could be allocated in the arena, in bytes.
    arena_largest_free,
}

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
}

//! Counts of the operations of one end of a channel.

bywash_link::counters! {
    "channel";
    /// Requests submitted by the client, or taken by the server.
    requests,
    /// Completions sent by the server, or reaped by the client.
    completions,
    /// Bytes copied into and out of buffers.
    copied_bytes,
}

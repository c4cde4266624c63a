//! What an end of a channel has done so far.

bywash_link::counters! {
    "channel";
    /// Requests submitted, or taken by the server.
    requests,
    /// Completions sent, or reaped by the client.
    completions,
    /// Bytes copied into buffers and out of them.
    copied_bytes,
}

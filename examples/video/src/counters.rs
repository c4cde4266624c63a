//! Counts of what the server has done.

bywash_example_http::counters! {
    /// Connections accepted.
    connections,
    /// Connections refused because there were too many.
    refused,
    /// Requests answered, whatever the status.
    requests,
    /// Streams admitted.
    streams,
    /// Streams refused for lack of memory.
    no_memory,
    /// Streams refused for lack of disk bandwidth.
    no_disk,
    /// Streams refused for lack of processor time.
    no_processor,
    /// Streams refused for lack of network bandwidth.
    no_network,
    /// Chunks handed to connections.
    chunks,
    /// Bytes of contents handed to connections.
    bytes,
    /// Chunks handed over after their deadline by the server's fault.
    late,
    /// Chunks that waited for a client that did not take the one before.
    slow,
    /// Responses with a status of 400 or more.
    errors,
    /// Streams broken off because the file changed or could not be read any more.
    broken,
}

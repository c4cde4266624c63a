//! Counts of what the server has done.

bywash_example_http::counters! {
    /// Connections accepted.
    connections,
    /// Connections refused because there were too many.
    refused,
    /// Requests answered, whatever the status.
    requests,
    /// Parts of files that were found in the cache.
    hits,
    /// Parts of files that were read from the folder.
    misses,
    /// Bytes of contents in the responses, as far as they were handed to connections.
    bytes,
    /// Responses with a status of 400 or more.
    errors,
    /// Responses that were broken off because the file changed or could not be read any more.
    broken,
}

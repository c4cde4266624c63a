//! Errors of loads.

use super::response::Mismatch;
use crate::execution::ExecuteError;
use crate::system::End;

/// Reason for which a load cannot be put on a program, or no further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The load is impossible.
    #[error("the load is impossible: {0}")]
    Impossible(&'static str),
    /// The program cannot be executed any further, or there are too many sockets.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The program does not listen.
    #[error(
        "nothing listens at port {port} after {milliseconds} ms of simulated time; name the port at which the program \
         listens, or wait longer{output}"
    )]
    NothingListens {
        /// Port.
        port: u16,
        /// Simulated time, in milliseconds.
        milliseconds: u64,
        /// End of the program's output, with words before it.
        output: String,
    },
    /// The program refused a connection.
    #[error(
        "the program refused the connection for {request}: it has ceased to listen at port {port}, or too many \
         connections wait to be accepted; use fewer clients, or a longer queue (listen(2))"
    )]
    Refused {
        /// Request, with its number and its client's.
        request: String,
        /// Port.
        port: u16,
    },
    /// A response is wrong.
    #[error("{request} went wrong: {mismatch}")]
    Response {
        /// Request, with its number and its client's.
        request: String,
        /// Difference from what is right.
        mismatch: Mismatch,
    },
    /// The program sent bytes for which there was no request.
    #[error("client {client} received {bytes} bytes without a request, after the response to {before}")]
    Unrequested {
        /// Number of the client.
        client: usize,
        /// Number of bytes.
        bytes: usize,
        /// Latest request of the client.
        before: String,
    },
    /// Nothing came for a long time.
    #[error(
        "nothing was received for {milliseconds} ms of simulated time with {in_flight} requests in flight, of which \
         the oldest is {request}; does the program have a thread for each connection?{output}"
    )]
    Timeout {
        /// Simulated time, in milliseconds.
        milliseconds: u64,
        /// Number of requests in flight.
        in_flight: usize,
        /// Request that has been in flight for the longest time.
        request: String,
        /// End of the program's output, with words before it.
        output: String,
    },
    /// More requests wait than a load keeps.
    #[error(
        "{0} requests wait for a connection: the program cannot serve so many; lower the rate or the bursts"
    )]
    Overloaded(usize),
    /// More responses are measured than a report keeps.
    #[error("more than {0} responses are measured; measure a shorter part")]
    TooMany(usize),
    /// The program wrote more than a load keeps.
    #[error("the program has written more than {0} bytes to its outputs; let it write less")]
    TooMuchOutput(usize),
    /// The program ended.
    #[error("the program ended ({end:?}) with {in_flight} requests in flight{output}")]
    ProgramEnded {
        /// End.
        end: End,
        /// Number of requests in flight.
        in_flight: usize,
        /// End of the program's output, with words before it.
        output: String,
    },
}

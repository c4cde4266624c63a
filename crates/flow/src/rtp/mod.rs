//! RTP over UDP (RFC 3550): sound as L16 (RFC 3551), uncompressed video (RFC 4175) and MPEG transport streams (RFC 2250).
//!
//! - [`format`]: formats that are carried, and how they are announced
//! - [`sdp`]: descriptions of sessions, which other programs read and write
//! - [`raw_video`]: frames in packets
//! - [`rtcp`]: reports of senders and their goodbyes
//! - [`sender`]: a stream of media as packets, in real time
//! - [`input`] and [`receiver`]: the packets of a sender as a stream of media, in real time
//! - [`senders`], [`jitter_buffer`], [`drift`], [`player`]: the sender that is heard, packets that wait, the sender's clock,
//!   and units made of packets
//!
//! Called by [`crate::endpoint`] for `rtp:`.

mod drift;
mod format;
mod input;
mod jitter_buffer;
mod player;
mod raw_video;
mod receiver;
mod rtcp;
mod sdp;
mod sender;
mod senders;
#[cfg(test)]
mod tests;

pub(crate) use format::RtpFormat;
pub(crate) use input::open_receiver;
pub(crate) use player::Concealment;
pub(crate) use receiver::ReceiverOptions;
pub(crate) use sdp::Description;
pub(crate) use sender::{SenderOptions, open_sender};

/// Size of the header of a packet, in bytes, without contributing sources and extensions.
const HEADER_BYTES: usize = 12;
/// Greatest size of a packet, in bytes, which is the payload of a UDP datagram.
pub(crate) const PACKET_BYTES_MAX: usize = 65_507;

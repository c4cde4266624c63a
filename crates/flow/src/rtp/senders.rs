//! The sender that is listened to, and those who may take over.
//!
//! Whoever sends the first packet is listened to. Another one, which may be the same program started again, takes over
//! when it has sent two packets in a row (RFC 3550, appendix A.1) and the one before has been silent for
//! [`SILENCE_NS`]; until then its packets are foreign. Invariant: the memory is the same whoever sends what.

use std::net::SocketAddr;

/// Silence of the sender after which another one may take over, in nanoseconds.
const SILENCE_NS: u64 = 500_000_000;
/// Greatest number of senders that are known as ones who may take over.
const CANDIDATES_MAX: usize = 8;

/// Address and source of a sender.
pub(crate) type Identity = (SocketAddr, u32);

/// The senders of one port.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    current: Option<Identity>,
    /// Time of the last packet of the current sender, in nanoseconds.
    heard_ns: u64,
    /// Senders of a packet each, with the number that follows it; the oldest first.
    candidates: Vec<(Identity, u16)>,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It belongs to the stream.
    Current,
    /// It begins a stream: the first one, or one that takes over.
    Begins,
    /// It belongs to nobody who is listened to.
    Foreign,
}

impl Senders {
    pub(crate) fn current(&self) -> Option<Identity> {
        self.current
    }

    /// Decides about a packet that came at `now_ns`.
    pub(crate) fn judge(&mut self, now_ns: u64, sender: Identity, sequence: u16) -> Verdict {
        if self.current == Some(sender) {
            self.heard_ns = now_ns;
            return Verdict::Current;
        }
        let follows = (sender, sequence);
        let next = (sender, sequence.wrapping_add(1));
        let is_proven = self.candidates.contains(&follows);
        self.candidates.retain(|known| known.0 != sender);
        let is_silent = now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS;
        if self.current.is_none() || (is_proven && is_silent) {
            (self.current, self.heard_ns) = (Some(sender), now_ns);
            return Verdict::Begins;
        }
        if self.candidates.len() == CANDIDATES_MAX {
            self.candidates.remove(0);
        }
        self.candidates.push(next);
        Verdict::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sender(port: u16, source: u32) -> Identity {
        (([127, 0, 0, 1], port).into(), source)
    }

    #[test]
    fn another_sender_takes_over_from_a_silent_one() {
        let mut senders = Senders::default();
        let (one, other) = (sender(1, 7), sender(2, 8));
        assert_eq!(senders.judge(0, one, 5), Verdict::Begins);
        assert_eq!(senders.judge(10 * MS, one, 6), Verdict::Current);
        for number in 0..40 {
            assert_eq!(senders.judge((11 + number) * MS, other, number as u16), Verdict::Foreign);
        }
        assert_eq!(senders.judge(520 * MS, other, 40), Verdict::Begins);
        assert_eq!(senders.judge(521 * MS, other, 41), Verdict::Current);
        assert_eq!(senders.judge(522 * MS, one, 7), Verdict::Foreign);
        assert_eq!(senders.current(), Some(other));
    }

    #[test]
    fn packets_without_a_row_never_take_over_and_take_no_memory() {
        let mut senders = Senders::default();
        senders.judge(0, sender(1, 7), 5);
        for number in 0..10_000u32 {
            let verdict = senders.judge(1000 * MS, sender(2, number), (number * 7) as u16);
            assert_eq!(verdict, Verdict::Foreign);
            assert_eq!(senders.judge(1000 * MS, sender(3, 9), (number * 7) as u16), Verdict::Foreign);
        }
        assert!(senders.candidates.len() <= CANDIDATES_MAX);
        // The true one is found among them.
        assert_eq!(senders.judge(1001 * MS, sender(1, 8), 65_535), Verdict::Foreign);
        assert_eq!(senders.judge(1002 * MS, sender(4, 1), 9), Verdict::Foreign);
        assert_eq!(senders.judge(1003 * MS, sender(1, 8), 0), Verdict::Begins);
    }
}

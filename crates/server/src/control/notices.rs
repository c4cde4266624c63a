//! The page by which a client that has mapped a medium hears that a grant was taken back: see
//! [`bywash_protocol::notices`].

use bywash_link::{Error, File, Writers};
use bywash_protocol::notices;
use bywash_ring::Shared;
use bywash_volume::GrantNumber;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a processor has written, all have seen after so long: a store does not wait in it for longer.
const SETTLED: Duration = Duration::from_millis(1);

/// A client's page.
#[derive(Debug)]
pub(crate) struct Notices {
    file: File,
    words: Shared,
}

impl Notices {
    pub(crate) fn new(grants_max: u32) -> Result<Notices, Error> {
        let (file, words) = File::create_words(notices::bytes(grants_max) / 8, Writers::Owner)?;
        Ok(Notices { file, words })
    }

    /// The page, which can be mapped for reading alone.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }

    /// Says that a grant is not valid any more. One thread does this, the administrator's.
    pub(crate) fn revoke(&self, grant: GrantNumber) {
        let (place, tag) = (notices::place_of(grant.to_word()), notices::tag_of(grant.to_word()));
        // Never back: the grants that were there since would be valid again.
        if self.words.load(place) < tag {
            self.words.publish(place, tag);
        }
    }

    /// Returns when no client takes an access for done any more that comes after what was said: what it has written before
    /// it looked at its page is in memory now.
    pub(crate) fn settle() {
        if bywash_sync::prepare_shared_fences() {
            bywash_sync::heavy_shared_fence(true);
        } else {
            bywash_sync::full_fence();
            std::thread::sleep(SETTLED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grant that could not be drained is taken back again later, when its place has had others.
    #[test]
    fn what_was_taken_back_stays_so() {
        let notices = Notices::new(8).unwrap();
        let grant = |tag: u64| GrantNumber::from_word(tag << 32 | 5);
        notices.revoke(grant(7));
        notices.revoke(grant(3));
        assert!(!notices::is_valid(grant(7).to_word(), notices.words.load(5)));
        assert!(notices::is_valid(grant(8).to_word(), notices.words.load(5)));
    }
}

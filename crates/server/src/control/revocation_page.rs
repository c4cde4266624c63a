//! Page by which a client with mapped chunks learns that a grant was revoked: see
//! [`bywash_protocol::notices`].

use bywash_link::ring::Shared;
use bywash_link::{Error, MemoryFile, Writers};
use bywash_protocol::revocations;
use bywash_volume::GrantNumber;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Time after which every processor's stores are visible to all: no store stays in a store buffer for as long
/// as this.
const SETTLED: Duration = Duration::from_millis(1);

/// A client's page of notices.
#[derive(Debug)]
pub(crate) struct RevocationPage {
    file: MemoryFile,
    words: Shared,
}

impl RevocationPage {
    pub(crate) fn new(grants_max: u32) -> Result<RevocationPage, Error> {
        let (file, words) =
            MemoryFile::create_words(revocations::page_bytes(grants_max) / 8, Writers::Owner)?;
        Ok(RevocationPage { file, words })
    }

    /// Returns the page's descriptor, with which a client can map it for reading only.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }

    /// Marks a grant as revoked. Only the administrator's thread calls this.
    pub(crate) fn revoke(&self, grant: GrantNumber) {
        let (place, tag) = (revocations::index_of(grant.to_word()), revocations::tag_of(grant.to_word()));
        // The word never decreases: a lower tag would make grants valid again that were revoked at this index
        // since.
        if self.words.load(place) < tag {
            self.words.publish(place, tag);
        }
    }

    /// Waits until every client sees the words that were written before this call. A client's access after
    /// that is not considered done, and the accesses that the client considers done are in memory.
    pub(crate) fn wait_visible() {
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

    /// A grant that could not be drained is revoked again later, when its index has been used by other
    /// grants.
    #[test]
    fn what_was_taken_back_stays_so() {
        let notices = RevocationPage::new(8).unwrap();
        let grant = |tag: u64| GrantNumber::from_word(tag << 32 | 5);
        notices.revoke(grant(7));
        notices.revoke(grant(3));
        assert!(!revocations::is_valid(grant(7).to_word(), notices.words.load(5)));
        assert!(revocations::is_valid(grant(8).to_word(), notices.words.load(5)));
    }
}

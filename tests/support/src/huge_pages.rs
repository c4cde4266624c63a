//! Reserved huge pages of 2 MiB, while a test needs them.

use std::fs;

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that were reserved for a test, and are given back when this is dropped.
#[derive(Debug)]
pub struct HugePages(u64);

impl HugePages {
    /// Reserves `count` pages beside those that the machine has reserved.
    ///
    /// # Errors
    /// The reason, as text, if the machine does not allow it or has too little memory in one piece.
    pub fn reserve(count: u64) -> Result<HugePages, String> {
        let before = free();
        change(|reserved| reserved + count)?;
        let pages = HugePages(count);
        match free() {
            now if now >= before + count => Ok(pages),
            now => Err(format!("the machine has {now} free huge pages, and {} are needed", before + count)),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // There is nothing else to do about a failure.
        let _ = change(|reserved| reserved.saturating_sub(self.0));
    }
}

fn change(how: impl FnOnce(u64) -> u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("huge pages cannot be reserved by {RESERVED}: {error}");
    let reserved = fs::read_to_string(RESERVED).map_err(failed)?;
    let reserved = reserved.trim().parse().map_err(|_| format!("{RESERVED} contains {reserved:?}"))?;
    fs::write(RESERVED, how(reserved).to_string()).map_err(failed)
}

/// Returns the number of free huge pages of 2 MiB.
pub fn free() -> u64 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

//! Bytes on the device, with against without: what the ratios of throughput would hide.

use super::micro::Micro;
use super::{Amount, Case, Metric, NOT_SLOWER, Reading};
use crate::place::Kind;

const MIB: u64 = 1 << 20;

/// The `device` bench.
pub fn cases() -> Vec<Case> {
    vec![Case {
        bench: "device",
        name: "cold pread 4 KiB random".into(),
        metrics: vec![Metric::bytes(Reading::DeviceRead), Metric::rate("op/s", NOT_SLOWER)],
        // What a page cache that was dropped is filled with again no longer depends on the chunks.
        places: &[Kind::DiskLarge, Kind::Xfs],
        amount: Amount::For { first: 3000, seconds: 0.0 },
        native: None,
        in_quick: true,
        work: Box::new(Micro {
            file_bytes: 512 * MIB,
            file_bytes_quick: 64 * MIB,
            flags: &["cold"],
            drop_cache: true,
            ..Micro::default()
        }),
    }]
}

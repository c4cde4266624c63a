//! The processor runs all cases.

use crate::suite;
use bywash_accelerator::Cpu;

#[test]
fn the_processor_conforms() {
    let skipped = suite::check(&Cpu);
    assert!(skipped.is_empty(), "{skipped:#?}");
}

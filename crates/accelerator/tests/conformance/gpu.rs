//! Every adapter runs all cases but those that need a processor.

use crate::suite;
use bywash_accelerator::{Gpu, devices};

/// Environment variable that makes a machine without adapters a failure.
const NEEDS: &str = "BYWASH_NEEDS_GPU";

/// Opens all adapters.
fn adapters() -> Vec<Gpu> {
    let devices = devices::all();
    for absent in devices.absent.iter().filter(|absent| absent.name == "gpu") {
        println!("{} is not tested: {}", absent.name, absent.reason);
        assert!(std::env::var_os(NEEDS).is_none(), "{NEEDS} is set, but {}", absent.reason);
    }
    let gpus = devices.found.iter().filter_map(|found| found.name.strip_prefix("gpu:"));
    gpus.map(|number| Gpu::open(number.parse().unwrap()).unwrap()).collect()
}

fn check(gpu: &Gpu) {
    let skipped = suite::check(gpu);
    assert!(matches!(&skipped[..], [sha256] if sha256.contains("cannot run sha256")), "{skipped:#?}");
}

#[test]
fn adapters_conform() {
    adapters().iter().for_each(check);
}

/// Has the device copy blocks to and from its memory, as those do whose memory is not the processor's.
#[test]
fn adapters_with_memory_of_their_own_conform() {
    adapters().into_iter().map(Gpu::with_separate_memory).for_each(|gpu| check(&gpu));
}

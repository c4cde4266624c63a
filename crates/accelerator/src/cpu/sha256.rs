//! Kernel `sha256`, by the crate sha2, which uses the processor's instructions for it where there are some.
//!
//! Each block depends on the one before, so one thread computes them in order, and passes its input buffers on.

use super::worker::{Layout, PIECE, Plan, Stop, Worker};
use crate::error::Error;
use sha2::{Digest, Sha256};

/// Size of the digest, in bytes.
const DIGEST: usize = 32;

/// Digest of the blocks so far.
struct Sha256Worker(Sha256);

/// Plans the kernel.
pub(super) fn plan() -> Plan {
    let layout = Layout {
        sample_bytes: 1,
        unit_bytes: 1,
        output_bytes: 1,
        history_bytes: 0,
        is_padded: false,
        passes_on: true,
        tail_bytes: DIGEST,
    };
    Plan { layout, workers: vec![Box::new(Sha256Worker(Sha256::new()))] }
}

impl Worker for Sha256Worker {
    fn run(&mut self, input: &[u8], _: &mut [u8], stop: &Stop) -> Result<usize, Error> {
        for piece in input.chunks(PIECE) {
            if stop.is_set() {
                break;
            }
            self.0.update(piece);
        }
        Ok(0)
    }

    fn end(&mut self, output: &mut [u8]) -> Result<usize, Error> {
        output.copy_from_slice(&self.0.finalize_reset());
        Ok(DIGEST)
    }
}

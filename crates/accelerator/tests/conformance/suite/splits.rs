//! Random sizes: results do not depend on how input is cut into blocks and submissions.

use super::Suite;
use super::drive::{bytes, drive, noise, numbers};
use super::reference::{assert_filtered, assert_transformed};
use bywash_accelerator::kernel::{Fft, Fir};
use bywash_accelerator::{Kernel, SessionOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sha2::{Digest, Sha256};

/// Number of random cases of each kernel.
const CASES: u32 = 24;

pub fn check(suite: &Suite<'_>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let run = |kernel: usize| {
        let sizes = (1usize..3000, 2usize..6, 0usize..5, prop::collection::vec(1usize..5000, 1..20));
        let strategy = (0usize..1500, 1usize..70, 1usize..40, sizes);
        let mut runner = TestRunner::new(config.clone());
        let result = runner.run(
            &strategy,
            |(samples, parameter, decimation, (block_bytes, blocks, threads, pieces))| {
                let options =
                    SessionOptions::default().block_bytes(block_bytes).blocks(blocks).threads(threads);
                let taps = noise(parameter, 11);
                match kernel {
                    0 => filter(suite, Fir { taps, decimation }, samples, options, &pieces),
                    1 => transform(
                        suite,
                        Fft { size: parameter, is_inverse: decimation % 2 == 0 },
                        samples,
                        options,
                        &pieces,
                    ),
                    _ => digest(suite, samples, options, &pieces),
                }
                Ok(())
            },
        );
        result.unwrap_or_else(|error| panic!("{error}"));
    };
    (0..3).for_each(run);
}

/// Sends input through a kernel in the given pieces, again and again.
fn through(
    suite: &Suite<'_>,
    kernel: &Kernel,
    options: SessionOptions,
    input: &[u8],
    pieces: &[usize],
) -> Option<Vec<u8>> {
    let mut session = suite.session(kernel, options)?;
    let output = drive(&mut session, input, |number| pieces[number % pieces.len()]);
    let statistics = session.output.statistics();
    assert_eq!(statistics.input_bytes, input.len() as u64);
    assert!(statistics.in_flight_max <= options.blocks as u64, "{statistics:?}");
    Some(output.unwrap_or_else(|error| panic!("{kernel:?}: {error}")))
}

fn filter(suite: &Suite<'_>, fir: Fir, samples: usize, options: SessionOptions, pieces: &[usize]) {
    let input = noise(2 * samples, 13);
    if let Some(output) = through(suite, &Kernel::Fir(fir.clone()), options, &bytes(&input), pieces) {
        assert_filtered(&fir, &input, &numbers(&output), "random sizes");
    }
}

fn transform(suite: &Suite<'_>, fft: Fft, samples: usize, options: SessionOptions, pieces: &[usize]) {
    let input = noise(2 * samples, 17);
    if let Some(output) = through(suite, &Kernel::Fft(fft), options, &bytes(&input), pieces) {
        assert_transformed(fft, &input, &numbers(&output), "random sizes");
    }
}

fn digest(suite: &Suite<'_>, samples: usize, options: SessionOptions, pieces: &[usize]) {
    let mut input = bytes(&noise(2 * samples + 1, 19));
    input.truncate(samples * 7);
    if let Some(output) = through(suite, &Kernel::Sha256, options, &input, pieces) {
        let expected = [&input[..], &Sha256::digest(&input)].concat();
        assert!(output == expected, "{} bytes differ", input.len());
    }
}

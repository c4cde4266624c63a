//! Results of kernels against their definitions, at all sorts of sizes.

use super::Suite;
use super::drive::{bytes, noise, numbers, whole};
use super::reference::{assert_filtered, assert_transformed};
use bywash_accelerator::kernel::{Fft, Fir};
use bywash_accelerator::{Kernel, SessionOptions};
use sha2::{Digest, Sha256};

pub fn check(suite: &Suite<'_>) {
    filters_compute_their_sums(suite);
    transforms_are_those_of_the_definition(suite);
    a_transform_and_its_inverse_give_the_input(suite);
    digests_are_those_of_the_standard(suite);
}

fn options(block_bytes: usize) -> SessionOptions {
    SessionOptions::default().block_bytes(block_bytes)
}

fn filters_compute_their_sums(suite: &Suite<'_>) {
    for (taps, decimation, samples) in
        [(1, 1, 1), (2, 1, 101), (7, 3, 500), (64, 8, 2049), (33, 100, 1999), (200, 1, 333), (5, 700, 699)]
    {
        // One unit, less than the filter's memory, odd numbers of units, and more than all input.
        for block_bytes in [1, 8 * 13, 8 * 1000, 1 << 20] {
            let fir = Fir { taps: noise(taps, 3), decimation };
            let Some(session) = suite.session(&Kernel::Fir(fir.clone()), options(block_bytes)) else {
                return;
            };
            let input = noise(2 * samples, 5);
            let output = numbers(&whole(session, &bytes(&input)));
            let context = format!("{taps} taps, decimation {decimation}, blocks of {block_bytes}");
            assert_filtered(&fir, &input, &output, &context);
        }
    }
}

fn transforms_are_those_of_the_definition(suite: &Suite<'_>) {
    for size in [1, 2, 3, 4, 5, 8, 12, 16, 31, 64, 100, 101, 128, 256, 1000, 1024, 1009, 4096, 16384] {
        for is_inverse in [false, true] {
            let fft = Fft { size, is_inverse };
            // The last frame is short, except for those of one sample.
            let input = noise(2 * (2 * size + size.div_ceil(2)), size as u64);
            for block_bytes in [1, 8 * (size + 1), 1 << 20] {
                let Some(session) = suite.session(&Kernel::Fft(fft), options(block_bytes)) else { continue };
                let output = numbers(&whole(session, &bytes(&input)));
                assert_transformed(fft, &input, &output, &format!("{fft:?}, blocks of {block_bytes}"));
            }
        }
    }
}

fn a_transform_and_its_inverse_give_the_input(suite: &Suite<'_>) {
    for size in [65536, 1 << 18] {
        let transform = |input: &[u8], is_inverse| {
            Some(whole(suite.session(&Kernel::Fft(Fft { size, is_inverse }), options(1 << 20))?, input))
        };
        let input = noise(2 * size, 7);
        let Some(spectrum) = transform(&bytes(&input), false) else { continue };
        let Some(again) = transform(&spectrum, true) else { continue };
        let differences = numbers(&again).into_iter().zip(&input).map(|(a, b)| (a - b).abs());
        let greatest = differences.fold(0.0, f32::max);
        assert!(greatest < 1e-5, "{size} samples differ by {greatest}");
    }
}

fn digests_are_those_of_the_standard(suite: &Suite<'_>) {
    // FIPS 180-4's examples of one and two blocks.
    let published = [
        (&b"abc"[..], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            &b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"[..],
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
    ];
    for (input, digest) in published {
        let Some(session) = suite.session(&Kernel::Sha256, options(16)) else { return };
        let output = whole(session, input);
        assert_eq!(&output[..input.len()], input);
        let text: String = output[input.len()..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, digest);
    }
    for length in [0, 1, 63, 64, 65, 1000, 100_001] {
        for block_bytes in [1 + length / 40, 64, 4096, 1 << 20] {
            let Some(session) = suite.session(&Kernel::Sha256, options(block_bytes)) else { return };
            let mut expected = bytes(&noise(length / 4 + 1, 9))[..length].to_vec();
            let output = whole(session, &expected);
            expected.extend_from_slice(&Sha256::digest(&expected));
            assert!(output == expected, "{length} bytes in blocks of {block_bytes}");
        }
    }
}

//! Input for sessions, and the flow of bytes through them.

use bywash_accelerator::{Error, Output, Session};
use std::time::{Duration, Instant};

/// Limit of a wait for one output.
pub const WAIT: Duration = Duration::from_secs(1);
/// Limit of a whole case: none takes a tenth of it.
const CASE: Duration = Duration::from_secs(120);

/// Sends `input` through a session, in pieces of at most `piece(number)` bytes, and returns the output.
///
/// # Errors
/// Those of the session.
pub fn drive(session: &mut Session, input: &[u8], piece: impl Fn(usize) -> usize) -> Result<Vec<u8>, Error> {
    let (mut rest, mut number, mut has_ended) = (input, 0, false);
    let (mut collected, end) = (Vec::new(), Instant::now() + CASE);
    loop {
        assert!(Instant::now() < end, "a session makes no progress: {} bytes are left", rest.len());
        if rest.is_empty() && !has_ended {
            session.input.finish()?;
            has_ended = true;
        }
        if !has_ended && let Some(buffer) = session.input.buffer(Duration::ZERO)? {
            assert!(!buffer.is_empty(), "a buffer without room");
            let bytes = piece(number).min(buffer.len()).min(rest.len()).max(1);
            buffer[..bytes].copy_from_slice(&rest[..bytes]);
            session.input.submit(bytes)?;
            (rest, number) = (&rest[bytes..], number + 1);
            continue;
        }
        match session.output.next(WAIT)? {
            Output::Block => {
                let block = session.output.block();
                assert!(!block.is_empty(), "an empty output");
                collected.extend_from_slice(block);
            }
            Output::None => {}
            Output::End => {
                assert!(has_ended, "output ends before input");
                break;
            }
        }
    }
    assert_eq!(session.output.next(Duration::ZERO)?, Output::End, "an end is no end");
    Ok(collected)
}

/// Sends `input` through a session in pieces as large as its buffers.
pub fn whole(mut session: Session, input: &[u8]) -> Vec<u8> {
    let output = drive(&mut session, input, |_| usize::MAX);
    output.unwrap_or_else(|error| panic!("{} bytes: {error}", input.len()))
}

/// Returns numbers from -1 to 1 that look random.
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "output ends in the middle of a number");
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

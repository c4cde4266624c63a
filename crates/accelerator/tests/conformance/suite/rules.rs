//! Rules of sessions: buffers, order, ends and errors.

use super::Suite;
use super::drive::{WAIT, bytes, drive, noise, numbers, whole};
use super::reference::assert_filtered;
use bywash_accelerator::kernel::{Fft, Fir};
use bywash_accelerator::{Error, Kernel, Output, Session, SessionOptions};
use std::time::{Duration, Instant};

/// Rules, each of which is checked with all kernels in [`kernels`].
const RULES: [fn(&Suite<'_>, &Kernel); 9] = [
    two_threads_use_the_ends,
    an_end_that_is_dropped_ends_the_other,
    bytes_may_come_one_at_a_time,
    input_is_held_back_until_output_is_taken,
    sessions_do_not_disturb_each_other,
    sessions_can_be_dropped_at_any_time,
    more_than_a_buffer_cannot_be_submitted,
    nothing_follows_the_end_of_the_input,
    counters_tell_what_was_done,
];

pub fn check(suite: &Suite<'_>) {
    for kernel in kernels() {
        RULES.iter().for_each(|rule| rule(suite, &kernel));
    }
    output_is_in_the_order_of_input(suite);
    input_does_not_end_in_a_sample(suite);
    empty_input_is_no_special_case(suite);
    impossible_parameters_are_refused(suite);
}

fn kernels() -> [Kernel; 3] {
    [
        Kernel::Fir(Fir { taps: noise(31, 21), decimation: 2 }),
        Kernel::Fft(Fft { size: 64, is_inverse: false }),
        Kernel::Sha256,
    ]
}

/// Filter that changes nothing.
fn identity() -> Kernel {
    Kernel::Fir(Fir { taps: vec![1.0], decimation: 1 })
}

fn small() -> SessionOptions {
    SessionOptions::default().block_bytes(4096).blocks(3)
}

fn bytes_may_come_one_at_a_time(suite: &Suite<'_>, kernel: &Kernel) {
    let options = SessionOptions::default().block_bytes(512);
    let (Some(mut slow), Some(fast)) = (suite.session(kernel, options), suite.session(kernel, options))
    else {
        return;
    };
    let input = bytes(&noise(2000, 23));
    let output = drive(&mut slow, &input, |_| 1).unwrap();
    assert!(output == whole(fast, &input), "{kernel:?} gives other results for single bytes");
}

fn two_threads_use_the_ends(suite: &Suite<'_>, kernel: &Kernel) {
    let input = bytes(&noise(60_000, 37));
    let (Some(whole_session), Some(session)) =
        (suite.session(kernel, small()), suite.session(kernel, small()))
    else {
        return;
    };
    let expected = whole(whole_session, &input);
    let Session { input: mut feed, output: mut taken } = session;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rest = &input[..];
            while !rest.is_empty() {
                // Each wait ends because the other thread takes output meanwhile.
                let buffer = feed.buffer(20 * WAIT).unwrap().expect("a buffer that is free again");
                let bytes = buffer.len().min(rest.len()).min(1500);
                buffer[..bytes].copy_from_slice(&rest[..bytes]);
                feed.submit(bytes).unwrap();
                rest = &rest[bytes..];
            }
            feed.finish().unwrap();
        });
        let mut output = Vec::new();
        loop {
            match taken.next(20 * WAIT).unwrap() {
                Output::Block => output.extend_from_slice(taken.block()),
                Output::None => panic!("no output for {:?}", 20 * WAIT),
                Output::End => break output,
            }
        }
    });
    assert!(output == expected, "{kernel:?} gives other results to two threads");
}

fn an_end_that_is_dropped_ends_the_other(suite: &Suite<'_>, kernel: &Kernel) {
    let (Some(one), Some(two)) = (suite.session(kernel, small()), suite.session(kernel, small())) else {
        return;
    };
    let Session { input, mut output } = one;
    let waiting = std::thread::spawn(move || output.next(20 * WAIT).map(|_| ()));
    std::thread::sleep(Duration::from_millis(10));
    drop(input);
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)), "output of input that was given up");

    let Session { mut input, output } = two;
    drop(output);
    let start = Instant::now();
    while let Ok(Some(buffer)) = input.buffer(WAIT) {
        let bytes = buffer.len();
        let _ = input.submit(bytes);
    }
    assert!(matches!(input.buffer(WAIT), Err(Error::Closed)), "input whose output was given up");
    assert!(start.elapsed() < 5 * WAIT);
}

/// Submits whole buffers until there is none. Returns their number.
fn fill(session: &mut Session) -> usize {
    let mut count = 0;
    while let Some(buffer) = session.input.buffer(Duration::ZERO).unwrap() {
        let bytes = buffer.len();
        session.input.submit(bytes).unwrap();
        count += 1;
        assert!(count < 1000, "input never ends, though no output is taken");
    }
    count
}

fn input_is_held_back_until_output_is_taken(suite: &Suite<'_>, kernel: &Kernel) {
    let Some(mut session) = suite.session(kernel, small()) else { return };
    let end = Instant::now() + 4 * WAIT;
    let mut count = 0;
    // Blocks are computed meanwhile, until the output buffers are full.
    while count < 3 || session.output.statistics().blocks < 3 {
        count += fill(&mut session);
        assert!(Instant::now() < end, "{count} blocks were submitted, and 3 are not computed");
    }
    std::thread::sleep(Duration::from_millis(30));
    count += fill(&mut session);
    assert!(count <= 7, "{count} blocks were submitted with 3 in each direction, and no output taken");
    assert_eq!(session.input.buffer(Duration::ZERO).unwrap(), None);
    assert!(session.output.statistics().in_flight_max <= 3);

    // What is taken makes room.
    let mut is_free = false;
    while !is_free {
        let output = session.output.next(WAIT).unwrap();
        assert!(output == Output::Block && !session.output.block().is_empty(), "{output:?}");
        is_free = session.input.buffer(Duration::ZERO).unwrap().is_some();
        assert!(Instant::now() < end, "input is held back, though output was taken");
    }
}

fn sessions_do_not_disturb_each_other(suite: &Suite<'_>, kernel: &Kernel) {
    let inputs = [bytes(&noise(30_000, 25)), bytes(&noise(30_000, 27))];
    let Some(alone) = inputs
        .each_ref()
        .map(|input| Some(whole(suite.session(kernel, small())?, input)))
        .into_iter()
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let sessions = [suite.session(kernel, small()), suite.session(kernel, small())];
    std::thread::scope(|scope| {
        for ((session, input), expected) in sessions.into_iter().zip(&inputs).zip(&alone) {
            let session = session.expect("the kernel is supported");
            scope.spawn(move || assert!(whole(session, input) == *expected, "two sessions mix"));
        }
    });
}

fn sessions_can_be_dropped_at_any_time(suite: &Suite<'_>, kernel: &Kernel) {
    for number in 0..6 {
        let Some(mut session) = suite.session(kernel, small()) else { return };
        for _ in 0..number {
            if let Some(buffer) = session.input.buffer(Duration::ZERO).unwrap() {
                let bytes = buffer.len() / (1 + number % 2);
                session.input.submit(bytes).unwrap();
            }
        }
        if number == 5 {
            let _ = session.output.next(WAIT).unwrap();
        }
        let start = Instant::now();
        drop(session);
        assert!(start.elapsed() < 5 * WAIT, "dropping a session took {:?}", start.elapsed());
    }
}

fn more_than_a_buffer_cannot_be_submitted(suite: &Suite<'_>, kernel: &Kernel) {
    let Some(mut session) = suite.session(kernel, small()) else { return };
    let room = session.input.buffer(Duration::ZERO).unwrap().expect("a buffer at the start").len();
    session.input.submit(room - 1).unwrap();
    let error = session.input.submit(2).unwrap_err();
    assert!(matches!(error, Error::Input(_)), "{error}");
    assert!(error.to_string().contains("2 bytes") && error.to_string().contains("room for 1"), "{error}");
}

fn nothing_follows_the_end_of_the_input(suite: &Suite<'_>, kernel: &Kernel) {
    let Some(mut session) = suite.session(kernel, small()) else { return };
    drive(&mut session, &bytes(&noise(256, 29)), |_| usize::MAX).unwrap();
    session.input.finish().unwrap();
    assert_eq!(session.input.buffer(Duration::ZERO).unwrap(), None);
    assert!(matches!(session.input.submit(1), Err(Error::Input(_))));
}

fn counters_tell_what_was_done(suite: &Suite<'_>, kernel: &Kernel) {
    let start = Instant::now();
    let Some(mut session) = suite.session(kernel, small()) else { return };
    let input = bytes(&noise(20 * 1024, 31));
    let output = drive(&mut session, &input, |_| usize::MAX).unwrap();
    let statistics = session.output.statistics();
    assert_eq!(statistics.input_bytes, input.len() as u64);
    assert_eq!(statistics.output_bytes, output.len() as u64);
    assert_eq!(statistics.blocks, (input.len() as u64).div_ceil(4096));
    assert!((1..=3).contains(&statistics.in_flight_max), "{statistics:?}");
    assert!(statistics.busy > Duration::ZERO && statistics.busy <= start.elapsed(), "{statistics:?}");
}

fn output_is_in_the_order_of_input(suite: &Suite<'_>) {
    for blocks in [2, 3, 8] {
        let options = SessionOptions::default().block_bytes(1024).blocks(blocks).threads(4);
        let Some(session) = suite.session(&identity(), options) else { return };
        let input: Vec<f32> = (0..200_001 * 2).map(|number| number as f32).collect();
        let output = numbers(&whole(session, &bytes(&input)));
        let first = input.iter().zip(&output).position(|(a, b)| a != b);
        assert_eq!((first, output.len()), (None, input.len()), "position of the first number out of order");
    }
}

fn input_does_not_end_in_a_sample(suite: &Suite<'_>) {
    for kernel in kernels() {
        for rest in [1, 4, 7] {
            let Some(mut session) = suite.session(&kernel, small()) else { continue };
            let input = &bytes(&noise(4096, 33))[..8 * 1500 + rest];
            match (drive(&mut session, input, |_| usize::MAX), &kernel) {
                (Ok(output), Kernel::Sha256) => assert_eq!(output.len(), input.len() + 32),
                (Err(Error::Input(message)), _) => {
                    assert!(message.contains(&format!("{rest} bytes are left over")), "{message}");
                }
                (result, _) => panic!("{kernel:?} with {rest} bytes more than samples: {result:?}"),
            }
            if kernel != Kernel::Sha256 {
                assert!(
                    session.output.next(WAIT).is_err() && session.input.buffer(Duration::ZERO).is_err(),
                    "a failed session goes on"
                );
            }
        }
    }
}

fn empty_input_is_no_special_case(suite: &Suite<'_>) {
    for kernel in kernels() {
        let Some(mut session) = suite.session(&kernel, small()) else { continue };
        assert_eq!(session.output.next(Duration::ZERO).unwrap(), Output::None);
        let output = drive(&mut session, &[], |_| usize::MAX).unwrap();
        assert_eq!(output.len(), if kernel == Kernel::Sha256 { 32 } else { 0 });
    }
    // Fewer samples than the filter's decimation give the first output all the same.
    let fir = Fir { taps: vec![0.5, 0.25], decimation: 1000 };
    if let Some(session) = suite.session(&Kernel::Fir(fir.clone()), small()) {
        let input = noise(2, 35);
        assert_filtered(&fir, &input, &numbers(&whole(session, &bytes(&input))), "one sample");
    }
}

fn impossible_parameters_are_refused(suite: &Suite<'_>) {
    let fir = |taps, decimation| Kernel::Fir(Fir { taps, decimation });
    let fft = |size| Kernel::Fft(Fft { size, is_inverse: false });
    for kernel in [fir(vec![], 1), fir(vec![1.0], 0), fir(vec![f32::NAN], 1), fft(0), fft(Fft::SIZE_MAX + 1)]
    {
        match suite.device.session(&kernel, &small()).map(drop) {
            Err(Error::Parameter(_) | Error::Unsupported { .. }) => {}
            result => panic!("{kernel:?}: {result:?}"),
        }
    }
    for options in
        [small().blocks(1), small().block_bytes(0), small().blocks(1 << 20), small().threads(1 << 20)]
    {
        match suite.device.session(&identity(), &options).map(drop) {
            Err(Error::Parameter(_) | Error::Unsupported { .. }) => {}
            result => panic!("{options:?}: {result:?}"),
        }
    }
}

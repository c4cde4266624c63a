//! Verification of namespaces, on controllers in software.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Error, Verifier, VerifyEnd, VerifyMethod, VerifyReport};
use std::time::Duration;

/// Size of the namespace, in blocks of 512 bytes.
const BLOCKS: u64 = 100_000;
const TIMEOUT: Duration = Duration::from_secs(5);

fn controller(verify: bool) -> Model {
    let namespace = ModelNamespace::new(1, BLOCKS, 9);
    Model::new(ModelOptions { verify, verify_exponent: 8, shuffle: Some(7), ..ModelOptions::new(namespace) })
}

fn open(model: &Model) -> Verifier<Model> {
    Verifier::open(model.clone(), None, None, TIMEOUT).unwrap()
}

fn ranges(report: &VerifyReport) -> Vec<(u64, u64)> {
    report.failed.iter().map(|range| (range.first, range.count)).collect()
}

#[test]
fn every_block_is_checked_by_the_controller_or_in_memory() {
    for (verify, method) in [(true, VerifyMethod::Verify), (false, VerifyMethod::Read)] {
        let model = controller(verify);
        let mut verifier = open(&model);
        assert_eq!((verifier.method(), verifier.namespace()), (method, 1));
        assert_eq!((verifier.blocks(), verifier.block()), (BLOCKS, 512));
        let before = model.counts().bytes;
        let mut last = 0;
        let report = verifier
            .verify(0..BLOCKS, &mut |seen| {
                assert!(seen >= last && seen <= BLOCKS);
                last = seen;
                true
            })
            .unwrap();
        assert!(matches!(report.end, VerifyEnd::Complete) && report.failed.is_empty(), "{report:?}");
        assert_eq!((report.checked, last), (BLOCKS, BLOCKS));
        let counts = model.counts();
        let moved = counts.bytes - before;
        match method {
            VerifyMethod::Verify => assert_eq!((counts.verified, moved), (BLOCKS, 0)),
            VerifyMethod::Read => assert_eq!((counts.verified, moved), (0, 512 * BLOCKS)),
        }
        assert_eq!(counts.faults, 0);
        drop(verifier);
        assert_eq!((model.mapped_bytes(), model.counts().shutdowns), (0, 1));
    }
}

#[test]
fn the_caller_can_choose_the_method() {
    let model = controller(true);
    let mut verifier = Verifier::open(model.clone(), Some(1), Some(VerifyMethod::Read), TIMEOUT).unwrap();
    assert!(verifier.method() == VerifyMethod::Read && verifier.offers_verify());
    assert_eq!(verifier.verify(0..9, &mut |_| true).unwrap().checked, 9);
    assert_eq!(model.counts().verified, 0);
    let model = controller(false);
    let mut verifier = Verifier::open(model, Some(1), Some(VerifyMethod::Verify), TIMEOUT).unwrap();
    let report = verifier.verify(0..9, &mut |_| true).unwrap();
    let VerifyEnd::Failed(error) = &report.end else { panic!("{report:?}") };
    assert!(error.to_string().contains("refuses Verify: Invalid Command Opcode"), "{error}");
}

#[test]
fn blocks_that_cannot_be_read_are_named() {
    for verify in [true, false] {
        let model = controller(verify);
        for bad in [0..1, 4095..4097, 50_000..50_300, BLOCKS - 1..BLOCKS] {
            model.fail(bad, 2, 0x81, usize::MAX);
        }
        let mut verifier = open(&model);
        let report = verifier.verify(0..BLOCKS, &mut |_| true).unwrap();
        assert_eq!(ranges(&report), [(0, 1), (4095, 2), (50_000, 300), (BLOCKS - 1, 1)]);
        assert_eq!(report.checked, BLOCKS - 304);
        assert!(report.failed[0].reason.starts_with("Unrecovered Read Error"), "{report:?}");
        // A range that begins and ends in the middle of bad blocks.
        let report = verifier.verify(4096..50_001, &mut |_| true).unwrap();
        assert_eq!(ranges(&report), [(4096, 1), (50_000, 1)]);
        assert_eq!(report.checked, 50_001 - 4096 - 2);
    }
}

#[test]
fn a_status_that_can_be_repeated_is_no_failure() {
    let model = controller(true);
    // Namespace Not Ready, as often as a part is repeated.
    model.fail(0..BLOCKS, 0, 0x82, 3);
    let report = open(&model).verify(0..BLOCKS, &mut |_| true).unwrap();
    assert!(report.failed.is_empty() && report.checked == BLOCKS, "{report:?}");
}

#[test]
fn a_command_that_does_not_complete_is_narrowed_and_the_others_go_on() {
    let model = controller(true);
    model.swallow(1);
    let mut verifier = open(&model);
    let report = verifier.verify(0..BLOCKS, &mut |_| true).unwrap();
    // The parts of the lost one complete, so that no block has failed.
    assert!(report.failed.is_empty() && report.checked == BLOCKS, "{report:?}");
    assert_eq!((model.counts().resets, model.counts().faults), (1, 0));
    // A block whose command never completes: a range of one block, so that nothing else succeeds before the controller is given up.
    model.swallow(usize::MAX);
    let report = verifier.verify(7..8, &mut |_| true).unwrap();
    assert_eq!((ranges(&report), report.checked), (vec![(7, 1)], 0));
    assert_eq!(report.failed[0].reason, "the controller did not complete the command in time");
}

#[test]
fn a_controller_that_breaks_leaves_a_report() {
    // Parts of 16 blocks, so that the one with the bad block is cut up long before the end.
    let namespace = ModelNamespace::new(1, BLOCKS, 9);
    let model = Model::new(ModelOptions { verify_exponent: 1, ..ModelOptions::new(namespace) });
    let mut verifier = open(&model);
    model.fail(8..9, 2, 0x81, usize::MAX);
    let mut is_broken = false;
    let report = verifier.verify(0..BLOCKS, &mut |seen| {
        if seen > BLOCKS / 2 && !is_broken {
            is_broken = true;
            model.remove();
        }
        true
    });
    let report = report.unwrap();
    assert!(matches!(report.end, VerifyEnd::Failed(Error::Removed)), "{report:?}");
    assert!(ranges(&report) == [(8, 1)] && report.checked >= BLOCKS / 2, "{report:?}");
    // Every command hangs: the controller is given up.
    let model = controller(true);
    let mut verifier = open(&model);
    model.swallow(usize::MAX);
    let report = verifier.verify(0..BLOCKS, &mut |_| true).unwrap();
    assert!(matches!(report.end, VerifyEnd::Failed(Error::Broken { .. })), "{report:?}");
    assert_eq!(report.checked, 0);
    assert!(model.is_cut_off());
}

#[test]
fn a_fatal_error_is_reset_and_nothing_is_lost() {
    let model = controller(false);
    let mut verifier = open(&model);
    let mut is_broken = false;
    let report = verifier.verify(0..BLOCKS, &mut |seen| {
        if seen > 0 && !is_broken {
            is_broken = true;
            model.hold();
            model.break_down();
        } else if is_broken {
            model.release();
        }
        true
    });
    let report = report.unwrap();
    assert!(matches!(report.end, VerifyEnd::Complete) && report.failed.is_empty(), "{report:?}");
    assert_eq!(report.checked, BLOCKS);
}

#[test]
fn the_caller_ends_it() {
    let model = controller(true);
    let mut verifier = open(&model);
    model.hold();
    let mut looks = 0;
    let report = verifier.verify(0..BLOCKS, &mut |_| {
        looks += 1;
        looks < 100
    });
    assert!(matches!(report.unwrap().end, VerifyEnd::Stopped));
    drop(verifier);
    assert_eq!((model.in_flight(), model.mapped_bytes()), (0, 0));
}

#[test]
fn a_disk_with_too_many_failures_ends_it() {
    let model = controller(true);
    (0..BLOCKS).step_by(2).take(2000).for_each(|block| model.fail(block..block + 1, 2, 0x81, usize::MAX));
    let report = open(&model).verify(0..BLOCKS, &mut |_| true).unwrap();
    assert!(matches!(report.end, VerifyEnd::TooManyFailures), "{:?}", report.end);
    assert_eq!(report.failed.len(), 1024);
}

#[test]
fn what_is_wrong_with_the_command_is_not_blamed_on_the_blocks() {
    let model = controller(true);
    model.fail(0..BLOCKS, 0, 0x01, 1);
    let mut verifier = open(&model);
    let report = verifier.verify(0..BLOCKS, &mut |_| true).unwrap();
    let VerifyEnd::Failed(error) = &report.end else { panic!("{report:?}") };
    assert!(error.to_string().contains("refuses Verify: Invalid Command Opcode"), "{error}");
    for range in [0..0, 5..BLOCKS + 1, BLOCKS..BLOCKS + 1] {
        let error = verifier.verify(range, &mut |_| true).unwrap_err().to_string();
        assert!(error.contains("the namespace has 100000"), "{error}");
    }
}

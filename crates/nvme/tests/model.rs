//! The device on a controller in software: the conformance suite of devices, and what controllers do wrong.
//!
//! `BYWASH_STRESS_SEED` runs the random tests with that one seed.
//!
//! One file, though a long one: each test is a few calls of the same helpers, and a sentence on what the controller does wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::conformance::{Area, CASES, Subject, pattern};
use bywash_device::{Command, CommandError, Completion, Device, PinnedRegion, Region, RegionId};
use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Error, Event, Nvme, Options, ResetReason};
use bywash_support::peers::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Size of the namespace of most tests, in bytes.
const BYTES: u64 = 1 << 20;

fn usual() -> ModelOptions {
    ModelOptions::new(ModelNamespace::new(1, BYTES / 512, 9))
}

fn quick() -> Options {
    let (timeout, abort_timeout) = (Duration::from_secs(30), Duration::from_secs(5));
    Options { depth: 64, timeout, abort_timeout, ..Options::default() }
}

fn open(model: &Model, options: &Options) -> Nvme<Model> {
    Nvme::open(model.clone(), options).unwrap()
}

/// Polls until nothing is in flight, and lets time pass meanwhile.
fn finish(device: &mut Nvme<Model>, model: &Model) -> Vec<Completion> {
    let mut all = Vec::new();
    for _ in 0..200_000 {
        device.reap(&mut |done| all.push(done));
        if device.in_flight() == 0 {
            return all;
        }
        model.advance(Duration::from_millis(1));
    }
    panic!("{} commands are stuck: {device:?}, {model:?}", device.in_flight());
}

fn run(device: &mut Nvme<Model>, model: &Model, command: Command<'_>) -> Result<(), CommandError> {
    device.submit(command).unwrap();
    let done = finish(device, model);
    assert_eq!(done.len(), 1);
    done[0].result
}

fn write(device: &mut Nvme<Model>, model: &Model, offset: u64, bytes: &[u8]) -> Result<(), CommandError> {
    let area = Area::holding(bytes);
    let segments = [area.segment(0, bytes.len())];
    run(device, model, Command::write(1, offset, &segments).owner(area.clone()))
}

fn read(device: &mut Nvme<Model>, model: &Model, offset: u64, bytes: usize) -> Result<Vec<u8>, CommandError> {
    let area = Area::new(bytes);
    let segments = [area.segment(0, bytes)];
    run(device, model, Command::read(1, offset, &segments).owner(area.clone())).map(|()| area.get(0, bytes))
}

/// Submits commands that each write one block, with contents of its own.
fn submit_writes(device: &mut Nvme<Model>, count: u64) -> Vec<Arc<Area>> {
    let areas: Vec<_> = (0..count).map(|number| Area::holding(&pattern(number, 512))).collect();
    for (number, area) in (0..count).zip(&areas) {
        let segments = [area.segment(0, 512)];
        device.submit(Command::write(number, number * 512, &segments).owner(area.clone())).unwrap();
    }
    areas
}

fn assert_each_once(done: &[Completion], count: u64) {
    let mut tokens: Vec<u64> = done.iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..count), "commands were lost or completed twice");
}

fn assert_written(model: &Model, count: u64) {
    let contents = model.contents(1);
    for number in 0..count {
        let at = number as usize * 512;
        assert!(contents[at..at + 512] == pattern(number, 512), "block {number}");
    }
}

/// Maps an area for the device.
fn pin(device: &Nvme<Model>, area: &Arc<Area>, bytes: usize) -> Arc<PinnedRegion> {
    // SAFETY: the area owns its memory, and tests read and write it by copying only.
    let region = unsafe { Region::new(area.base(), bytes, area.clone()) };
    Arc::new(region.pin(&*device.pinner().unwrap()).unwrap())
}

/// Registers an area with the device, which alone keeps it pinned.
fn register(device: &mut Nvme<Model>, area: &Arc<Area>, bytes: usize) -> RegionId {
    let memory = pin(device, area, bytes);
    device.register(&memory).unwrap().expect("its own pinner has pinned it")
}

mod conformance {
    use super::*;

    fn subject(model: ModelOptions, options: Options) -> Subject {
        let device = open(&Model::new(model), &options);
        println!("{}", device.description());
        Subject::new(Box::new(device), vec![])
    }

    fn run_all(model: &ModelOptions, options: &Options) {
        for (name, case) in CASES {
            println!("{name}");
            case(subject(model.clone(), options.clone()));
        }
    }

    #[test]
    fn plain() {
        run_all(&usual(), &quick());
    }

    #[test]
    fn blocks_of_4096_bytes() {
        run_all(&ModelOptions::new(ModelNamespace::new(1, BYTES / 4096, 12)), &quick());
    }

    #[test]
    fn completions_in_any_order() {
        run_all(&ModelOptions { shuffle: Some(7), ..usual() }, &quick());
    }

    #[test]
    fn nothing_optional() {
        let (compare, deallocate, write_zeroes, scatter_gather) = (false, false, false, false);
        run_all(&ModelOptions { compare, deallocate, write_zeroes, scatter_gather, ..usual() }, &quick());
    }

    #[test]
    fn short_transfers() {
        run_all(&ModelOptions { transfer_exponent: 1, ..usual() }, &quick());
    }

    #[test]
    fn unlimited_transfers() {
        run_all(&ModelOptions { transfer_exponent: 0, ..usual() }, &quick());
    }

    #[test]
    fn short_queues() {
        let model = ModelOptions { queue_entries_max: 17, shuffle: Some(3), ..usual() };
        run_all(&model, &Options { queues: 4, ..quick() });
    }

    #[test]
    fn several_queues_with_wide_doorbells() {
        let model = ModelOptions { doorbell_exponent: 2, queues_max: 3, shuffle: Some(5), ..usual() };
        run_all(&model, &Options { queues: 8, ..quick() });
    }

    #[test]
    fn shadow_doorbells() {
        let model = ModelOptions { doorbell_buffers: true, ..usual() };
        let device = open(&Model::new(model.clone()), &quick());
        assert!(device.description().contains("shadow doorbells"), "{device:?}");
        run_all(&model, &Options { queues: 2, ..quick() });
    }

    #[test]
    fn no_interrupts() {
        let model = ModelOptions { interrupts: false, ..usual() };
        assert!(open(&Model::new(model.clone()), &quick()).descriptor().is_none());
        let sleeps = "whoever_sleeps_is_woken";
        for (_, case) in CASES.iter().filter(|(name, _)| *name != sleeps) {
            case(subject(model.clone(), quick()));
        }
    }
}

#[test]
fn a_thousand_commands_survive_a_reset() {
    for (reason, queues) in [(ResetReason::Fatal, 1), (ResetReason::Timeout, 1), (ResetReason::Fatal, 4)] {
        let model = Model::new(ModelOptions { shuffle: Some(11), ..usual() });
        let mut device = open(&model, &Options { depth: 1000, queues, ..quick() });
        assert_eq!(device.queues(), usize::from(queues));
        model.hold();
        if reason == ResetReason::Timeout {
            model.ignore_aborts();
        }
        let areas = submit_writes(&mut device, 1000);
        let mut done = Vec::new();
        // Only as many as there are bounce pieces reach the controller at once; some complete before the reset.
        device.reap(&mut |completion| done.push(completion));
        model.release_some(10);
        device.reap(&mut |completion| done.push(completion));
        assert!(!done.is_empty() && device.in_flight() > 900);
        match reason {
            ResetReason::Timeout => model.advance(Duration::from_secs(1)),
            _ => model.break_down(),
        }
        // Until the driver has noticed, nothing completes.
        for _ in 0..100_000 {
            if device.stats().resets > 0 {
                break;
            }
            device.reap(&mut |completion| done.push(completion));
            model.advance(Duration::from_millis(10));
        }
        assert_eq!(device.stats().resets, 1, "{device:?}");
        model.release();
        done.extend(finish(&mut device, &model));
        assert_each_once(&done, 1000);
        assert!(done.iter().all(|completion| completion.result == Ok(())));
        assert_written(&model, 1000);
        assert!(device.stats().repeated > 0);
        assert_eq!(device.next_event(), Some(Event::Reset(reason)));
        assert_eq!((device.next_event(), model.counts().faults, device.stats().strays), (None, 0, 0));
        drop(device);
        assert!(areas.iter().all(|area| Arc::strong_count(area) == 2), "the completions have the owners");
    }
}

#[test]
fn a_thousand_commands_in_registered_memory_survive_a_reset() {
    let model = Model::new(ModelOptions { shuffle: Some(13), ..usual() });
    let mut device = open(&model, &Options { depth: 1000, ..quick() });
    let area = Area::new(1000 * 512 / 4096 * 4096 + 4096);
    let bytes = 1000 * 512 / 4096 * 4096 + 4096;
    let region = register(&mut device, &area, bytes);
    model.hold();
    for number in 0..1000 {
        area.put(number as usize * 512, &pattern(number, 512));
        let segments = [area.segment(number as usize * 512, 512)];
        let command =
            Command::write(number, number * 512, &segments).owner(area.clone()).region(Some(region));
        device.submit(command).unwrap();
    }
    let mut done = Vec::new();
    device.reap(&mut |completion| done.push(completion));
    assert_eq!(model.in_flight(), 1000);
    model.release_some(300);
    device.reap(&mut |completion| done.push(completion));
    assert_eq!(done.len(), 300);
    model.break_down();
    for _ in 0..10_000 {
        device.reap(&mut |completion| done.push(completion));
        model.advance(Duration::from_millis(1));
    }
    model.release();
    done.extend(finish(&mut device, &model));
    assert_each_once(&done, 1000);
    assert_written(&model, 1000);
    let stats = device.stats();
    assert_eq!((stats.resets, stats.repeated, stats.bytes_copied), (1, 700, 0));
}

#[test]
fn a_late_command_is_aborted_and_repeated() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(1);
    assert_eq!(write(&mut device, &model, 512, &[7; 512]), Ok(()));
    let stats = device.stats();
    assert_eq!((stats.aborts, stats.repeated, stats.resets), (1, 1, 0));
    assert_eq!(model.counts().aborts, 1);
    assert_eq!(read(&mut device, &model, 512, 512).unwrap(), [7; 512]);
}

#[test]
fn a_command_that_abort_does_not_end_resets_the_controller() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(1);
    model.ignore_aborts();
    assert_eq!(write(&mut device, &model, 512, &[7; 512]), Ok(()));
    let stats = device.stats();
    assert_eq!((stats.aborts, stats.repeated, stats.resets), (1, 1, 1));
    assert_eq!(device.next_event(), Some(Event::Reset(ResetReason::Timeout)));
    assert_eq!(read(&mut device, &model, 512, 512).unwrap(), [7; 512]);
}

#[test]
fn late_commands_beside_others_that_complete_are_noticed() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(1);
    let areas = submit_writes(&mut device, 2);
    let mut tokens = Vec::new();
    for _ in 0..40_000 {
        device.reap(&mut |done| tokens.push(done.token));
        if tokens.contains(&0) {
            break;
        }
        // Another command is always in flight.
        let segments = [areas[1].segment(0, 512)];
        if device.in_flight() < 2 {
            device.submit(Command::write(1, 512, &segments).owner(areas[1].clone())).unwrap();
        }
        model.advance(Duration::from_millis(1));
    }
    assert!(tokens.contains(&0), "the late command was never noticed");
    assert_eq!(device.stats().aborts, 1);
}

#[test]
fn a_command_that_never_completes_fails_in_the_end() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(usize::MAX);
    assert_eq!(write(&mut device, &model, 0, &[1; 512]), Err(CommandError::Io(libc::ETIMEDOUT)));
    assert_eq!(device.stats().repeated, 3);
    // The controller aborted each time, so that it is not given up.
    model.swallow(0);
    assert_eq!(write(&mut device, &model, 0, &[1; 512]), Ok(()));
}

#[test]
fn a_controller_that_does_nothing_between_resets_is_given_up() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(usize::MAX);
    model.ignore_aborts();
    let areas = submit_writes(&mut device, 40);
    let done = finish(&mut device, &model);
    assert_each_once(&done, 40);
    assert!(done.iter().all(|done| done.result == Err(CommandError::Io(libc::ETIMEDOUT))));
    assert!(model.is_cut_off());
    assert!(device.description().contains("reset 3 times in a row"), "{device:?}");
    assert_eq!(read(&mut device, &model, 0, 512), Err(CommandError::Io(libc::ETIMEDOUT)));
    drop(done);
    assert!(areas.iter().all(|area| Arc::strong_count(area) == 1), "an owner was kept");
}

#[test]
fn a_controller_that_does_not_stop_is_cut_off_before_its_commands_fail() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.hold();
    model.never_stop();
    let areas = submit_writes(&mut device, 20);
    let mut early = 0;
    device.reap(&mut |_| early += 1);
    model.break_down();
    let mut results = Vec::new();
    for _ in 0..100_000 {
        device.reap(&mut |done| {
            assert!(model.is_cut_off(), "memory was given back while the controller reaches it");
            results.push(done.result);
        });
        model.advance(Duration::from_millis(1));
    }
    assert_eq!((early, results.len(), device.in_flight()), (0, 20, 0));
    assert!(results.iter().all(|result| *result == Err(CommandError::Io(libc::ETIMEDOUT))));
    assert!(areas.iter().all(|area| Arc::strong_count(area) == 1), "an owner was kept");
}

#[test]
fn a_removed_controller_fails_everything_at_once() {
    for registered in [false, true] {
        let model = Model::new(usual());
        let mut device = open(&model, &quick());
        let area = Area::new(4096);
        let region = registered.then(|| register(&mut device, &area, 4096));
        model.hold();
        for token in 0..40 {
            let segments = [area.segment(0, 4096)];
            let command = Command::read(token, 0, &segments).owner(area.clone()).region(region);
            device.submit(command).unwrap();
        }
        device.reap(&mut |_| panic!("nothing completes"));
        model.remove();
        let done = finish(&mut device, &model);
        assert_each_once(&done, 40);
        assert!(done.iter().all(|done| done.result == Err(CommandError::Io(libc::ENODEV))));
        assert_eq!(device.stats().resets, 0);
        assert!(!device.arm());
        assert_eq!(read(&mut device, &model, 0, 512), Err(CommandError::Io(libc::ENODEV)));
        drop((device, done));
        assert_eq!((Arc::strong_count(&area), model.mapped_bytes()), (1, 0));
    }
}

#[test]
fn a_controller_that_is_removed_during_a_reset_fails_everything() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.hold();
    let _areas = submit_writes(&mut device, 20);
    device.reap(&mut |_| panic!("nothing completes"));
    model.break_down();
    while device.stats().resets == 0 {
        device.reap(&mut |_| panic!("nothing completes"));
        model.advance(Duration::from_millis(1));
    }
    model.remove();
    let done = finish(&mut device, &model);
    assert_each_once(&done, 20);
    assert!(done.iter().all(|done| done.result == Err(CommandError::Io(libc::ENODEV))));
}

#[test]
fn errors_are_told_and_hit_nobody_else() {
    for (kind, code, result) in [
        (2, 0x81, Err(CommandError::Io(libc::EIO))),
        (2, 0x80, Err(CommandError::Io(libc::EIO))),
        (0, 0x81, Err(CommandError::Io(libc::ENOSPC))),
        (0, 0x20, Err(CommandError::Io(libc::EROFS))),
        // Namespace Not Ready: the command is repeated.
        (0, 0x82, Ok(())),
    ] {
        let model = Model::new(ModelOptions { shuffle: Some(1), ..usual() });
        let mut device = open(&model, &quick());
        model.fail(5..6, kind, code, 1);
        let _areas = submit_writes(&mut device, 40);
        for done in finish(&mut device, &model) {
            let expected = if done.token == 5 { result } else { Ok(()) };
            assert_eq!(done.result, expected, "status {kind:#x} {code:#x}, command {}", done.token);
        }
        assert_eq!(device.stats().resets, 0);
        assert_eq!(write(&mut device, &model, 5 * 512, &[1; 512]), Ok(()));
    }
}

#[test]
fn a_passing_error_that_does_not_pass_is_told() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.fail(0..1, 0, 0x82, usize::MAX);
    assert_eq!(write(&mut device, &model, 0, &[1; 512]), Err(CommandError::Io(libc::EIO)));
    assert_eq!(device.stats().repeated, 3);
}

#[test]
fn a_part_that_fails_fails_the_whole_command() {
    let model = Model::new(ModelOptions { transfer_exponent: 1, ..usual() });
    let mut device = open(&model, &quick());
    model.fail(100..101, 2, 0x81, 1);
    assert_eq!(read(&mut device, &model, 0, 256 << 10), Err(CommandError::Io(libc::EIO)));
    assert_eq!(read(&mut device, &model, 0, 256 << 10).unwrap(), vec![0; 256 << 10]);
}

#[test]
fn a_completion_that_comes_twice_counts_once() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.double_completions(20);
    let _areas = submit_writes(&mut device, 20);
    let done = finish(&mut device, &model);
    assert_each_once(&done, 20);
    device.reap(&mut |_| panic!("nothing is in flight"));
    assert!(device.stats().strays > 0);
    assert_written(&model, 20);
}

#[test]
fn namespaces_are_chosen_or_refused() {
    let with = |namespaces: &[ModelNamespace]| ModelOptions { namespaces: namespaces.to_vec(), ..usual() };
    let (small, large) = (ModelNamespace::new(1, 100, 9), ModelNamespace::new(7, 200, 12));
    let odd = ModelNamespace { metadata: 8, ..small };
    let strange = ModelNamespace::new(1, 100, 11);
    for (namespaces, namespace, said) in [
        (&[small, large][..], None, "2 active namespaces (1, 7): name one"),
        (&[][..], None, "no active namespace"),
        (&[small][..], Some(7), "no namespace 7"),
        (&[odd][..], None, "8 bytes of metadata"),
        (&[strange][..], Some(1), "2^11 bytes"),
        (&[small][..], Some(0), "'namespace'"),
    ] {
        let model = Model::new(with(namespaces));
        let error = Nvme::open(model.clone(), &Options { namespace, ..quick() }).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(model.mapped_bytes(), 0);
    }
    for (number, bytes, block) in [(1, 51_200, 512), (7, 819_200, 4096)] {
        let model = Model::new(with(&[small, large]));
        let mut device = open(&model, &Options { namespace: Some(number), ..quick() });
        assert_eq!((device.geometry().bytes, device.geometry().block), (bytes, block));
        assert_eq!(write(&mut device, &model, 0, &pattern(1, 4096)), Ok(()));
        assert_eq!(model.contents(number)[..4096], pattern(1, 4096));
    }
}

#[test]
fn options_out_of_range_are_refused() {
    for (options, said) in [
        (Options { depth: 0, ..quick() }, "'depth'"),
        (Options { depth: 4097, ..quick() }, "'depth'"),
        (Options { queues: 0, ..quick() }, "'queues'"),
        (Options { queues: 65, ..quick() }, "'queues'"),
        (Options { namespace: Some(u32::MAX), ..quick() }, "'namespace'"),
    ] {
        let error = Nvme::open(Model::new(usual()), &options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_controller_that_does_not_start_is_refused() {
    let model = Model::new(usual());
    model.never_get_ready();
    let error = Nvme::open(model.clone(), &quick()).unwrap_err();
    assert!(matches!(error, Error::Timeout { what: "become ready", .. }), "{error}");
    assert_eq!(model.mapped_bytes(), 0);
    let model = Model::new(usual());
    model.remove();
    assert!(matches!(Nvme::open(model, &quick()).unwrap_err(), Error::Removed));
    for (opcode, command) in [
        (0x06, "Identify"),
        (0x09, "Number of Queues"),
        (0x05, "Create I/O Completion Queue"),
        (0x01, "Create I/O Submission Queue"),
    ] {
        let model = Model::new(usual());
        model.fail_admin(opcode, 0, 0x06);
        let error = Nvme::open(model.clone(), &quick()).unwrap_err().to_string();
        assert!(error.contains(command) && error.contains("Internal Error"), "{error}");
        assert_eq!(model.mapped_bytes(), 0);
    }
}

#[test]
fn a_controller_that_refuses_shadow_doorbells_gets_registers() {
    let model = Model::new(ModelOptions { doorbell_buffers: true, ..usual() });
    model.fail_admin(0x7c, 0, 0x06);
    let mut device = open(&model, &quick());
    assert!(!device.description().contains("shadow"), "{device:?}");
    assert_eq!(write(&mut device, &model, 0, &[1; 512]), Ok(()));
}

#[test]
fn events_are_told_each_time() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    assert_eq!(device.next_event(), None);
    // Nothing is in flight: the interrupt alone makes the device look.
    for (value, event) in [(0x0004_0002, Event::NamespaceChanged), (0x0002_0101, Event::Temperature)] {
        model.raise(value);
        assert!(device.arm(), "there is something to look at");
        device.reap(&mut |_| panic!("nothing is in flight"));
        assert_eq!((device.next_event(), device.next_event()), (Some(event), None));
        device.reap(&mut |_| {});
        device.reap(&mut |_| {});
        assert!(!device.arm());
    }
    for _ in 0..100 {
        model.raise(0x0004_0002);
    }
    for _ in 0..1000 {
        device.reap(&mut |_| {});
    }
    assert_eq!(std::iter::from_fn(|| device.next_event()).count(), 16);
    assert_eq!(write(&mut device, &model, 0, &[1; 512]), Ok(()));
}

#[test]
fn a_namespace_that_has_shrunk_after_a_reset_is_another_one() {
    for (blocks, result) in [(BYTES / 512 + 8, Ok(())), (BYTES / 512 - 8, Err(CommandError::Io(libc::EIO)))] {
        let model = Model::new(usual());
        let mut device = open(&model, &quick());
        model.hold();
        let _areas = submit_writes(&mut device, 4);
        device.reap(&mut |_| panic!("nothing completes"));
        model.resize(1, blocks);
        model.break_down();
        while device.stats().resets == 0 {
            device.reap(&mut |_| panic!("nothing completes"));
            model.advance(Duration::from_millis(1));
        }
        model.release();
        let done = finish(&mut device, &model);
        assert_each_once(&done, 4);
        assert!(done.iter().all(|done| done.result == result), "{done:?}, {device:?}");
    }
}

#[test]
fn whoever_sleeps_during_a_reset_is_woken() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.hold();
    let _areas = submit_writes(&mut device, 4);
    assert!(!device.arm());
    model.break_down();
    model.advance(Duration::from_secs(1));
    // The alarm wakes the user, who polls.
    assert!(!device.arm(), "{device:?}");
    assert_eq!(device.stats().resets, 1);
    model.release();
    assert_each_once(&finish(&mut device, &model), 4);
}

#[test]
fn dropping_shuts_the_controller_down() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    let areas = submit_writes(&mut device, 40);
    device.reap(&mut |_| {});
    drop(device);
    let counts = model.counts();
    assert_eq!((counts.shutdowns, counts.resets, counts.faults), (1, 1, 0));
    assert!(model.is_cut_off());
    assert_eq!(model.mapped_bytes(), 0);
    assert!(areas.iter().all(|area| Arc::strong_count(area) == 1), "an owner was kept");
}

#[test]
fn dropping_does_not_wait_for_ever() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    model.swallow(usize::MAX);
    let areas = submit_writes(&mut device, 8);
    device.reap(&mut |_| {});
    drop(device);
    assert_eq!(model.mapped_bytes(), 0);
    assert!(areas.iter().all(|area| Arc::strong_count(area) == 1), "an owner was kept");
}

#[test]
fn registered_memory_is_not_copied() {
    for scatter_gather in [true, false] {
        let model = Model::new(ModelOptions { scatter_gather, ..usual() });
        let mut device = open(&model, &quick());
        let bytes = 1 << 20;
        let area = Area::holding(&pattern(3, bytes));
        let region = register(&mut device, &area, bytes);
        // Pieces: cuts at pages are described by pages; others need a scatter/gather list, or are copied.
        for (cuts, fits_pages) in [
            (&[(0usize, 900 << 10)][..], true),
            (&[(0x200, 700 << 10)], true),
            (&[(0x200, 0xe00), (0x8000, 0x3000), (0x20000, 0x1000), (0x10000, 0x200)], true),
            (&[(0x204, 0x1fc), (0x8000, 0x204), (0x9000, 0x800), (0x10000, 0x400)], false),
            (&[(1, 512)], false),
        ] {
            let before = device.stats().bytes_copied;
            let segments: Vec<_> = cuts.iter().map(|(at, length)| area.segment(*at, *length)).collect();
            let length: usize = cuts.iter().map(|cut| cut.1).sum();
            let expected: Vec<u8> = cuts.iter().flat_map(|(at, length)| area.get(*at, *length)).collect();
            let command = |write| {
                let command =
                    if write { Command::write(1, 512, &segments) } else { Command::read(1, 512, &segments) };
                command.owner(area.clone()).region(Some(region))
            };
            assert_eq!(run(&mut device, &model, command(true)), Ok(()));
            assert!(model.contents(1)[512..512 + length] == expected, "{cuts:x?}");
            for (at, length) in cuts {
                area.put(*at, &vec![0; *length]);
            }
            assert_eq!(run(&mut device, &model, command(false)), Ok(()));
            let read: Vec<u8> = cuts.iter().flat_map(|(at, length)| area.get(*at, *length)).collect();
            assert!(read == expected, "{cuts:x?}");
            let copied = device.stats().bytes_copied - before;
            let is_direct = fits_pages || scatter_gather;
            assert_eq!(copied, if is_direct { 0 } else { 2 * length as u64 }, "{cuts:x?}");
        }
        device.unregister(region);
        assert_eq!(model.counts().faults, 0);
    }
}

#[test]
fn a_region_that_is_unregistered_stays_mapped_while_it_is_used() {
    let model = Model::new(usual());
    let mut device = open(&model, &quick());
    let area = Area::holding(&pattern(1, 8192));
    let region = register(&mut device, &area, 8192);
    let mapped = model.mapped_bytes();
    model.hold();
    let segments = [area.segment(0, 8192)];
    device.submit(Command::write(1, 0, &segments).owner(area.clone()).region(Some(region))).unwrap();
    device.reap(&mut |_| panic!("nothing completes"));
    device.unregister(region);
    assert_eq!(model.mapped_bytes(), mapped);
    model.release();
    assert_eq!(finish(&mut device, &model)[0].result, Ok(()));
    assert_eq!(model.mapped_bytes(), mapped - 8192);
    assert_eq!((model.counts().faults, &model.contents(1)[..8192]), (0, pattern(1, 8192).as_slice()));
}

#[test]
fn memory_that_is_pinned_for_another_device_is_not_registered() {
    let (model, other) = (Model::new(usual()), Model::new(usual()));
    let (mut device, second) = (open(&model, &quick()), open(&other, &quick()));
    let (area, before) = (Area::new(8192), model.mapped_bytes());
    let (own, foreign) = (pin(&device, &area, 8192), pin(&second, &area, 8192));
    assert!(device.register(&own).unwrap().is_some());
    assert_eq!(device.register(&foreign).unwrap(), None);
    assert_eq!(model.mapped_bytes(), before + 8192);
    // The mapping lasts as long as the region, also after the device.
    drop((device, second));
    assert_eq!((model.mapped_bytes(), other.mapped_bytes()), (8192, 8192));
    drop((own, foreign));
    assert_eq!((model.mapped_bytes(), other.mapped_bytes(), Arc::strong_count(&area)), (0, 0, 1));
}

#[test]
fn memory_that_does_not_consist_of_whole_pages_is_not_pinned() {
    let model = Model::new(usual());
    let device = open(&model, &quick());
    let (area, before) = (Area::new(8192), model.mapped_bytes());
    for (from, bytes) in [(0, 0), (0, 512), (512, 4096)] {
        // SAFETY: the area owns its memory, and tests read and write it by copying only.
        let region = unsafe { Region::new(area.base().wrapping_add(from), bytes, area.clone()) };
        let error = region.pin(&*device.pinner().unwrap()).unwrap_err().to_string();
        assert!(error.contains("whole pages"), "{error}");
    }
    assert_eq!((model.mapped_bytes(), Arc::strong_count(&area)), (before, 1));
}

/// Random reads and writes of single blocks while the controller breaks down, loses commands and fails some, compared
/// with a map: the queues go round many times, no command is lost, and a block has what was last written to it.
#[test]
fn random_commands_survive_random_trouble() {
    survive_random_trouble("random_commands_survive", false);
}

#[test]
fn random_commands_in_registered_memory_survive_random_trouble() {
    survive_random_trouble("random_commands_in_registered", true);
}

fn survive_random_trouble(test: &str, is_registered: bool) {
    let mut random = Random::seeded(test);
    let seed = random.0;
    let mut chance = |below| random.below(below);
    let model = Model::new(ModelOptions { queue_entries_max: 16, shuffle: Some(seed), ..usual() });
    let mut device = open(&model, &Options { queues: 2, ..quick() });
    let blocks = 40;
    let mut expected = BTreeMap::new();
    let mut in_flight: BTreeMap<u64, (Arc<Area>, Option<Vec<u8>>)> = BTreeMap::new();
    let mut registered = Vec::new();
    let check = |done: &Completion, in_flight: &mut BTreeMap<u64, (Arc<Area>, Option<Vec<u8>>)>| {
        let (area, read) = in_flight.remove(&done.token).expect("completed once");
        assert_eq!(done.result, Ok(()), "command {}", done.token);
        if let Some(read) = read {
            assert!(area.get(0, 512) == read, "command {}", done.token);
        }
    };
    for token in 0..6000 {
        let block = chance(blocks);
        let area = Area::new(4096);
        area.put(0, &pattern(token, 512));
        let (segments, is_write) = ([area.segment(0, 512)], chance(2) == 0);
        // In registered memory, commands go around most of the driver unless there is trouble.
        let region = (is_registered && chance(4) > 0).then(|| register(&mut device, &area, 4096));
        let before = expected.get(&block).cloned().unwrap_or_else(|| vec![0; 512]);
        if is_write {
            expected.insert(block, pattern(token, 512));
        }
        in_flight.insert(token, (area.clone(), (!is_write).then_some(before)));
        let command = if is_write {
            Command::write(token, block * 512, &segments)
        } else {
            Command::read(token, block * 512, &segments)
        };
        while device.in_flight() == device.depth() {
            device.reap(&mut |done| check(&done, &mut in_flight));
            model.advance(Duration::from_millis(1));
        }
        device.submit(command.owner(area.clone()).region(region)).unwrap();
        // Of some, commands are still in flight.
        registered.extend(region);
        if registered.len() > 40 {
            registered.drain(..20).for_each(|region| device.unregister(region));
        }
        match chance(600) {
            0 => model.break_down(),
            1 => model.swallow(1),
            2..6 => model.hold(),
            6..60 => model.release(),
            60..300 => {
                device.reap(&mut |done| check(&done, &mut in_flight));
            }
            _ => model.advance(Duration::from_millis(chance(40))),
        }
        if device.in_flight() == device.depth() {
            model.release();
        }
    }
    model.release();
    for done in finish(&mut device, &model) {
        check(&done, &mut in_flight);
    }
    assert!(in_flight.is_empty(), "commands were lost: {:?}", in_flight.keys());
    for (block, bytes) in expected {
        let at = block as usize * 512;
        assert!(model.contents(1)[at..at + 512] == bytes, "block {block}");
    }
    let (stats, counts) = (device.stats(), model.counts());
    println!("{stats:?}, {counts:?}");
    assert_eq!(counts.faults, 0);
}

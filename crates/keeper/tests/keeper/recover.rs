//! Recovery after a crash, and without one.

use crate::machine::{Logged, Machine, Program, claim};
use bywash_keeper::report::Action;
use bywash_keeper::{Error, Step};
use bywash_log::sys;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

fn nothing_stops(_: Step) -> bool {
    true
}

/// Commits to two files what no file system has written yet; returns what they must hold.
fn commit(machine: &Machine) -> (Program, [Logged; 2], [Vec<u8>; 2]) {
    let program = machine.program();
    let files = ["first", "second"].map(|name| program.open(&machine.path(name)));
    for number in 0..20u8 {
        // The first one grows, and both are overwritten where they were committed before.
        assert!(program.commit(&files[0], u64::from(number) * 3000, &[number + 1; 5000]));
        assert!(program.commit(&files[1], 100, &[number + 1; 7]));
    }
    let contents = ["first", "second"].map(|name| fs::read(machine.path(name)).unwrap());
    (program, files, contents)
}

#[test]
fn what_was_committed_is_in_the_files_after_a_power_cut() {
    for (kind, bytes) in [("ext4", 48 << 20), ("xfs", 320 << 20)] {
        if let Some(machine) = Machine::on(kind, bytes) {
            cut_power_and_recover(&machine);
        }
    }
}

fn cut_power_and_recover(machine: &Machine) {
    let (_program, _files, contents) = commit(machine);
    machine.cut_power();
    assert_ne!(fs::read(machine.path("first")).unwrap(), contents[0], "the kernel had it written already");
    let recovered = machine.recover(true, &mut nothing_stops).unwrap();
    let told: Vec<_> = recovered.files.iter().map(|file| (file.records, file.action)).collect();
    assert_eq!(told, [(20, Action::Written); 2]);
    for (name, content) in ["first", "second"].iter().zip(&contents) {
        assert_eq!(&fs::read(machine.path(name)).unwrap(), content, "{name}");
        assert_eq!(claim(&machine.path(name)), None);
    }
    // The log is empty now.
    assert_eq!(machine.recover(true, &mut |_| false).unwrap().files, []);
    // What recovery wrote is durable.
    machine.cut_power();
    assert_eq!(fs::read(machine.path("first")).unwrap(), contents[0]);
}

#[test]
fn without_a_crash_nothing_is_written() {
    let Some(machine) = Machine::new() else { return };
    let (_program, files, _) = commit(&machine);
    // After kill -9 the page cache is newer than the log.
    files[0].file.write_all_at(b"newer than the log", 0).unwrap();
    files[1].file.set_len(3).unwrap();
    let newer = ["first", "second"].map(|name| fs::read(machine.path(name)).unwrap());
    let mut steps = Vec::new();
    let recovered = machine.recover(false, &mut |step| {
        steps.push(step);
        true
    });
    let recovered = recovered.unwrap();
    assert!(recovered.files.iter().all(|file| file.action == Action::Synced));
    assert!(!steps.contains(&Step::Write) && !steps.contains(&Step::Begin), "{steps:?}");
    machine.cut_power();
    let now = ["first", "second"].map(|name| fs::read(machine.path(name)).unwrap());
    assert_eq!(now, newer, "the files were made durable as they were");
}

#[test]
fn without_a_crash_a_file_that_has_another_name_is_made_durable_with_its_file_system() {
    let Some(machine) = Machine::new() else { return };
    let (_program, files, _) = commit(&machine);
    files[0].file.write_all_at(b"newer", 0).unwrap();
    fs::create_dir(machine.path("folder")).unwrap();
    fs::rename(machine.path("first"), machine.path("folder/renamed")).unwrap();
    fs::remove_file(machine.path("second")).unwrap();
    machine.recover(false, &mut nothing_stops).unwrap();
    machine.cut_power();
    assert_eq!(&fs::read(machine.path("folder/renamed")).unwrap()[..5], b"newer");
    assert!(!machine.path("second").exists());
}

#[test]
fn a_file_that_was_renamed_within_its_folder_is_found_after_a_crash() {
    let Some(machine) = Machine::new() else { return };
    let (_program, _files, contents) = commit(&machine);
    fs::rename(machine.path("first"), machine.path("new name")).unwrap();
    fs::write(machine.path("first"), "another file").unwrap();
    machine.recover(true, &mut nothing_stops).unwrap();
    assert_eq!(fs::read(machine.path("new name")).unwrap(), contents[0]);
    assert_eq!(fs::read(machine.path("first")).unwrap(), b"another file");
}

#[test]
fn records_that_a_mark_has_made_dead_are_not_written() {
    let Some(machine) = Machine::new() else { return };
    let (program, files, _) = commit(&machine);
    files[0].file.write_all_at(b"synced by the kernel", 0).unwrap();
    assert!(program.log.kernel_sync(files[0].entry, || files[0].file.sync_all().is_ok()).unwrap());
    let newer = fs::read(machine.path("first")).unwrap();
    machine.cut_power();
    let recovered = machine.recover(true, &mut nothing_stops).unwrap();
    assert_eq!(recovered.files.len(), 1);
    assert_eq!(fs::read(machine.path("first")).unwrap(), newer);
}

/// Ends recovery before its first step, its second one, and so on, and runs it again each time.
#[test]
fn recovery_can_be_interrupted_at_every_step() {
    let Some(machine) = Machine::new() else { return };
    let (program, files, contents) = commit(&machine);
    let log = fs::read(machine.log()).unwrap();
    let id = program.log.shared().id();
    let mut interruptions = 0;
    for last in 0.. {
        // As after the crash: the old log, and files without what it has.
        fs::write(machine.log(), &log).unwrap();
        for file in &files {
            file.file.set_len(0).unwrap();
            sys::set_attribute(file.file.as_raw_fd(), bywash_log::join::CLAIM, &id).unwrap();
        }
        let mut steps = 0;
        let first = machine.recover(true, &mut |_| {
            steps += 1;
            steps <= last
        });
        match first {
            Ok(_) => break,
            Err(Error::Interrupted(_)) => interruptions += 1,
            Err(error) => panic!("step {last}: {error}"),
        }
        machine.recover(true, &mut nothing_stops).unwrap_or_else(|error| panic!("step {last}: {error}"));
        for (name, content) in ["first", "second"].iter().zip(&contents) {
            assert!(fs::read(machine.path(name)).unwrap() == *content, "step {last}: {name}");
        }
        assert_eq!(machine.recover(true, &mut |_| false).unwrap().files, [], "step {last}");
    }
    // Begin, 40 records, two files durable and marked, the empty log, two claims.
    assert_eq!(interruptions, 1 + 40 + 4 + 1 + 2);
}

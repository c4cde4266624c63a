//! Tests of the recorder: its records make the disk that it served, and the file systems on it are sound.

use bywash_power::campaign::{Campaign, Site, Workload};
use bywash_power::disk::{Disk, Format};
use bywash_power::image::{Cut, Fate, Fault, Image};
use bywash_power::launch::Launch;
use bywash_power::machine::{Machine, missing};
use bywash_power::recording::{Kind, Position};
use bywash_power::workload::acknowledged::{self, Commits};
use bywash_power::workload::model::Model;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bywash-power");

fn is_sound(disk: &Disk, image: &Path) {
    let mut command = match disk.format {
        Format::Ext4 => Command::new("/sbin/e2fsck"),
        _ => Command::new("/sbin/xfs_repair"),
    };
    let options: &[&str] = if disk.format == Format::Ext4 { &["-fn"] } else { &["-n", "-f"] };
    let checked = command.args(options).arg(image).output().expect("a checker of file systems");
    assert!(checked.status.success(), "{disk:?}: {}", String::from_utf8_lossy(&checked.stdout));
}

/// Records the model program and compares the disks with their records.
fn recorded(format: Format) {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let log = Disk::new("log", Format::Ext4).with_bytes(16 << 20);
    let machine = Machine::new(Path::new(PROGRAM), vec![Disk::new("data", format), log]).expect("a machine");
    let launch = Launch::default();
    let site = Site { machine: &machine, launch: &launch };
    let model = Model::new(format, 150);
    let plain = machine.mount("now").expect("the disks");
    model.prepare(&site).expect("files");
    plain.unmount().expect("to unmount");

    let mounted = machine.record().expect("recorded disks");
    model.run(&site, Campaign::from_environment(0).seed).expect("the model");
    // Files of several sizes, by several threads at once, on both disks.
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let folder = machine.path(["data", "log"][thread % 2]);
            scope.spawn(move || {
                for file in 0..20 {
                    let path = folder.join(format!("{thread}-{file}"));
                    fs::write(&path, vec![thread as u8 + 1; 1 << (file % 18)]).expect("a file");
                    if file % 3 == 0 {
                        fs::File::open(&path).and_then(|file| file.sync_all()).expect("to sync");
                    }
                    if file % 4 == 3 {
                        fs::remove_file(folder.join(format!("{thread}-{}", file - 1))).expect("to unlink");
                    }
                }
            });
        }
    });
    mounted.unmount().expect("to unmount");

    let recording = machine.recording().expect("a recording");
    for (number, disk) in (0..).zip(machine.disks()) {
        let (base, cut) = (machine.image(disk, "base"), machine.image(disk, "cut"));
        let mut image = Image::new(number, disk.tear_bytes, &base, &cut).expect("an image");
        let end = Cut { position: recording.end(), fate: Fate::Kept };
        image.cut(&recording, &end, Fault::None).expect("the records");
        let same =
            fs::read(machine.image(disk, "now")).expect("the disk") == fs::read(&cut).expect("the image");
        assert!(same, "the records do not make the disk {}", disk.name);
        is_sound(disk, &cut);
        // After an unmount all is flushed.
        image.cut(&recording, &Cut { fate: Fate::Lost, ..end }, Fault::None).expect("the records");
        is_sound(disk, &cut);
        for kind in [Kind::Write, Kind::Flush] {
            let is_there =
                recording.records.iter().any(|record| record.kind == kind && record.disk == number);
            assert!(is_there, "no {kind:?} of {}", disk.name);
        }
    }
    assert!(recording.end() > Position(100));
}

#[test]
fn records_make_the_ext4() {
    recorded(Format::Ext4);
}

#[test]
fn records_make_the_xfs() {
    recorded(Format::Xfs);
}

#[test]
fn discards_and_zeroes_are_recorded() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let machine = Machine::new(Path::new(PROGRAM), vec![Disk::new("raw", Format::Raw)]).expect("a machine");
    let mounted = machine.record().expect("a recorded disk");
    let device = machine.path("raw");
    fs::write(&device, vec![7; 1 << 20]).expect("to write");
    let file = fs::File::open(&device).expect("the disk");
    file.sync_all().expect("to sync");
    for (options, at) in [(&["--zeroout"][..], "65536"), (&["--force"], "262144")] {
        let mut command = Command::new("blkdiscard");
        command.args(options).args(["--offset", at, "--length", "32768"]).arg(&device);
        let done = command.output().expect("blkdiscard");
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    drop(file);
    mounted.unmount().expect("to detach");

    let recording = machine.recording().expect("a recording");
    let zeroes = recording.records.iter().filter(|record| record.kind == Kind::Zero);
    let ranges: Vec<_> = zeroes.map(|record| (record.offset, record.length)).collect();
    assert_eq!(ranges, [(65536, 32768), (262_144, 32768)]);
    let disk = &machine.disks()[0];
    let cut = machine.image(disk, "cut");
    let mut image = Image::new(0, 512, &machine.image(disk, "base"), &cut).expect("an image");
    image
        .cut(&recording, &Cut { position: recording.end(), fate: Fate::Kept }, Fault::None)
        .expect("the records");
    let bytes = fs::read(&cut).expect("the image");
    assert!(bytes == fs::read(machine.image(disk, "now")).expect("the disk"));
    assert_eq!((bytes[65535], bytes[65536], bytes[262_144 + 32767], bytes[262_144 + 32768]), (7, 0, 0, 7));
}

/// Writes a number to a file of the disk `data`, then to one of the disk `log`, each durably, and then the next number.
struct Alternating;

impl Workload for Alternating {
    fn disks(&self) -> Vec<Disk> {
        vec![Disk::new("data", Format::Ext4)]
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        for disk in ["data", "log"] {
            fs::write(site.machine.path(disk).join("number"), 0_u64.to_le_bytes()).expect("a file");
        }
        Ok(())
    }

    fn run(&self, site: &Site, _seed: u64) -> Result<(), String> {
        let open = |disk: &str| fs::File::options().write(true).open(site.machine.path(disk).join("number"));
        let files = ["data", "log"].map(|disk| open(disk).expect("a file"));
        let mut acknowledged = Vec::new();
        for number in 1..=60_u64 {
            for file in &files {
                file.write_all_at(&number.to_le_bytes(), 0).expect("to write");
                file.sync_data().expect("to sync");
            }
            let Position(position) = site.machine.position()?;
            acknowledged.extend_from_slice(&[position.to_le_bytes(), number.to_le_bytes()].concat());
        }
        fs::write(site.machine.memory().join(acknowledged::FILE), acknowledged).expect("memory");
        Ok(())
    }

    fn check(&self, site: &Site, cut: Position) -> Result<u64, String> {
        let read = |disk: &str| fs::read(site.machine.path(disk).join("number")).expect("a file");
        let [data, log] =
            ["data", "log"].map(|disk| u64::from_le_bytes(read(disk)[..].try_into().expect("a number")));
        // The log may be behind by the number that was being written, and is never ahead.
        if log > data {
            return Err(format!(
                "the log has {log} and the data {data}: the disks were cut at different times"
            ));
        }
        let there = Commits::parse([format!("0 {log}")].iter().map(String::as_str)).expect("a number");
        Commits::acknowledged(&site.machine.memory(), cut)?.all_in(&there)
    }
}

/// The disks have one clock, and the commands of a launch run where they should.
#[test]
fn two_disks_are_cut_at_the_same_time() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    for log in [Format::Ext4, Format::Xfs] {
        let launch = Launch {
            prepare: words("cp /etc/os-release {log}"),
            prefix: Vec::new(),
            recover: words("cmp /etc/os-release {log}"),
            log: Some(log),
        };
        let campaign = Campaign { launch, replay: None, cuts: 60, ..Campaign::from_environment(0) };
        let outcome = campaign.run(Path::new(PROGRAM), &Alternating).expect("a campaign");
        assert_eq!((outcome.failure, outcome.cuts), (None, 60), "BYWASH_POWER_SEED={}", campaign.seed);
        assert_eq!(outcome.commits, 60);
    }
}

/// A kept recording gives the same verdict.
#[test]
fn a_failure_is_replayed() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let kept = tempfile::tempdir().expect("a folder");
    let kept = kept.path().join("kept");
    let launch = Launch::default();
    let campaign = Campaign { launch, replay: None, cuts: 40, ..Campaign::from_environment(0) };
    let failing = Campaign { keep: Some(kept.clone()), ..campaign.clone().with_fault(Fault::FlushIgnored) };
    let model = || Model::new(Format::Ext4, 150);
    let failure = failing.run(Path::new(PROGRAM), &model()).expect("a campaign").failure;
    let replay = Campaign { replay: Some(kept), keep: None, ..failing };
    let replayed = replay.run(Path::new(PROGRAM), &model()).expect("a replay").failure;
    assert!(failure.is_some());
    assert_eq!(failure, replayed);
    let sound = Campaign { fault: Fault::None, ..replay };
    assert_eq!(sound.run(Path::new(PROGRAM), &model()).expect("a replay").failure, None);
}

/// Returns the command lines of all processes, without those that have ended.
fn command_lines() -> String {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned() + "\n").collect()
}

/// Starts this program once more, which records a workload, and kills it in the middle of the work.
#[test]
fn nothing_is_left_of_a_harness_that_was_killed() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "records_until_it_is_killed", "--nocapture", "--ignored"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program once more");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let said = lines.filter_map(|line| pair(&line)).next();
    let (device, folder) = said.expect("a device and a folder");
    let backing = format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"));
    assert!(Path::new(&backing).exists());
    let runs = || command_lines().contains(&format!("model-process\0{folder}"));
    wait_until("the model does not run", runs);
    child.kill().expect("to kill");
    child.wait().expect("to wait");
    wait_until("a process is left", || !command_lines().contains(&folder));
    wait_until("the loop device is left", || !Path::new(&backing).exists());
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", std::process::id())).expect("mounts");
    assert!(!mounts.contains(&folder), "{mounts}");
    fs::remove_dir(&folder).expect("an empty folder");
}

#[test]
#[ignore = "part of nothing_is_left_of_a_harness_that_was_killed"]
fn records_until_it_is_killed() {
    let machine = Machine::new(Path::new(PROGRAM), vec![Disk::new("data", Format::Ext4)]).expect("a machine");
    let launch = Launch::default();
    let site = Site { machine: &machine, launch: &launch };
    let model = Model::new(Format::Ext4, 1_000_000);
    let plain = machine.mount("now").expect("the disks");
    model.prepare(&site).expect("files");
    plain.unmount().expect("to unmount");
    let _mounted = machine.record().expect("recorded disks");
    let data = machine.path("data").display().to_string();
    let mounts = fs::read_to_string("/proc/thread-self/mounts").expect("mounts");
    let device = mounts.lines().find(|line| line.contains(&data)).and_then(|line| line.split(' ').next());
    println!("mounted {} {}", device.expect("the mount"), data.trim_end_matches("/data"));
    model.run(&site, 1).expect("the model");
}

/// Reads the line by which the child tells its loop device and its folder.
fn pair(line: &str) -> Option<(String, String)> {
    let (device, folder) = line.strip_prefix("mounted ")?.split_once(' ')?;
    Some((device.to_owned(), folder.to_owned()))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

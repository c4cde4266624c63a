//! Between files and devices.

use super::{Mounted, assert_same, flow, flows, flows_in_32_mib, names, noise, run};
use crate::place::{TestFolder, bywash, stderr, stdout};
use bywash_support::disks::LoopDevice;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

const MOVERS: [&str; 6] = ["copy-range", "sendfile", "splice", "buffer", "dontcache", "direct"];

/// On the disk: in memory some movers are not to be had.
fn on_disk() -> TestFolder {
    TestFolder::new()
}

#[test]
fn every_mover_moves_every_size() {
    let place = on_disk();
    for bytes in [1, 511, 4096, 4097, (1 << 20) - 1, (9 << 20) + 12_345] {
        let from = place.file("from", noise(bytes));
        for mover in MOVERS {
            flows(&place, &["--via", mover, "from", "to"]);
            assert_same(&from, &place.path().join("to"));
        }
    }
    assert_eq!(names(place.path()), ["from", "to"]);
}

/// Returns the movers that took turns according to a report, with the bytes that each moved.
fn shares(told: &std::process::Output) -> Vec<(String, u64)> {
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let shares = told["pieces"][0]["shares"].as_array().unwrap().clone();
    shares
        .iter()
        .map(|share| (share["mover"].as_str().unwrap().to_owned(), share["bytes"].as_u64().unwrap()))
        .collect()
}

#[test]
fn movers_that_take_turns_make_one_copy() {
    let place = on_disk();
    let to = place.path().join("to");
    // Also where the last piece is none of a page, there is a limit, a piece of a file, and a file that is
    // written in place.
    let bytes = (24 << 20) + 12_345;
    let from = place.file("from", noise(bytes));
    for prefer in ["time", "cpu"] {
        let told = flows(&place, &["--json", "--prefer", prefer, "from", "to"]);
        assert_same(&from, &to);
        let shares = shares(&told);
        assert_eq!(shares.len(), 3, "{shares:?}");
        assert_eq!(shares.iter().map(|share| share.1).sum::<u64>(), bytes as u64, "{shares:?}");
        // Which one wins, and whether it stays the fastest, is the machine's business.
        assert!(shares.iter().all(|share| share.1 > 0), "{shares:?}");
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(told["pieces"][0]["mover"], shares[0].0.as_str());
        assert_eq!((&told["bytes"], &told["pieces"][0]["bytes"]), (&bytes.into(), &bytes.into()));
    }
    flows(&place, &["--limit", "20M", "from", "to"]);
    let data = fs::read(&from).unwrap();
    assert!(fs::read(&to).unwrap() == data[..20 << 20]);
    flows(&place, &["file:from,offset=3,length=20M", "file:to,offset=5"]);
    assert!(fs::read(&to).unwrap()[5..5 + (20 << 20)] == data[3..3 + (20 << 20)]);
    // A forced mover has the flow to itself, and so has the only one.
    assert!(shares(&flows(&place, &["--json", "--via", "splice", "from", "to"])).is_empty());
    assert!(shares(&flows(&place, &["--json", "--hash", "blake3", "from", "to"])).is_empty());
}

#[test]
fn movers_take_turns_at_streams_that_end_anywhere() {
    let place = on_disk();
    let to = place.path().join("to");
    // Nothing, less than a turn, the end of a turn, in the middle of the second one, and long enough for a
    // winner.
    for bytes in [0, 1000, 1 << 20, (1 << 20) + 1, (24 << 20) + 12_345] {
        let from = place.file("from", noise(bytes));
        let script = r#"cat from | "$0" flow --json - to"#;
        let told = run(place.command("sh").args(["-c", script]).arg(bywash()));
        assert_same(&from, &to);
        let shares = shares(&told);
        assert_eq!(shares.len(), 2, "{shares:?}");
        assert_eq!(shares.iter().map(|share| share.1).sum::<u64>(), bytes as u64, "{shares:?}");
        assert_eq!(shares.iter().all(|share| share.1 > 0), bytes > 2 << 20, "{shares:?}");
    }
    let data = fs::read(place.path().join("from")).unwrap();
    run(place.command("sh").args(["-c", r#"cat from | "$0" flow --limit 3M - to"#]).arg(bywash()));
    assert!(fs::read(&to).unwrap() == data[..3 << 20]);
}

#[test]
fn turns_pass_over_holes() {
    let place = on_disk();
    let mut from = File::create(place.path().join("from")).unwrap();
    for at in (0..64u64).step_by(3) {
        from.seek(SeekFrom::Start(at << 20)).unwrap();
        from.write_all(&noise(1 << 20)).unwrap();
    }
    from.set_len(70 << 20).unwrap();
    for to in ["to", "file:to,in-place"] {
        flows(&place, &["from", to]);
        assert_same(&place.path().join("from"), &place.path().join("to"));
        let held = fs::metadata(place.path().join("to")).unwrap().blocks();
        assert!(held < (24 << 20) / 512, "holes are filled: {held} blocks");
    }
}

#[test]
fn a_copy_takes_little_memory_whatever_its_size() {
    let place = on_disk();
    let from = place.file("from", noise(40 << 20));
    for mover in MOVERS {
        for block in ["1M", "4M"] {
            flows_in_32_mib(&place, &["--via", mover, "--block", block, "from", "to"]);
            assert_same(&from, &place.path().join("to"));
        }
    }
}

#[test]
fn blocks_of_every_size_give_the_same() {
    let place = on_disk();
    let from = place.file("from", noise((1 << 20) + 7));
    for mover in MOVERS {
        for block in ["512", "1000", "4K", "4M"] {
            flows(&place, &["--via", mover, "--block", block, "from", "to"]);
            assert_same(&from, &place.path().join("to"));
        }
    }
}

#[test]
fn nothing_is_a_file_too() {
    let place = on_disk();
    place.file("from", "");
    flows(&place, &["from", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), b"");
}

#[test]
fn holes_stay_holes() {
    let place = on_disk();
    let mut from = File::create(place.path().join("from")).unwrap();
    for at in [1u64 << 20, 40 << 20, (40 << 20) + 8192] {
        from.seek(SeekFrom::Start(at)).unwrap();
        from.write_all(&noise(4096)).unwrap();
    }
    from.set_len(100 << 20).unwrap();
    let to = place.path().join("to");
    for mover in MOVERS {
        flows(&place, &["--via", mover, "from", "to"]);
        assert_same(&place.path().join("from"), &to);
        assert!(fs::metadata(&to).unwrap().blocks() < 1000, "{mover} fills holes");
    }
    flows(&place, &["from", "hash:blake3", "to"]);
    assert_same(&place.path().join("from"), &to);
    assert!(fs::metadata(&to).unwrap().blocks() < 1000, "a stage fills holes");
    flows(&place, &["from", "file:to,dense"]);
    assert_same(&place.path().join("from"), &to);
    assert!(fs::metadata(&to).unwrap().blocks() >= (100 << 20) / 512);
}

#[test]
fn holes_stay_holes_in_a_file_that_is_written_in_place() {
    let place = on_disk();
    let mut from = File::create(place.path().join("from")).unwrap();
    for at in [1u64 << 20, 20 << 20] {
        from.seek(SeekFrom::Start(at)).unwrap();
        from.write_all(&noise(4096)).unwrap();
    }
    from.set_len(40 << 20).unwrap();
    let to = place.path().join("to");
    let ways =
        [vec!["--via", "buffer"], vec!["--via", "splice"], vec!["--via", "direct"], vec!["--hash", "blake3"]];
    for way in ways {
        // What is there goes where the source has a hole, and the file ends where the source does.
        place.file("to", noise(48 << 20));
        flows(&place, &[&way[..], &["from", "file:to,in-place"]].concat());
        assert_same(&place.path().join("from"), &to);
        let held = fs::metadata(&to).unwrap().blocks();
        assert!(held < 1000, "{way:?} fills holes: {held} blocks");
    }
    // What lies around a piece stays.
    let old = noise(8 << 20);
    place.file("to", &old);
    flows(&place, &["file:from,length=2M", "file:to,offset=3M"]);
    let (mut expected, source) = (old, fs::read(place.path().join("from")).unwrap());
    expected[3 << 20..5 << 20].copy_from_slice(&source[..2 << 20]);
    assert!(fs::read(&to).unwrap() == expected);
    flows(&place, &["from", "file:to,in-place,dense"]);
    assert_same(&place.path().join("from"), &to);
    assert!(fs::metadata(&to).unwrap().blocks() >= (40 << 20) / 512);
}

#[test]
fn pieces_of_files() {
    let place = on_disk();
    let data = noise(3 << 20);
    place.file("from", &data);
    flows(&place, &["file:from,offset=1000,length=1M", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), data[1000..1000 + (1 << 20)]);
    for mover in MOVERS {
        place.file("to", noise(2 << 20));
        let mut expected = noise(2 << 20);
        flows(&place, &["--via", mover, "file:from,offset=4K,length=8K", "file:to,offset=12K"]);
        expected[12 << 10..20 << 10].copy_from_slice(&data[4 << 10..12 << 10]);
        assert!(fs::read(place.path().join("to")).unwrap() == expected, "{mover}");
    }
    flows(&place, &["--limit", "10", "from", "file:to,in-place"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), data[..10]);
    flows(&place, &["--limit", "5", "from", "file:to,append"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), [&data[..10], &data[..5]].concat());
    let refused = flow(&place, &["file:from,offset=4M", "to"]);
    assert!(stderr(&refused).contains("only 3145728 bytes"), "{}", stderr(&refused));
}

#[test]
fn what_may_be_done_with_a_file_is_kept() {
    let place = on_disk();
    let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().permissions().mode() & 0o7777;
    let from = place.file("from", "x");
    fs::set_permissions(&from, fs::Permissions::from_mode(0o750)).unwrap();
    flows(&place, &["from", "to"]);
    assert_eq!(mode("to"), 0o750);
    flows(&place, &["from", "file:other,mode=0600"]);
    assert_eq!(mode("other"), 0o600);
    flows(&place, &["from", "other"]);
    assert_eq!(mode("other"), 0o600, "a file that was there keeps its own");
    fs::set_permissions(&from, fs::Permissions::from_mode(0o4755)).unwrap();
    flows(&place, &["from", "copy"]);
    assert_eq!(mode("copy"), 0o755, "a copy makes nobody its owner");
    flows(&place, &["other", "from"]);
    assert_eq!(mode("from"), 0o4755);
}

#[test]
fn folders_links_and_names() {
    let place = on_disk();
    place.file("from", "x");
    fs::create_dir(place.path().join("folder")).unwrap();
    flows(&place, &["from", "folder"]);
    assert_eq!(names(&place.path().join("folder")), ["from"]);
    std::os::unix::fs::symlink("folder/from", place.path().join("link")).unwrap();
    place.file("with,comma:and", "y");
    flows(&place, &["./with,comma:and", "link"]);
    assert_eq!(fs::read(place.path().join("folder/from")).unwrap(), b"y");
    // A link to nothing yet leads to the file from then on.
    std::os::unix::fs::symlink("folder/new", place.path().join("dangling")).unwrap();
    flows(&place, &["from", "dangling"]);
    assert!(fs::symlink_metadata(place.path().join("dangling")).unwrap().is_symlink());
    assert_eq!(fs::read(place.path().join("folder/new")).unwrap(), b"x");
    for (words, said) in [
        (["from", "./from"], "are the same file"),
        (["from", "nowhere/to"], "in the folder nowhere"),
        (["folder", "to"], "is a folder, and a flow moves one stream"),
        (["missing", "to"], "open file:missing"),
        (["from", "file:folder/from,excl"], "File exists"),
        (["from", "null"], ""),
    ] {
        let output = flow(&place, &words);
        assert!(stderr(&output).contains(said), "{words:?}: {}", stderr(&output));
        assert_eq!(output.status.success(), said.is_empty());
    }
}

#[test]
fn devices() {
    let device = LoopDevice::new(8 << 20).unwrap();
    let place = on_disk();
    let from = place.file("from", noise(3 << 20));
    let raw = format!("raw:{}", device.path().display());
    for mover in ["splice", "buffer", "direct"] {
        flows(&place, &["--sync", "--via", mover, "from", &format!("{raw},offset=1M")]);
        flows(&place, &["--via", mover, &format!("{raw},offset=1M,length=3M"), "to"]);
        assert_same(&from, &place.path().join("to"));
        place.file("to", "");
    }
    place.file("large", vec![1; 9 << 20]);
    // What is on a device that is too small stays, by whatever way the bytes would come.
    let before = fs::read(device.path()).unwrap();
    let end = format!("{raw},offset=6M");
    for words in [
        vec!["large", &raw],
        vec!["--hash", "blake3", "large", &raw],
        vec!["from", &end],
        vec!["--limit", "3M", "large", &end],
    ] {
        let full = flow(&place, &words);
        assert!(stderr(&full).contains("No space left"), "{}", stderr(&full));
        assert!(stderr(&full).contains("was left as it is"), "{}", stderr(&full));
        assert_eq!(full.status.code(), Some(1));
        assert!(fs::read(device.path()).unwrap() == before, "{words:?} has written");
    }
    flows(&place, &["--limit", "2M", "large", &end]);
    let refused = flow(&place, &["from", "raw:to"]);
    assert!(stderr(&refused).contains("no block device"), "{}", stderr(&refused));
}

#[test]
fn a_device_that_is_mounted_is_not_written() {
    let mounted = Mounted::make("ext4", 16 << 20);
    let found = run(mounted.place.command("findmnt").args(["-no", "SOURCE", &mounted.path()]));
    mounted.place.file("from", "x");
    let refused = flow(&mounted.place, &["from", &format!("raw:{}", stdout(&found).trim())]);
    assert!(stderr(&refused).contains("busy"), "{}", stderr(&refused));
}

#[test]
fn files_that_can_share_blocks_do() {
    let xfs = Mounted::make("xfs", 320 << 20);
    let data = noise((2 << 20) + 5);
    let path = |name: &str| format!("{}/{name}", xfs.path());
    fs::write(path("from"), &data).unwrap();
    let told = flows(&xfs.place, &["--json", &path("from"), &path("to")]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["pieces"][0]["mover"], &told["pieces"][0]["copies"]), (&"reflink".into(), &0.into()));
    assert!(fs::read(path("to")).unwrap() == data);
    // A piece that is no whole number of blocks goes another way, which is told.
    let told = flows(&xfs.place, &[&format!("file:{},offset=3", path("from")), &path("to")]);
    assert!(stderr(&told).contains("not reflink"), "{}", stderr(&told));
    assert!(fs::read(path("to")).unwrap() == data[3..]);
}

#[test]
fn from_one_file_system_to_another() {
    let xfs = Mounted::make("xfs", 320 << 20);
    let from = xfs.place.file("from", noise((5 << 20) + 1));
    let to = format!("{}/to", xfs.path());
    for mover in MOVERS.iter().filter(|mover| **mover != "copy-range") {
        flows(&xfs.place, &["--via", mover, "from", &to]);
        assert_same(&from, to.as_ref());
    }
    flows(&xfs.place, &["from", "/dev/shm/bywash-test-flow"]);
    assert_same(&from, "/dev/shm/bywash-test-flow".as_ref());
    fs::remove_file("/dev/shm/bywash-test-flow").unwrap();
    let refused = flow(&xfs.place, &["--via", "copy-range", "from", &to]);
    assert!(stderr(&refused).contains("different file systems"), "{}", stderr(&refused));
}

#[test]
fn standard_input_and_output_that_are_files() {
    let place = on_disk();
    let data = noise(300_000);
    let from = place.file("from", &data);
    let (mut input, output) = (File::open(&from).unwrap(), File::create(place.path().join("to")).unwrap());
    for limit in ["100000", "50000"] {
        let mut command = place.bywash(&["flow", "--limit", limit, "-", "-"]);
        command.stdin(input.try_clone().unwrap()).stdout(output.try_clone().unwrap());
        assert!(command.status().unwrap().success());
    }
    // Who shares the descriptors goes on where the flows have stopped.
    let mut rest = Vec::new();
    input.read_to_end(&mut rest).unwrap();
    assert!(rest == data[150_000..]);
    assert!(fs::read(place.path().join("to")).unwrap() == data[..150_000]);
    let append = fs::OpenOptions::new().append(true).open(place.path().join("to")).unwrap();
    let mut command = place.bywash(&["flow", "file:from,offset=150000", "-"]);
    assert!(command.stdout(append).status().unwrap().success());
    assert!(fs::read(place.path().join("to")).unwrap() == data);
}

#[test]
fn files_that_the_kernel_makes_up() {
    let place = on_disk();
    flows(&place, &["/proc/version", "to"]);
    assert_eq!(fs::read("/proc/version").unwrap(), fs::read(place.path().join("to")).unwrap());
    let told = place.bywash(&["flow", "-q", "/proc/version", "-"]).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(told.stdout, fs::read("/proc/version").unwrap());
}

#[test]
fn what_is_durable_is_whole_too() {
    let place = on_disk();
    let from = place.file("from", noise((20 << 20) + 3));
    let told = flows(&place, &["--sync", "from", "to"]);
    assert_same(&from, &place.path().join("to"));
    assert!(stderr(&told).contains("direct"), "{}", stderr(&told));
    flows(&place, &["--sync", "--limit", "1M", "from", "to"]);
    assert_eq!(fs::metadata(place.path().join("to")).unwrap().len(), 1 << 20);
}

#[test]
fn the_page_cache_is_left_as_it_was() {
    let place = on_disk();
    let from = place.file("from", vec![3; 160 << 20]);
    run(place.command("sync").arg("from"));
    for mover in ["splice", "buffer"] {
        flows(&place, &["--via", mover, "file:from,nocache", "file:to,nocache"]);
        assert_same_size(&from, &place.path().join("to"));
        for name in ["from", "to"] {
            let told =
                stdout(&run(place.command("fincore").args(["--bytes", "--noheadings", "-o", "RES", name])));
            let kept: u64 = told.trim().parse().unwrap();
            assert!(kept <= 48 << 20, "{mover}: {kept} bytes of {name} are in the page cache");
        }
    }
}

/// To read them would bring them into the page cache.
fn assert_same_size(one: &std::path::Path, other: &std::path::Path) {
    assert_eq!(fs::metadata(one).unwrap().len(), fs::metadata(other).unwrap().len());
}

#[test]
fn little_memory_is_enough() {
    let place = on_disk();
    let from = File::create(place.path().join("from")).unwrap();
    from.set_len(200 << 20).unwrap();
    drop(from);
    for mover in MOVERS {
        let script = format!(
            "'{}' flow -q --via {mover} from file:to,dense & wait $!",
            crate::place::bywash().display()
        );
        // A limit on what may be mapped: the mover's memory, the program's own, and 8 MiB of stack for each
        // thread.
        let limited = place
            .command("bash")
            .args(["-c", &format!("ulimit -v $((96 * 1024)); {script}")])
            // Without it the C library reserves 64 MiB for a thread's first allocation, and gives them back a
            // moment later.
            .env("MALLOC_ARENA_MAX", "1")
            .output();
        let limited = limited.unwrap();
        assert!(limited.status.success(), "{mover}: {}", stderr(&limited));
    }
}

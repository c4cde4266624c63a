//! Devices that are added to a running server and taken away from it.

use crate::peer::{Peer, Served, pattern};
use bywash_protocol::{Access, ControlReply, ControlRequest, Refusal, RefusalKind};
use bywash_server::Options;

fn add(peer: &Peer, device: &str) -> Result<(), Refusal> {
    let done = peer.ask(ControlRequest::AddDevice { device: device.into() })?;
    assert_eq!(done, ControlReply::Done {});
    Ok(())
}

fn drop_device(peer: &Peer, device: &str) -> Result<(), Refusal> {
    peer.ask(ControlRequest::DropDevice { device: device.into() }).map(drop)
}

fn names(served: &Served) -> Vec<String> {
    let mut names: Vec<String> = served.status().devices.into_iter().map(|device| device.name).collect();
    names.sort();
    names
}

/// Text of a file device in the folder of the server.
fn file(served: &Served, name: &str) -> String {
    format!("{name}=file:{},size=8M", served.folder.path().join(name).display())
}

#[test]
fn volumes_of_a_device_come_with_it_and_go_with_it() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    add(&peer, &file(&served, "late")).unwrap();
    assert_eq!(names(&served), ["fast", "late"]);
    peer.create("log", "late", 1 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    peer.write(grant, 4096, &pattern(7, 4096)).unwrap();
    peer.ask(ControlRequest::Close { grant }).unwrap();
    // Again and again: the core gives the number of a dropped device to the next one.
    for _ in 0..3 {
        drop_device(&peer, "late").unwrap();
        assert_eq!(names(&served), ["fast"]);
        let refused = peer.open("log", Access::Read).unwrap_err();
        assert_eq!(refused.code, RefusalKind::Missing);
        assert!(refused.message.contains("which this server does not have"), "{refused}");
        add(&peer, &file(&served, "late")).unwrap();
        let grant = peer.open("log", Access::Read).unwrap().grant;
        assert_eq!(peer.read(grant, 4096, 4096).unwrap(), pattern(7, 4096));
        peer.ask(ControlRequest::Close { grant }).unwrap();
    }
}

#[test]
fn a_device_in_use_stays_and_its_users_are_named() {
    let served = Served::memory();
    let admin = served.peer();
    add(&admin, &file(&served, "late")).unwrap();
    admin.create("log", "late", 1 << 20);
    let mut peer = served.peer().with_channel();
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let refused = drop_device(&admin, "late").unwrap_err();
    assert_eq!(refused.code, RefusalKind::Limit);
    let by = format!("volume 'log' by client {} 'test' (process {}", peer.number, std::process::id());
    assert!(refused.message.contains(&by), "{refused}");
    // Nothing has changed for the client.
    peer.write(grant, 0, &pattern(1, 4096)).unwrap();
    assert_eq!(peer.read(grant, 0, 4096).unwrap(), pattern(1, 4096));
    // A client that has disconnected does not use it any more, even if the server has not noticed yet.
    drop(peer);
    drop_device(&admin, "late").unwrap();
}

#[test]
fn memory_is_dropped_only_when_no_volume_would_be_lost() {
    let served = Served::memory();
    let peer = served.peer();
    peer.create("log", "fast", 1 << 20);
    let refused = drop_device(&peer, "fast").unwrap_err();
    assert_eq!(refused.code, RefusalKind::Unfit);
    assert!(refused.message.contains("would be lost with volumes 'log'"), "{refused}");
    peer.ask(ControlRequest::Remove { volume: "log".into() }).unwrap();
    drop_device(&peer, "fast").unwrap();
    assert!(names(&served).is_empty());
    // The name is free for another size and shape.
    add(&peer, "fast=mem:4M,pages=4K").unwrap();
    peer.create("log", "fast", 1 << 20);
    // Chunks that a client had mapped belonged to another device.
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let (mapped, passed) = peer.ask_with(ControlRequest::Map { grant, from: 0 }, &[]).unwrap();
    assert!(matches!(mapped, ControlReply::Chunks { .. }) && !passed.is_empty());
    peer.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
}

#[test]
fn what_cannot_be_added_or_dropped_is_named() {
    let served = Served::file(8 << 20);
    let peer = served.peer();
    let path = served.folder.path().join("disk");
    let copy = served.folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    for (device, code, why) in [
        ("disk=mem:4M".to_owned(), RefusalKind::Exists, "there is a device 'disk' already"),
        ("more".into(), RefusalKind::Unfit, "NAME=SPEC"),
        ("more=file:/nowhere/x".into(), RefusalKind::Unfit, "/nowhere/x"),
        (format!("copy=file:{}", copy.display()), RefusalKind::Unfit, "disk"),
    ] {
        let refused = add(&peer, &device).unwrap_err();
        assert_eq!(refused.code, code, "{device}: {refused}");
        assert!(refused.message.contains(why), "{device}: {refused}");
    }
    assert_eq!(drop_device(&peer, "more").unwrap_err().code, RefusalKind::Missing);
    for number in 0..31 {
        add(&peer, &format!("more{number}=mem:2M,pages=4K")).unwrap();
    }
    assert_eq!(add(&peer, "one-more=mem:2M,pages=4K").unwrap_err().code, RefusalKind::Limit);
}

/// The store keeps what was created; the devices of the next server are those that it is started with.
#[test]
fn a_device_that_was_added_ends_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("volumes");
    let start = || Served::with(&["fast=mem:4M,pages=4K"], |options: Options| options.policy(policy.clone()));
    let device = format!("late=file:{},size=8M", folder.path().join("late").display());
    let served = start();
    let peer = served.peer();
    add(&peer, &device).unwrap();
    peer.create("log", "late", 1 << 20);
    drop((peer, served));
    let served = start();
    let peer = served.peer();
    assert_eq!(names(&served), ["fast"]);
    assert_eq!(peer.open("log", Access::Read).unwrap_err().code, RefusalKind::Missing);
    add(&peer, &device).unwrap();
    peer.open("log", Access::Read).unwrap();
}

//! Exports and devices that come and go while a server runs.

use crate::place::TestFolder;
use crate::serve::{Serving, done, refused, volume};
use crate::serve_nbd::{Client, DEVICE, volumes};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Output;
use std::time::{Duration, Instant};

fn serve_command(place: &TestFolder, arguments: &[&str]) -> Output {
    place.bywash(&["serve"]).args(arguments).args(["--socket", "socket"]).output().unwrap()
}

fn exports(place: &TestFolder) -> Vec<serde_json::Value> {
    let status = done(serve_command(place, &["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["exports"].as_array().unwrap().clone()
}

/// Reads until the server closes the connection.
fn is_closed(client: &mut Client<UnixStream>) -> bool {
    matches!(client.0.read_to_end(&mut Vec::new()), Ok(0) | Err(_))
}

#[test]
fn volumes_are_exported_and_withdrawn_while_others_are_served() {
    let place = TestFolder::new();
    volumes(&place);
    let mut serving = Serving::start(&place, &DEVICE);
    assert!(exports(&place).is_empty());
    done(volume(&place, &["export", "root", "--nbd", "unix:nbd,mode=660"]));
    let mode = std::fs::metadata(place.path().join("nbd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut root = Client::at(&place, "nbd", "");
    root.write(1, 0, &[1; 4096]);
    for (arguments, why) in [
        (["data", "--nbd", "unix:nbd"], "other options for another volume"),
        (["root", "--nbd", "unix:nbd,mode=660"], "is exported at unix:"),
        (["none", "--nbd", "unix:other"], "there is no volume 'none'"),
        (["root", "--nbd", "tcp:0.0.0.0:0"], "or open if"),
        (["root", "--vhost-user", "volumes"], "something that is no socket"),
    ] {
        let said = refused(&volume(&place, &[&["export"], &arguments[..]].concat()));
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    done(volume(&place, &["export", "data", "--nbd", "unix:nbd,mode=660"]));
    done(volume(&place, &["export", "data", "--vhost-user", "vm"]));
    let mut data = Client::at(&place, "nbd", "data");
    data.write(1, 0, &[2; 4096]);
    let told = exports(&place);
    let at = |name: &str| place.path().join(name).display().to_string();
    let shown = |export: &serde_json::Value| {
        ["volume", "protocol", "address"].map(|field| export[field].as_str().unwrap().to_owned())
    };
    let expected = [["data", "vhost-user", &at("vm")], ["root,data", "nbd", &format!("unix:{}", at("nbd"))]];
    assert_eq!(told.iter().map(shown).collect::<Vec<_>>(), expected);
    let table = done(serve_command(&place, &["status", "--once"]));
    assert!(table.lines().any(|line| line.starts_with("root,data") && line.ends_with(&at("nbd"))), "{table}");
    // The clients of one volume notice nothing of the end of another's export.
    done(volume(&place, &["unexport", "data", "--nbd", "unix:nbd"]));
    assert!(is_closed(&mut data) && place.path().join("vm").exists());
    assert_eq!(root.read(0, 4096), [1; 4096]);
    let said = refused(&volume(&place, &["unexport", "data", "--nbd", "unix:nbd"]));
    assert!(said.contains("is not exported at unix:"), "{said}");
    done(volume(&place, &["unexport", "data"]));
    done(volume(&place, &["unexport", "root"]));
    assert!(is_closed(&mut root) && exports(&place).is_empty());
    assert!(!place.path().join("nbd").exists() && !place.path().join("vm").exists());
    let said = refused(&volume(&place, &["unexport", "root"]));
    assert!(said.contains("volume 'root' is not exported"), "{said}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// Clients that connect after the change see the new size.
#[test]
fn an_export_has_the_size_of_its_volume() {
    let place = TestFolder::new();
    volumes(&place);
    let mut serving = Serving::start(&place, &[&DEVICE[..], &["--nbd", "root=unix:nbd"]].concat());
    let mut root = Client::at(&place, "nbd", "root");
    done(volume(&place, &["resize", "root", "6M"]));
    // The client may not know it, and can use it all the same.
    root.write(0, 5 << 20, &[6; 512]);
    let size = || {
        let mut stream = UnixStream::connect(place.path().join("nbd")).unwrap();
        let mut told = [0; 28];
        let name = [&1u32.to_be_bytes()[..], &4u32.to_be_bytes(), b"root"].concat();
        stream.write_all(&[&3u32.to_be_bytes()[..], b"IHAVEOPT", &name].concat()).unwrap();
        stream.read_exact(&mut told).unwrap();
        u64::from_be_bytes(told[18..26].try_into().unwrap())
    };
    assert_eq!(size(), 6 << 20);
    done(volume(&place, &["resize", "root", "4M"]));
    let until = Instant::now() + Duration::from_secs(20);
    while size() != 4 << 20 {
        assert!(Instant::now() < until, "the export keeps the former size");
    }
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// The next server exports what its command line says, and takes the names of sockets over from one that was killed.
#[test]
fn exports_that_were_added_end_with_the_server() {
    let place = TestFolder::new();
    volumes(&place);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let arguments = [&DEVICE[..], &["--nbd", "root=unix:nbd"]].concat();
        let mut serving = Serving::start(&place, &arguments);
        done(volume(&place, &["export", "data", "--nbd", "unix:more"]));
        Client::at(&place, "more", "data").write(1, 0, &[3; 512]);
        serving.end(signal);
        let mut serving = Serving::start(&place, &arguments);
        assert_eq!(exports(&place).len(), 1);
        assert!(UnixStream::connect(place.path().join("more")).is_err());
        // One of the command line can be withdrawn as well.
        done(volume(&place, &["unexport", "root", "--nbd", "unix:nbd"]));
        assert!(!place.path().join("nbd").exists());
        done(volume(&place, &["export", "data", "--nbd", "unix:more"]));
        assert_eq!(Client::at(&place, "more", "data").read(0, 512), [3; 512]);
        assert_eq!(serving.end(libc::SIGTERM), Some(0));
    }
}

#[test]
fn a_device_is_dropped_when_its_exports_are_withdrawn_and_added_again() {
    let place = TestFolder::new();
    volumes(&place);
    let mut serving = Serving::start(&place, &[&DEVICE[..], &["--device", "fast=mem:4M"]].concat());
    done(volume(&place, &["export", "root", "--nbd", "unix:nbd"]));
    Client::at(&place, "nbd", "root").write(0, 0, &[4; 4096]);
    let said = refused(&serve_command(&place, &["drop", "disk"]));
    assert!(
        said.contains("device 'disk' is in use: volume 'root' by client") && said.contains("'nbd root'"),
        "{said}"
    );
    done(volume(&place, &["unexport", "root"]));
    done(serve_command(&place, &["drop", "disk"]));
    let said = refused(&volume(&place, &["export", "root", "--nbd", "unix:nbd"]));
    assert!(said.contains("device 'disk', which this server does not have"), "{said}");
    // A relative path is one of this folder, not of the server's.
    std::fs::create_dir(place.path().join("folder")).unwrap();
    let mut elsewhere = place.bywash(&["serve", "add", "disk=file:../disk", "--socket", "../socket"]);
    let told = done(elsewhere.current_dir(place.path().join("folder")).output().unwrap());
    assert!(told.starts_with("device disk: "), "{told}");
    done(volume(&place, &["export", "root", "--nbd", "unix:nbd"]));
    assert_eq!(Client::at(&place, "nbd", "root").read(0, 4096), [4; 4096]);
    let said = refused(&serve_command(&place, &["add", "fast=mem:4M"]));
    assert!(said.contains("there is a device 'fast' already"), "{said}");
    done(serve_command(&place, &["drop", "fast"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// A frontend that is connected when its export is withdrawn finds the connection closed.
#[test]
fn a_frontend_is_disconnected_when_its_export_is_withdrawn() {
    let place = TestFolder::new();
    volumes(&place);
    let mut serving = Serving::start(&place, &DEVICE);
    done(volume(&place, &["export", "root", "--vhost-user", "vm"]));
    let mut frontend = UnixStream::connect(place.path().join("vm")).unwrap();
    frontend.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // GET_FEATURES.
    frontend.write_all(&[1u32, 1, 0].map(u32::to_le_bytes).concat()).unwrap();
    frontend.read_exact(&mut [0; 20]).unwrap();
    done(volume(&place, &["unexport", "root", "--vhost-user", "vm"]));
    assert!(matches!(frontend.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

#[test]
fn a_store_without_a_server_exports_nothing() {
    let place = TestFolder::new();
    volumes(&place);
    let said =
        refused(&place.bywash(&["volume", "--policy", "volumes", "unexport", "root"]).output().unwrap());
    assert!(said.contains("ending an export needs a running server"), "{said}");
}

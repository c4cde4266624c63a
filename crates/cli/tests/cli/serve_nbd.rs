//! `bywash serve --nbd`: volumes for clients that know nothing of Bywash.

use crate::place::{TestFolder, stderr, stdout};
use crate::serve::{Serving, done, refused, volume};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

pub const DEVICE: [&str; 4] = ["--policy", "volumes", "--device", "disk=file:disk,size=32M"];
const SIZE: u64 = 4 << 20;

/// Makes the volumes `root` and `data`, and ends the server that did it.
pub fn volumes(place: &TestFolder) {
    let mut serving = Serving::start(place, &DEVICE);
    for name in ["root", "data"] {
        done(volume(place, &["create", name, "4M", "--device", "disk"]));
    }
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

fn serve(place: &TestFolder, exports: &[&str]) -> Serving {
    let exports = exports.iter().flat_map(|export| ["--nbd", *export]);
    Serving::start(place, &DEVICE.into_iter().chain(exports).collect::<Vec<_>>())
}

/// Client that writes and reads messages as proto.md of the NBD project describes them, with simple replies.
pub struct Client<S>(pub S);

impl Client<UnixStream> {
    pub fn at(place: &TestFolder, socket: &str, export: &str) -> Client<UnixStream> {
        let stream = UnixStream::connect(place.path().join(socket)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(stream).enter(export)
    }
}

impl<S: Read + Write> Client<S> {
    /// Shakes hands by the option `EXPORT_NAME`.
    fn enter(mut self, export: &str) -> Client<S> {
        let mut greeting = [0; 18];
        self.0.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        let (number, length) = (1u32.to_be_bytes(), (export.len() as u32).to_be_bytes());
        let option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &number, &length, export.as_bytes()].concat();
        self.0.write_all(&option).unwrap();
        let mut told = [0; 10];
        self.0.read_exact(&mut told).unwrap();
        assert_eq!(told[..8], SIZE.to_be_bytes());
        self
    }

    /// Sends a request, whose reply must tell of no error.
    fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: usize, payload: &[u8]) {
        assert_eq!(self.outcome(kind, flags, offset, length, payload), 0);
    }

    /// Sends a request, and returns the error of the reply.
    fn outcome(&mut self, kind: u16, flags: u16, offset: u64, length: usize, payload: &[u8]) -> u32 {
        let mut message = vec![0x25, 0x60, 0x95, 0x13];
        message.extend([flags, kind].map(u16::to_be_bytes).concat());
        message
            .extend([&[7; 8][..], &offset.to_be_bytes(), &(length as u32).to_be_bytes(), payload].concat());
        self.0.write_all(&message).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        let [magic, error, first, second] = reply.as_chunks::<4>().0 else { panic!("16 bytes") };
        assert_eq!((magic, first, second), (&[0x67, 0x44, 0x66, 0x98], &[7; 4], &[7; 4]));
        u32::from_be_bytes(*error)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) {
        self.ask(1, flags, offset, data.len(), data);
    }

    fn flush(&mut self) {
        self.ask(3, 0, 0, 0, &[]);
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.ask(0, 0, offset, length, &[]);
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

/// Returns the URI that the server has told of a volume.
fn told(serving: &Serving, volume: &str, scheme: &str) -> String {
    let line = format!("volume {volume} for NBD clients at ");
    let mut uris = serving.said.lines().filter_map(|said| said.strip_prefix(&line));
    uris.find(|uri| uri.starts_with(scheme)).unwrap_or_else(|| panic!("{}", serving.said)).to_owned()
}

/// A thin volume grows as it is written, until its device has no more for it: only then, and only for new blocks, the
/// client gets ENOSPC.
#[test]
fn a_thin_volume_is_written_until_its_device_is_full() {
    const CLUSTER: usize = 256 << 10;
    let place = TestFolder::new();
    let device = ["--policy", "volumes", "--device", "disk=file:disk,size=3M"];
    let mut serving = Serving::start(&place, &device);
    done(volume(&place, &["create", "thin", "4M", "--device", "disk", "--thin"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let _serving = Serving::start(&place, &[&device[..], &["--nbd", "thin=unix:nbd"]].concat());
    let mut client = Client::at(&place, "nbd", "thin");
    for number in 0..16u64 {
        let at = number * CLUSTER as u64;
        // Of 3 MiB one is for labels, and 48 KiB are kept.
        let expected = if number < 7 { 0 } else { 28 };
        assert_eq!(client.outcome(1, 0, at, 4096, &[number as u8 + 1; 4096]), expected, "{number}");
    }
    client.write(1, 4096, &[9; 4096]);
    for number in 0..16u64 {
        let found = client.read(number * CLUSTER as u64, 4096);
        let expected = if number < 7 { number as u8 + 1 } else { 0 };
        assert_eq!(found, [expected; 4096]);
    }
    // Trimming makes room.
    client.ask(4, 0, 0, 2 * CLUSTER, &[]);
    assert_eq!(client.read(0, 8192), [0; 8192]);
    client.write(1, 15 * CLUSTER as u64, &[3; 4096]);
    client.flush();
    let mut other = Client::at(&place, "nbd", "thin");
    assert_eq!(other.read(15 * CLUSTER as u64, 8192), [[3; 4096], [0; 4096]].concat());
}

#[test]
fn volumes_are_exported_at_sockets_and_addresses() {
    let place = TestFolder::new();
    volumes(&place);
    let exports =
        ["root=unix:nbd,mode=660,group=0", "data=unix:nbd,mode=660,group=0", "root=tcp:127.0.0.1:0"];
    let mut serving = serve(&place, &exports);
    assert_eq!(told(&serving, "root", "nbd+unix"), "nbd+unix:///root?socket=nbd");
    assert_eq!(told(&serving, "data", "nbd+unix"), "nbd+unix:///data?socket=nbd");
    let mode = std::fs::metadata(place.path().join("nbd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut root = Client::at(&place, "nbd", "root");
    let mut data = Client::at(&place, "nbd", "data");
    root.write(0, 4096, &[1; 4096]);
    data.write(1, 4096, &[2; 4096]);
    root.flush();
    assert_eq!((root.read(4096, 4096), data.read(4096, 4096)), (vec![1; 4096], vec![2; 4096]));
    let uri = told(&serving, "root", "nbd://");
    let address = uri.strip_prefix("nbd://").and_then(|rest| rest.strip_suffix("/root")).unwrap();
    let mut other = Client(TcpStream::connect(address).unwrap()).enter("root");
    assert_eq!(other.read(4096, 4096), [1; 4096]);
    // One that breaks the protocol is disconnected, and counted.
    let mut wrong = UnixStream::connect(place.path().join("nbd")).unwrap();
    wrong.write_all(&[0xff; 64]).unwrap();
    let mut greeting = Vec::new();
    // A reset is as good an end as any.
    let _ = wrong.read_to_end(&mut greeting);
    let status =
        |form| done(place.bywash(&["serve", "status", "--socket", "socket", form]).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&status("--json")).unwrap();
    let unix = &json["exports"][0];
    assert_eq!((&unix["volume"], &unix["protocol"]), (&"root,data".into(), &"nbd".into()), "{json}");
    assert_eq!((&unix["frontends"], &unix["cut_off"]), (&3.into(), &1.into()), "{json}");
    assert_eq!(json["exports"][1]["requests"], 1, "{json}");
    let table = status("--once");
    assert!(table.lines().any(|line| line.starts_with("root,data") && line.ends_with("/nbd")), "{table}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert!(!place.path().join("nbd").exists());
}

#[test]
fn clients_of_a_server_that_is_killed_find_what_they_flushed_at_the_next() {
    let place = TestFolder::new();
    volumes(&place);
    let mut serving = serve(&place, &["root=unix:nbd"]);
    let (mut one, mut other) = (Client::at(&place, "nbd", ""), Client::at(&place, "nbd", "root"));
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 512 % 251) as u8).collect();
    one.write(0, 0, &data);
    // The flush of one connection covers what was completed on the other.
    other.flush();
    other.write(1, 2 << 20, &[5; 4096]);
    assert_eq!(serving.end(libc::SIGKILL), None);
    let mut rest = Vec::new();
    assert!(matches!(one.0.read_to_end(&mut rest), Ok(0) | Err(_)));
    // The names of its sockets are taken over.
    let mut serving = serve(&place, &["root=unix:nbd"]);
    let mut next = Client::at(&place, "nbd", "root");
    assert_eq!(next.read(0, data.len()), data);
    assert_eq!(next.read(2 << 20, 4096), [5; 4096]);
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

#[test]
fn exports_that_contradict_each_other_are_refused() {
    let place = TestFolder::new();
    volumes(&place);
    for (exports, why) in [
        (["root=unix:nbd", "data=unix:nbd,mode=660"], "other options for another volume"),
        (["root=unix:nbd", "root=unix:nbd"], "a name that no other export has"),
        (["root=unix:nbd", "none=tcp:127.0.0.1:0"], "cannot export volume 'none' to NBD clients"),
        (["root=unix:nbd", "data=tcp:127.0.0.1:0,cert=a,key=b,clients=c"], "a: No such file"),
        (["root=unix:nbd", "data=unix:volumes"], "cannot listen at volumes: the name is taken"),
    ] {
        let exports = exports.iter().flat_map(|export| ["--nbd", *export]);
        let output = place.bywash(&["serve", "--socket", "socket"]).args(DEVICE).args(exports).output();
        let said = refused(&output.unwrap());
        assert!(said.contains(why), "{said}");
        assert!(!place.path().join("nbd").exists() && !place.path().join("socket").exists());
    }
}

/// A volume that is marked read-only is a read-only disk.
#[test]
fn a_volume_that_is_read_only_is_a_disk_that_is() {
    let place = TestFolder::new();
    volumes(&place);
    let policy = ["volume", "--policy", "volumes", "permit", "root", "--read-only", "true"];
    done(place.bywash(&policy).output().unwrap());
    let mut serving = serve(&place, &["root=unix:nbd"]);
    let mut client = Client::at(&place, "nbd", "root");
    assert_eq!(client.read(0, 4096), [0; 4096]);
    let request = [&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1][..], &[0; 16], &4096u32.to_be_bytes(), &[1; 4096]];
    client.0.write_all(&request.concat()).unwrap();
    let mut reply = [0; 16];
    client.0.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], 1u32.to_be_bytes(), "EPERM");
    assert_eq!(client.read(0, 4096), [0; 4096]);
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// An authority, and certificates of a server and a client that it has signed, in files.
fn certificates(place: &TestFolder) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    place.file("tls/ca-cert.pem", params.self_signed(&key).unwrap().pem());
    let authority = Issuer::new(params, key);
    for (name, usage) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &authority).unwrap().pem();
        place.file(&format!("tls/{name}-cert.pem"), certificate);
        place.file(&format!("tls/{name}-key.pem"), key.serialize_pem());
    }
    place.file("none/ca-cert.pem", std::fs::read(place.path().join("tls/ca-cert.pem")).unwrap());
}

/// With libnbd's programs; the crate's own tests have a client of their own.
#[test]
fn an_address_with_tls_serves_clients_with_certificates_alone() {
    let place = TestFolder::new();
    volumes(&place);
    certificates(&place);
    // All addresses of the machine: without TLS it would be refused.
    let export = "root=tcp:0.0.0.0:0,cert=tls/server-cert.pem,key=tls/server-key.pem,clients=tls/ca-cert.pem";
    let mut serving = serve(&place, &[export]);
    let uri = told(&serving, "root", "nbds://");
    let port = uri.strip_prefix("nbds://0.0.0.0:").and_then(|rest| rest.strip_suffix("/root")).unwrap();
    // In the clear an export cannot be chosen.
    let mut plain = TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    plain.write_all(&[&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &[0; 4]].concat()).unwrap();
    let mut greeting = Vec::new();
    // A reset is as good an end as any.
    let _ = plain.read_to_end(&mut greeting);
    assert!(greeting.len() <= 18, "{greeting:?}");
    let info = |scheme: &str, folder: &str| {
        let folder = place.path().join(folder);
        let uri = format!("{scheme}://localhost:{port}/root?tls-certificates={}", folder.display());
        Command::new("nbdinfo").args(["--size", &uri]).output()
    };
    match info("nbds", "tls") {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => eprintln!("left out: nbdinfo: {error}"),
        output => {
            assert_eq!(done(output.unwrap()), "4194304\n");
            for (scheme, folder) in [("nbds", "none"), ("nbd", "tls")] {
                let output = info(scheme, folder).unwrap();
                assert!(!output.status.success(), "{scheme}: {}{}", stdout(&output), stderr(&output));
            }
        }
    }
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

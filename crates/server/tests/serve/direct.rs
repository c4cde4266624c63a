//! Direct grants: hardware that the server hands to one client and takes back, here a file that stands for hardware.

use crate::peer::{LIMIT, Peer};
use bywash_device::{Device, DeviceKind, DeviceOptions, DevicePart, Error, Grantable, Handover, Spec};
use bywash_options::{OptionError, Row, Words};
use bywash_protocol::layout::Status;
use bywash_protocol::{Access, ControlReply, ControlRequest, GrantInfo, Refusal, RefusalKind};
use bywash_server::{LimitsFile, Options, Server};
use bywash_support::peers::{Child, memory, role};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Size of the device, in bytes, and of a volume that is all of it but the labels.
const DEVICE: u64 = 4 << 20;
const WHOLE: u64 = DEVICE - bywash_volume::RESERVED_BYTES;

/// Kind of device `fake:FOLDER`: a part `1` in a file of the folder. Files there say what it does: with `held` it cannot
/// be opened, with `stuck` not be revoked, with `limited` it harms nobody else. The file `log` lists what was done.
static FAKE: DeviceKind = DeviceKind {
    row: Row { name: "fake", address: "FOLDER", sentence: "a file that stands for hardware", options: &[] },
    parse,
};

#[derive(Clone, Debug)]
struct Fake(PathBuf);

fn parse(words: &mut Words<'_>) -> Result<Arc<dyn DeviceOptions>, OptionError> {
    Ok(Arc::new(Fake(words.address()?.into())))
}

impl Fake {
    fn note(&self, what: &str) {
        let log = fs::File::options().append(true).create(true).open(self.0.join("log"));
        writeln!(log.unwrap(), "{what}").unwrap();
    }

    fn fail_if(&self, file: &str, reason: &str) -> Result<(), Error> {
        match self.0.join(file).exists() {
            true => Err(Error::Unfit { what: "the fake".into(), reason: reason.into() }),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Fake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "fake:{}", self.0.display())
    }
}

impl DeviceOptions for Fake {
    fn open(&self) -> Result<Box<dyn Device>, Error> {
        Grantable::open(self)
    }

    fn open_parts(&self) -> Result<Vec<DevicePart>, Error> {
        let device = Grantable::open(self)?;
        Ok(vec![DevicePart { name: Some("1".into()), device, grantable: Some(Arc::new(self.clone())) }])
    }

    fn is_volatile(&self) -> bool {
        false
    }

    fn file_to_create(&self) -> Option<(&Path, u64)> {
        None
    }
}

impl Grantable for Fake {
    fn open(&self) -> Result<Box<dyn Device>, Error> {
        self.fail_if("held", "somebody has it")?;
        self.note("open");
        format!("x=file:{},size={DEVICE}", self.0.join("blocks").display()).parse::<Spec>()?.open()
    }

    fn hand_over(&self) -> Result<Handover, Error> {
        self.note("hand over");
        let descriptors = vec![memory(4096, 0)];
        Ok(Handover { descriptors, address: "0000:00:00.0".into(), namespace: 7 })
    }

    fn revoke(&self) -> Result<(), Error> {
        self.fail_if("stuck", "it does not obey")?;
        self.note("revoke");
        Ok(())
    }

    fn hazard(&self) -> Option<String> {
        (!self.0.join("limited").exists()).then(|| "it obeys everybody".into())
    }

    fn description(&self) -> String {
        "the fake function".into()
    }
}

/// The server, in the folder that its role names.
#[test]
fn a_server() {
    let Some(role) = role() else { return };
    let folder = Path::new(&role);
    let options = Options::new(folder.join("socket"))
        .policy(folder.join("volumes"))
        .limits(LimitsFile::read(&folder.join("limits")).unwrap())
        .device(Spec::parse(&format!("disk=fake:{}", folder.display()), &[&FAKE]).unwrap());
    let _server = Server::start(options).unwrap();
    std::thread::sleep(Duration::from_secs(36_000));
}

/// The process of a server, which is killed when this is dropped.
struct Serving {
    _child: Child,
    folder: TempDir,
}

impl Serving {
    fn start(limits: &str) -> Serving {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("limits"), limits).unwrap();
        let child = Child::start("direct::a_server", &folder.path().display().to_string(), Vec::new());
        let serving = Serving { _child: child, folder };
        let end = Instant::now() + LIMIT;
        while bywash_link::connect(&serving.folder.path().join("socket")).is_err() {
            assert!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        serving
    }

    fn peer(&self) -> Peer {
        Peer::connect(&self.folder.path().join("socket"))
    }

    /// Makes the hardware misbehave in this respect, or stop that.
    fn set(&self, file: &str, is_so: bool) {
        let path = self.folder.path().join(file);
        if is_so { fs::write(path, "").unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Returns what was done since the last call.
    fn done(&self) -> Vec<String> {
        let path = self.folder.path().join("log");
        let log = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

fn ask_directly(peer: &Peer, volume: &str) -> Result<(GrantInfo, u64, Vec<OwnedFd>), Refusal> {
    ask_for_hardware(peer, volume).map(|(grant, offset, needs_trust, files)| {
        assert!(needs_trust, "it obeys everybody");
        (grant, offset, files)
    })
}

fn ask_for_hardware(peer: &Peer, volume: &str) -> Result<(GrantInfo, u64, bool, Vec<OwnedFd>), Refusal> {
    let ask = ControlRequest::OpenDirect { volume: volume.into(), access: Access::ReadWrite };
    match peer.ask_with(ask, &[])? {
        (ControlReply::GrantedDirect { grant, address, namespace, offset, needs_trust }, files) => {
            assert_eq!((address.as_str(), namespace, grant.bytes), ("0000:00:00.0", 7, WHOLE));
            Ok((grant, offset, needs_trust, files))
        }
        answer => panic!("{answer:?}"),
    }
}

/// Tries until it succeeds: the hardware is changing hands.
fn until<T>(mut attempt: impl FnMut() -> Result<T, Refusal>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Err(refused) if refused.code == RefusalKind::Limit && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn close(peer: &Peer, grant: u64) {
    assert_eq!(peer.ask(ControlRequest::Close { grant }).unwrap(), ControlReply::Done {});
}

#[test]
fn hardware_is_handed_over_and_taken_back() {
    let serving = Serving::start("[user.0]\ntrusted = true\n");
    let (mut peer, other) = (serving.peer().with_channel(), serving.peer());
    peer.create("all", "disk.1", WHOLE);
    let granted = peer.open("all", Access::ReadWrite).unwrap();
    assert!(granted.can_be_direct);
    let refused = ask_directly(&other, "all").unwrap_err();
    assert!(
        refused.code == RefusalKind::Limit && refused.message.contains("it is in use: volume 'all'"),
        "{refused}"
    );
    peer.write(granted.grant, 0, &[7; 4096]).unwrap();
    close(&peer, granted.grant);
    assert_eq!(serving.done(), ["open"]);

    let (granted, offset, files) = ask_directly(&peer, "all").unwrap();
    assert_eq!((offset, files.len()), (bywash_volume::RESERVED_BYTES, 1));
    assert_eq!(serving.done(), ["hand over"]);
    let refused = other.open("all", Access::Read).unwrap_err();
    assert!(
        refused.message.contains(&format!("client {} has device 'disk.1' to itself", peer.number)),
        "{refused}"
    );
    let refused = ask_directly(&other, "all").unwrap_err();
    assert_eq!(refused.code, RefusalKind::Limit, "{refused}");
    let refused = other.ask(ControlRequest::DropDevice { device: "disk.1".into() }).unwrap_err();
    assert_eq!(refused.code, RefusalKind::Limit, "{refused}");
    // The server has no way to the blocks meanwhile.
    assert_eq!(peer.write(granted.grant, 0, &[8; 4096]), Err(Status::Failed));
    close(&peer, granted.grant);
    assert_eq!(serving.done(), ["revoke", "open"]);
    let granted = peer.open("all", Access::ReadWrite).unwrap();
    assert_eq!(peer.read(granted.grant, 0, 4096).unwrap(), vec![7; 4096]);
    close(&peer, granted.grant);

    // The end of the client is the end of its grant.
    ask_directly(&peer, "all").unwrap();
    drop(peer);
    let granted = until(|| other.open("all", Access::ReadWrite));
    close(&other, granted.grant);
    assert_eq!(serving.done(), ["hand over", "revoke", "open"]);
}

#[test]
fn hardware_that_is_not_given_back_is_missing_until_it_is() {
    let serving = Serving::start("[user.0]\ntrusted = true\n");
    let (peer, other) = (serving.peer(), serving.peer());
    peer.create("all", "disk.1", WHOLE);
    let revoke = || other.ask(ControlRequest::Revoke { volume: "all".into() });
    for again in 0..2 {
        let (granted, ..) = until(|| ask_directly(&peer, "all"));
        serving.set("held", true);
        assert_eq!(revoke().unwrap(), ControlReply::Done {}, "{again}");
        let refused = other.open("all", Access::Read).unwrap_err();
        assert!(refused.message.contains("cannot be opened yet: the fake function: "), "{refused}");
        assert!(refused.message.contains("somebody has it"), "{refused}");
        let refused = other.ask(ControlRequest::DropDevice { device: "disk.1".into() }).unwrap_err();
        assert!(refused.message.contains("cannot be opened yet"), "{refused}");
        // It is not the client's any more.
        let refused = peer.ask(ControlRequest::Close { grant: granted.grant }).unwrap_err();
        assert_eq!(refused.code, RefusalKind::Missing, "{refused}");
        serving.set("held", false);
        let granted = until(|| other.open("all", Access::Read));
        close(&other, granted.grant);
    }
    // What does not obey is not said to be taken back, and handed to nobody.
    until(|| ask_directly(&peer, "all"));
    serving.set("stuck", true);
    let refused = revoke().unwrap_err();
    assert_eq!(refused.code, RefusalKind::Failed, "{refused}");
    assert!(refused.message.contains("could not be taken back, and may still be used"), "{refused}");
    serving.done();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(ask_directly(&other, "all").unwrap_err().code, RefusalKind::Limit);
    assert_eq!(serving.done(), Vec::<String>::new());
    serving.set("stuck", false);
    let granted = until(|| other.open("all", Access::Read));
    close(&other, granted.grant);
    assert_eq!(serving.done(), ["revoke", "open"]);
}

#[test]
fn hardware_is_granted_only_whole_and_to_trusted_users() {
    let serving = Serving::start("");
    let peer = serving.peer();
    peer.create("all", "disk.1", WHOLE);
    let granted = peer.open("all", Access::ReadWrite).unwrap();
    let why = granted.unmappable_reason.unwrap();
    assert!(!granted.can_be_direct && why.contains("user 0 is not trusted"), "{why}");
    close(&peer, granted.grant);
    let refused = ask_directly(&peer, "all").unwrap_err();
    assert!(
        refused.code == RefusalKind::Unfit
            && refused.message.contains("it obeys everybody")
            && refused.message.contains("user 0 is not trusted"),
        "{refused}"
    );

    let serving = Serving::start("[default]\ntrusted = true\n");
    let peer = serving.peer();
    peer.create("part", "disk.1", WHOLE - 4096);
    let granted = peer.open("part", Access::ReadWrite).unwrap();
    let why = granted.unmappable_reason.unwrap();
    assert!(!granted.can_be_direct && why.contains("it is not all of device 'disk.1'"), "{why}");
    close(&peer, granted.grant);
    let refused = ask_directly(&peer, "part").unwrap_err();
    assert!(refused.message.contains("it is not all of device"), "{refused}");
    assert_eq!(ask_directly(&peer, "none").unwrap_err().code, RefusalKind::Missing);
    peer.ask(ControlRequest::Remove { volume: "part".into() }).unwrap();
    peer.create_as("all", "disk.1", WHOLE, 0, 0o600).unwrap();
    let read_only = ControlRequest::SetOwnership {
        volume: "all".into(),
        owner: None,
        group: None,
        mode: None,
        read_only: Some(true),
    };
    peer.ask(read_only).unwrap();
    let granted = peer.open("all", Access::Read).unwrap();
    assert!(!granted.can_be_direct, "hardware cannot be handed over for reading only");
    assert_eq!(serving.done(), ["open"]);
}

#[test]
fn hardware_that_limits_its_holder_is_granted_without_trust() {
    let serving = Serving::start("");
    serving.set("limited", true);
    let peer = serving.peer();
    peer.create("all", "disk.1", WHOLE);
    let granted = peer.open("all", Access::ReadWrite).unwrap();
    assert!(granted.can_be_direct, "{:?}", granted.unmappable_reason);
    close(&peer, granted.grant);
    let (granted, _, needs_trust, files) = ask_for_hardware(&peer, "all").unwrap();
    assert!(!needs_trust && files.len() == 1);
    close(&peer, granted.grant);
    assert_eq!(serving.done(), ["open", "hand over", "revoke", "open"]);
    serving.set("limited", false);
    let refused = ask_for_hardware(&peer, "all").unwrap_err();
    assert!(refused.message.contains("user 0 is not trusted"), "{refused}");
}

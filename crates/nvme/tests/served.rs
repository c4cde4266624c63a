//! A controller in software behind a device server: clients' arenas are mapped for DMA, and unmapped when they leave.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_client::{Access, Client, NewVolume};
use bywash_device::testing::conformance::pattern;
use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Nvme, Options};
use bywash_server::{NewBlocks, OpenDevice, Server};
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of the namespace, in bytes.
const BYTES: u64 = 16 << 20;
/// Size of a volume, in bytes.
const VOLUME: u64 = 4 << 20;
/// Size of a client's arena, in bytes.
const ARENA: usize = 1 << 20;
/// Size of a write, in bytes.
const PIECE: usize = 64 << 10;
/// Greatest time that a test waits.
const LIMIT: Duration = Duration::from_secs(60);

fn serve(model: &Model, socket: &Path) -> Server {
    let device = Nvme::open(model.clone(), &Options::default()).unwrap();
    let disk = OpenDevice {
        name: "disk".into(),
        device: Box::new(device),
        contents: NewBlocks::Cleared,
        is_volatile: true,
    };
    let options = bywash_server::Options::new(socket).cores(bywash_support::cores::server_cores());
    Server::with_devices(options, vec![disk]).unwrap()
}

fn connect(socket: &Path) -> Client {
    Client::connect(socket, bywash_client::Options::new().arena_bytes(ARENA)).unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number of bytes that the device has copied, from its description.
fn copied(server: &Server) -> u64 {
    let how = server.status().unwrap().devices.remove(0).how;
    let copied = how.split_once("polling; ").or_else(|| how.split_once("interrupts; "));
    // No number follows if nothing was copied.
    copied.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Writes and reads all of a volume, and checks the contents.
fn use_volume(volume: &bywash_client::Volume, round: u64) {
    let mut read = vec![0; PIECE];
    for at in (0..VOLUME).step_by(PIECE) {
        let written = pattern(round ^ at, PIECE);
        volume.write_at(&written, at).unwrap();
        volume.read_at(&mut read, at).unwrap();
        assert!(read == written, "at {at}");
    }
}

#[test]
fn arenas_are_mapped_and_unmapped_with_their_clients() {
    let model = Model::new(ModelOptions::new(ModelNamespace::new(1, BYTES / 512, 9)));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = serve(&model, &socket);
    let own = model.mapped_bytes();
    let administrator = connect(&socket);
    for name in ["one", "two"] {
        administrator.create(NewVolume::new(name, "disk", VOLUME)).unwrap();
    }
    let mut clients: Vec<_> = ["one", "two"]
        .map(|name| {
            let client = connect(&socket);
            let volume = client.open(name, Access::ReadWrite).unwrap();
            (client, volume)
        })
        .into();
    for (_, volume) in &clients {
        let mut round = 0;
        wait_until("nothing is copied any more", || {
            let before = copied(&server);
            round += 1;
            use_volume(volume, round);
            copied(&server) == before
        });
    }
    let both = model.mapped_bytes() - own;
    assert!((2 * PIECE..=2 * ARENA).contains(&both), "{both}");
    let moved = model.counts().bytes;
    use_volume(&clients[0].1, 100);
    assert!(model.counts().bytes - moved >= 2 * VOLUME);
    drop(clients.pop());
    wait_until("the second client's arena is unmapped", || model.mapped_bytes() - own < both);
    use_volume(&clients[0].1, 101);
    drop(clients);
    wait_until("the first client's arena is unmapped", || model.mapped_bytes() == own);
    assert_eq!(model.counts().faults, 0);
    drop(administrator);
    server.stop();
    assert_eq!((model.mapped_bytes(), model.counts().shutdowns), (0, 1));
}

#[test]
fn a_server_that_stops_unmaps_the_arenas_of_its_clients() {
    let model = Model::new(ModelOptions::new(ModelNamespace::new(1, BYTES / 512, 9)));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = serve(&model, &socket);
    let (client, own) = (connect(&socket), model.mapped_bytes());
    client.create(NewVolume::new("one", "disk", VOLUME)).unwrap();
    let volume = client.open("one", Access::ReadWrite).unwrap();
    wait_until("its arena is mapped", || {
        use_volume(&volume, 1);
        model.mapped_bytes() > own
    });
    server.stop();
    wait_until("nothing is mapped", || model.mapped_bytes() == 0);
    assert!(volume.flush().is_err());
    assert_eq!(model.counts().faults, 0);
}

//! A guest's display adapter, as a program in the guest sees it.

use super::image::Image;
use super::servers::Server;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Opens the port of the guest at which its host answers each line with a screenshot: the number of its bytes in
/// little-endian order (4 bytes), and a PPM file. See `guest::Screen`.
fn open_port() -> File {
    let mut entries = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
    let is_port = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("vport") && name.ends_with("p1")
    };
    let port = entries.find(is_port).expect("the guest has the port of `guest::Screen`");
    File::options().read(true).write(true).open(port).unwrap()
}

/// Time in which a host's emulated adapter has certainly shown what its driver has passed on.
const SETTLED: Duration = Duration::from_millis(100);

/// The first card of a guest, which has no display server.
pub struct Card;

impl Server for Card {
    fn start() -> Card {
        Card
    }

    fn kind(&self) -> &'static str {
        "kms"
    }

    fn name(&self) -> String {
        "/dev/dri/card0".to_owned()
    }

    fn screenshot(&self) -> Image {
        std::thread::sleep(SETTLED);
        let mut port = open_port();
        port.write_all(b"screenshot\n").unwrap();
        let mut length = [0; 4];
        port.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        port.read_exact(&mut bytes).unwrap();
        Image::parse_ppm(&bytes)
    }
}

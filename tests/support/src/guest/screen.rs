//! A guest's screen: a display adapter of QEMU, and screenshots for the guest's programs.
//!
//! A program in the guest asks by a line at a port of its virtual serial adapter. The host has QEMU write what its
//! adapter shows into a file (QMP's `screendump`), and answers with the file.
//!
//! ```text
//!   program in the guest ── port ── socket ── thread of `Screen` ── QMP ── QEMU: screendump
//! ```

use crate::guest::kernel::Release;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Modules of the port and of all adapters, each after those that it needs, behind those of
/// [`crate::guest::system::VIRTIO_DISK`]. The cloud kernel of Debian has none of them: see
/// [`crate::guest::kernel::Release::Complete`].
const MODULES: [&str; 5] = [
    "drivers/char/virtio_console",
    "drivers/virtio/virtio_dma_buf",
    "drivers/gpu/drm/drm",
    "drivers/gpu/drm/drm_kms_helper",
    "drivers/gpu/drm/drm_shmem_helper",
];

/// Display adapters of QEMU.
#[derive(Clone, Copy, Debug)]
enum Adapter {
    /// An adapter for guests, whose screen prefers a mode of this size, in pixels.
    Virtio(usize, usize),
    /// A card of 1995 with 4 MB, whose driver copies the changed parts of each frame. It prefers 1024x768.
    Cirrus,
}

/// Time within which QEMU listens at its sockets.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);

/// A screen of a guest that has not booted yet.
#[derive(Debug)]
pub struct Screen {
    folder: TempDir,
    adapter: Adapter,
}

impl Screen {
    /// Makes a screen that prefers a mode of this size, in pixels.
    ///
    /// # Panics
    /// If there is no temporary folder.
    pub fn new(width: usize, height: usize) -> Screen {
        Screen::on(Adapter::Virtio(width, height))
    }

    /// Makes the screen of an adapter that is told of changed parts, and shows nothing else. It prefers a mode of 1024 by
    /// 768 pixels.
    ///
    /// # Panics
    /// If there is no temporary folder.
    pub fn with_damage() -> Screen {
        Screen::on(Adapter::Cirrus)
    }

    fn on(adapter: Adapter) -> Screen {
        Screen { folder: tempfile::tempdir().expect("a temporary folder"), adapter }
    }

    /// Returns the kernel that has the drivers: for damage a recent one.
    pub fn kernel(&self) -> Release {
        match self.adapter {
            Adapter::Virtio(..) => Release::Complete,
            Adapter::Cirrus => Release::RecentComplete,
        }
    }

    /// Returns the modules of the kernel for the adapter and the port.
    pub fn modules(&self) -> Vec<&'static str> {
        let driver = match self.adapter {
            Adapter::Virtio(..) => "drivers/gpu/drm/virtio/virtio-gpu",
            Adapter::Cirrus => "drivers/gpu/drm/tiny/cirrus",
        };
        [&MODULES[..], &[driver]].concat()
    }

    /// Returns QEMU's arguments for the adapter and the port.
    pub fn hardware(&self) -> Vec<String> {
        let (ask, control) = (self.path("port"), self.path("control"));
        let adapter = match self.adapter {
            Adapter::Virtio(width, height) => format!("virtio-gpu-pci,xres={width},yres={height}"),
            Adapter::Cirrus => "cirrus-vga".to_owned(),
        };
        [
            "-device".to_owned(),
            adapter,
            "-device".to_owned(),
            "virtio-serial-pci".to_owned(),
            "-chardev".to_owned(),
            format!("socket,id=port,path={},server=on,wait=off", ask.display()),
            "-device".to_owned(),
            "virtserialport,chardev=port,nr=1".to_owned(),
            "-qmp".to_owned(),
            format!("unix:{},server=on,wait=off", control.display()),
        ]
        .into()
    }

    /// Answers the guest until QEMU ends. Called once QEMU has been started.
    pub fn answer(self) {
        thread::spawn(move || {
            let ask = connect(&self.path("port"));
            let control = connect(&self.path("control"));
            // The end of either connection is that of the guest.
            let _ = self.serve(&ask, &control);
        });
    }

    fn serve(&self, ask: &UnixStream, control: &UnixStream) -> std::io::Result<()> {
        let mut replies = BufReader::new(control);
        command(control, &mut replies, r#"{"execute": "qmp_capabilities"}"#)?;
        let picture = self.path("picture.ppm");
        for line in BufReader::new(ask).lines() {
            line?;
            let dump = format!(
                r#"{{"execute": "screendump", "arguments": {{"filename": "{}"}}}}"#,
                picture.display()
            );
            command(control, &mut replies, &dump)?;
            let bytes = fs::read(&picture)?;
            let mut to = ask;
            to.write_all(&u32::try_from(bytes.len()).expect("a picture").to_le_bytes())?;
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn connect(path: &Path) -> UnixStream {
    let end = Instant::now() + LISTEN_LIMIT;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => {
                assert!(Instant::now() < end, "QEMU does not listen at {}: {error}", path.display())
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a command and waits for its end; QEMU's events in between are of no interest.
fn command(mut to: &UnixStream, replies: &mut impl BufRead, command: &str) -> std::io::Result<()> {
    to.write_all(command.as_bytes())?;
    let mut line = String::new();
    while replies.read_line(&mut line)? > 0 {
        assert!(!line.contains(r#""error""#), "QEMU refused {command}: {line}");
        if line.contains(r#""return""#) {
            return Ok(());
        }
        line.clear();
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

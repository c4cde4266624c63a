//! Log on a volume, of which the keeper is the device server's client: programs write it through the keeper, or into the
//! volume's memory, whose descriptors the keeper passes to them.

use crate::error::Error;
use crate::log_file::LogFile;
use crate::sys;
use bywash_client::SharedMapping;
use bywash_log::shared::Shared;
use bywash_log::window;
use bywash_log::write_method::{Window, WriteMethod};
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Thread that writes what programs ask for. Ends when dropped.
#[derive(Debug)]
pub struct RelayThread {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Drop for RelayThread {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was a failure of the log, which its users have noticed.
            let _ = thread.join();
        }
    }
}

/// Tells programs how they write a log on a volume: into its memory, which `pass` gets for them, or by a thread that this
/// starts. Does nothing for other logs.
///
/// # Errors
/// [`Error::Io`].
pub fn serve(
    log_file: &Arc<LogFile>,
    shared: Shared,
    socket: &Path,
    pass: impl FnOnce(SharedMapping),
) -> Result<Option<RelayThread>, Error> {
    let Some(volume) = log_file.volume() else { return Ok(None) };
    let path = log_file.path();
    let socket = sys::c_path(socket).map_err(Error::io("listen at", socket))?;
    let tell =
        |how| shared.set_write_method(&how, &socket).map_err(Error::number("pass the memory of", path));
    if let Some(mapping) = volume.share().map_err(Error::io("share the memory of", path))? {
        tell(WriteMethod::Window(window_of(&mapping, volume.bytes())))?;
        pass(mapping);
        return Ok(None);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let thread = {
        let (log_file, is_over) = (Arc::clone(log_file), Arc::clone(&is_over));
        let (tell_ready, ready) = mpsc::channel();
        let relay = move || {
            let mut failure = None;
            let write = |bytes: &[u8], at| match failure {
                // Each attempt at a server that is gone takes as long as the first one.
                Some(number) => Err(number),
                None => write(&log_file, bytes, at).inspect_err(|number| failure = Some(*number)),
            };
            let begun = || {
                // The keeper waits for it below.
                let _ = tell_ready.send(());
            };
            shared.relay().serve(begun, write, || is_over.load(SeqCst));
        };
        let thread = thread::Builder::new().name("relay".into()).spawn(relay);
        let thread = thread.map_err(Error::io("start a thread for", path))?;
        let failed = || io::Error::other("another thread serves the memory of the log");
        ready.recv().map_err(|_| Error::io("serve", path)(failed()))?;
        Some(thread)
    };
    tell(WriteMethod::Relay)?;
    Ok(Some(RelayThread { thread, is_over }))
}

/// Writes bytes of the log's batches or table of files, which programs have no business outside of.
fn write(log_file: &LogFile, bytes: &[u8], at: u64) -> Result<(), i32> {
    log_file.write_at(bytes, at).map_err(|error| {
        sys::log(&format!("log {}: {error}", log_file.path().display()));
        error.raw_os_error().unwrap_or(libc::EIO)
    })
}

fn window_of(mapping: &SharedMapping, bytes: u64) -> Window {
    Window {
        bytes,
        chunk_bytes: mapping.chunk_bytes,
        page_bytes: mapping.page_bytes,
        index: mapping.index as u64,
        valid_up_to: mapping.valid_up_to,
    }
}

/// Passes the descriptors of a volume's memory to a program: the page, then the chunks in their order.
pub fn pass(stream: &mut UnixStream, mapping: &SharedMapping) -> io::Result<()> {
    stream.write_all(window::REPLY)?;
    let descriptors: Vec<BorrowedFd<'_>> =
        std::iter::once(&mapping.page).chain(&mapping.chunks).map(AsFd::as_fd).collect();
    for some in descriptors.chunks(window::DESCRIPTORS_MAX) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(window::DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(some));
        sendmsg(&*stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

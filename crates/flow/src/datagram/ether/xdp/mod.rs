//! Ethernet ports by AF_XDP: a program in the kernel takes frames from the device's receive path, and frames
//! are sent without packet sockets and their queues.
//!
//! ```text
//! device ──► program ──► socket of the queue ──► memory shared with the kernel
//! └──────► all other frames: the kernel's network stack
//! ```
//!
//! - [`bpf`]: the system calls; [`program`]: the instructions
//! - [`socket`] and [`rings`]: the socket, its memory and its rings
//! - [`redirect`]: a relay in which no frame leaves the kernel
//!
//! Invariant: a program of another process is never replaced, and the port's own program is detached with the
//! port, however the process ends. Called by [`crate::datagram`] for this engine.

mod bpf;
mod program;
mod redirect;
mod rings;
mod socket;

use super::device::Device;
use crate::control::Control;
use crate::datagram::engine::Engine;
use crate::datagram::inbox::RUNS_MAX;
use crate::datagram::layout::ETHER_TYPE;
use crate::datagram::name::Name;
use crate::datagram::options::EthOptions;
use crate::datagram::port::{EngineState, Health, Port};
use crate::datagram::run::Run;
use crate::datagram::socket::BUFFER_BYTES;
use crate::error::Error;
use crate::mac::Mac;
use crate::movers::Mover;
use bpf::{Link, Map, MapKind, Mode};
use program::{ETHERNET_BYTES, FrameMatch, Program};
use rustix::event::epoll;
use rustix::io::Errno;
use socket::{ReceivedFrame, Socket, frame_bytes};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub(crate) use redirect::Redirect;

/// Greatest number of a device's queues that are served, since each has memory of its own.
const QUEUES_MAX: u32 = 16;
/// Memory of a sender for the reports that it receives, in bytes.
const REPORTS_BYTES: usize = 1 << 20;
/// Number of frames given to the kernel at once.
const FRAMES_AT_ONCE: u32 = 32;
/// Pause while the device accepts no frames, and greatest number of pauses: a second in all.
const FULL_WAIT: Duration = Duration::from_micros(50);
const FULL_TRIES_MAX: u32 = 20_000;

/// A device used by AF_XDP. The order of the fields matters: the program is detached first when they are
/// dropped.
pub(crate) struct XdpPort {
    _link: Link,
    sockets: Vec<Socket>,
    either: OwnedFd,
    label: String,
    device: Device,
    to: Option<Mac>,
    number: u16,
    names: Vec<Name>,
    fell_back: Option<String>,
}

impl XdpPort {
    /// Like [`super::EthPort::connect`].
    ///
    /// # Errors
    /// Those of [`super::EthPort::connect`], and [`Error::Unfit`] if the kernel or the device refuses AF_XDP.
    pub(crate) fn connect(options: &EthOptions) -> Result<XdpPort, Error> {
        let label = format!("eth:{}", options.interface);
        let mac = super::goal(options, &label)?;
        XdpPort::new(options, label, Some(mac), None)
    }

    /// Like [`super::EthPort::listen`]. Errors are those of [`XdpPort::connect`].
    pub(crate) fn listen(options: &EthOptions) -> Result<XdpPort, Error> {
        XdpPort::new(options, format!("eth-listen:{}", options.interface), None, options.mac)
    }

    fn new(
        options: &EthOptions,
        label: String,
        to: Option<Mac>,
        from: Option<Mac>,
    ) -> Result<XdpPort, Error> {
        let device = Device::inspect(&options.interface, &label)?;
        let unfit = |reason: String| Error::Unfit { mover: Mover::Xdp, reason };
        if device.queues > QUEUES_MAX {
            return Err(unfit(format!(
                "{} has {} receive queues, and at most {QUEUES_MAX} are served (ethtool -L)",
                device.name, device.queues
            )));
        }
        let frame = frame_bytes(device.mtu).ok_or_else(|| {
            unfit(format!("the MTU of {} is {}, and a frame must fit a page", device.name, device.mtu))
        })?;
        let failed = |error: Errno| Error::io(format!("open {label} by AF_XDP"), error);
        let map = Map::new(MapKind::Sockets, size_of::<i32>(), device.queues)
            .map_err(|error| refused(Mover::Xdp, "make a map of sockets", error))?;
        let ours = FrameMatch { port: options.port, here: device.mac, from };
        let program = bpf::load(&Program::to_socket(&ours, map.number()))
            .map_err(|error| refused(Mover::Xdp, "load a program", error))?;
        let wanted = if to.is_some() { REPORTS_BYTES } else { BUFFER_BYTES };
        let bytes = options.receive_buffer.unwrap_or(wanted) / device.queues as usize;
        let (link, mode) = attach(Mover::Xdp, &program, &device, &[Mode::Native, Mode::Generic])?;
        let mut sockets = Vec::with_capacity(device.queues as usize);
        for queue in 0..device.queues {
            let socket = Socket::new(device.index, queue, frame, bytes, mode == Mode::Generic)
                .map_err(|error| refused(Mover::Xdp, &format!("serve queue {queue} of {label}"), error))?;
            map.set_socket(queue, socket.descriptor().as_raw_fd()).map_err(failed)?;
            sockets.push(socket);
        }
        let either = watch(&sockets).map_err(failed)?;
        let fell_back = (mode == Mode::Generic)
            .then(|| format!("the driver of {} calls no programs itself; the kernel does", device.name));
        Ok(XdpPort {
            _link: link,
            sockets,
            either,
            label,
            device,
            to,
            number: options.port,
            names: vec![Name::empty(); RUNS_MAX],
            fell_back,
        })
    }

    fn too_long(&self) -> Error {
        Error::io(
            format!(
                "send to {}: the frames are longer than its MTU of {}; give a smaller size=",
                self.label, self.device.mtu
            ),
            Errno::MSGSIZE,
        )
    }

    /// Queues a frame for sending, and waits until frames have been sent if there is no room.
    fn put(&mut self, parts: [&[u8]; 3], control: &Control) -> Result<(), Error> {
        for _ in 0..FULL_TRIES_MAX {
            if self.sockets[0].put(parts) {
                return Ok(());
            }
            self.push(control)?;
            if self.sockets[0].put(parts) {
                return Ok(());
            }
            control.sleep_until(Instant::now() + FULL_WAIT)?;
        }
        Err(Error::io(format!("send to {}: frames do not leave the device", self.label), Errno::NOBUFS))
    }

    /// Makes the kernel send the queued frames, and waits while the device accepts none.
    fn push(&mut self, control: &Control) -> Result<(), Error> {
        for _ in 0..FULL_TRIES_MAX {
            control.check()?;
            match self.sockets[0].push() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(Error::io(format!("send to {}", self.label), error)),
            }
            control.sleep_until(Instant::now() + FULL_WAIT)?;
        }
        Err(Error::io(format!("send to {}: the device takes no more frames", self.label), Errno::NOBUFS))
    }
}

impl Port for XdpPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> Result<bool, Error> {
        let (names, index) = (&mut self.names, self.device.index);
        let mut any = false;
        for socket in &mut self.sockets {
            any |= socket.receive(&mut |all: &[ReceivedFrame<'_>]| {
                for (name, came) in names.iter_mut().zip(all) {
                    *name = Name::of_link(super::link_address(index, Some(Mac(came.from))));
                }
                let mut runs = [Run::new(&[], 1); RUNS_MAX];
                for ((run, came), name) in runs.iter_mut().zip(all).zip(&*names) {
                    *run = Run::new(came.body, came.body.len()).from(name);
                }
                take(&runs[..all.len()]);
            });
        }
        Ok(any)
    }

    fn send(&mut self, runs: &[Run<'_>], to: Option<&Name>, control: &Control) -> Result<(), Error> {
        let Some(Mac(to)) = to.and_then(Name::link).or(self.to) else {
            return Err(Error::Usage(format!("{} goes nowhere: nobody has sent anything yet", self.label)));
        };
        let mut head = [0; ETHERNET_BYTES];
        head[..6].copy_from_slice(&to);
        head[6..12].copy_from_slice(&self.device.mac.0);
        head[12..].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        let longest = self.device.mtu.min(self.sockets[0].frame_bytes() - ETHERNET_BYTES);
        let mut waiting = 0;
        for run in runs {
            for number in 0..run.count() {
                let (front, body) = run.datagram(number);
                if front.len() + body.len() > longest {
                    return Err(self.too_long());
                }
                self.put([&head, front, body], control)?;
                waiting += 1;
                if waiting == FRAMES_AT_ONCE {
                    self.push(control)?;
                    waiting = 0;
                }
            }
        }
        if waiting > 0 { self.push(control) } else { Ok(()) }
    }

    fn health(&mut self) -> Health {
        Health {
            drops: self.sockets.iter().map(Socket::drops).sum(),
            buffer: self.sockets.iter().map(|socket| socket.buffer() as u64).sum(),
        }
    }

    fn engine_state(&self) -> EngineState {
        EngineState { engine: Engine::Xdp, fell_back: self.fell_back.clone() }
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn number(&self) -> u16 {
        self.number
    }

    fn datagram_bytes_max(&self) -> Option<usize> {
        Some(self.device.mtu)
    }
}

/// Creates a descriptor that is readable when one of the sockets is.
fn watch(sockets: &[Socket]) -> Result<OwnedFd, Errno> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(&either, socket.descriptor(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(either)
}

/// Attaches a program by the first of `modes` that the device accepts.
fn attach(mover: Mover, program: &OwnedFd, device: &Device, modes: &[Mode]) -> Result<(Link, Mode), Error> {
    let mut last = Errno::OPNOTSUPP;
    for mode in modes {
        match Link::new(program, device.index, *mode) {
            Ok(link) => return Ok((link, *mode)),
            Err(Errno::BUSY | Errno::EXIST) => {
                return Err(Error::Unfit {
                    mover,
                    reason: format!(
                        "another program is attached to {0} and stays (`ip link show {0}` names it)",
                        device.name
                    ),
                });
            }
            Err(error) => last = error,
        }
    }
    Err(refused(mover, &format!("attach a program to {}", device.name), last))
}

/// Creates the error of a refusal by the kernel, with its meaning.
fn refused(mover: Mover, what: &str, error: Errno) -> Error {
    let reason = match error {
        Errno::PERM | Errno::ACCESS => {
            format!(
                "to {what} needs the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW of the whole system"
            )
        }
        Errno::BUSY => format!("cannot {what}: somebody else has it"),
        Errno::NOBUFS => format!("cannot {what}: the limit of locked memory is too low (ulimit -l)"),
        error => format!("cannot {what}: {}", std::io::Error::from(error)),
    };
    Error::Unfit { mover, reason }
}

//! Stations of the machine below the processors, and the scripts of the requests to its devices.

use crate::engine::{Net, Op, Registers, Script, Time};
use crate::server::buffers::Buffer;
use crate::server::hardware::{Device, Direction, DiskAccess, Hardware, LineScripts, Work, block_of};
use crate::server::script::ScriptBuilder;
use bywash_model::{Architecture, Description};

/// Net of a machine's memory, interconnect and devices.
pub struct Devices {
    /// Stations and scripts.
    pub net: Net,
    /// Stations, and the rows of them for a report.
    pub hardware: Hardware,
    /// Scripts that move lines between memory and the caches.
    pub lines: LineScripts,
    /// Time that an idle memory takes for a line.
    pub idle_line: Time,
    /// Scripts of the requests.
    pub scripts: RequestScripts,
}

/// Scripts of the requests to devices. Each ends with a note.
#[derive(Clone, Copy, Debug)]
pub struct RequestScripts {
    /// A disk reads into memory.
    pub read: Script,
    /// A disk writes from memory.
    pub write: Script,
    /// A disk reads, and keeps the bytes for the interface.
    pub read_direct: Script,
    /// An interface sends from memory.
    pub send: Script,
    /// An interface sends what a disk has read.
    pub send_direct: Script,
    /// An interface receives into memory.
    pub receive: Script,
}

impl Devices {
    /// Makes the net of the machine of a description, whose memory must be described.
    pub fn new(description: &Description, architecture: Architecture) -> Option<Devices> {
        let work = description.workload();
        let mut net = Net::new();
        let mut hardware = Hardware::new(&mut net, &description.machine, &work, architecture);
        let (lines, idle_line) = hardware.line_scripts(&mut net, &description.machine)?;
        let is_active = architecture.is_active();
        let (tcp, file_system) = (Work::per_byte(work.costs.tcp.0), Work::file_system(&work.costs));
        let mut entry = |fill: &dyn Fn(&mut ScriptBuilder)| {
            let mut script = ScriptBuilder::default();
            fill(&mut script);
            script.add(Op::Note);
            net.entry(script.ops)
        };
        let device_work = |script: &mut ScriptBuilder, device: Device| {
            let work = if device == Device::Disk { file_system } else { tcp };
            if is_active {
                hardware.device_work(script, device, work);
            }
        };
        let disk = |script: &mut ScriptBuilder, readers: f64, writes: bool| {
            // The bytes of a request are in its registers; only the fact that it has some counts here.
            hardware.access_disk(script, DiskAccess { bytes: 1.0, readers, writes, draws_track: false });
        };
        let rotates = description.machine.disks.rotating.is_some();
        // The controller of a rotating disk finds out by itself which requests continue a file.
        let readers = if rotates { 1.0 } else { 0.0 };
        let read = |script: &mut ScriptBuilder| {
            disk(script, readers, false);
            device_work(script, Device::Disk);
        };
        let scripts = RequestScripts {
            read: entry(&|script| {
                read(script);
                hardware.move_data(script, Device::Disk, Direction::IntoMemory, Buffer::Kernel);
            }),
            write: entry(&|script| {
                hardware.move_data(script, Device::Disk, Direction::OutOfMemory, Buffer::Kernel);
                device_work(script, Device::Disk);
                disk(script, readers, true);
            }),
            read_direct: entry(&|script| read(script)),
            send: entry(&|script| {
                hardware.move_data(script, Device::Interface, Direction::OutOfMemory, Buffer::Socket);
                device_work(script, Device::Interface);
                hardware.send(script);
            }),
            send_direct: entry(&|script| {
                hardware.move_direct(script, Device::Disk);
                device_work(script, Device::Interface);
                hardware.send(script);
            }),
            receive: entry(&|script| {
                hardware.receive(script);
                device_work(script, Device::Interface);
                hardware.move_data(script, Device::Interface, Direction::IntoMemory, Buffer::Socket);
            }),
        };
        Some(Devices { net, hardware, lines, idle_line, scripts })
    }
}

/// Returns the registers of a request of `bytes` bytes.
pub fn registers(bytes: u64, address: u64, note: u32) -> Registers {
    // A call moves less than 2 GiB.
    let bytes = u32::try_from(bytes.max(1)).unwrap_or(u32::MAX);
    Registers {
        bytes,
        remaining: bytes,
        block: block_of(bytes.into()),
        address,
        note,
        ..Registers::default()
    }
}

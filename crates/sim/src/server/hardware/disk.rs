//! Disks: rotating ones with the cache of their controllers, flash drives, and disks with a mean rate.
//!
//! A request to a rotating disk is split into commands of the description's size. On a bus, each command is
//! arbitrated for on its own: a controller that serves one command refuses others (PCI's *retry*), and a fair
//! arbiter then lets another master go first. The commands of several requests therefore take turns at the
//! disk, which separates adjacent accesses. A switch delivers a request as one message, which the controller
//! queues, so its commands stay together. The controllers of active and direct servers receive requests for
//! files: they stay together on a bus too, and the controller reads ahead in the file.

use super::at_least_one;
use crate::engine::{Arm, Controller, Net, Op, Register, ServiceTime, Station, Time};
use crate::server::script::ScriptBuilder;
use bywash_model::machine::{DiskScheduling, Disks, Machine, Topology};

/// Access to a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskAccess {
    /// Size of the request, in bytes.
    pub bytes: f64,
    /// Number of sequential readers of all disks, or 0 for a random access.
    pub readers: f64,
    /// True for a write.
    pub writes: bool,
    /// True if the access draws its track; otherwise the job's stream has one.
    pub draws_track: bool,
}

/// Stations of the disks.
pub struct DiskParts {
    description: Disks,
    /// Arms of rotating disks, or channels of flash.
    work: Station,
    /// Link over which a flash drive transfers its data.
    media: Option<Station>,
    queues: Option<Station>,
    /// Size of a command in bytes, and the transfer of a command to the controller, if the commands of several
    /// requests take turns.
    command: Option<(u32, Op)>,
}

/// Size of a command, in bytes: a SCSI command descriptor with its addresses of memory.
const COMMAND_BYTES: f64 = 64.0;

impl DiskParts {
    /// Adds the stations of the disks of `machine`, whose interconnect is `shared`. With `readers`, the
    /// controllers know the files, and each disk has so many sequential readers. Adds rows for the report by
    /// `row`.
    pub fn new(
        net: &mut Net,
        machine: &Machine,
        shared: Station,
        readers: Option<f64>,
        row: &mut impl FnMut(&mut Net, &'static str, u32, u32) -> Station,
    ) -> DiskParts {
        let count = at_least_one(machine.disks.count);
        let description = readers.map_or(machine.disks, |readers| machine.disks.with_files(readers));
        let channels = description.flash.map_or(1, |flash| at_least_one(flash.channels));
        let interconnect = &machine.interconnect;
        let splits = description.rotating.is_some()
            && description.command.0 > 0.0
            && interconnect.shape == Topology::Bus;
        let transfer = ServiceTime::fixed(COMMAND_BYTES / interconnect.rate.0 + interconnect.arbitration.0);
        let parts = DiskParts {
            description,
            work: row(net, "disks", count, channels),
            media: description.flash.map(|_| row(net, "disk transfers", count, 1)),
            queues: description
                .flash
                .map(|flash| row(net, "disk queues", count, at_least_one(flash.queues * flash.depth))),
            command: splits.then(|| {
                ((description.command.0 as u32).max(1), Op::Use { station: shared, time: transfer })
            }),
        };
        parts.give_controllers(net, count, readers.is_some());
        parts
    }

    fn give_controllers(&self, net: &mut Net, count: u32, knows_files: bool) {
        let Disks { rate, cache, segments, .. } = self.description;
        let Some(rotating) = self.description.rotating else { return };
        let time = |time: bywash_model::units::Time| Time::from_seconds(time.0);
        let arm = Arm::new(time(rotating.seek), time(rotating.track), time(rotating.turn));
        let arm = if rotating.order == DiskScheduling::Elevator { arm.elevator() } else { arm };
        let segments = at_least_one(segments);
        let segment_bytes = (cache.0 / f64::from(segments)) as u32;
        let controller = Controller::new(1.0 / rate.0, segment_bytes, segments)
            .with_tracks_of(rotating.track_size.0 as u32);
        let controller = if knows_files { controller.with_files() } else { controller };
        (0..count).for_each(|number| net.disk(Net::in_row(self.work, number), arm, controller.clone()));
    }

    /// Returns the seconds that a rotating disk takes to position its head and transfer `bytes` bytes, and 0 for
    /// others.
    pub fn access_seconds(&self, bytes: f64) -> f64 {
        let rate = self.description.rate.0;
        self.description.rotating.map_or(0.0, |rotating| rotating.positioning() + bytes / rate)
    }

    /// Returns the operation that draws a track, for disks that have tracks.
    pub fn draw_track(&self) -> Option<Op> {
        let tracks = self.description.rotating?.tracks;
        Some(Op::Pick { register: Register::Other, count: at_least_one(tracks) })
    }

    /// Adds an access to the disk of the job, which has `readers` sequential readers.
    pub fn work(&self, script: &mut ScriptBuilder, access: DiskAccess, readers: f64) {
        let DiskAccess { bytes, writes, .. } = access;
        let Disks { rate, rotating, flash, .. } = self.description;
        let station = self.work.in_register(Register::Disk);
        if rotating.is_some() {
            return self.commands(script, station, access);
        }
        let ahead = self.description.read_ahead(readers);
        let reads_ahead = !writes && ahead > bytes;
        let has_it = reads_ahead.then(|| script.jump(Op::ReadAhead { most: ahead as u32, to: 0 }));
        match flash {
            Some(flash) => {
                let median = if writes && flash.write.0 > 0.0 { flash.write.0 } else { flash.latency.0 };
                script.add(Op::Use { station, time: ServiceTime::LogNormal(median, flash.spread) });
            }
            None => script.add(Op::Use { station, time: ServiceTime::per_byte(1.0 / rate.0) }),
        }
        if let Some(has_it) = has_it {
            script.land(has_it);
        }
        if let Some(media) = self.media {
            let time = ServiceTime::per_byte(1.0 / rate.0);
            script.add(Op::Use { station: media.in_register(Register::Disk), time });
        }
    }

    fn commands(&self, script: &mut ScriptBuilder, station: Station, access: DiskAccess) {
        let DiskAccess { readers, writes, draws_track, .. } = access;
        if let Some(draw) = self.draw_track().filter(|_| draws_track) {
            script.add(draw);
        }
        let in_order = readers > 0.0;
        let Some((bytes_max, transfer)) = self.command else {
            let time = ServiceTime::Command { bytes_max: u32::MAX, in_order, writes };
            return script.add(Op::Use { station, time });
        };
        let loop_at = script.here();
        script.add(transfer);
        script.add(Op::Use { station, time: ServiceTime::Command { bytes_max, in_order, writes } });
        script.add(Op::NextCommand { bytes_max, to: loop_at });
    }

    /// Adds the entry of a request into the drive's queues, up to [`DiskParts::leave`].
    pub fn enter(&self, script: &mut ScriptBuilder) {
        // A slot of a queue pair counts no work: queues limit the throughput only by being full.
        if let Some(queues) = self.queues {
            script.add(Op::Seize(queues.in_register(Register::Disk)));
        }
    }

    /// Adds the completion of a request by the drive, which frees its slot in the queues.
    pub fn leave(&self, script: &mut ScriptBuilder) {
        if let Some(queues) = self.queues {
            script.add(Op::Free(queues.in_register(Register::Disk)));
        }
    }
}

//! From file to file through an accelerator: `accel:` against a plain program with the same kernel, and against the slowest of
//! reading, computing and writing alone. All three take time of the processors: where these have no time left, no flow is as
//! fast as the slowest alone, and the bound is the sum of their times, shared by all processors.
//!
//! The plain program computes with as many threads, and with two buffers, so that it reads the next block while the device
//! computes; but it reads into memory of its own and copies that into the device's, and copies the output before it writes
//! it. Its output is compared with ours.

mod cards;
mod transforms;

use super::Figure::{Cpu, Throughput};
use super::route::{Ends, Route, equal};
use super::transfer::Net;
use super::{Figure, Goal, Group, MIB, Needing, Peer, Stage, case};
use crate::engine::{Metric, Rounds, Side};
use crate::error::{Attempt, Error};
use crate::row::Row;
use bywash_accelerator::kernel::{Fft, Fir, Kernel, Sar};
use bywash_accelerator::sar::{Echoes, Former, SarOptions, Target};
use bywash_accelerator::{Device, Output, Session, SessionOptions, devices};
use bywash_quantity::Bytes;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Sizes of the thesis, in bytes: 1 to 400 MB.
const SIZES: [u64; 4] = [MIB, 10 * MIB, 100 * MIB, 400 * MIB];
/// Greatest size of a quick run.
const QUICK: u64 = 10 * MIB;
/// Size from which on a run takes clearly longer than the start of a process, so that bounds mean something.
const WITH_BOUND: u64 = 100 * MIB;
/// Kernels, with the goal against the plain program of those that are bound by copies.
const KERNELS: [(&str, Option<f64>); 3] = [("fir", Some(1.3)), ("fft", Some(1.3)), ("sha256", None)];
const PLAIN: &str = "plain program";
const BOUND: &str = "slowest alone";
/// Bound of a computer whose processors do all three: their time for reading, computing and writing alone, shared by all.
const PROCESSORS: &str = "all processors";
/// Least share of the bound.
const GOAL_BOUND: f64 = 0.9;
/// Greatest time of an image in that of its transforms alone.
const GOAL_IMAGE: f64 = 1.0 / 1.3;
/// Sizes of a scene, of a full run and of a quick one.
const SCENES: [usize; 2] = [8192, 1024];
const BLOCK: usize = MIB as usize;
/// Time of a look for output.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let mut cases = Vec::new();
    for bytes in SIZES.into_iter().filter(|bytes| !quick || *bytes <= QUICK) {
        for (kernel, goal) in KERNELS {
            let what = format!("{kernel}, {}", Bytes(bytes));
            let head = Row::head("flow/accel", &what, &Route::DISK.name(folder));
            let measure = move |stage: &Stage, head: &Row| through(stage, head, bytes, (kernel, goal));
            cases.push(case(&Route::DISK.kinds, &head, (PLAIN, Throughput, goal), measure));
        }
    }
    let size = SCENES[usize::from(quick)];
    let head = Row::head("flow/accel", &format!("sar, {size} x {size}"), "memory");
    let measure = move |stage: &Stage, head: &Row| image(stage, head, size);
    cases.push((
        Vec::new(),
        crate::campaign::Declared::new(image_time().head(&head, TRANSFORMS, Some(GOAL_IMAGE)), measure),
    ));
    cases.extend(transforms::cases(quick));
    cases.extend(cards::cases(folder, quick));
    cases
}

/// One kernel and one size.
fn through(
    stage: &Stage,
    head: &Row,
    bytes: u64,
    (kernel, goal): (&str, Option<f64>),
) -> Result<Vec<Row>, Error> {
    let ends = &Ends::make(Route::DISK, &stage.places, bytes)?;
    write_samples(&ends.source, bytes).doing("write", &ends.source)?;
    let wanted = &ends.sink.with_extension("wanted");
    let line = |task: &str| format!("bywash bench peer flow accel-{task}-{kernel} {{from}} {{to}} 0");
    let run = |line: String| move || ends.run(&Net(None), [&line, "", ""], false);
    let checked = |name: &str, line: String| {
        let (run, first) = (run(line.clone()), run(line));
        let measured = move || ends.clear().and_then(|()| run());
        Side::new(name, measured).warm_up(move || {
            ends.clear()?;
            first()?;
            if wanted.exists() {
                equal(wanted, &ends.sink)
            } else {
                std::fs::rename(&ends.sink, wanted).doing("keep", wanted)
            }
        })
    };
    let alone = |name: &str, task: &str| {
        let run = run(line(task));
        Side::new(name, move || ends.clear().and_then(|()| run()))
    };
    let mut peers: Vec<Peer<'_>> = vec![
        (Group::Ours, checked("bywash", format!("bywash flow --quiet {{source}} accel:{kernel} {{sink}}"))),
        (Group::Programs, checked(PLAIN, line("plain"))),
    ];
    let has_bound = bytes >= WITH_BOUND.min(if stage.quick { QUICK } else { WITH_BOUND });
    if has_bound {
        let bounds = [("reading alone", "read"), ("computing alone", "compute"), ("writing alone", "write")];
        peers.extend(bounds.map(|(name, task)| (Group::ByHand, alone(name, task))));
    }
    let contest = stage.contest(stage.rounds, bytes, peers)?;
    let _ = std::fs::remove_file(wanted);
    let goals: [Goal; 1] = [(PLAIN, Throughput, goal)];
    let plain = &contest.0[1].1;
    let row = |figure: Figure| figure.metric().row(head, contest.ours(), plain, figure.goal(&goals, PLAIN));
    let mut rows = [Throughput, Cpu].map(row).to_vec();
    let bounds = || contest.0.iter().filter(|peer| peer.0 == Group::ByHand).map(|peer| &peer.1);
    if let Some(slowest) = Throughput.metric().worst(bounds()) {
        let mut row = Throughput.metric().row(head, contest.ours(), slowest, Some(GOAL_BOUND));
        (row.note, row.peer) = (format!("{BOUND}: {}", slowest.name), BOUND.into());
        rows.push(row);
    }
    let times: Option<Vec<f64>> =
        bounds().map(|alone| alone.median(|run| run.cpu_seconds / run.bytes)).collect();
    if let Some(times) = times.filter(|times| !times.is_empty()) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let limit = processors as f64 / times.iter().sum::<f64>();
        rows.push(Throughput.metric().row_of_limit(head, contest.ours(), PROCESSORS, limit, GOAL_BOUND));
    }
    Ok(rows)
}

/// Writes samples of a wave into a file that is there: of noise some numbers would be none.
fn write_samples(path: &Path, bytes: u64) -> io::Result<()> {
    let parts = (0..BLOCK / size_of::<f32>()).map(|number| (number as f32 * 0.37).sin());
    let block: Vec<u8> = parts.flat_map(f32::to_le_bytes).collect();
    let mut file = File::options().write(true).open(path)?;
    for _ in 0..bytes / MIB {
        file.write_all(&block)?;
    }
    file.sync_all()
}

const TRANSFORMS: &str = "its Fourier transforms alone";

fn image_time() -> Metric<'static, f64> {
    Metric::cost("time", "s", |seconds: &f64| *seconds)
}

/// An image of one point, against the transforms that it takes, in the same memory.
fn image(stage: &Stage, head: &Row, size: usize) -> Result<Vec<Row>, Error> {
    let (sar, echoes) = &echoes(size);
    let side = |name: &str, options: SarOptions| {
        Side::new(name, move || form(sar, echoes, &options).map_err(device))
    };
    let sides = vec![
        side("bywash", SarOptions::default()),
        side(TRANSFORMS, SarOptions::default().transforms_only()),
    ];
    let runs = Rounds::new(stage.rounds).limited().run(sides)?;
    Ok(vec![image_time().row(head, &runs[0], &runs[1], Some(GOAL_IMAGE))])
}

/// A scene of one point.
fn echoes(size: usize) -> (Sar, Echoes) {
    let sar = Sar::strip_map(size, size);
    let middle = Target { range_cell: size as f64 / 3.0, azimuth_row: size as f64 / 2.0, amplitude: 1.0 };
    let echoes = Echoes::new(&sar, vec![middle]);
    (sar, echoes)
}

/// Forms an image of echoes that are made before, and returns the seconds of that.
fn form(sar: &Sar, echoes: &Echoes, options: &SarOptions) -> Result<f64, bywash_accelerator::Error> {
    let mut former = Former::new(sar, options)?;
    let rows = former.slab_rows();
    for first in (0..sar.azimuth).step_by(rows) {
        let mut slab = former.slab(rows.min(sar.azimuth - first))?;
        for (index, row) in slab.samples_mut().chunks_exact_mut(sar.range).enumerate() {
            echoes.row(first + index, row);
        }
        former.push(slab)?;
    }
    former.form()?;
    let times = former.times();
    Ok((times.range + times.azimuth + times.migration + times.inverse).as_secs_f64())
}

fn device(error: bywash_accelerator::Error) -> Error {
    Error::failed("the accelerator", error.to_string())
}

/// Runs a part of the plain program: `plain-KERNEL` all of it, `read-`, `compute-` and `write-` one activity alone, of as many bytes.
pub(super) fn peer(task: &str, from: &Path, to: &Path) -> io::Result<()> {
    let (part, name) = task.split_once('-').unwrap_or((task, "fft"));
    match part {
        "plain" => {
            // A digest behind the data is not written.
            let left = written(name, from.metadata()?.len());
            plain(
                &mut session(name)?,
                File::open(from)?,
                &mut Sink { to: File::create(to)?, copy: Vec::new(), left },
            )
        }
        "read" => read_alone(File::open(from)?),
        "compute" => compute_alone(&mut session(name)?, from.metadata()?.len()),
        "write" => write_alone(File::create(to)?, written(name, from.metadata()?.len())),
        _ => Err(io::Error::other(format!("there is no part '{part}' of the plain program"))),
    }
}

/// The kernel that `accel:` has of this name without further words.
fn kernel(name: &str) -> Result<Kernel, bywash_accelerator::Error> {
    match name {
        "fir" => Fir::low_pass(63, 0.1, 4).map(Kernel::Fir),
        "sha256" => Ok(Kernel::Sha256),
        _ => Ok(Kernel::Fft(Fft { size: 1024, is_inverse: false })),
    }
}

/// A session of two buffers in each direction, of the kernel that the stage has by default.
fn session(name: &str) -> io::Result<Session> {
    let kernel = kernel(name).map_err(io::Error::other)?;
    let device: Box<dyn Device> = devices::open("cpu").map_err(io::Error::other)?;
    device.session(&kernel, &SessionOptions::default().blocks(2)).map_err(io::Error::other)
}

/// Number of bytes that a kernel makes of so many.
fn written(name: &str, bytes: u64) -> u64 {
    if name == "fir" { bytes / 4 } else { bytes }
}

/// File that output is copied and written to.
struct Sink {
    to: File,
    copy: Vec<u8>,
    /// Bytes that are still to be written.
    left: u64,
}

impl Sink {
    /// Copies output into memory of the program's own, and writes that.
    fn write(&mut self, output: &[u8]) -> io::Result<()> {
        self.copy.clear();
        self.copy.extend_from_slice(&output[..output.len().min(self.left as usize)]);
        self.left -= self.copy.len() as u64;
        self.to.write_all(&self.copy)
    }
}

fn plain(session: &mut Session, mut from: File, sink: &mut Sink) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let read = from.read(&mut block)?;
        if read == 0 {
            break;
        }
        put(session, &block[..read], &mut |output| sink.write(output))?;
    }
    session.input.finish().map_err(io::Error::other)?;
    while take(session, LOOK, &mut |output| sink.write(output))? {}
    Ok(())
}

/// Copies a block into the device's memory.
fn put(
    session: &mut Session,
    mut block: &[u8],
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    while !block.is_empty() {
        let Some(memory) = session.input.buffer(Duration::ZERO).map_err(io::Error::other)? else {
            take(session, LOOK, write)?;
            continue;
        };
        let bytes = memory.len().min(block.len());
        memory[..bytes].copy_from_slice(&block[..bytes]);
        session.input.submit(bytes).map_err(io::Error::other)?;
        block = &block[bytes..];
    }
    Ok(())
}

/// Takes an output; false at the end.
fn take(
    session: &mut Session,
    limit: Duration,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    match session.output.next(limit).map_err(io::Error::other)? {
        Output::Block => write(session.output.block()).map(|()| true),
        Output::None => Ok(true),
        Output::End => Ok(false),
    }
}

fn read_alone(mut from: File) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    while from.read(&mut block)? > 0 {}
    Ok(())
}

fn write_alone(mut to: File, bytes: u64) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    for offset in (0..bytes).step_by(BLOCK) {
        to.write_all(&block[..(bytes - offset).min(MIB) as usize])?;
    }
    Ok(())
}

/// Computes on whatever lies in the device's buffers.
fn compute_alone(session: &mut Session, bytes: u64) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let Some(memory) = session.input.buffer(Duration::ZERO).map_err(io::Error::other)? else {
            take(session, LOOK, &mut |_| Ok(()))?;
            continue;
        };
        let some = left.min(memory.len() as u64);
        session.input.submit(some as usize).map_err(io::Error::other)?;
        left -= some;
    }
    session.input.finish().map_err(io::Error::other)?;
    while take(session, LOOK, &mut |_| Ok(()))? {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_program_gives_what_the_flow_does() {
        let folder = tempfile::tempdir().unwrap();
        let [from, plain, flow] = ["from", "plain", "flow"].map(|name| folder.path().join(name));
        let samples = (0..1 << 18).flat_map(|number| [(number as f32 * 0.3).sin(), 1.0]);
        std::fs::write(&from, samples.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        for (kernel, _) in KERNELS.iter().filter(|kernel| kernel.0 != "sha256") {
            peer(&format!("plain-{kernel}"), &from, &plain).unwrap();
            let [source, sink] = [&from, &flow].map(|path| path.to_str().unwrap().parse().unwrap());
            let running =
                bywash_flow::Flow::new(source, sink).stage(format!("accel:{kernel}").parse().unwrap());
            running.start().unwrap().wait().unwrap();
            equal(&plain, &flow).unwrap();
            assert_eq!(plain.metadata().unwrap().len(), written(kernel, from.metadata().unwrap().len()));
        }
    }
}

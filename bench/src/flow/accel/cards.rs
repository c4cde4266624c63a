//! The kernels on this machine's graphics cards against the same kernels on all processors, from file to file.
//!
//! Both sides are `bywash flow`, whole processes: a card's side has the start of its driver and the compilation of the kernel in
//! it. A driver in software computes on the processor, so it is left out. The outputs differ by rounding; the first run of a
//! card compares all numbers with those of the processor.

use super::super::Figure::{Cpu, Throughput};
use super::super::route::{Ends, Route};
use super::super::transfer::Net;
use super::super::{Group, MIB, Needing, Peer, Stage, case};
use super::{SIZES, write_samples};
use crate::engine::Side;
use crate::error::{Attempt, Error};
use crate::row::Row;
use bywash_accelerator::devices;
use bywash_quantity::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Peer of the rows.
const PROCESSORS: &str = "device cpu";
/// Sizes of the input, in bytes, of a full run and of a quick one.
const BYTES: [&[u64]; 2] = [&[SIZES[2], SIZES[3], 4 * SIZES[3]], &[SIZES[1]]];
/// Greatest difference of two outputs, relative to the largest number.
const DIFFERENCE: f32 = 1e-5;
/// Size of a row of a radar image, in samples of 8 bytes.
const RANGE: u64 = 8192;

pub(super) fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let mut cases = Vec::new();
    let cards = devices::all().found.into_iter().filter(|found| !found.uses_processor);
    for (card, bytes) in
        cards.flat_map(|card| BYTES[usize::from(quick)].iter().map(move |bytes| (card.clone(), *bytes)))
    {
        for kernel in ["fir", "fft", "sar"] {
            let what = format!("{kernel} on {}, {}", card.name, Bytes(bytes));
            let head = Row::head("flow/accel", &what, &Route::DISK.name(folder));
            let card = card.clone();
            let measure = move |stage: &Stage, head: &Row| on_card(stage, head, bytes, kernel, &card);
            cases.push(case(&Route::DISK.kinds, &head, (PROCESSORS, Throughput, None), measure));
        }
    }
    cases
}

/// One kernel and one size on one card.
fn on_card(
    stage: &Stage,
    head: &Row,
    bytes: u64,
    kernel: &str,
    card: &devices::Found,
) -> Result<Vec<Row>, Error> {
    let ends = &Ends::make(Route::DISK, &stage.places, bytes)?;
    write_samples(&ends.source, bytes).doing("write", &ends.source)?;
    let wanted = &ends.sink.with_extension("wanted");
    let words = match kernel {
        "sar" => format!("sar,range={RANGE},azimuth={}", bytes / 8 / RANGE),
        kernel => kernel.into(),
    };
    let run = |device: &str| {
        let line = format!("bywash flow --quiet {{source}} accel:{words},device={device} {{sink}}");
        move || ends.clear().and_then(|()| ends.run(&Net(None), [&line, "", ""], false))
    };
    let reference = || run("cpu")().and_then(|_| std::fs::rename(&ends.sink, wanted).doing("keep", wanted));
    let first = run(&card.name);
    let checked = Side::new("bywash", run(&card.name)).warm_up(move || {
        reference()?;
        first()?;
        agree(wanted, &ends.sink)
    });
    let peers: Vec<Peer<'_>> =
        vec![(Group::Ours, checked), (Group::Programs, Side::new(PROCESSORS, run("cpu")))];
    let contest = stage.contest(stage.rounds, bytes, peers)?;
    let _ = std::fs::remove_file(wanted);
    let row = |figure: super::Figure| {
        let row = figure.metric().row(head, contest.ours(), &contest.0[1].1, None);
        Row { note: card.description.clone(), ..row }
    };
    Ok([Throughput, Cpu].map(row).to_vec())
}

/// Compares two files of 32-bit floating-point numbers, which may differ by rounding.
fn agree(one: &Path, other: &Path) -> Result<(), Error> {
    let (largest, difference) = differences(one, other).doing("compare", other)?;
    if difference <= DIFFERENCE * largest {
        return Ok(());
    }
    let what = format!("differs from the processor's by {difference} of {largest}, the largest number");
    Err(Error::failed("the card's output", what))
}

/// Returns the largest number of a file, and the largest difference to another, both without signs.
///
/// # Errors
/// Those of reading; `InvalidData` if one file is longer, or a number of one is not a number.
fn differences(one: &Path, other: &Path) -> io::Result<(f32, f32)> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return invalid("one file is longer");
    }
    let mut blocks = [vec![0; MIB as usize], vec![0; MIB as usize]];
    let (mut largest, mut difference) = (0f32, 0f32);
    let mut left = one.metadata()?.len() as usize / size_of::<f32>() * size_of::<f32>();
    while left > 0 {
        let some = left.min(MIB as usize);
        let [first, second] = &mut blocks;
        one.read_exact(&mut first[..some])?;
        other.read_exact(&mut second[..some])?;
        let numbers = |block: &[u8]| -> Vec<f32> {
            let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            block.chunks_exact(size_of::<f32>()).map(number).collect()
        };
        for (one, other) in numbers(&first[..some]).into_iter().zip(numbers(&second[..some])) {
            if !(one - other).is_finite() {
                return invalid("a number is not finite");
            }
            largest = largest.max(one.abs());
            difference = difference.max((one - other).abs());
        }
        left -= some;
    }
    Ok((largest, difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_agree_but_for_rounding() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, numbers: &[f32]| {
            let path = folder.path().join(name);
            std::fs::write(
                &path,
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>(),
            )
            .unwrap();
            path
        };
        let one = file("one", &[1000.0, -3.0, 0.25]);
        agree(&one, &file("rounded", &[1000.0, -3.001, 0.25])).unwrap();
        for (name, numbers) in [
            ("wrong", &[1000.0, 3.0, 0.25][..]),
            ("long", &[1000.0, -3.0, 0.25, 0.0]),
            ("none", &[1000.0, f32::NAN, 0.25]),
        ] {
            agree(&one, &file(name, numbers)).unwrap_err();
        }
    }
}

//! Streams of 8 Mbit/s for each processor: `bywash-video` and nginx with `limit_rate`, for the same files on the same disk.
//!
//!     cargo bench -p bywash-example-video --bench nginx [-- --rounds N --seconds N --streams N --most N --disk DIR]
//!
//! Each server has one processor, and the client has another one. Files are on the disk only when a run begins, and each
//! client plays a part of its own, so everything is read from the disk. Two figures:
//!
//! - processor time of the server for a second of one stream, with `--streams` streams, which load nothing fully; each round
//!   runs all sides, in turns;
//! - with `--most N`, the greatest number of streams up to N of which no byte was late and none was refused, by halving.
//!
//! CPU time is that of the server's threads, as their schedstat tells it. What interrupts do is charged to whoever runs.

mod files;
mod load;
mod sides;

use sides::{Side, Sides};
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Rate of a stream, in bytes per second: 8 Mbit/s.
const RATE: u64 = 1_000_000;

/// Servers that are compared: ours, with direct and cached reads, and nginx in all ways in which it reads files.
const SIDES: [(&str, Side); 6] = [
    ("bywash-video", Side::Bywash { reads: "disk", period: "1s" }),
    ("bywash-video, chunks of 500 ms", Side::Bywash { reads: "disk", period: "500ms" }),
    ("bywash-video, page cache", Side::Bywash { reads: "cache", period: "1s" }),
    ("nginx, sendfile", Side::Nginx { directives: "sendfile on; tcp_nopush on; read_ahead 1m;" }),
    ("nginx, sendfile in threads", Side::Nginx { directives: "sendfile on; aio threads; read_ahead 1m;" }),
    (
        "nginx, direct reads in threads",
        Side::Nginx { directives: "sendfile on; aio threads; directio 4k; output_buffers 2 512k;" },
    ),
];

struct Choice {
    rounds: usize,
    time: Duration,
    streams: u32,
    most: Option<u32>,
    folder: PathBuf,
}

/// Measurement of one side in one round.
#[derive(Clone, Copy, Debug)]
struct Figure {
    cpu_ms_per_stream_second: f64,
    late_bytes: u64,
    refused: u64,
    /// Bytes that arrived, as a share of what is played in the time of the run.
    delivered_share: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let choice = choice(std::env::args().skip(1))?;
    let temporary = tempfile::tempdir_in(&choice.folder)?;
    let files = temporary.path().join("files");
    files::make(&files)?;
    let sides = Sides::new(temporary.path(), &files);
    let mut figures = vec![Vec::new(); SIDES.len()];
    for round in 0..choice.rounds {
        for turn in 0..SIDES.len() {
            let side = (round + turn) % SIDES.len();
            let figure = sides.measure(SIDES[side].1, choice.streams, choice.time)?;
            figures[side].push(figure);
        }
    }
    println!("{} streams of 8 Mbit/s for {:?}, {} rounds", choice.streams, choice.time, choice.rounds);
    println!(
        "| server | CPU ms for a second of a stream (lowest to highest) | streams a core, by that | ratio to the best of nginx (lowest to highest) | late bytes, refused | delivered |"
    );
    println!("|---|---|---|---|---|---|");
    let of_nginx = SIDES.iter().zip(&figures).filter(|((_, side), _)| matches!(side, Side::Nginx { .. }));
    let best = of_nginx.map(|(_, figures)| costs(figures)).min_by(|a, b| median(a).total_cmp(&median(b)));
    for ((name, _), figures) in SIDES.iter().zip(&figures) {
        println!("{}", row(name, figures, best.as_deref().unwrap_or_default()));
    }
    if let Some(most) = choice.most {
        println!("\n| server | streams without a late byte |\n|---|---|");
        for (name, side) in SIDES.iter().filter(|(name, _)| !name.contains("chunks of")) {
            println!("| {name} | {} |", most_in_time(&sides, *side, most, choice.time)?);
        }
    }
    Ok(())
}

/// Returns the cost of a side in each round.
fn costs(figures: &[Figure]) -> Vec<f64> {
    figures.iter().map(|figure| figure.cpu_ms_per_stream_second).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

/// Returns the row of a side. A ratio is that of one round.
fn row(name: &str, figures: &[Figure], best: &[f64]) -> String {
    let costs = costs(figures);
    let ratios: Vec<_> = best.iter().zip(&costs).map(|(best, cost)| best / cost).collect();
    let (median, ratio) = (median(&costs), median(&ratios));
    let (costs, ratios) = (sorted(&costs), sorted(&ratios));
    let late: u64 = figures.iter().map(|figure| figure.late_bytes).sum();
    let refused: u64 = figures.iter().map(|figure| figure.refused).sum();
    let delivered = figures.iter().map(|figure| figure.delivered_share).sum::<f64>() / figures.len() as f64;
    format!(
        "| {name} | {median:.3} ({:.3} to {:.3}) | {:.0} | {ratio:.2} ({:.2} to {:.2}) | {late}, {refused} | {:.0} % |",
        costs[0],
        costs[costs.len() - 1],
        1e3 / median,
        ratios[0],
        ratios[ratios.len() - 1],
        100.0 * delivered,
    )
}

/// Returns the greatest number of streams up to `most` of which no byte was late, by halving, to a 16th of `most`.
fn most_in_time(sides: &Sides<'_>, side: Side, most: u32, time: Duration) -> Result<u32, Box<dyn Error>> {
    let (mut best, mut too_many) = (0, most + most / STEPS);
    while too_many - best > most / STEPS {
        let streams = (best + too_many) / 2;
        let is_in_time = (0..ATTEMPTS).any(|_| {
            // A server that breaks off a connection does not carry the load.
            let figure = sides.measure(side, streams, time);
            figure.is_ok_and(|figure| figure.late_bytes == 0 && figure.refused == 0)
        });
        if is_in_time {
            best = streams;
        } else {
            too_many = streams;
        }
    }
    Ok(best)
}

fn choice(mut words: impl Iterator<Item = String>) -> Result<Choice, Box<dyn Error>> {
    let mut choice = Choice {
        rounds: 5,
        time: Duration::from_secs(8),
        streams: 100,
        most: None,
        // Not in memory: there is no disk.
        folder: env!("CARGO_TARGET_TMPDIR").into(),
    };
    while let Some(word) = words.next() {
        // Cargo adds this one.
        if word == "--bench" {
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--rounds" => choice.rounds = value.parse::<usize>()?.clamp(1, 1000),
            // A part lasts for 16 s, of which servers send up to two ahead.
            "--seconds" => choice.time = Duration::from_secs(value.parse::<u64>()?.clamp(1, 12)),
            "--streams" => choice.streams = value.parse::<u32>()?.clamp(1, 4000),
            "--most" => choice.most = Some(value.parse::<u32>()?.clamp(50, 4000)),
            "--disk" => choice.folder = value.into(),
            _ => {
                return Err(
                    format!("{word} is none of --rounds, --seconds, --streams, --most, --disk").into()
                );
            }
        }
    }
    Ok(choice)
}

/// Number of attempts before a number of streams is too many: other programs may use the machine.
const ATTEMPTS: usize = 2;
/// Number of steps up to the greatest number of streams that is tried.
const STEPS: u32 = 16;

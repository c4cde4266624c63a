//! Requests per CPU second of `bywash-web` and of nginx with sendfile, for the same files.
//!
//!     cargo bench -p bywash-example-web --bench nginx [-- --rounds N --seconds N --disk DIR]
//!
//! Files of 16 KiB, each requested with the same probability, over keep-alive connections on the loopback interface. The
//! cache of `bywash-web` holds 90 % of them, so that one request in ten misses; the kernel's page cache, from which
//! nginx sends, holds all of them. Each server has one thread, on a core of its own, and the client has another one. A
//! round runs each side once; a ratio is the median of the rounds' ratios. CPU time is that of the server's threads, as
//! their schedstat tells it.

mod load;
mod sides;

use sides::{Side, Sides};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of files: those that the cache holds are 90 % of them.
const FILES: u32 = CACHE_BYTES / FILE_BYTES * 10 / 9;
const FILE_BYTES: u32 = 16 << 10;
const CACHE_BYTES: u32 = 28 << 20;
const CONNECTIONS: usize = 64;

/// Pairs that are compared: as each looks at a file for each request, and as each does so once a second.
const PAIRS: [(&str, Side, Side); 2] = [
    ("each request looks at the file", Side::Bywash { check: "0" }, Side::Nginx { keeps_files: false }),
    ("files are looked at every second", Side::Bywash { check: "1s" }, Side::Nginx { keeps_files: true }),
];

struct Choice {
    rounds: usize,
    time: Duration,
    folder: PathBuf,
}

/// Measurement of one side in one round.
#[derive(Clone, Copy, Debug)]
struct Figure {
    requests_per_cpu_second: f64,
    requests_per_second: f64,
    misses_percent: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let choice = choice(std::env::args().skip(1))?;
    let temporary = tempfile::tempdir_in(&choice.folder)?;
    let files = temporary.path().join("files");
    make(&files)?;
    let sides = Sides::new(temporary.path(), &files);
    println!("{FILES} files of {FILE_BYTES} bytes, a cache of {CACHE_BYTES}, {CONNECTIONS} connections");
    let mut figures = vec![Vec::new(); PAIRS.len()];
    for round in 0..choice.rounds {
        for ((_, ours, theirs), figures) in PAIRS.iter().zip(&mut figures) {
            // Each side is the first one in every other round.
            let measured = match round % 2 {
                0 => [sides.measure(ours, choice.time)?, sides.measure(theirs, choice.time)?],
                _ => {
                    let theirs = sides.measure(theirs, choice.time)?;
                    [sides.measure(ours, choice.time)?, theirs]
                }
            };
            figures.push(measured);
        }
    }
    println!(
        "| case | bywash-web, requests/CPU s | nginx, requests/CPU s | ratio (lowest to highest) | requests/s | misses |"
    );
    println!("|---|---|---|---|---|---|");
    for ((name, ..), figures) in PAIRS.iter().zip(&figures) {
        println!("{}", row(name, figures));
    }
    Ok(())
}

fn row(name: &str, figures: &[[Figure; 2]]) -> String {
    let sorted = |value: &dyn Fn(&[Figure; 2]) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |value: &dyn Fn(&[Figure; 2]) -> f64| sorted(value)[figures.len() / 2];
    let ratios = sorted(&|[ours, theirs]| ours.requests_per_cpu_second / theirs.requests_per_cpu_second);
    format!(
        "| {name} | {:.0} | {:.0} | {:.2} ({:.2} to {:.2}) | {:.0} and {:.0} | {:.1} % |",
        median(&|figures| figures[0].requests_per_cpu_second),
        median(&|figures| figures[1].requests_per_cpu_second),
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        median(&|figures| figures[0].requests_per_second),
        median(&|figures| figures[1].requests_per_second),
        median(&|figures| figures[0].misses_percent),
    )
}

fn choice(mut words: impl Iterator<Item = String>) -> Result<Choice, Box<dyn Error>> {
    let mut choice = Choice { rounds: 5, time: Duration::from_secs(4), folder: std::env::temp_dir() };
    while let Some(word) = words.next() {
        // Cargo adds this one.
        if word == "--bench" {
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--rounds" => choice.rounds = value.parse::<usize>()?.clamp(1, 1000),
            "--seconds" => choice.time = Duration::from_secs(value.parse::<u64>()?.clamp(1, 1000)),
            "--disk" => choice.folder = value.into(),
            _ => return Err(format!("{word} is none of --rounds, --seconds, --disk").into()),
        }
    }
    Ok(choice)
}

/// Makes the files, each of which begins with its number.
fn make(folder: &Path) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    for file in 0..FILES {
        let mut contents = vec![b'x'; FILE_BYTES as usize];
        contents[..4].copy_from_slice(&file.to_le_bytes());
        fs::write(folder.join(file.to_string()), contents)?;
    }
    // Until the files are old enough to be cached.
    std::thread::sleep(Duration::from_millis(200));
    Ok(())
}

//! Carrera et al., Section 5: the servers of Table IV on PCI and on switches, with and without processors in
//! the devices.

use super::{Target, near};
use crate::engine::Interval;
use crate::many;
use crate::preset::Preset;
use crate::server::{Gain, Options, Report, Stop, gains, simulate};
use bywash_model::claim::{Claim, Verdict};
use bywash_model::demand::Demand;
use bywash_model::machine::{Interconnect, Topology};
use bywash_model::units::{Frequency, Rate, Share, Size, Time};
use bywash_model::work::Request;
use bywash_model::{Architecture, Description, bound};
use serde::Serialize;

/// One bar of Figure 8 or 9.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Interconnect and I/O architecture, separated by a comma.
    pub name: String,
    /// Throughput in bytes per second, with 95 % confidence.
    pub throughput: Interval,
    /// Resource that binds: made faster by a tenth, it raises the throughput most. "none" if no resource raises it
    /// by more than the simulation's uncertainty.
    pub binding: String,
    /// Gains of throughput with each resource made faster by a tenth, largest first.
    pub gains: Vec<Gain>,
    /// Resource that worked for the largest share of the time.
    pub busiest: String,
    /// Share of the time that the busiest resource worked, from 0 to 1.
    pub busy: f64,
    /// Share of the time that the host's processors were taken: computing, or stalled on memory, 0 to 1.
    pub processors: f64,
    /// Share of the time that the host's processors computed, 0 to 1.
    pub computing: f64,
    /// Share of the time that the host's processors stalled on memory, 0 to 1.
    pub stalled: f64,
    /// Ratio to the first bar, as the paper states it.
    pub says: Option<f64>,
    /// Resource that the paper says is the limit.
    pub says_binding: Option<&'static str>,
    /// Result of comparing the binding resource with the paper's; a reference if the paper names none.
    pub verdict: Verdict,
}

/// Interconnect of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterconnectKind {
    Pci,
    RapidIo,
    InfiniBand,
}

impl InterconnectKind {
    const ALL: [InterconnectKind; 3] =
        [InterconnectKind::Pci, InterconnectKind::RapidIo, InterconnectKind::InfiniBand];

    fn name(self) -> &'static str {
        match self {
            InterconnectKind::Pci => "PCI",
            InterconnectKind::RapidIo => "RapidIO",
            InterconnectKind::InfiniBand => "InfiniBand",
        }
    }

    /// Returns the interconnect by Table IV; `pci` is the one of the description.
    fn interconnect(self, pci: Interconnect) -> Interconnect {
        let switch = |latency| Interconnect {
            rate: Rate(2e9),
            shape: Topology::Switch,
            latency: Time(latency),
            packet: Size(0.0),
            arbitration: Time(0.0),
            ..pci
        };
        match self {
            InterconnectKind::Pci => pci,
            InterconnectKind::RapidIo => switch(250e-9),
            InterconnectKind::InfiniBand => switch(4e-6),
        }
    }
}

/// I/O architectures of the bars, each with the clock frequency of the devices' processors in cycles per
/// second.
const STRUCTURES: [(&str, Architecture, f64); 3] = [
    ("conventional", Architecture::Conventional, 300e6),
    ("active, 300 MHz", Architecture::Active, 300e6),
    ("active, 1.5 GHz", Architecture::Active, 1.5e9),
];

/// Number of requests that a bar measures. The throughput then has an error of some 2 %.
const REQUESTS: u64 = 40_000;
/// Number of requests that each simulation with a faster resource measures.
const GAIN_REQUESTS: u64 = 10_000;
const SEED: u64 = 2003;

/// Returns the size of a video request in bytes, which the paper does not give: the largest power of two that its
/// statement about the conventional server on PCI permits.
///
/// There the processors wait for the disks for more than 90 % of the time. A conventional host takes `w_h` cycles
/// per byte, so it serves fewer than `0.1 h s_h / w_h` bytes per second, and each of `d` disks fewer than
/// `L = 0.1 h s_h / (w_h d)`. A disk that positions its head for each request of `S` bytes serves
/// `S / (seek + S / raw)`, so `S < seek L / (1 - L / raw)`: 48 KB with Table IV.
pub fn video_request_bytes(base: &Description) -> f64 {
    let mut work = base.workload();
    work.request = Request::Video { file: Size(1.0) };
    let machine = &base.machine;
    let seconds = Demand::new(machine, &work, Architecture::Conventional).seconds[0];
    let limit = (1.0 - SAYS_VIDEO_IDLE) * machine.processors.count / seconds / machine.disks.count;
    let positioning = machine.disks.rotating.map_or(0.0, |rotating| rotating.positioning());
    let most = positioning * limit / (1.0 - limit / machine.disks.rate.0).max(f64::MIN_POSITIVE);
    most.log2().floor().exp2()
}

/// Simulates the bars of Figure 8 (the Web server) or 9 (video on demand). Returns `None` for another number.
pub fn figure(number: u32) -> Option<Vec<Bar>> {
    let base = Preset::named("carrera-table-4")?.description();
    match number {
        8 => Some(web_bars(&base)),
        9 => Some(video_bars(&base, video_request_bytes(&base))),
        _ => None,
    }
}

/// Returns the name, the description and the architecture of each bar of a figure, in its order; `None` for another
/// number than 8 and 9.
pub(super) fn descriptions_of(number: u32) -> Option<Vec<(String, Description, Architecture)>> {
    let base = Preset::named("carrera-table-4")?.description();
    match number {
        8 => Some(descriptions(&base, base.request)),
        9 => Some(descriptions(&base, Request::Video { file: Size(video_request_bytes(&base)) })),
        _ => None,
    }
}

/// Simulates Figure 8, with the paper's ratios on the bars of the switches. For each architecture the paper
/// gives one ratio for both switches. It names the host's processors as the limit of a conventional server on
/// a switch.
fn web_bars(base: &Description) -> Vec<Bar> {
    let says = [SAYS_WEB_SWITCH, SAYS_WEB_SWITCH * SAYS_WEB_SLOW, SAYS_WEB_BEST];
    let bars = with_limits(bars(base, base.request), base, base.request);
    said(bars, |joint, structure| Statement {
        ratio: (joint != InterconnectKind::Pci).then(|| says[structure]),
        binding: (joint != InterconnectKind::Pci && structure == CONVENTIONAL).then_some("processors"),
    })
}

/// Simulates Figure 9 with requests of `request_bytes` bytes. The paper compares active servers with a
/// conventional one on PCI, and a conventional server on a switch with a conventional one on PCI.
fn video_bars(base: &Description, request_bytes: f64) -> Vec<Bar> {
    let request = Request::Video { file: Size(request_bytes) };
    said(with_limits(bars(base, request), base, request), |joint, structure| Statement {
        ratio: match (joint, structure) {
            (InterconnectKind::Pci, CONVENTIONAL) => None,
            (InterconnectKind::Pci, _) => Some(SAYS_VIDEO_ACTIVE),
            (_, CONVENTIONAL) => Some(SAYS_VIDEO_SWITCH),
            _ => None,
        },
        binding: None,
    })
}

/// Statements of the paper about one bar.
struct Statement {
    /// Ratio to the first bar.
    ratio: Option<f64>,
    /// Resource that is the limit.
    binding: Option<&'static str>,
}

/// Adds the paper's statements to bars in the order of [`bars`].
fn said(bars: Vec<Bar>, of: impl Fn(InterconnectKind, usize) -> Statement) -> Vec<Bar> {
    let add = |(number, bar): (usize, Bar)| {
        let Statement { ratio, binding } =
            of(InterconnectKind::ALL[number / STRUCTURES.len()], number % STRUCTURES.len());
        let verdict = binding.map_or(Verdict::Reference, |named| Verdict::on(named == bar.binding));
        Bar { says: ratio, says_binding: binding, verdict, ..bar }
    };
    bars.into_iter().enumerate().map(add).collect()
}

/// Index of the conventional server in [`STRUCTURES`].
const CONVENTIONAL: usize = 0;

/// Reason for the differences of active servers' ratios on the Web.
const COPIES: &str = "memory binds the conventional server here: a byte crosses the assumed 8-byte bus more than \
                      three times, among them the write-back of the copy before the interface reads it";
/// Ratios from the paper's text.
const SAYS_WEB_SWITCH: f64 = 1.15;
const SAYS_WEB_SLOW: f64 = 1.85;
const SAYS_WEB_FAST: f64 = 2.12;
const SAYS_WEB_BEST: f64 = 2.46;
const SAYS_VIDEO_ACTIVE: f64 = 1.47;
const SAYS_VIDEO_SWITCH: f64 = 1.31;
const SAYS_VIDEO_IDLE: f64 = 0.9;
/// Difference between two bars that counts as none, where the paper says "no significant difference".
const ALIKE: f64 = 0.05;

/// Returns the name, the description and the architecture of each bar, in the order of [`bars`].
fn descriptions(base: &Description, request: Request) -> Vec<(String, Description, Architecture)> {
    let mut jobs = Vec::new();
    for joint in InterconnectKind::ALL {
        for (name, architecture, processor) in STRUCTURES {
            let mut description = *base;
            description.request = request;
            description.machine.interconnect = joint.interconnect(base.machine.interconnect);
            description.machine.interfaces.processor = Frequency(processor);
            description.machine.disks.processor = Frequency(processor);
            jobs.push((format!("{}, {name}", joint.name()), description, architecture));
        }
    }
    jobs
}

/// Simulates all bars of one kind of request, without the resources that bind: by interconnect, then by architecture.
fn bars(base: &Description, request: Request) -> Vec<Bar> {
    let jobs = descriptions(base, request);
    many::each(&jobs, |(name, description, architecture)| {
        let report = run(description, *architecture);
        let busy = report.resources.iter().find(|resource| resource.name == report.binding);
        Bar {
            name: name.clone(),
            throughput: report.throughput,
            binding: String::new(),
            gains: Vec::new(),
            processors: report.processors.taken(),
            computing: report.processors.computing,
            stalled: report.processors.stalled,
            busy: busy.map_or(0.0, |resource| resource.working),
            busiest: report.binding,
            says: None,
            says_binding: None,
            verdict: Verdict::Reference,
        }
    })
}

/// Finds the resource that binds each bar.
fn with_limits(mut bars: Vec<Bar>, base: &Description, request: Request) -> Vec<Bar> {
    let options = Options { seed: SEED, stop: Stop::Requests(GAIN_REQUESTS) };
    for (bar, (_, description, architecture)) in bars.iter_mut().zip(descriptions(base, request)) {
        // This cannot fail: the bar itself was simulated.
        bar.gains = gains(&description, architecture, &options).expect("the bar was simulated");
        let largest = bar.gains.first().filter(|gain| gain.gain > gain.half_width);
        bar.binding = largest.map_or("none", |gain| gain.resource).into();
    }
    bars
}

fn run(description: &Description, architecture: Architecture) -> Report {
    let options = Options { seed: SEED, stop: Stop::Requests(REQUESTS) };
    // This cannot fail: a test simulates all variants.
    simulate(description, architecture, &options, &mut |_| true)
        .expect("the paper's machine can be simulated")
}

/// The ratios of Figures 8 and 9 that the paper states, from the bars of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// Web: conventional on a switch / on PCI.
    pub web_switch: f64,
    /// Web, on a switch: active with 300 MHz / conventional.
    pub web_slow: f64,
    /// Web, on a switch: active with 1.5 GHz / conventional.
    pub web_fast: f64,
    /// Web: the best active one of any interconnect / conventional on PCI.
    pub web_best: f64,
    /// Web: RapidIO / InfiniBand, for the architecture with the greatest difference.
    pub web_switches: f64,
    /// Video: the better active one on PCI / conventional on PCI.
    pub video_active: f64,
    /// Video: conventional on a switch / on PCI.
    pub video_switch: f64,
    /// Video, conventional on PCI: share of the time that processors are idle.
    pub video_idle: f64,
}

impl Ratios {
    /// Simulates the bars of `base`, whose request is the Web's, and the bars of video requests of
    /// `video_bytes` bytes.
    pub fn simulate(base: &Description, video_bytes: f64) -> Ratios {
        let video = Request::Video { file: Size(video_bytes) };
        Ratios::from_bars(&bars(base, base.request), &bars(base, video))
    }

    fn from_bars(web: &[Bar], video: &[Bar]) -> Ratios {
        let rate = |bars: &[Bar], joint: InterconnectKind, structure: usize| {
            bar(bars, joint, structure).throughput.mean
        };
        let active = |bars: &[Bar], joint| {
            (1..STRUCTURES.len()).map(move |one| rate(bars, joint, one)).fold(0.0, f64::max)
        };
        let any = InterconnectKind::ALL.into_iter().map(|joint| active(web, joint)).fold(0.0, f64::max);
        let (pci, switch) = (InterconnectKind::Pci, InterconnectKind::RapidIo);
        let apart = (0..STRUCTURES.len())
            .map(|one| rate(web, switch, one) / rate(web, InterconnectKind::InfiniBand, one));
        Ratios {
            web_switch: rate(web, switch, CONVENTIONAL) / rate(web, pci, CONVENTIONAL),
            web_slow: rate(web, switch, 1) / rate(web, switch, CONVENTIONAL),
            web_fast: rate(web, switch, 2) / rate(web, switch, CONVENTIONAL),
            web_best: any / rate(web, pci, CONVENTIONAL),
            web_switches: apart
                .max_by(|one, other| (one - 1.0).abs().total_cmp(&(other - 1.0).abs()))
                .unwrap_or(1.0),
            video_active: active(video, pci) / rate(video, pci, CONVENTIONAL),
            video_switch: rate(video, switch, CONVENTIONAL) / rate(video, pci, CONVENTIONAL),
            video_idle: 1.0 - bar(video, pci, CONVENTIONAL).processors,
        }
    }
}

/// Returns the bar of an interconnect and an architecture, from bars in the order of [`bars`].
fn bar(bars: &[Bar], joint: InterconnectKind, structure: usize) -> &Bar {
    &bars[joint as usize * STRUCTURES.len() + structure]
}

/// Bars of Figures 8 and 9, and the paper's statements about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Bars of Figure 8, the Web server.
    pub web: Vec<Bar>,
    /// Bars of Figure 9, video on demand.
    pub video: Vec<Bar>,
}

impl Figures {
    /// Simulates both figures.
    pub fn simulated() -> Figures {
        // The preset is included in this crate.
        let base = Preset::named("carrera-table-4").expect("it comes along").description();
        Figures { web: web_bars(&base), video: video_bars(&base, video_request_bytes(&base)) }
    }

    /// Simulates both figures without the resources that bind, in a third of the time.
    pub fn without_limits() -> Figures {
        let base = Preset::named("carrera-table-4").expect("it comes along").description();
        let video = Request::Video { file: Size(video_request_bytes(&base)) };
        Figures { web: bars(&base, base.request), video: bars(&base, video) }
    }

    /// Ratios of the bars.
    pub fn ratios(&self) -> Ratios {
        Ratios::from_bars(&self.web, &self.video)
    }

    /// Statements of the paper about the ratios of the bars, against the simulated ratios.
    pub fn targets(&self) -> Vec<Target> {
        let ratios = self.ratios();
        let web = |what, claim, simulated| Target::new("Fig. 8", what, claim, simulated);
        let video = |what, claim, simulated| Target::new("Fig. 9", what, claim, simulated);
        let alike = Claim::Value { value: 1.0, tolerance: ALIKE };
        vec![
            web("Web: conventional on a switch / on PCI", near(SAYS_WEB_SWITCH), ratios.web_switch),
            web("Web, on a switch: active 300 MHz / conventional", near(SAYS_WEB_SLOW), ratios.web_slow)
                .because(COPIES),
            web("Web, on a switch: active 1.5 GHz / conventional", near(SAYS_WEB_FAST), ratios.web_fast)
                .because(COPIES),
            web("Web: best active / conventional on PCI", near(SAYS_WEB_BEST), ratios.web_best).because(COPIES),
            web(
                "Web: RapidIO / InfiniBand (no significant difference: within 5 %)",
                alike,
                ratios.web_switches,
            ),
            video("Video, on PCI: active / conventional", near(SAYS_VIDEO_ACTIVE), ratios.video_active).because(
                "commands of 16 KiB take turns at each disk of the conventional server, and each positions the head; \
                 the active controller reads 32 KiB for each positioning, which its cache holds for four streams",
            ),
            video("Video: conventional on a switch / on PCI", near(SAYS_VIDEO_SWITCH), ratios.video_switch).because(
                "a switch delivers a request of 32 KiB as a whole, so each positioning serves twice as many bytes as \
                 the commands that take turns on PCI",
            ),
            video(
                "Video, conventional on PCI: processors idle",
                Claim::MoreThan(SAYS_VIDEO_IDLE),
                ratios.video_idle,
            )
            .because(
                "computing leaves more than 90 %, but stalls on memory count as taken",
            ),
        ]
    }
}

/// Computes by which share the model's bound exceeds the simulated throughput, for each of the paper's
/// architectures. Both use the description of Tables II and III, with the miss rate `miss` and `threads`
/// threads.
pub fn gaps(miss: f64, threads: f64) -> Vec<(Architecture, f64)> {
    let mut description = Preset::named("carrera-table-2").expect("it comes along").description();
    description.request = Request::Web { file: Size(16384.0), miss: Share(miss) };
    description.load.threads = threads;
    let structures = [Architecture::Conventional, Architecture::Active, Architecture::Direct];
    many::each(&structures, |architecture| {
        let bound = bound(&description.machine, &description.workload(), *architecture).throughput;
        (*architecture, bound / run(&description, *architecture).throughput.mean - 1.0)
    })
}

/// Statements of the paper about [`gaps`] at its two miss rates: within 9 % without misses; above 0 and at
/// most 22 % with 10 % misses.
pub fn gap_targets() -> Vec<Target> {
    let line = |what, claim, simulated| Target::new("Section 5", what, claim, simulated);
    let shares = |miss| gaps(miss, 64.0).into_iter().map(|(_, gap)| gap).collect::<Vec<f64>>();
    let (hits, misses) = (shares(0.0), shares(0.10));
    let most = |gaps: &[f64]| gaps.iter().copied().fold(f64::MIN, f64::max);
    let farthest = hits.iter().fold(0.0f64, |most, gap| most.max(gap.abs()));
    let least = misses.iter().copied().fold(f64::MAX, f64::min);
    vec![
        line("model / simulator - 1, no misses: farthest from 0", Claim::AtMost(0.09), farthest),
        line("model / simulator - 1, 10 % misses: largest", Claim::AtMost(0.22), most(&misses)),
        line("model / simulator - 1, 10 % misses: smallest", Claim::MoreThan(0.0), least)
            .because("with 64 threads the bound is reached within the confidence of the simulation"),
    ]
}

/// Another value for a parameter that the paper does not give.
pub struct Variant {
    /// Name of the changed parameter and its value.
    pub name: &'static str,
    /// Change of the description, and of the size of a video request in bytes.
    change: fn(&mut Description, &mut f64),
}

fn memory(it: &mut Description) -> &mut bywash_model::machine::Memory {
    // The preset "carrera-table-4" describes memory.
    it.machine.memory.as_mut().expect("Table IV has memory")
}

fn tracks(it: &mut Description, tracks: f64) {
    if let Some(rotating) = &mut it.machine.disks.rotating {
        rotating.tracks = tracks;
    }
}

const fn variant(name: &'static str, change: fn(&mut Description, &mut f64)) -> Variant {
    Variant { name, change }
}

/// Variants of the sensitivity table.
pub const VARIANTS: &[Variant] = &[
    variant("as described", |_, _| ()),
    variant("memory bus 4 B wide", |it, _| memory(it).rate.0 /= 2.0),
    variant("memory bus 16 B wide", |it, _| memory(it).rate.0 *= 2.0),
    variant("banks take 30 ns", |it, _| memory(it).latency.0 = 30e-9),
    variant("banks take 120 ns", |it, _| memory(it).latency.0 = 120e-9),
    variant("one bank", |it, _| memory(it).banks = 1.0),
    variant("copies do not fit the cache", |it, _| memory(it).l2.0 = 0.0),
    variant("no write buffers", |it, _| memory(it).write_buffer.0 = 0.0),
    variant("write buffers of 4 KiB", |it, _| memory(it).write_buffer.0 = 4096.0),
    variant("owners supply modified lines", |it, _| memory(it).three_phase = false),
    variant("4 misses at a time", |it, _| memory(it).misses = 4.0),
    variant("16 misses at a time", |it, _| memory(it).misses = 16.0),
    variant("bus bursts of 256 B", |it, _| it.machine.interconnect.packet.0 = 256.0),
    variant("bridge with 4 blocks in flight", |it, _| it.machine.interconnect.pending = 4.0),
    variant("32 threads", |it, _| it.load.threads = 32.0),
    variant("128 threads", |it, _| it.load.threads = 128.0),
    variant("requests over 100 tracks", |it, _| tracks(it, 100.0)),
    variant("tracks of 256 KiB", |it, _| {
        if let Some(rotating) = &mut it.machine.disks.rotating {
            rotating.track_size.0 = 262_144.0;
        }
    }),
    variant("commands of 8 KiB", |it, _| it.machine.disks.command.0 = 8192.0),
    variant("commands stay together on PCI", |it, _| it.machine.disks.command.0 = 0.0),
    variant("4 segments in a controller", |it, _| it.machine.disks.segments = 4.0),
    variant("video requests of 16 KiB", |_, video| *video = 16384.0),
    variant("video requests of 64 KiB", |_, video| *video = 65536.0),
    variant("video requests of 128 KiB", |_, video| *video = 131_072.0),
];

impl Variant {
    /// Simulates the variant's bars and returns their ratios.
    pub fn ratios(&self) -> Ratios {
        let mut base = Preset::named("carrera-table-4").expect("it comes along").description();
        let mut video = video_request_bytes(&base);
        (self.change)(&mut base, &mut video);
        Ratios::simulate(&base, video)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds the verdict on each line of Figures 8 and 9: agrees or differs. If a change of the simulator changes
    /// a verdict, this list must be changed as well. The resources that bind take longer to find, and are held by
    /// the page that a test of the command compares.
    #[test]
    fn figures_8_and_9_agree_where_they_do_and_differ_where_they_do() {
        use Verdict::{Agrees, Differs};
        let figures = Figures::without_limits();
        let verdicts: Vec<Verdict> = figures.targets().iter().map(|target| target.verdict).collect();
        assert_eq!(verdicts, [Agrees, Differs, Differs, Differs, Agrees, Differs, Differs, Agrees]);
        for target in figures.targets() {
            assert_eq!(target.verdict == Differs, !target.note.is_empty(), "{target:?}");
        }
        assert_eq!(figure(7), None);
    }

    /// 48 KB is the limit: 240 MB/s of all processors, 15 MB/s of a disk, 2 ms x 15 MB/s / (1 - 15 / 40).
    #[test]
    fn the_video_request_is_the_largest_that_leaves_processors_waiting() {
        let base = Preset::named("carrera-table-4").unwrap().description();
        assert_eq!(video_request_bytes(&base), 32768.0);
        let mut faster = base;
        faster.machine.processors.speed.0 *= 1.5;
        assert_eq!(video_request_bytes(&faster), 65536.0);
    }

    /// The paper states +47 % for PCI: no bar of another interconnect may replace it.
    #[test]
    fn a_ratio_compares_bars_of_the_interconnect_that_the_paper_names() {
        let bars: Vec<Bar> = (0..9u32)
            .map(|number| Bar {
                name: String::new(),
                throughput: Interval { mean: f64::from(1 << number), half_width: 0.0 },
                binding: String::new(),
                gains: Vec::new(),
                busiest: String::new(),
                busy: 1.0,
                processors: 0.25,
                computing: 0.25,
                stalled: 0.0,
                says: None,
                says_binding: None,
                verdict: Verdict::Reference,
            })
            .collect();
        let ratios = Ratios::from_bars(&bars, &bars);
        assert_eq!((ratios.video_active, ratios.video_switch), (4.0, 8.0));
        assert_eq!((ratios.web_switch, ratios.web_slow, ratios.web_fast), (8.0, 2.0, 4.0));
        assert_eq!((ratios.web_best, ratios.web_switches, ratios.video_idle), (256.0, 0.125, 0.75));
    }

    #[test]
    fn the_model_is_as_far_from_the_simulator_as_the_paper_says_but_for_one_line() {
        let verdicts: Vec<Verdict> = gap_targets().iter().map(|target| target.verdict).collect();
        assert_eq!(verdicts, [Verdict::Agrees, Verdict::Agrees, Verdict::Differs]);
    }

    #[test]
    fn every_variant_can_be_simulated_and_one_changes_nothing() {
        let base = Preset::named("carrera-table-4").unwrap().description();
        for variant in VARIANTS {
            let (mut changed, mut video) = (base, video_request_bytes(&base));
            (variant.change)(&mut changed, &mut video);
            let is_base = changed == base && video == video_request_bytes(&base);
            assert_eq!(is_base, variant.name == "as described", "{}", variant.name);
            let options = Options { seed: 1, stop: Stop::Requests(100) };
            for request in [changed.request, Request::Video { file: Size(video) }] {
                changed.request = request;
                simulate(&changed, Architecture::Conventional, &options, &mut |_| true).unwrap();
            }
        }
    }
}

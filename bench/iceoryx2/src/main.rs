//! `bywash-bench-iceoryx2`: iceoryx2 as published, doing the work of `bywash bench ipc`, which starts it.
//!
//! ```text
//!   bywash-bench-iceoryx2 PATTERN BYTES MESSAGES WARM-UP BUFFERS CORE CORE
//! ```
//!
//! PATTERN is `ping-pong` or `stream`. It starts itself once more as the second process, and writes the seconds that the
//! messages took and the processor time of both processes, in seconds. As in the bench the sender writes every word of a
//! message and the receiver sums every word.
//!
//! Its own recommendations are followed: publish and subscribe, one service each way, memory that is loaned and written
//! once, nothing discarded, and a full buffer makes the publisher wait. Both ends poll.

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "the bench uses the rest of it")]
#[path = "../../src/ipc/words.rs"]
mod words;

/// Longest time that an end waits for the other to come.
const LIMIT: Duration = Duration::from_secs(10);
/// Looks of an end that polls between two questions whether the other process is there.
const LOOKS: u32 = 1 << 20;
/// Argument that makes this the second process; the name of the services follows.
const SECOND: &str = "second";
/// Bytes of the message that ends a stream.
const LAST_BYTES: usize = 64;

type Failure = Box<dyn std::error::Error>;

fn failed(error: impl std::fmt::Debug) -> Failure {
    format!("{error:?}").into()
}

/// Work of a run, as the command line says.
struct Work {
    is_ping_pong: bool,
    bytes: usize,
    messages: u64,
    warm_up: u64,
    buffers: usize,
    cores: [usize; 2],
}

impl Work {
    fn parse(arguments: &[String]) -> Result<Work, Failure> {
        let [pattern, numbers @ ..] = arguments else { return Err("no pattern was given".into()) };
        let numbers: Vec<u64> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
        let &[bytes, messages, warm_up, buffers, first, second] = numbers.as_slice() else {
            return Err("six numbers are needed: bytes, messages, warm-up, buffers, and two cores".into());
        };
        Ok(Work {
            is_ping_pong: pattern == "ping-pong",
            bytes: (bytes as usize).max(LAST_BYTES),
            messages,
            warm_up,
            buffers: buffers as usize,
            cores: [first as usize, second as usize],
        })
    }

    /// The first process's part; answers the seconds and the processor time.
    fn first(&self, end: &mut End, second: &mut Child) -> Result<(f64, f64), Failure> {
        let mut spent = (0.0, 0.0);
        for messages in [self.warm_up, self.messages] {
            let (cpu, begin) = (own_cpu() + cpu_of(second)?, Instant::now());
            let mut sent = 0u64;
            for number in 0..messages {
                sent = sent.wrapping_add(end.send(self.bytes, number)?);
                if self.is_ping_pong {
                    sent = sent.wrapping_sub(end.receive(second)?);
                }
            }
            let agrees = match self.is_ping_pong {
                true => sent == 0,
                // The last message's words count up from the sum that the other one found.
                false => end.receive(second)? == words::sum_of(LAST_BYTES as u64 / 8, sent),
            };
            if !agrees {
                return Err("the sums differ".into());
            }
            spent = (begin.elapsed().as_secs_f64(), own_cpu() + cpu_of(second)? - cpu);
        }
        Ok(spent)
    }

    /// The second process's part. It ends with its parent.
    fn second(&self, end: &mut End) -> Result<(), Failure> {
        let parent = std::os::unix::process::parent_id();
        let mut orphaned = move || std::os::unix::process::parent_id() != parent;
        for messages in [self.warm_up, self.messages] {
            let mut received = 0u64;
            for number in 0..messages {
                received = received.wrapping_add(end.receive_while(&mut orphaned)?);
                if self.is_ping_pong {
                    end.send(self.bytes, number)?;
                }
            }
            if !self.is_ping_pong {
                end.send(LAST_BYTES, received)?;
            }
        }
        Ok(())
    }
}

/// One end of two services.
struct End {
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    _node: Node<ipc::Service>,
}

impl End {
    /// Opens an end and waits for the other one.
    fn open(work: &Work, second: bool, name: &str) -> Result<End, Failure> {
        set_log_level(LogLevel::Error);
        let mut config = Config::default();
        config.global.prefix = FileName::new(name.as_bytes()).map_err(failed)?;
        config.global.set_root_path(&Path::new(folder(name).as_bytes()).map_err(failed)?);
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>().map_err(failed)?;
        let service = |way: &str| {
            let name = ServiceName::new(&format!("{name}/{way}")).map_err(failed)?;
            node.service_builder(&name)
                .publish_subscribe::<[u64]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(work.buffers)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()
                .map_err(failed)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, in_) = if second { (back, there) } else { (there, back) };
        let subscriber = in_.subscriber_builder().buffer_size(work.buffers).create().map_err(failed)?;
        let publisher = out
            .publisher_builder()
            .initial_max_slice_len(work.bytes.div_ceil(8))
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(failed)?;
        let end = Instant::now() + LIMIT;
        while out.dynamic_config().number_of_subscribers() == 0
            || in_.dynamic_config().number_of_publishers() == 0
        {
            if Instant::now() > end {
                return Err("the other process did not come".into());
            }
            std::thread::yield_now();
        }
        Ok(End { publisher, subscriber, _node: node })
    }

    /// Sends a message, each word of which is made from `seed`; answers their sum.
    #[expect(unsafe_code, reason = "every word is written just before")]
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let mut sample = self.publisher.loan_slice_uninit(bytes / 8).map_err(failed)?;
        let sum = words::fill_uninit(sample.payload_mut(), seed);
        // SAFETY: every word was written.
        unsafe { sample.assume_init() }.send().map_err(failed)?;
        Ok(sum)
    }

    /// Receives a message from the second process and answers the sum of its words.
    fn receive(&mut self, second: &mut Child) -> Result<u64, Failure> {
        self.receive_while(&mut || !matches!(second.try_wait(), Ok(None)))
    }

    fn receive_while(&mut self, is_over: &mut impl FnMut() -> bool) -> Result<u64, Failure> {
        let mut looks = 0u32;
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(failed)? {
                return Ok(words::sum_words(sample.payload()));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && is_over() {
                return Err("the other process has ended".into());
            }
            std::hint::spin_loop();
        }
    }
}

/// Keeps this process on a core, if there is such a core.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Processor time of this process so far, in seconds.
fn own_cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Processor time of the first thread of a process so far, in seconds.
fn cpu_of(process: &Child) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", process.id()))?;
    let nanoseconds: u64 = text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Folder of what iceoryx2 writes down of a run.
fn folder(name: &str) -> String {
    format!("/tmp/{name}")
}

/// Takes away what iceoryx2 leaves behind: its folder, and shared memory that begins with the name.
struct LeftBehind<'a>(&'a str);

impl Drop for LeftBehind<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(folder(self.0));
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(self.0) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The second process, which does not outlive its run.
struct Second(Child);

impl Drop for Second {
    fn drop(&mut self) {
        // It has ended already, mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    if let [second, name, rest @ ..] = arguments
        && second == SECOND
    {
        let work = Work::parse(rest)?;
        pin(work.cores[1]);
        return work.second(&mut End::open(&work, true, name)?);
    }
    let work = Work::parse(arguments)?;
    let name = format!("bywash-bench-{}_", std::process::id());
    let _left_behind = LeftBehind(&name);
    let child = Command::new(std::env::current_exe()?).arg(SECOND).arg(&name).args(arguments).spawn()?;
    let mut second = Second(child);
    pin(work.cores[0]);
    let mut end = End::open(&work, false, &name)?;
    let (seconds, cpu) = work.first(&mut end, &mut second.0)?;
    if !second.0.wait()?.success() {
        return Err("the second process failed".into());
    }
    println!("{seconds} {cpu}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bywash-bench-iceoryx2: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `bywash-bench-iceoryx2`: iceoryx2 as published, doing the work of `bywash bench ipc`, which starts it.
//!
//! ```text
//!   bywash-bench-iceoryx2 EXCHANGE BUFFERS
//! ```
//!
//! EXCHANGE is the bench's own `Exchange` in JSON. The program starts itself once more as the second process, and writes the
//! times of the first one, in JSON too.
//!
//! Its own recommendations are followed: publish and subscribe, one service each way, memory that is loaned and written
//! once, nothing discarded, and a full buffer makes the publisher wait. Both ends poll.

use exchange::{Exchange, Failure, Wire, check_length, pin};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "the bench uses the rest of it")]
#[path = "../../src/ipc/exchange.rs"]
mod exchange;
#[allow(dead_code, reason = "the bench uses the rest of it")]
#[path = "../../src/ipc/words.rs"]
mod words;

/// Longest time that an end waits for the other to come.
const LIMIT: Duration = Duration::from_secs(10);
/// Looks of an end that polls between two questions whether the other process is there.
const LOOKS: u32 = 1 << 20;
/// Argument that makes this the second process; the name of the services follows.
const SECOND: &str = "second";

fn failed(error: impl std::fmt::Debug) -> Failure {
    format!("{error:?}").into()
}

/// One end of two services.
struct End {
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    /// The process at the other end, for the first one: the second one ends with its parent.
    second: Option<Second>,
    _node: Node<ipc::Service>,
}

impl End {
    /// Opens an end and waits for the other one.
    fn open(exchange: &Exchange, buffers: usize, second: Option<Second>, name: &str) -> Result<End, Failure> {
        set_log_level(LogLevel::Error);
        let mut config = Config::default();
        config.global.prefix = FileName::new(name.as_bytes()).map_err(failed)?;
        config.global.set_root_path(&Path::new(folder(name).as_bytes()).map_err(failed)?);
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>().map_err(failed)?;
        let service = |direction: &str| {
            let name = ServiceName::new(&format!("{name}/{direction}")).map_err(failed)?;
            node.service_builder(&name)
                .publish_subscribe::<[u64]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(buffers)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()
                .map_err(failed)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, in_) = if second.is_some() { (there, back) } else { (back, there) };
        let subscriber = in_.subscriber_builder().buffer_size(buffers).create().map_err(failed)?;
        let publisher = out
            .publisher_builder()
            .initial_max_slice_len(exchange.largest().div_ceil(8))
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
        Ok(End { publisher, subscriber, second, _node: node })
    }
}

impl Wire for End {
    #[expect(unsafe_code, reason = "every word is written just before")]
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let mut sample = self.publisher.loan_slice_uninit(bytes / 8).map_err(failed)?;
        let sum = words::fill_uninit(sample.payload_mut(), seed);
        // SAFETY: every word was written.
        unsafe { sample.assume_init() }.send().map_err(failed)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        let mut looks = 0u32;
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(failed)? {
                check_length(8 * sample.payload().len(), bytes)?;
                return Ok(words::sum_words(sample.payload()));
            }
            looks = looks.wrapping_add(1);
            if let Some(second) = &mut self.second
                && looks.is_multiple_of(LOOKS)
                && !matches!(second.0.try_wait(), Ok(None))
            {
                return Err("the other process has ended".into());
            }
            std::hint::spin_loop();
        }
    }
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
    let (name, rest) = match arguments {
        [second, name, rest @ ..] if second == SECOND => (Some(name), rest),
        rest => (None, rest),
    };
    let [exchange, buffers] = rest else {
        return Err("the exchange and the number of buffers are needed".into());
    };
    let (exchange, buffers) = (serde_json::from_str::<Exchange>(exchange)?, buffers.parse()?);
    if let Some(name) = name {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        pin(exchange.cores[1]);
        return exchange.second(&mut End::open(&exchange, buffers, None, name)?);
    }
    let name = format!("bywash-bench-{}_", std::process::id());
    let _left_behind = LeftBehind(&name);
    let second = Command::new(std::env::current_exe()?).arg(SECOND).arg(&name).args(arguments).spawn()?;
    let process = second.id();
    pin(exchange.cores[0]);
    let mut end = End::open(&exchange, buffers, Some(Second(second)), &name)?;
    let spent = exchange.first(&mut end, process)?;
    if !end.second.as_mut().is_some_and(|second| second.0.wait().is_ok_and(|status| status.success())) {
        return Err("the second process failed".into());
    }
    println!("{}", serde_json::to_string(&spent)?);
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

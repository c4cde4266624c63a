//! Device `cpu`: kernels on the threads and vector units of the processor.
//!
//! Its results are the reference for other devices. Blocks that do not depend on each other are computed by several threads
//! at a time; the other kernels compute one block behind the other.
//!
//! - `session`: buffers, threads and order of blocks
//! - `fir`, `fft`, `sha256`, `library`: kernels

mod buffer;
mod fft;
mod fir;
mod library;
mod queue;
pub(crate) mod scene;
mod session;
mod sha256;
mod worker;

use crate::device::{Device, Session, SessionOptions};
use crate::error::Error;
use crate::kernel::Kernel;
use std::fs;
use std::num::NonZero;
use std::thread;

/// Processor of this computer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu;

/// Name of the device.
const NAME: &str = "cpu";

impl Device for Cpu {
    fn name(&self) -> String {
        NAME.into()
    }

    fn description(&self) -> String {
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_of(&text));
        let model = model.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH));
        match processors() {
            1 => format!("{model}, 1 thread"),
            threads => format!("{model}, {threads} threads"),
        }
    }

    /// Returns the memory that programs can have without swapping, as the kernel estimates it.
    fn memory_bytes(&self) -> Option<u64> {
        available_bytes(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn session(&self, kernel: &Kernel, options: &SessionOptions) -> Result<Session, Error> {
        kernel.check()?;
        options.check()?;
        let threads = threads(options);
        match kernel {
            Kernel::Fir(fir) => session::start(fir::plan(fir, threads), options),
            Kernel::Fft(fft) => session::start(fft::plan(*fft, threads)?, options),
            Kernel::Sha256 => session::start(sha256::plan(), options),
            Kernel::Library(path) => session::start(library::plan(path, threads)?, options),
            Kernel::Sar(sar) => scene::session(sar, options),
            Kernel::Shader(_) => Err(Error::Unsupported {
                device: NAME.into(),
                kernel: kernel.name(),
                reason: "shaders need a graphics card: use device=gpu".into(),
            }),
        }
    }
}

/// Returns the number of processors that this process may use.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns the number of threads for a kernel whose blocks are independent: more than blocks in flight would be idle.
fn threads(options: &SessionOptions) -> usize {
    let threads = if options.threads == 0 { processors() } else { options.threads };
    threads.min(options.blocks)
}

/// Returns the processor's name in the text of /proc/cpuinfo, which has none on some architectures.
fn model_of(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let model = line.split_once(':')?.1.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

/// Returns the memory that the text of /proc/meminfo calls available, in bytes.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_described() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(model_of(cpuinfo).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(model_of("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   24000 kB\n"), Some(24_576_000));
        assert_eq!(available_bytes("MemTotal: 9 kB\n"), None);
        assert!(Cpu.description().contains("thread"), "{}", Cpu.description());
        assert!(Cpu.memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn threads_are_as_many_as_asked_or_as_are_useful() {
        let options = SessionOptions::default();
        assert_eq!(threads(&options.threads(3)), 3);
        assert_eq!(threads(&options.threads(99).blocks(5)), 5);
        assert_eq!(threads(&options.blocks(1024)), processors().min(1024));
    }

    #[test]
    fn buffers_larger_than_the_memory_are_refused() {
        let options = SessionOptions::default().block_bytes(1 << 30).blocks(1024);
        let error = Cpu.session(&Kernel::Sha256, &options).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Memory { bytes, .. } if *bytes == 2049 << 30), "{error}");
    }
}

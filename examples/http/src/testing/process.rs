//! Servers in processes of their own: started, pinned to a processor, and their processor time read.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Running server, which is killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    /// Process of the server.
    pub child: Child,
    /// Address at which it listens.
    pub address: SocketAddr,
}

impl Running {
    /// Starts a server, and waits until it listens at `address`. Its standard error is a pipe.
    ///
    /// # Errors
    /// The program cannot be started, or does not listen within 30 s.
    pub fn start(mut command: Command, address: SocketAddr) -> Result<Running, Box<dyn Error>> {
        let child =
            command.stderr(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let running = Running { child, address };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if begin.elapsed() > Duration::from_secs(30) {
                return Err(format!("{command:?} does not listen within 30 s").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Returns the process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address of the loopback interface with a port that nobody listens at now.
///
/// # Errors
/// The kernel's, if there is none.
pub fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns two processors that this process may use; the same one twice if there is but one.
pub fn processors() -> [usize; 2] {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    let first = processors.next().unwrap_or(0);
    [first, processors.next().unwrap_or(first)]
}

/// Returns the time that all threads of a process have run, in seconds.
///
/// # Errors
/// If /proc does not tell it.
pub fn cpu_seconds(pid: Pid) -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e9)
}

/// Has all threads of a process, or this thread, run on one processor.
///
/// # Errors
/// If the kernel refuses it.
pub fn pin(pid: Option<Pid>, processor: usize) -> Result<(), Box<dyn Error>> {
    let mut set = CpuSet::new();
    set.set(processor);
    let Some(pid) = pid else { return Ok(sched_setaffinity(None, &set)?) };
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        let thread = task?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(thread), &set)?;
    }
    Ok(())
}

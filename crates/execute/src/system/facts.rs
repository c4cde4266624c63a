//! Calls that tell facts about the machine, the system and the process.

use super::{Caller, Served, System};
use crate::address_space::STACK_BYTES;
use crate::descriptor::DESCRIPTORS_LIMIT;
use crate::errno::Errno;
use crate::machine::{Location, ThreadId};

/// Texts of uname(2): system, node, release, version, machine, domain.
const NAMES: [&str; 6] =
    ["Linux", "simulated", "6.1.0-simulated", "#1 SMP simulated by bywash-execute", "riscv64", "(none)"];
/// Length of each of these texts, in bytes.
const NAME_BYTES: usize = 65;
/// Length of the part of random bytes that is made in one go.
const RANDOM_BYTES: u64 = 4096;

impl System {
    /// Serves uname(2).
    pub(super) fn uname(&mut self, caller: &Caller) -> Served {
        let mut bytes = [0_u8; 6 * NAME_BYTES];
        for (name, field) in NAMES.iter().zip(bytes.chunks_exact_mut(NAME_BYTES)) {
            field[..name.len()].copy_from_slice(name.as_bytes());
        }
        self.memory.write(caller.arguments[0], &bytes)?;
        Ok(0)
    }

    /// Serves sysinfo(2).
    pub(super) fn sysinfo(&mut self, caller: &Caller) -> Served {
        let all = self.facts.memory_bytes;
        let free = all.saturating_sub(self.memory.space.bytes_in_use());
        let mut bytes = [0_u8; 112];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(0, caller.now.nanoseconds() / 1_000_000_000);
        put(32, all);
        put(40, free);
        put(80, 1); // Processes.
        bytes[104] = 1; // Unit of the lengths, in bytes.
        self.memory.write(caller.arguments[0], &bytes)?;
        Ok(0)
    }

    /// Serves getrandom(2).
    pub(super) fn getrandom(&mut self, caller: &Caller) -> Served {
        let [address, length, flags, ..] = caller.arguments;
        if flags > 7 {
            return Err(Errno::EINVAL.into());
        }
        let length = length.min(0x1ff_ffff);
        let mut done = 0;
        while done < length {
            let mut bytes = vec![0; (length - done).min(RANDOM_BYTES) as usize];
            self.random.fill(&mut bytes);
            match self.copy_out(Location::System, address.wrapping_add(done), &bytes) {
                Ok(()) => done += bytes.len() as u64,
                Err(errno) if done == 0 => return Err(errno.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Serves prlimit64(2): tells limits. New ones have no effect, and are refused if they are above the old ones.
    pub(super) fn prlimit64(&mut self, caller: &Caller) -> Served {
        let [process, resource, new, old, ..] = caller.arguments;
        if process > 1 {
            return Err(Errno::ESRCH.into());
        }
        let limit = limit(resource)?;
        if new != 0 {
            let [soft, hard] = self.memory.words(new)?;
            if soft > hard {
                return Err(Errno::EINVAL.into());
            }
            if hard > limit[1] {
                return Err(Errno::EPERM.into());
            }
        }
        if old != 0 {
            self.memory.set_words(old, &limit)?;
        }
        Ok(0)
    }

    /// Serves getrlimit(2).
    pub(super) fn getrlimit(&mut self, caller: &Caller) -> Served {
        let limit = limit(caller.arguments[0])?;
        self.memory.set_words(caller.arguments[1], &limit)?;
        Ok(0)
    }

    /// Serves sched_getaffinity(2): all processors.
    pub(super) fn sched_getaffinity(&mut self, caller: &Caller) -> Served {
        let [_, length, address, ..] = caller.arguments;
        let bytes = self.facts.processors.div_ceil(64) * 8;
        if length < bytes as u64 || !length.is_multiple_of(8) {
            return Err(Errno::EINVAL.into());
        }
        let mut set = vec![0_u8; bytes];
        (0..self.facts.processors).for_each(|processor| set[processor / 8] |= 1 << (processor % 8));
        self.memory.write(address, &set)?;
        Ok(bytes as u64)
    }

    /// Serves sched_getparam(2).
    pub(super) fn sched_getparam(&mut self, caller: &Caller) -> Served {
        self.memory.write(caller.arguments[1], &[0; 4])?;
        Ok(0)
    }

    /// Serves getcpu(2).
    pub(super) fn getcpu(&mut self, caller: &Caller) -> Served {
        let processor = (caller.processor as u32).to_le_bytes();
        for (address, value) in [(caller.arguments[0], processor), (caller.arguments[1], [0; 4])] {
            if address != 0 {
                self.memory.write(address, &value)?;
            }
        }
        Ok(0)
    }

    /// Serves prctl(2): a thread's name.
    pub(super) fn prctl(&mut self, caller: &Caller) -> Served {
        const SET_NAME: u64 = 15;
        const GET_NAME: u64 = 16;

        let [option, address, ..] = caller.arguments;
        let id: ThreadId = caller.thread;
        match option {
            SET_NAME => {
                let mut name = [0_u8; 16];
                for (index, byte) in name.iter_mut().take(15).enumerate() {
                    *byte = self.memory.array::<1>(address.wrapping_add(index as u64))?[0];
                    if *byte == 0 {
                        break;
                    }
                }
                self.threads.get_mut(id).ok_or(Errno::ESRCH)?.name = name;
                Ok(0)
            }
            GET_NAME => {
                let name = self.threads.get(id).ok_or(Errno::ESRCH)?.name;
                self.memory.write(address, &name)?;
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Serves membarrier(2): no command is offered.
    pub(super) fn membarrier(&mut self, caller: &Caller) -> Served {
        if caller.arguments[0] == 0 { Ok(0) } else { Err(Errno::EINVAL.into()) }
    }
}

/// Returns the soft and the hard limit of a resource (`RLIMIT_STACK` 3, `RLIMIT_CORE` 4, `RLIMIT_NPROC` 6,
/// `RLIMIT_NOFILE` 7).
fn limit(resource: u64) -> Result<[u64; 2], Errno> {
    match resource {
        3 => Ok([STACK_BYTES, u64::MAX]),
        4 => Ok([0, 0]),
        6 => Ok([crate::thread::THREADS_LIMIT as u64; 2]),
        7 => Ok([1024, DESCRIPTORS_LIMIT as u64]),
        0..=15 => Ok([u64::MAX; 2]),
        _ => Err(Errno::EINVAL),
    }
}

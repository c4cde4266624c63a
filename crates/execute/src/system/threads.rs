//! Calls on threads: creation, end, futexes, the processor.

use bywash_cpu::Register;

use super::{Caller, End, Served, Stop, System};
use crate::clock::Time;
use crate::errno::Errno;
use crate::machine::{Path, ThreadId, Work};
use crate::signal::{Pending, ThreadSignals};

/// Flags of clone(2).
mod flag {
    pub const MEMORY: u64 = 0x100;
    pub const WAIT_FOR_CHILD: u64 = 0x4000;
    pub const THREAD: u64 = 0x1_0000;
    pub const SET_THREAD_POINTER: u64 = 0x8_0000;
    pub const PARENT_SET_NUMBER: u64 = 0x10_0000;
    pub const CHILD_CLEAR_NUMBER: u64 = 0x20_0000;
    pub const CHILD_SET_NUMBER: u64 = 0x100_0000;
}

/// Operations of futex(2).
mod operation {
    pub const WAIT: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const REQUEUE: u64 = 3;
    pub const COMPARE_REQUEUE: u64 = 4;
    pub const WAKE_OPERATION: u64 = 5;
    pub const WAIT_BITS: u64 = 9;
    pub const WAKE_BITS: u64 = 10;
    /// Flag: the deadline is of the real-time clock.
    pub const REAL_TIME: u64 = 256;
    /// Mask of the flags.
    pub const FLAGS: u64 = 128 | REAL_TIME;
}

/// Greatest number of entries of a list of robust futexes (`ROBUST_LIST_LIMIT`).
const ROBUST_LIMIT: usize = 2048;
/// Bit of a futex whose owner has died.
const OWNER_DIED: u32 = 0x4000_0000;
/// Bit of a futex that threads wait for.
const WAITERS: u32 = 0x8000_0000;
/// Bits of a futex that are its owner's number.
const OWNER: u32 = 0x3fff_ffff;

impl System {
    /// Serves clone(2) for threads; a process cannot be made.
    pub(super) fn clone_thread(&mut self, caller: &Caller) -> Served {
        let [flags, stack, parent_address, thread_pointer, child_address, _] = caller.arguments;
        if flags & flag::THREAD == 0 || flags & flag::MEMORY == 0 || flags & flag::WAIT_FOR_CHILD != 0 {
            let hint = "there is one process: run the program without child processes";
            return Err(self.unsupported(caller, "to make a process (fork, vfork)", hint));
        }
        if flags & flag::PARENT_SET_NUMBER != 0 {
            self.memory.array::<4>(parent_address)?;
        }
        let parent = self.threads.get(caller.thread).ok_or(Errno::ESRCH)?;
        let mut hart = parent.hart.clone();
        hart.set_x(Register::R10, 0);
        hart.reservation = None;
        hart.retired = 0;
        if stack != 0 {
            hart.set_x(Register::R2, stack);
        }
        if flags & flag::SET_THREAD_POINTER != 0 {
            hart.set_x(Register::R4, thread_pointer);
        }
        let signals = ThreadSignals {
            mask: parent.signals.mask,
            pending: Pending::default(),
            ..ThreadSignals::default()
        };
        let id = self.threads.add(hart, signals)?;
        if let Some(thread) = self.threads.get_mut(id).filter(|_| flags & flag::CHILD_CLEAR_NUMBER != 0) {
            thread.clear_address = child_address;
        }
        for (flag, address) in
            [(flag::PARENT_SET_NUMBER, parent_address), (flag::CHILD_SET_NUMBER, child_address)]
        {
            if flags & flag != 0 {
                // As under Linux, an address of the child that cannot be written is no error.
                let _ = self.memory.write(address, &id.0.to_le_bytes());
            }
        }
        self.work.push(Work::Path(Path::Create));
        Ok(id.0.into())
    }

    /// Serves execve(2): there is one program.
    pub(super) fn execve(&mut self, caller: &Caller) -> Served {
        Err(self.unsupported(caller, "to start another program", "start that program itself"))
    }

    /// Serves exit(2): ends the thread, and with the last one the program.
    pub(super) fn exit(&mut self, caller: &Caller) -> Served {
        if self.threads.len() == 1 {
            return self.exit_group(caller);
        }
        self.record(caller, 0);
        self.end_thread(caller.thread);
        Err(Stop::End)
    }

    /// Serves exit_group(2).
    pub(super) fn exit_group(&mut self, caller: &Caller) -> Served {
        self.record(caller, 0);
        self.flush_areas(0, u64::MAX)?;
        self.end = Some(End::Exited(caller.arguments[0] as u8));
        Err(Stop::End)
    }

    /// Serves set_tid_address(2).
    pub(super) fn set_tid_address(&mut self, caller: &Caller) -> Served {
        if let Some(thread) = self.threads.get_mut(caller.thread) {
            thread.clear_address = caller.arguments[0];
        }
        Ok(caller.thread.0.into())
    }

    /// Serves set_robust_list(2).
    pub(super) fn set_robust_list(&mut self, caller: &Caller) -> Served {
        let [address, length, ..] = caller.arguments;
        if length != 24 {
            return Err(Errno::EINVAL.into());
        }
        if let Some(thread) = self.threads.get_mut(caller.thread) {
            thread.robust_list = address;
        }
        Ok(0)
    }

    /// Serves sched_yield(2).
    pub(super) fn sched_yield(&mut self, caller: &Caller) -> Served {
        // The slice is over now; the thread goes behind the others when it is looked at next.
        if let Some(thread) = self.threads.get_mut(caller.thread) {
            thread.slice_end = Time::ZERO;
        }
        Ok(0)
    }

    /// Serves futex(2).
    pub(super) fn futex(&mut self, caller: &Caller) -> Served {
        let [address, operation, value, fourth, second, third] = caller.arguments;
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL.into());
        }
        let bits = third as u32;
        let count = |value: u64| usize::try_from(value as u32 as i32).unwrap_or(0);
        match operation & !operation::FLAGS {
            operation::WAIT => self.wait_for_futex(caller, address, value as u32, u32::MAX),
            operation::WAIT_BITS | operation::WAKE_BITS if bits == 0 => Err(Errno::EINVAL.into()),
            operation::WAIT_BITS => self.wait_for_futex(caller, address, value as u32, bits),
            operation::WAKE => Ok(self.wake_futex(address, count(value), u32::MAX)),
            operation::WAKE_BITS => Ok(self.wake_futex(address, count(value), bits)),
            kind @ (operation::REQUEUE | operation::COMPARE_REQUEUE) => {
                let current = self.memory.word32(address)?;
                if kind == operation::COMPARE_REQUEUE && current != bits {
                    return Err(Errno::EAGAIN.into());
                }
                let woken = self.wake_futex(address, count(value), u32::MAX);
                let moved = self.futexes.requeue(address, second, count(fourth)) as u64;
                Ok(if kind == operation::REQUEUE { woken } else { woken + moved })
            }
            operation::WAKE_OPERATION => {
                self.wake_operation(address, second, count(value), count(fourth), bits)
            }
            // Priority inheritance is absent, as in kernels without it.
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    /// Lets a thread wait while a futex has a value.
    fn wait_for_futex(&mut self, caller: &Caller, address: u64, value: u32, bits: u32) -> Served {
        let [_, operation, _, timeout, ..] = caller.arguments;
        if !self.call_of(caller.thread)?.is_begun {
            let wait = self.futex_deadline(caller, operation, timeout)?;
            if self.memory.word32(address)? != value {
                return Err(Errno::EAGAIN.into());
            }
            self.futexes.enter(address, caller.thread, bits);
            let call = self.call_of(caller.thread)?;
            call.is_begun = true;
            call.deadline = wait;
            return Err(Stop::Block(Vec::new()));
        }
        let deadline = self.call_of(caller.thread)?.deadline;
        if !self.futexes.is_waiting(caller.thread) {
            return Ok(0);
        }
        if deadline.is_some_and(|deadline| deadline <= caller.now) {
            self.futexes.leave(caller.thread);
            return Err(Errno::ETIMEDOUT.into());
        }
        Err(Stop::Block(Vec::new()))
    }

    /// Returns the deadline of a wait for a futex.
    fn futex_deadline(
        &mut self,
        caller: &Caller,
        operation: u64,
        timeout: u64,
    ) -> Result<Option<Time>, Stop> {
        if timeout == 0 {
            return Ok(None);
        }
        let time = self.time_at(timeout)?;
        if operation & !operation::FLAGS == operation::WAIT {
            return Ok(Some(caller.now + time.duration()));
        }
        let is_real = operation & operation::REAL_TIME != 0;
        Ok(Some(if is_real { time.since_start() } else { time.duration() }))
    }

    /// Wakes threads that wait for a futex, and returns how many.
    pub(super) fn wake_futex(&mut self, address: u64, limit: usize, bits: u32) -> u64 {
        let woken = self.futexes.wake(address, limit, bits);
        for &thread in &woken {
            self.threads.wake_thread(thread);
        }
        if !woken.is_empty() {
            self.work.push(Work::Path(Path::Wake { threads: woken.len() as u32 }));
        }
        woken.len() as u64
    }

    /// Serves `FUTEX_WAKE_OP`: changes one futex, wakes threads of another one, and of the first one if its former
    /// value compares.
    fn wake_operation(
        &mut self,
        address: u64,
        second: u64,
        first_limit: usize,
        second_limit: usize,
        code: u32,
    ) -> Served {
        if !second.is_multiple_of(4) {
            return Err(Errno::EINVAL.into());
        }
        let sign_extended = |value: u32| (value << 20) as i32 >> 20;
        let (mut operand, compared) = (sign_extended(code >> 12), sign_extended(code));
        let (operation, comparison) = (code >> 28, code >> 24 & 15);
        if operation & 8 != 0 {
            operand = 1_i32.checked_shl(operand as u32).ok_or(Errno::EINVAL)?;
        }
        let old = self.memory.word32(second)?;
        let new = match operation & 7 {
            0 => operand as u32,
            1 => old.wrapping_add(operand as u32),
            2 => old | operand as u32,
            3 => old & !operand as u32,
            4 => old ^ operand as u32,
            _ => return Err(Errno::ENOSYS.into()),
        };
        let signed = old as i32;
        let is_true = match comparison {
            0 => signed == compared,
            1 => signed != compared,
            2 => signed < compared,
            3 => signed <= compared,
            4 => signed > compared,
            5 => signed >= compared,
            _ => return Err(Errno::ENOSYS.into()),
        };
        self.memory.write(second, &new.to_le_bytes())?;
        let mut woken = self.wake_futex(address, first_limit, u32::MAX);
        if is_true {
            woken += self.wake_futex(second, second_limit, u32::MAX);
        }
        Ok(woken)
    }

    /// Ends a thread: wakes those that wait for its end or for its robust futexes.
    fn end_thread(&mut self, id: ThreadId) {
        self.futexes.leave(id);
        let Some(thread) = self.threads.remove(id) else { return };
        self.ended_busy = self.ended_busy + thread.busy;
        self.ended_retired += thread.hart.retired;
        self.work.push(Work::Path(Path::End));
        // A list that the program has broken ends the walk, as under Linux.
        let _ = self.release_robust(id, thread.robust_list);
        if thread.clear_address != 0 && self.memory.write(thread.clear_address, &[0; 4]).is_ok() {
            self.wake_futex(thread.clear_address, 1, u32::MAX);
        }
    }

    /// Marks the robust futexes of an ended thread, and wakes one thread for each.
    fn release_robust(&mut self, id: ThreadId, head: u64) -> Result<(), Errno> {
        if head == 0 {
            return Ok(());
        }
        let [first, offset, pending] = self.memory.words(head)?;
        let mut entries = Vec::new();
        let mut at = first;
        while at != head && entries.len() < ROBUST_LIMIT {
            entries.push(at);
            at = self.memory.words::<1>(at)?[0];
        }
        entries.extend((pending != 0).then_some(pending));
        for entry in entries {
            let address = entry.wrapping_add(offset);
            let value = self.memory.word32(address)?;
            if value & OWNER == id.0 {
                let marked = value & WAITERS | OWNER_DIED;
                self.memory.write(address, &marked.to_le_bytes())?;
                if value & WAITERS != 0 {
                    self.wake_futex(address, 1, u32::MAX);
                }
            }
        }
        Ok(())
    }
}

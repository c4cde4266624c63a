//! User-level data path of regular files: small reads are served without a system call.
//!
//! The data path copies small reads from a mapping of the file. The mapping shows the page cache itself, so
//! it is coherent with every other process, and the MMU protects it. The kernel serves writes, unless the
//! user asks for mapped writes on tmpfs. The kernel also keeps names, permissions, growth, locks and
//! durability, and it serves every request that this crate refuses: a refusal is always correct and never an
//! error.
//!
//! The preloaded library (`bywash-shim`) calls [`table`] for every file call that a program makes; tests can
//! do the same. Nothing here allocates from the program's heap, touches `errno`, or holds a lock while bytes
//! move.
//!
//! In reading order:
//!
//! - [`policy`]: chooses the mapping or the kernel for one request (a pure function)
//! - [`open_file`]: serves reads and writes of one open file
//! - [`window`], [`groups`], [`pages`]: mappings, and the hints that are kept about their pages
//! - [`account`]: budget of each thread for warming
//! - [`copy`], [`buffer`]: copies that survive a fault, and the program's buffers
//! - [`crowd`], [`gate`], [`offset`], [`warming`], [`reclaim`]: the protocols between threads, each checked
//!   by loom
//! - [`table`]: maps descriptors to open files
//! - [`hazards`]: the uses of open files by threads, which end by themselves or by a jump
//! - [`threads`], [`state`], [`lock`]: state of a thread and of the process
//! - [`process`]: begins and stops the data path, and resets a forked child
//! - `pool`: memory of the tables
//! - `stack`: finds out whether a function that a signal handler interrupted will go on
//! - [`filesystem`], [`clock`], [`sys`]: facts about file systems, time, system calls

#![cfg_attr(not(any(test, loom)), no_std)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("bywash-file is written for x86-64: its guarded copy and its system calls are in assembly");

/// Stores `$value` into an atomic in a forked child. An atomic that has this value already is not written,
/// because the write would make the kernel copy its page.
macro_rules! put_back {
    ($atomic:expr, $value:expr) => {
        if $atomic.load(bywash_sync::Ordering::Relaxed) != $value {
            $atomic.store($value, bywash_sync::Ordering::Release);
        }
    };
}

pub mod crowd;
pub mod gate;
pub mod offset;
pub mod reclaim;
pub mod sys;
pub mod warming;

#[cfg(not(loom))]
pub mod account;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod filesystem;
#[cfg(not(loom))]
pub mod groups;
#[cfg(not(loom))]
pub mod hazards;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
pub mod open_file;
#[cfg(not(loom))]
pub mod pages;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
pub mod state;
#[cfg(not(loom))]
pub mod table;
#[cfg(not(loom))]
pub mod threads;
#[cfg(not(loom))]
pub mod window;

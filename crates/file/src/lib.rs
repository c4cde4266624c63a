//! One file's user-level data path.
//!
//! A regular file's small reads are copies from a mapping of it: the page cache itself, coherent with every
//! other process and protected by the MMU. Writes are the kernel's, unless the user asks for mapped ones on
//! tmpfs. Names, permissions, growth, locks and durability stay the kernel's, and so does every request that this crate does not serve: "no" is always
//! correct and never an error.
//!
//! The preloaded library (`bywash-shim`) calls [`table`] for every call that a program makes; tests can do
//! the same. Nothing here allocates from the program's heap, touches `errno`, or holds a lock while bytes
//! move.
//!
//! In reading order:
//!
//! - [`policy`]: which way a request goes (pure)
//! - [`open_file`]: how a read and a write are served
//! - [`window`], [`pages`]: mappings, and what is remembered of each page
//! - [`account`]: what warming may cost
//! - [`copy`]: copies that survive a fault
//! - [`crowd`], [`gate`], [`offset`], [`warming`], [`reclaim`]: the protocols between threads, each checked by
//!   loom
//! - [`table`]: from descriptor to open file
//! - [`threads`], [`process`], [`lock`]: what a thread and a process have once
//! - `pool`: the memory of the tables
//! - `stack`: whether what a signal handler interrupted can still go on
//! - [`filesystem`], `usage`, [`clock`], [`sys`]: facts, bookkeeping, time, system calls

#![cfg_attr(not(any(test, loom)), no_std)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("bywash-file is written for x86-64: its guarded copy and its system calls are in assembly");

/// Puts an atomic back to `$value` in a forked child. One that has it already is not written, for that would copy its
/// page.
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
pub mod table;
#[cfg(not(loom))]
pub mod threads;
#[cfg(not(loom))]
mod usage;
#[cfg(not(loom))]
pub mod window;

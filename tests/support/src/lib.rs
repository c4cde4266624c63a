//! Support that the tests of several crates, the benches and the fuzzer share.
//!
//! Each module with dependencies is a feature of the same name, so that a crate builds no more than what its tests use.
//!
//! - `built`: the libraries that cargo builds for no test
//! - `cores`: how many cores the device servers of tests have
//! - `peers`: peers that die or break the protocol
//! - `hosts`: several hosts on one machine, by network namespaces
//! - `disks`: loop devices and mounted file systems that disappear with the test
//! - `displays`: display servers without a screen, and what they show
//! - `log`: a commit log and its memory, as a keeper makes them
//! - `huge_pages`: reserved huge pages, while a test needs them
//! - `riscv`: a cross compiler and an emulator for RISC-V, where they are installed
//! - `guest`: a virtual machine with a disk that is served by vhost-user (x86-64 alone)
//!
//! The test target `house` holds ARCHITECTURE.md, the lock files, the published tables and the doc comments
//! against the tree.

pub mod built;
pub mod cores;
#[cfg(feature = "disks")]
pub mod disks;
#[cfg(feature = "displays")]
pub mod displays;
#[cfg(all(feature = "guest", target_arch = "x86_64"))]
pub mod guest;
#[cfg(feature = "hosts")]
pub mod hosts;
pub mod huge_pages;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "peers")]
pub mod peers;
pub mod riscv;

//! One host: a network namespace without a name.
//!
//! Invariant: the caller's thread never leaves its own namespace. A closure for the host runs in a thread of
//! its own, and a program that such a thread starts runs in the host as well. Called by [`crate::hosts::Hosts`] and
//! its users.

use crate::hosts::wire::Port;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command};
use std::thread;

/// A network namespace, which lives as long as this value and the programs in it.
#[derive(Debug)]
pub struct Host {
    space: File,
    pub(crate) ports: Vec<Port>,
}

impl Host {
    pub(crate) fn new() -> Result<Host, String> {
        let make = || {
            // SAFETY: only this new thread changes its network namespace, no other state is unshared, and the
            // thread ends as soon as it has opened the namespace.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|error| format!("cannot make a network namespace: {error}"))?;
            // A new namespace may inherit the setting of the host's namespace.
            fs::write("/proc/sys/net/ipv4/ip_forward", "0")
                .map_err(|error| format!("cannot switch forwarding off: {error}"))?;
            File::open("/proc/thread-self/ns/net")
                .map_err(|error| format!("cannot open the namespace of this thread: {error}"))
        };
        let host = Host { space: in_thread(make)?, ports: Vec::new() };
        host.try_ip("link set lo up")?;
        Ok(host)
    }

    /// Runs `what` in this host, and returns its result or resumes its panic.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        in_thread(|| {
            rustix::thread::move_into_link_name_space(self.space.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace of a host");
            what()
        })
    }

    /// Starts a program in this host.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Child {
        self.run(|| command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// Returns the first end of a wire in this host, which often is the only one.
    pub fn port(&self) -> &Port {
        &self.ports[0]
    }

    /// Returns every end of a wire in this host, in the order of the row.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Returns the IPv4 address of [`Host::port`].
    pub fn address(&self) -> IpAddr {
        self.port().address
    }

    /// Runs iproute2's `ip` with these arguments.
    ///
    /// # Panics
    /// If `ip` fails, with its message.
    pub fn ip(&self, words: &str) {
        self.try_ip(words).map(drop).unwrap_or_else(|said| panic!("{said}"));
    }

    /// Runs `ip`, and returns its output, or its message if it fails.
    pub(crate) fn try_ip(&self, words: &str) -> Result<String, String> {
        let output = self.run(|| Command::new("ip").args(words.split_whitespace()).output());
        let output = output.map_err(|error| format!("cannot run ip (Debian package iproute2): {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Returns the path by which `ip` names this namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.space.as_raw_fd())
    }
}

fn in_thread<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(what).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

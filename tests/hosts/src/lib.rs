//! Several hosts on one machine: network namespaces joined by veth, for tests and benches.
//!
//! ```no_run
//! use bywash_hosts::{Hosts, MTU};
//!
//! let hosts = Hosts::three(MTU);
//! let address = hosts.last().address();
//! hosts.first().run(|| println!("from here {address} is reached by a forwarder only"));
//! ```
//!
//! - [`Hosts`]: two hosts on one wire, or three in a row of which the middle one forwards nothing by itself
//! - [`Host`]: where a closure or a program runs; [`Port`]: one end of a wire, with its addresses
//!
//! The namespaces have no names: they live as long as a descriptor of them, and go with the process that made them,
//! however it ends. So tests that run side by side cannot meet.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod host;
mod wire;

pub use host::Host;
pub use wire::Port;

/// What Ethernet carries without being asked.
pub const MTU: u32 = 1500;

const WHAT_TO_DO: &str = "run the tests as root, or all of them in a namespace of your own: unshare --user \
                          --map-root-user --net cargo test";

/// Hosts in a row, each joined to the next.
#[derive(Debug)]
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// Two hosts on one wire.
    ///
    /// # Panics
    /// When network namespaces cannot be made here, with what to do.
    pub fn two(mtu: u32) -> Hosts {
        Hosts::row(2, mtu).unwrap_or_else(|reason| panic!("{reason}; {WHAT_TO_DO}"))
    }

    /// Three in a row. The middle one forwards no packets: what passes has passed through a program there.
    ///
    /// # Panics
    /// As [`Hosts::two`].
    pub fn three(mtu: u32) -> Hosts {
        Hosts::row(3, mtu).unwrap_or_else(|reason| panic!("{reason}; {WHAT_TO_DO}"))
    }

    /// So many in a row.
    ///
    /// # Errors
    /// Why network namespaces cannot be made here.
    pub fn row(count: u8, mtu: u32) -> Result<Hosts, String> {
        let mut hosts = (0..count).map(|_| Host::new()).collect::<Result<Vec<Host>, String>>()?;
        for left in 1..count {
            let (before, after) = hosts.split_at_mut(usize::from(left));
            wire::join(before.last_mut().unwrap(), &mut after[0], left, mtu)?;
        }
        Ok(Hosts(hosts))
    }

    /// The first of the row.
    pub fn first(&self) -> &Host {
        self.0.first().unwrap()
    }

    /// The one in the middle of three.
    pub fn middle(&self) -> &Host {
        assert_eq!(self.0.len(), 3, "only three hosts have one in the middle");
        &self.0[1]
    }

    /// The last of the row.
    pub fn last(&self) -> &Host {
        self.0.last().unwrap()
    }
}

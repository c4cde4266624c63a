//! Several hosts on one machine: network namespaces joined by veth, for tests and benches.
//!
//! ```no_run
//! use bywash_support::hosts::{Hosts, MTU};
//!
//! let hosts = Hosts::three(MTU);
//! let address = hosts.last().address();
//! hosts.first().run(|| println!("from here {address} is reached by a forwarder only"));
//! ```
//!
//! - [`Hosts`]: two hosts on one wire, or three in a row, of which the middle one forwards no packets
//! - [`Host`]: runs closures and programs; [`Port`]: one end of a wire, with its addresses
//!
//! The namespaces have no names. A namespace lives as long as a descriptor of it is open or a program runs in
//! it, so it disappears with the process that made it, however that ends. Tests that run at the same time
//! cannot collide.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod host;
mod wire;

pub use host::Host;
pub use wire::Port;

/// Greatest size of a packet that Ethernet carries by default, in bytes.
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
    /// If network namespaces cannot be made here, with what to do.
    pub fn two(mtu: u32) -> Hosts {
        Hosts::row(2, mtu).unwrap_or_else(|reason| panic!("{reason}; {WHAT_TO_DO}"))
    }

    /// Three hosts in a row. The middle one forwards no packets: only a program there can pass data on.
    ///
    /// # Panics
    /// Same as [`Hosts::two`].
    pub fn three(mtu: u32) -> Hosts {
        Hosts::row(3, mtu).unwrap_or_else(|reason| panic!("{reason}; {WHAT_TO_DO}"))
    }

    /// Makes `count` hosts in a row.
    ///
    /// # Errors
    /// A sentence that says why network namespaces cannot be made here.
    pub fn row(count: u8, mtu: u32) -> Result<Hosts, String> {
        let mut hosts = (0..count).map(|_| Host::new()).collect::<Result<Vec<Host>, String>>()?;
        for left in 1..count {
            let (before, after) = hosts.split_at_mut(usize::from(left));
            wire::join(before.last_mut().unwrap(), &mut after[0], left, mtu)?;
        }
        Ok(Hosts(hosts))
    }

    /// Returns the first host of the row.
    pub fn first(&self) -> &Host {
        self.0.first().unwrap()
    }

    /// Returns the middle one of three hosts.
    pub fn middle(&self) -> &Host {
        assert_eq!(self.0.len(), 3, "only three hosts have one in the middle");
        &self.0[1]
    }

    /// Returns the last host of the row.
    pub fn last(&self) -> &Host {
        self.0.last().unwrap()
    }
}

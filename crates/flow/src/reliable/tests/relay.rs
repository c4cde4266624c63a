//! Simulated network between two sockets that loses, duplicates and reorders datagrams by a seed, and can be
//! cut.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Fault rates of the network, in datagrams per thousand.
#[derive(Clone, Copy)]
pub(super) struct Manners {
    pub(super) seed: u64,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Datagrams that are held back until the next one has passed.
    pub(super) swapped: u64,
}

/// Network that forwards datagrams until it is dropped.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    ends: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Interval between checks whether the network still exists.
const LOOK: Duration = Duration::from_millis(20);

impl Relay {
    pub(super) fn to(target: SocketAddr, manners: Manners) -> Relay {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let far = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = near.local_addr().unwrap();
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LOOK)).unwrap();
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, 4 << 20);
        }
        far.connect(target).unwrap();
        let mut relay = Relay { address, ends: Vec::new(), threads: Vec::new() };
        // The near side has one peer: the last sender.
        let peer = Arc::new(std::sync::Mutex::new(None));
        let (one, two) = ((near.clone(), far.clone()), (far, near));
        let mut back = manners;
        back.seed ^= u64::MAX;
        let learn = peer.clone();
        relay.carry(one.0, manners, move |from, datagram| {
            *learn.lock().unwrap() = Some(from);
            one.1.send(datagram).map(drop)
        });
        relay.carry(two.0, back, move |_, datagram| match *peer.lock().unwrap() {
            Some(peer) => two.1.send_to(datagram, peer).map(drop),
            None => Ok(()),
        });
        relay
    }

    fn carry(
        &mut self,
        from: Arc<UdpSocket>,
        manners: Manners,
        mut send: impl FnMut(SocketAddr, &[u8]) -> std::io::Result<()> + Send + 'static,
    ) {
        let (end, ended) = channel();
        self.ends.push(end);
        self.threads.push(thread::spawn(move || {
            let mut chance = Chance(manners.seed | 1);
            let mut held: Option<(SocketAddr, Vec<u8>)> = None;
            let mut room = vec![0; 65536];
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let Ok((length, peer)) = from.recv_from(&mut room) else { continue };
                let datagram = &room[..length];
                let fate = chance.of_a_thousand();
                // A datagram that the kernel drops counts as lost by the network.
                if fate < manners.lost {
                    continue;
                }
                if fate < manners.lost + manners.swapped && held.is_none() {
                    held = Some((peer, datagram.to_vec()));
                    continue;
                }
                let _ = send(peer, datagram);
                if fate >= 1000 - manners.doubled {
                    let _ = send(peer, datagram);
                }
                if let Some((peer, late)) = held.take() {
                    let _ = send(peer, &late);
                }
            }
        }));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.clear();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Pseudo-random generator (Marsaglia, "Xorshift RNGs", 2003).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn of_a_thousand(&mut self) -> u64 {
        (self.next() >> 11) % 1000
    }
}

//! Relay that loses, duplicates and swaps datagrams by a seed, like a bad network.

use super::*;
use crate::datagram::socket::{BUFFER_BYTES, want_receive_buffer};
use std::os::fd::AsFd;

/// Fault rates of datagrams in one direction, per thousand.
#[derive(Clone, Copy, Default)]
pub(super) struct Weather {
    pub lose: u64,
    pub double: u64,
    pub swap: u64,
    /// Number of datagrams after which nothing passes any more.
    pub dies_after: Option<u64>,
}

/// Number of datagrams lost and duplicated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damage {
    pub lost: u64,
    pub doubled: u64,
}

pub(super) struct Lossy {
    thread: JoinHandle<Damage>,
    stop: Arc<Control>,
}

impl Lossy {
    /// Starts a relay from a port of the middle host to an address; answers pass unchanged. Only data packets
    /// are damaged.
    pub(super) fn start(host: &Host, listen: SocketAddr, to: SocketAddr, weather: Weather) -> Lossy {
        let (from, onward) = host.run(|| {
            let onward = UdpSocket::bind("0.0.0.0:0").unwrap();
            onward.connect(to).unwrap();
            (UdpSocket::bind(listen).unwrap(), onward)
        });
        // Large buffers make loss depend on the seed alone, and not on the load of the machine.
        for socket in [&from, &onward] {
            want_receive_buffer(socket.as_fd(), BUFFER_BYTES).unwrap();
        }
        let stop = Arc::new(Control::new().unwrap());
        let control = stop.clone();
        let thread = thread::spawn(move || pass(&from, &onward, weather, &control));
        Lossy { thread, stop }
    }

    pub(super) fn stop(self) -> Damage {
        self.stop.cancel();
        self.thread.join().unwrap()
    }
}

fn pass(from: &UdpSocket, onward: &UdpSocket, weather: Weather, control: &Control) -> Damage {
    for socket in [from, onward] {
        socket.set_nonblocking(true).unwrap();
    }
    let (mut damage, mut random, mut count) = (Damage::default(), 0x1234_5678_9abc_def1u64, 0u64);
    let (mut source, mut held): (Option<SocketAddr>, Option<Vec<u8>>) = (None, None);
    let mut room = [0; 65_536];
    while control.check().is_ok() {
        let mut came = false;
        if let Ok((length, sender)) = from.recv_from(&mut room) {
            (came, source) = (true, Some(sender));
            let packet = &room[..length];
            let is_data = length > 3 && packet[3] == 1;
            count += u64::from(is_data);
            let is_dead = weather.dies_after.is_some_and(|after| count > after);
            random = (random ^ (random << 13)) ^ ((random ^ (random << 13)) >> 7);
            random ^= random << 17;
            let luck = random % 1000;
            if is_dead {
                // The relay is dead: nothing passes any more.
            } else if !is_data || luck >= weather.lose + weather.double + weather.swap {
                let _ = onward.send(packet);
                if let Some(held) = held.take() {
                    let _ = onward.send(&held);
                }
            } else if luck < weather.lose {
                damage.lost += 1;
            } else if luck < weather.lose + weather.double {
                damage.doubled += 1;
                let _ = onward.send(packet);
                let _ = onward.send(packet);
            } else if let Some(earlier) = held.replace(packet.to_vec()) {
                let _ = onward.send(&earlier);
            }
        }
        if let (Ok(length), Some(source)) = (onward.recv(&mut room), source) {
            came = true;
            let _ = from.send_to(&room[..length], source);
        }
        if !came {
            thread::sleep(Duration::from_micros(200));
        }
    }
    damage
}

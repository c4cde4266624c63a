//! A relay as anybody writes it: recv, send, and the socket buffers that the system gives. What figures are held against.

use super::*;
use std::sync::Mutex;

pub(super) struct Loop {
    threads: [JoinHandle<()>; 2],
    stop: Arc<Control>,
}

impl Loop {
    pub(super) fn start(host: &Host, from: SocketAddr, to: SocketAddr) -> Loop {
        let (from, onward) = host.run(|| {
            let onward = UdpSocket::bind("0.0.0.0:0").unwrap();
            onward.connect(to).unwrap();
            (Arc::new(UdpSocket::bind(from).unwrap()), Arc::new(onward))
        });
        for socket in [&from, &onward] {
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        }
        let (stop, source) = (Arc::new(Control::new().unwrap()), Arc::new(Mutex::new(None)));
        let forwards = {
            let (from, onward, stop, source) = (from.clone(), onward.clone(), stop.clone(), source.clone());
            thread::spawn(move || pass_there(&from, &onward, &stop, &source))
        };
        let backwards = {
            let stop = stop.clone();
            thread::spawn(move || pass_back(&from, &onward, &stop, &source))
        };
        Loop { threads: [forwards, backwards], stop }
    }

    pub(super) fn stop(self) {
        self.stop.cancel();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn pass_there(from: &UdpSocket, onward: &UdpSocket, stop: &Control, source: &Mutex<Option<SocketAddr>>) {
    let (mut room, mut is_known) = ([0; 2048], false);
    while stop.check().is_ok() {
        if is_known {
            let Ok(length) = from.recv(&mut room) else { continue };
            let _ = onward.send(&room[..length]);
        } else if let Ok((length, sender)) = from.recv_from(&mut room) {
            (is_known, *source.lock().unwrap()) = (true, Some(sender));
            let _ = onward.send(&room[..length]);
        }
    }
}

fn pass_back(from: &UdpSocket, onward: &UdpSocket, stop: &Control, source: &Mutex<Option<SocketAddr>>) {
    let mut room = [0; 2048];
    while stop.check().is_ok() {
        let Ok(length) = onward.recv(&mut room) else { continue };
        if let Some(source) = *source.lock().unwrap() {
            let _ = from.send_to(&room[..length], source);
        }
    }
}

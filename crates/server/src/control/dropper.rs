//! What takes its time to be dropped: memory of clients, files of devices. One after the other, in a thread of its own, so
//! that neither the core nor the control thread does it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Where it goes.
#[derive(Debug)]
pub(crate) struct Dropper(Sender<Box<dyn FnOnce() + Send>>);

impl Dropper {
    /// The thread lasts as long as this.
    pub(crate) fn start() -> io::Result<Dropper> {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        thread::Builder::new().name("dropper".into()).spawn(move || {
            for act in receiver {
                act();
            }
        })?;
        Ok(Dropper(sender))
    }

    /// Has something done there, which begins with dropping what it has.
    pub(crate) fn run(&self, act: impl FnOnce() + Send + 'static) {
        // A thread that is gone drops it here.
        let _ = self.0.send(Box::new(act));
    }
}

//! What may take its time: greeting a client at its channel, opening a file that it has passed. Each in a thread that lasts
//! no longer, some at a time; the others wait for their turn.
//!
//! Each client asks for one thing at a time, so that no more wait than there are clients. Those of one user take a part of
//! the turns only: who lets the server wait does so to himself.

use crate::control::thread::{Event, Post};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::thread;

/// Threads at a time, and of these, those for one user.
const THREADS_MAX: usize = 256;
const THREADS_OF_USER_MAX: usize = 16;

/// Something that may take its time.
pub(crate) struct Task {
    /// Does it; answers what is to be told.
    pub(crate) act: Box<dyn FnOnce() -> Event + Send>,
    /// What is to be told instead, where there can be no thread.
    pub(crate) fail: Box<dyn FnOnce(io::Error) -> Event + Send>,
}

/// What is being done, and what waits.
#[derive(Default)]
pub(crate) struct Aside {
    /// With the user that it is for.
    waiting: VecDeque<(u32, Task)>,
    /// Threads for each user that has any.
    of_user: HashMap<u32, usize>,
    threads: usize,
}

impl Aside {
    /// Has something done for a user, now or when it is its turn. Each thread that ends says so by [`Event::AsideEnded`],
    /// which is to be told here.
    pub(crate) fn give(&mut self, uid: u32, post: &Post, task: Task) {
        self.waiting.push_back((uid, task));
        self.begin(post);
    }

    /// A thread for a user has ended.
    pub(crate) fn note_end(&mut self, uid: u32, post: &Post) {
        self.threads -= 1;
        if let Some(count) = self.of_user.get_mut(&uid) {
            *count -= 1;
        }
        self.of_user.retain(|_, count| *count > 0);
        self.begin(post);
    }

    /// Begins what can be begun, in the order in which it came.
    fn begin(&mut self, post: &Post) {
        while self.threads < THREADS_MAX {
            let is_free = |(uid, _): &(u32, Task)| {
                self.of_user.get(uid).is_none_or(|count| *count < THREADS_OF_USER_MAX)
            };
            let next = self.waiting.iter().position(is_free).and_then(|at| self.waiting.remove(at));
            let Some((uid, Task { act, fail })) = next else { return };
            let own = post.clone();
            let spawned = thread::Builder::new().name("greeter".into()).spawn(move || {
                own.send(act());
                own.send(Event::AsideEnded { uid });
            });
            match spawned {
                Ok(_) => {
                    self.threads += 1;
                    *self.of_user.entry(uid).or_default() += 1;
                }
                Err(error) => post.send(fail(error)),
            }
        }
    }
}

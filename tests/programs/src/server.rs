//! Database servers: folders that belong to their users, and waiting until a server answers.
//!
//! A server does not run as root. It runs as the user that its Debian package creates, in a folder of that
//! user, and is reached through a socket in that folder.

use crate::program::{Program, Running};
use crate::stage::ScenarioRun;
use std::path::PathBuf;

/// Makes the folder `name` and gives it to `user`.
pub fn own_folder(stage: &ScenarioRun, name: &str, user: &str) -> PathBuf {
    stage.make_folder(name);
    if rustix::process::getuid().is_root() {
        stage.program("chown").plain().args([user, name]).run().ok();
    }
    stage.path(name)
}

/// Starts `server` and waits until `ping` succeeds.
pub fn start<'stage>(server: Program<'stage>, ping: impl Fn() -> Program<'stage>) -> Running<'stage> {
    let mut running = server.limit(SERVER_LIMIT_S).start();
    running.wait_until("an answer", || ping().plain().run().status.success());
    running
}

/// Greatest time that a server runs, from its start to its end, in s.
const SERVER_LIMIT_S: u64 = 50;

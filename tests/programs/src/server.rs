//! Database servers: folders that they own, waiting until they answer, ends of both kinds.
//!
//! A server does not run as root: it runs as the user that its Debian package made, in a folder of that
//! user's, and is reached through a socket in that folder.

use crate::program::{Program, Running};
use crate::stage::Stage;
use std::path::PathBuf;

/// Makes the folder `name` and gives it to `user`.
pub fn own_folder(stage: &Stage, name: &str, user: &str) -> PathBuf {
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

/// How long one server may live, from its start to its end.
const SERVER_LIMIT_S: u64 = 50;

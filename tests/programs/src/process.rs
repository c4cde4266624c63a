//! Ending of processes that a test has started, and only of those.
//!
//! Invariant: a signal goes to a process through its pidfd, which can never refer to another process; or to
//! the group of a child that has not been waited for, whose number cannot have been reused.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use std::fs;
use std::os::fd::OwnedFd;

/// Kills `root` and all its descendants (SIGKILL), and waits until they have ended. Until then the children
/// of a server keep resources that its successor needs.
///
/// # Panics
/// If one of these processes does not end within 20 s.
pub fn kill_tree(root: u32) {
    let family: Vec<OwnedFd> = tree(root).into_iter().filter_map(hold).collect();
    for process in &family {
        // Sending the signal fails only if the process has ended already.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    for process in &family {
        // A pidfd is readable once its process has ended (pidfd_open(2)).
        let mut end = [PollFd::new(process, PollFlags::IN)];
        let ended = poll(&mut end, Some(&END_LIMIT)).expect("a pidfd can be polled");
        assert_eq!(ended, 1, "a process of the family of {root} was killed and did not end");
    }
}

/// Greatest time until a killed process has ended.
const END_LIMIT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Returns true if the child `pid` has ended. The child is not waited for, so its number stays valid.
pub fn has_ended(pid: u32) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    number(pid).is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), look), Ok(Some(_))))
}

/// Kills all processes of the group that the child `pid` leads. The child must not have been waited for.
pub fn kill_group(pid: u32) {
    if let Some(pid) = number(pid) {
        // Sending the signal fails only if the group has no process left.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

fn number(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn hold(pid: u32) -> Option<OwnedFd> {
    pidfd_open(number(pid)?, PidfdFlags::empty()).ok()
}

/// Returns `root` and, after it, all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        let children = parents.iter().filter(|(child, of)| *of == parent && !family.contains(child));
        let children: Vec<u32> = children.map(|(child, _)| *child).collect();
        family.extend(children);
        next += 1;
    }
    family
}

/// Returns every process with its parent (proc_pid_stat(5), fields 1 and 4).
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let after_name = &stat[stat.rfind(')')? + 1..];
            Some((pid, after_name.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::kill_tree;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn grandchildren_end_too() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 60 & echo $! > pid.tmp; mv pid.tmp pid; wait";
        let mut child = Command::new("sh").args(["-c", script]).current_dir(&folder).spawn().unwrap();
        let pid = folder.path().join("pid");
        for _ in 0..1000 {
            if pid.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let grandchild = std::fs::read_to_string(pid).unwrap();
        kill_tree(child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let stat = format!("/proc/{}/stat", grandchild.trim());
        let runs = std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(!runs, "the grandchild runs on");
    }
}

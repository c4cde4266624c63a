//! Signals: to bywash, from the terminal, stop and continue.

use crate::place::TestFolder;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout of everything in these tests.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running command whose lines can be waited for.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(command: std::process::Command) -> Running {
        Running::start_ignoring(command, &[])
    }

    /// As [`Running::start`], with these signals ignored.
    fn start_ignoring(mut command: std::process::Command, ignored: &'static [i32]) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: SIGTSTP does nothing to one whose leader has lost its parent.
        command.process_group(0);
        // A shell cannot trap what was ignored when it began, as under nohup(1) or in the background.
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                for signal in ignored {
                    libc::signal(*signal, libc::SIG_IGN);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { input: child.stdin.take(), child, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `text`; answers it.
    fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("'{text}' did not come ({error}); seen: {:#?}", self.seen),
            }
        }
    }

    fn kill(&self, signal: i32) {
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Types `text` on the terminal.
    fn type_in(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end; answers the status and all lines.
    fn end(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "did not end; seen: {:#?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        };
        drop(self.input.take());
        let rest: Vec<String> = self.lines.iter().collect();
        self.seen.extend(rest);
        (status, std::mem::take(&mut self.seen))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failure; one that has ended needs neither, and nothing can be done about an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says each signal that it gets; ends on TERM with status 9. The waits are short since a shell runs its
/// traps between commands.
const LISTENER: &str = r#"
for name in HUP INT QUIT USR1 USR2 ALRM WINCH CONT; do trap "echo got $name" $name; done
trap 'echo got TERM; exit 9' TERM
echo ready $$
while :; do sleep 0.02; done
"#;

fn listener(place: &TestFolder) -> Running {
    let mut running =
        Running::start(place.bywash(&["run", "--report", "r.json", "--", "sh", "-c", LISTENER]));
    running.expect("ready");
    running
}

#[test]
fn signals_sent_to_bywash_reach_the_program_once() {
    let place = TestFolder::new();
    let mut running = listener(&place);
    let sent = [
        (libc::SIGHUP, "HUP"),
        (libc::SIGINT, "INT"),
        (libc::SIGQUIT, "QUIT"),
        (libc::SIGUSR1, "USR1"),
        (libc::SIGUSR2, "USR2"),
        (libc::SIGALRM, "ALRM"),
        (libc::SIGWINCH, "WINCH"),
    ];
    for (signal, name) in sent {
        running.kill(signal);
        running.expect(&format!("got {name}"));
    }
    running.kill(libc::SIGTERM);
    let (status, lines) = running.end();
    assert_eq!(status.code(), Some(9));
    for (_, name) in sent {
        assert_eq!(lines.iter().filter(|line| **line == format!("got {name}")).count(), 1, "{lines:?}");
    }
}

#[test]
fn a_signal_that_the_program_does_not_catch_kills_both() {
    let place = TestFolder::new();
    let mut running =
        Running::start(place.bywash(&["run", "--stats", "--", "sh", "-c", "echo ready; exec sleep 30"]));
    running.expect("ready");
    running.kill(libc::SIGTERM);
    let (status, _) = running.end();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
}

#[test]
fn stopping_and_continuing_bywash_stops_and_continues_the_program() {
    let place = TestFolder::new();
    let mut running = listener(&place);
    running.kill(libc::SIGTSTP);
    std::thread::sleep(Duration::from_millis(300));
    running.kill(libc::SIGCONT);
    running.expect("got CONT");
    running.kill(libc::SIGTERM);
    assert_eq!(running.end().0.code(), Some(9));
}

#[test]
fn an_alarm_set_before_is_the_programs() {
    let place = TestFolder::new();
    let mut command = place.bywash(&["run", "--stats", "--", "sh", "-c", LISTENER]);
    // SAFETY: alarm is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(1);
            Ok(())
        });
    }
    let mut running = Running::start(command);
    running.expect("got ALRM");
    running.kill(libc::SIGTERM);
    assert_eq!(running.end().0.code(), Some(9));
}

/// Runs `shell_command` on a terminal of its own.
fn on_terminal(place: &TestFolder, shell_command: &str) -> Running {
    let mut command = place.command("script");
    command.args(["--quiet", "--return", "--command", shell_command, "/dev/null"]);
    Running::start(command)
}

#[test]
fn a_terminals_interrupt_reaches_the_program_once() {
    let place = TestFolder::new();
    let program = place.script("listener", format!("#!/bin/sh\n{LISTENER}"));
    let bywash = crate::place::bywash();
    let mut running = on_terminal(
        &place,
        &format!("exec {} run --report r.json -- {}", bywash.display(), program.display()),
    );
    let listener: i32 = running.expect("ready").rsplit(' ').next().unwrap().parse().unwrap();
    running.type_in("\u{3}");
    running.expect("got INT");
    // A second delivery would come at once.
    std::thread::sleep(Duration::from_millis(200));
    running.type_in("\u{1c}");
    running.expect("got QUIT");
    // SAFETY: the listener that was started above, still running.
    assert_eq!(unsafe { libc::kill(listener, libc::SIGTERM) }, 0);
    let (_, lines) = running.end();
    assert_eq!(lines.iter().filter(|line| line.ends_with("got INT")).count(), 1, "{lines:?}");
}

#[test]
fn a_job_is_stopped_from_the_terminal_and_goes_on_in_the_foreground() {
    let place = TestFolder::new();
    let bywash = crate::place::bywash();
    let mut running = on_terminal(&place, "exec bash --norc --noprofile -i");
    running.type_in(&format!(
        "PS1=; {} run --stats -- sh -c 'echo rea''dy; sleep 1; echo do''ne; exit 8'\n",
        bywash.display()
    ));
    running.expect("ready");
    // A shell that is stopped between vfork and exec waits for its child for ever, bywash or not: let it
    // get past that, into its sleep.
    std::thread::sleep(Duration::from_millis(200));
    running.type_in("\u{1a}");
    running.expect("Stopped");
    running.type_in("fg\n");
    running.expect("done");
    running.expect("exit status 8");
    running.type_in("exit $?\n");
    assert_eq!(running.end().0.code(), Some(8));
}

/// Installs handlers although the signals were ignored when it began, as many daemons do; USR2 it leaves
/// alone.
const INSTALLER: &str = r#"
$| = 1;
for my $name (qw(HUP INT QUIT USR1 IO RTMIN)) { $SIG{$name} = sub { print "got $name\n" }; }
$SIG{TERM} = sub { print "got TERM\n"; exit 9 };
print "ready\n";
select(undef, undef, undef, 0.02) while 1;
"#;

#[test]
fn signals_that_were_ignored_at_the_start_reach_handlers_installed_later() {
    let place = TestFolder::new();
    let command = place.bywash(&["run", "--report", "r.json", "--", "perl", "-e", INSTALLER]);
    // As nohup(1) ignores them, and `&` in a script.
    let ignored = &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR2];
    let mut running = Running::start_ignoring(command, ignored);
    running.expect("ready");
    let sent = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("USR1", libc::SIGUSR1),
        ("IO", libc::SIGIO),
        ("RTMIN", libc::SIGRTMIN()),
    ];
    for (name, signal) in sent {
        running.kill(signal);
        running.expect(&format!("got {name}"));
    }
    // Still ignored, as it was inherited: neither of the two dies of it.
    running.kill(libc::SIGUSR2);
    running.kill(libc::SIGTERM);
    let (status, lines) = running.end();
    assert_eq!(status.code(), Some(9), "{lines:?}");
    for (name, _) in sent {
        assert_eq!(lines.iter().filter(|line| **line == format!("got {name}")).count(), 1, "{lines:?}");
    }
}

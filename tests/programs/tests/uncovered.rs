//! Tests of programs that the library cannot be loaded into: set-uid programs, static ones, those without
//! libc.

use bywash_programs::{ScenarioRun, installed, on_both_file_systems};
use std::os::unix::fs::PermissionsExt;

on_both_file_systems!(set_uid_programs, another_user_s_shell, static_programs, set_uid_of_our_own);

/// Set-uid programs, started as another user than their owner. No file of the user `nobody` is changed.
fn set_uid_programs(stage: &ScenarioRun) {
    let as_nobody = |program: &str, args: &[&str]| {
        let mode = std::fs::metadata(installed::find(program)).expect("the program").permissions().mode();
        assert!(mode & 0o4000 != 0, "{program} is not set-uid here: reinstall its Debian package");
        stage.program(program).args(args).user("nobody").uncovered().run().note();
    };
    as_nobody("su", &["--version"]);
    as_nobody("su", &["--no-such-option"]);
    as_nobody("passwd", &["--help"]);
    as_nobody("passwd", &["-S"]);
    as_nobody("chfn", &["--no-such-option"]);
    as_nobody("mount", &["--version"]);
    as_nobody("umount", &["/nowhere"]);
}

/// su keeps the environment, so the library is loaded into the shell of the other user.
fn another_user_s_shell(stage: &ScenarioRun) {
    if !rustix::process::getuid().is_root() {
        // Without root, su needs a password, so the two sides are compared by its refusal.
        stage.program("su").args(["nobody", "-c", "id"]).uncovered().run().note();
        return;
    }
    stage.write("secret", "only root reads this\n");
    stage.write("public", "everybody reads this\n");
    stage.program("chmod").args(["600", "secret"]).run().ok();
    let script = "id -un; cat public; cat secret || echo refused; echo x > new || echo refused";
    stage.program("su").args(["nobody", "-s", "/bin/sh", "-c", script]).run().note().ok();
}

fn static_programs(stage: &ScenarioRun) {
    let flags: [(&str, &[&str]); 3] = [
        ("plain_copy", &["-static"]),
        ("plain_copy", &["-static-pie", "-fPIE"]),
        // Like a Go binary: an entry point of its own, raw system calls, and its own threads.
        (
            "without_libc",
            &["-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-stack-protector"],
        ),
    ];
    let data = stage.seed().bytes(50_001);
    stage.write("in", data);
    for (driver, flags) in flags {
        let driver = stage.driver(driver, flags);
        stage.program(&driver).args(["in", "out"]).uncovered().run().note().ok();
        stage.program("cmp").args(["in", "out"]).run().note().ok();
        // The program is also started by a program into which the library is loaded.
        let script = format!("{} in out && cmp in out && rm out", driver.display());
        stage.program("sh").args(["-c", &script]).run().note().ok();
    }
    stage.note_tree();
}

/// A set-uid copy of a program of these tests: the loader leaves the library out when user and owner differ.
/// Where the folder is mounted nosuid, or the tests do not run as root, it runs as the user, and both sides
/// must be equal as well.
fn set_uid_of_our_own(stage: &ScenarioRun) {
    let driver = stage.driver("plain_copy", &[]);
    stage.write("in", "text of the owner's\n");
    let script = "cp \"$1\" mine; chmod 4755 mine; chmod 600 in; chmod 777 .";
    stage.program("sh").plain().args(["-e", "-c", script, "sh"]).arg(&driver).run().ok();
    stage.program(stage.path("mine")).args(["in", "out"]).user("nobody").uncovered().run().note();
    stage.program("sh").args(["-c", "cmp in out; stat -c '%U %a' out"]).run().note();
    stage.note_tree();
}

//! Programs that others have written: Lua, built from its source, and what lies in the folder that the environment's
//! BYWASH_RISCV_PROGRAMS names: `busybox` and `sqlite3`, static executables for RISC-V.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Progress};

#[test]
fn lua_does_as_under_qemu() {
    let test = "lua_does_as_under_qemu";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let Some(emulator) = toolchain::emulator() else { return toolchain::skip(test, "qemu-user") };
    let folder = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let lua = toolchain::package("lua-src").join("lua-5.4.7");
    let mut sources: Vec<PathBuf> =
        std::fs::read_dir(&lua).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.push(own.join("lua.c"));
    // The compiler takes longer than the program: with little optimisation both are done sooner.
    let options = [format!("-I{}", lua.display()), "-DLUA_USE_POSIX".into(), "-O1".into()];
    let file = toolchain::build(&compiler, &sources, &options, &folder.path().join("lua"));
    let script = own.join("script.lua");
    let expected = Command::new(&emulator).arg(&file).arg(&script).arg(folder.path()).output().unwrap();
    // The paths are those of the host, since messages and errors contain them.
    let [script, own] = [&script, folder.path()].map(|path| path.to_str().unwrap());
    let mut files = FileSystem::new(64 << 20);
    files.import(Path::new(script), script).unwrap();
    files.add_folder(own).unwrap();
    let run = toolchain::run(&file, Program::new(["lua", script, own]).files(files), 1);
    assert_eq!(run.output, String::from_utf8_lossy(&expected.stdout), "{}", run.errors);
    assert_eq!(run.end, End::Exited(0));
    assert!(run.output.lines().count() > 10, "{}", run.output);
}

/// Runs a program of the folder in BYWASH_RISCV_PROGRAMS with an input, here and under QEMU, and compares.
fn compare(file: &Path, emulator: &Path, data: &Path, arguments: &[&str], input: &str) {
    // As it is before the program under QEMU changes it.
    let mut files = FileSystem::new(64 << 20);
    files.import(data, "/data").unwrap();
    let mut typed = tempfile::tempfile().unwrap();
    typed.write_all(input.as_bytes()).unwrap();
    typed.rewind().unwrap();
    let mut command = Command::new(emulator);
    command.arg(file).args(arguments).current_dir(data).env_clear().stdin(typed);
    let expected = command.output().unwrap();

    let name = file.file_name().unwrap().to_str().unwrap();
    let program = Program::new([&[name], arguments].concat()).files(files).folder("/data");
    let bytes = std::fs::read(file).unwrap();
    let mut execution = Execution::new(&bytes, program, Functional::new(1, Latencies::default())).unwrap();
    let mut output = Vec::new();
    let end = loop {
        let progress = execution.run().unwrap();
        output.extend(
            execution.output().into_iter().filter(|(number, _)| *number == 1).flat_map(|(_, text)| text),
        );
        match progress {
            Progress::Ended(end) => break end,
            Progress::Input => execution.input(input.as_bytes(), true),
            Progress::Output => {}
            other => panic!("{arguments:?}: {other:?}"),
        }
    };
    assert_eq!(String::from_utf8_lossy(&output), String::from_utf8_lossy(&expected.stdout), "{arguments:?}");
    assert_eq!(end, End::Exited(expected.status.code().unwrap() as u8), "{arguments:?}");
}

/// Returns a program of the folder in BYWASH_RISCV_PROGRAMS; says why if there is none.
fn given(test: &str, name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("BYWASH_RISCV_PROGRAMS") else {
        eprintln!("skipped: {test}: BYWASH_RISCV_PROGRAMS names no folder with {name} for riscv64");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    assert!(path.is_file(), "BYWASH_RISCV_PROGRAMS names a folder without {name}");
    Some(path)
}

#[test]
fn busybox_does_as_under_qemu() {
    let test = "busybox_does_as_under_qemu";
    let Some(emulator) = toolchain::emulator() else { return toolchain::skip(test, "qemu-user") };
    let Some(file) = given(test, "busybox") else { return };
    let data = tempfile::tempdir().unwrap();
    let text: String =
        (0..3000).map(|line| format!("{} word{} {}\n", line * 7919 % 3001, line % 13, line)).collect();
    std::fs::write(data.path().join("text"), &text).unwrap();
    std::fs::create_dir(data.path().join("folder")).unwrap();
    std::fs::write(data.path().join("folder/inner"), "inner\n").unwrap();
    for arguments in [
        &["echo", "hello", "world"] as &[&str],
        &["cat", "text"],
        &["wc", "text"],
        &["sort", "-n", "text"],
        &["sort", "-u", "-k2,2", "text"],
        &["grep", "-c", "word7", "text"],
        &["sed", "-n", "s/word\\([0-9]*\\) /<\\1>/p", "text"],
        &["awk", "{ sum[$2] += $1 } END { for (i = 0; i < 13; i++) print i, sum[\"word\" i] }", "text"],
        &["sha256sum", "text"],
        &["md5sum", "text", "missing"],
        &["find", "folder"],
        &["tail", "-n", "5", "text"],
        &["od", "-c", "folder/inner"],
        &[
            "sh",
            "-c",
            "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); done; echo $i; cd folder; read x < inner; echo \"<$x>\"",
        ],
        &["test", "-d", "text"],
        &["expr", "6", "*", "7"],
        &["bc"],
        &["gzip", "-c", "text"],
        &["tar", "-cf", "-", "folder/inner"],
    ] {
        if arguments[0] == "tar" {
            // Its times are those of the host there and of the simulation here.
            continue;
        }
        compare(&file, &emulator, data.path(), arguments, "2^100; 10/3\n");
    }
}

#[test]
fn sqlite_does_as_under_qemu() {
    let test = "sqlite_does_as_under_qemu";
    let Some(emulator) = toolchain::emulator() else { return toolchain::skip(test, "qemu-user") };
    let Some(file) = given(test, "sqlite3") else { return };
    for (name, mode) in [("rollback", "delete"), ("wal", "wal")] {
        let data = tempfile::tempdir().unwrap();
        let sql = format!(
            "PRAGMA journal_mode={mode};
             CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value REAL);
             CREATE INDEX by_name ON t(name);
             BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000)
             INSERT INTO t SELECT i, 'name' || (i * 7919 % 1009), i * 0.5 FROM n; COMMIT;
             UPDATE t SET value = value + 1 WHERE id % 7 = 0;
             DELETE FROM t WHERE id % 11 = 0;
             SELECT count(*), sum(value), min(name), max(name) FROM t;
             SELECT name, count(*) c FROM t GROUP BY name ORDER BY c DESC, name LIMIT 5;
             PRAGMA integrity_check; VACUUM; PRAGMA page_count;\n"
        );
        compare(&file, &emulator, data.path(), &[name], &sql);
    }
}

//! The library as C programs use it: compiled against the header, linked against the file that Cargo made,
//! run alone, under valgrind and with sanitizers.
//!
//! Tools that are not installed are left out, and the output says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_support::displays::{Image, Server, Weston, Xvfb, assert_shown};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name that programs linked against the library ask the dynamic loader for.
const SONAME: &str = concat!("libbywash.so.", env!("CARGO_PKG_VERSION_MAJOR"));
const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-g"];
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the shared library, which has the static one beside it.
fn shared_library() -> PathBuf {
    bywash_support::built::file("bywash-capi", "libbywash.so")
}

/// The library as it would be installed, in a folder of its own.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Installed {
        let installed = Installed(tempfile::tempdir().unwrap());
        let shared = shared_library();
        let prefix = installed.prefix();
        fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
        symlink(&shared, prefix.join("lib").join(SONAME)).unwrap();
        symlink(&shared, prefix.join("lib/libbywash.so")).unwrap();
        symlink(shared.with_extension("a"), prefix.join("lib/libbywash.a")).unwrap();
        symlink(root().join("include"), prefix.join("include")).unwrap();
        let template = fs::read_to_string(root().join("bywash.pc.in")).unwrap();
        let filled = template
            .replace("@PREFIX@", prefix.to_str().unwrap())
            .replace("@LIBDIR@", prefix.join("lib").to_str().unwrap())
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        assert!(!filled.contains('@'), "{filled}");
        fs::write(prefix.join("lib/pkgconfig/bywash.pc"), filled).unwrap();
        installed
    }

    fn prefix(&self) -> &Path {
        self.0.path()
    }

    fn library(&self, name: &str) -> PathBuf {
        self.prefix().join("lib").join(name)
    }

    /// Returns the libraries that bywash.pc lists for linking with the static library.
    fn static_needs(&self) -> Vec<String> {
        let text = fs::read_to_string(self.library("pkgconfig/bywash.pc")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Libs.private:")).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }
}

fn is_there(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("LEFT OUT: {tool} is not installed");
    }
    there
}

/// Runs a command and fails with what it said.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// A program to be compiled: its source, below this crate's folder, and how.
struct Program<'a> {
    source: &'a str,
    compiler: &'a str,
    flags: &'a [&'a str],
    is_static: bool,
}

impl<'a> Program<'a> {
    fn c(source: &'a str) -> Program<'a> {
        Program { source, compiler: "cc", flags: &["-std=c11", "-D_GNU_SOURCE", "-O1"], is_static: false }
    }

    /// Compiles it; answers where the program is.
    fn build(&self, installed: &Installed) -> PathBuf {
        let program = installed.prefix().join("program");
        let mut command = Command::new(self.compiler);
        command.args(self.flags).args(WARNINGS).arg("-I").arg(installed.prefix().join("include"));
        command.arg(root().join(self.source)).arg("-o").arg(&program);
        if self.is_static {
            command.arg(installed.library("libbywash.a")).args(installed.static_needs());
        } else {
            command.arg("-L").arg(installed.library("")).arg("-lbywash").arg("-lpthread");
            command.arg(format!("-Wl,-rpath,{}", installed.library("").display()));
        }
        run(&mut command);
        program
    }

    /// Compiles and runs it, under whatever `under` says.
    fn check(&self, under: &[&str], arguments: &[&str]) -> String {
        let installed = Installed::new();
        let program = self.build(&installed);
        let mut words: Vec<&str> = under.to_vec();
        let program = program.to_str().unwrap();
        words.push(program);
        words.extend(arguments);
        let mut command = Command::new("timeout");
        command.arg("300").args(words);
        // A program that needs no folder takes no notice of it.
        if arguments.is_empty() {
            command.arg(installed.prefix());
        }
        run(&mut command)
    }
}

const PROGRAMS: [&str; 9] = [
    "tests/c/operations.c",
    "tests/c/errors.c",
    "tests/c/processes.c",
    "tests/c/channels.c",
    "tests/c/channel_errors.c",
    "tests/c/channel_threads.c",
    "tests/c/channel_processes.c",
    "tests/c/flows.c",
    "tests/c/pools.c",
];

#[test]
fn programs_with_the_shared_library() {
    for source in PROGRAMS {
        Program::c(source).check(&[], &[]);
    }
}

#[test]
fn programs_with_the_static_library() {
    // It is the same library: what may differ is what it needs when it is linked, which takes seconds for each.
    for source in ["tests/c/operations.c", "tests/c/channels.c", "tests/c/flows.c"] {
        Program { is_static: true, ..Program::c(source) }.check(&[], &[]);
    }
}

#[test]
fn programs_under_valgrind() {
    if is_there("valgrind") {
        const VALGRIND: [&str; 5] =
            ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=try"];
        for source in PROGRAMS {
            Program::c(source).check(&VALGRIND, &[]);
        }
    }
}

/// Returns the compiler flag for sanitizers; none if the compiler supports none.
fn sanitizers() -> Option<[&'static str; 5]> {
    let folder = tempfile::tempdir().unwrap();
    let probe = folder.path().join("probe.c");
    fs::write(&probe, "int main(void) { return 0; }").unwrap();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let mut compile = Command::new("cc");
    compile.args(flags).arg(&probe).arg("-o").arg(folder.path().join("probe"));
    if !compile.output().unwrap().status.success() {
        println!("LEFT OUT: the compiler has no sanitizers (Debian: libasan, libubsan come with gcc)");
        return None;
    }
    Some(["-std=c11", "-D_GNU_SOURCE", "-O1", flags[0], flags[1]])
}

#[test]
fn programs_with_sanitizers() {
    if let Some(flags) = sanitizers() {
        for source in PROGRAMS {
            Program { flags: &flags, ..Program::c(source) }.check(&[], &[]);
        }
    }
}

#[test]
fn the_header_is_strict_c_and_cxx() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone.c");
    fs::write(&alone, "#include <bywash.h>\n").unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-fsyntax-only", "-Wstrict-prototypes"]).args(WARNINGS);
    run(command.arg("-I").arg(root().join("include")).arg(&alone));
    if is_there("c++") {
        let flags = &["-std=c++11", "-O1"];
        Program { compiler: "c++", flags, ..Program::c("tests/c/version.cpp") }.check(&[], &[]);
    }
}

#[test]
fn the_examples_work() {
    let all =
        [("pingpong.c", "2000"), ("stream.c", "5000001"), ("forwarder.c", "3000"), ("blocks.c", "20000")];
    for (source, size) in all {
        let said = Program::c(&format!("examples-c/{source}")).check(&[], &[size]);
        print!("{source}: {said}");
        assert!(said.starts_with(&size[..4]), "{said}");
    }
}

#[test]
fn the_example_of_a_flow_copies() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, "data").unwrap();
    let words = [from.to_str().unwrap(), to.to_str().unwrap(), "hash:sha256"];
    let said = Program::c("examples-c/copy.c").check(&[], &words);
    print!("copy.c: {said}");
    assert_eq!(fs::read_to_string(&to).unwrap(), "data");
    // As sha256sum has it.
    let digits = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7";
    assert!(said.contains("4 bytes in") && said.contains(digits), "{said}");
}

/// Runs a program that draws on a display, and looks at what it shows.
fn check_surfaces<S: Server>(program: &Program<'_>, under: &[&str]) {
    let (server, installed) = (S::start(), Installed::new());
    let (program, name) = (program.build(&installed), server.name());
    let words = [under, &[program.to_str().unwrap(), server.kind(), &name]].concat();
    let mut command = Command::new("timeout");
    command.arg("120").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "shown\n");
    let pixel = |x: usize, y: usize| ((x * 7) & 0xff) << 16 | ((y * 5) & 0xff) << 8 | ((x + y * 3) & 0xff);
    let drawn = Image::new(160, 120, |x, y| pixel(x, y) as u32);
    assert_shown(&format!("c-{}", server.kind()), &drawn, &server.screenshot());
    running.stdin.take().unwrap().write_all(b"seen\n").unwrap();
    let ended = running.wait().unwrap();
    assert!(ended.success(), "{command:?}: {ended}");
}

#[test]
fn surfaces_of_displays() {
    let program = Program::c("tests/c/surfaces.c");
    check_surfaces::<Xvfb>(&program, &[]);
    check_surfaces::<Weston>(&program, &[]);
    check_surfaces::<Xvfb>(&Program { is_static: true, ..Program::c("tests/c/surfaces.c") }, &[]);
    if is_there("valgrind") {
        let valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=try"];
        check_surfaces::<Xvfb>(&program, &valgrind);
    }
    if let Some(flags) = sanitizers() {
        check_surfaces::<Weston>(&Program { flags: &flags, ..Program::c("tests/c/surfaces.c") }, &[]);
    }
}

#[test]
fn the_program_of_the_guide_to_displays_works() {
    let (server, installed, folder) = (Xvfb::start(), Installed::new(), tempfile::tempdir().unwrap());
    let source = folder.path().join("program.c");
    fs::write(&source, program_of_guide("displays.md")).unwrap();
    let program = Program::c(source.to_str().unwrap()).build(&installed);
    let mut fade = Command::new(program);
    assert_eq!(run(fade.env_remove("WAYLAND_DISPLAY").env("DISPLAY", server.name())), "256 frames\n");
}

#[test]
fn the_example_of_a_surface_draws() {
    let (server, installed) = (Xvfb::start(), Installed::new());
    let program = Program::c("examples-c/counter.c").build(&installed);
    let mut counter = Command::new(&program);
    counter.env_remove("WAYLAND_DISPLAY");
    let said = run(counter.arg("50").env("DISPLAY", server.name()));
    assert!(said.starts_with("50 frames, "), "{said}");
    let mut nowhere = Command::new(&program);
    let refused = nowhere.env_remove("WAYLAND_DISPLAY").env_remove("DISPLAY").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("neither WAYLAND_DISPLAY nor DISPLAY is set"),
        "{said}"
    );
}

/// A device server with a volume of memory, `fast`, and one of a file, `slow`.
fn device_server(folder: &Path) -> (bywash_server::Server, String) {
    let socket = folder.join("socket");
    let disk = format!("disk=file:{},size=32M", folder.join("disk").display());
    let options = bywash_server::Options::new(&socket)
        .device("memory=mem:32M".parse().unwrap())
        .device(disk.parse().unwrap());
    let server = bywash_server::Server::start(options).unwrap();
    let client = bywash_client::Client::connect(&socket, bywash_client::Options::new()).unwrap();
    for (name, device) in [("fast", "memory"), ("slow", "disk")] {
        client.create(bywash_client::NewVolume::new(name, device, 1 << 20)).unwrap();
    }
    (server, socket.to_str().unwrap().to_owned())
}

#[test]
fn volumes_of_a_device_server() {
    let folder = tempfile::tempdir().unwrap();
    let (server, socket) = device_server(folder.path());
    let passed = folder.path().join("passed");
    fs::write(&passed, vec![7; 8192]).unwrap();
    let words = [socket.as_str(), passed.to_str().unwrap()];
    Program::c("tests/c/volumes.c").check(&[], &words);
    Program { is_static: true, ..Program::c("tests/c/volumes.c") }.check(&[], &words);
    if is_there("valgrind") {
        let valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=try"];
        Program::c("tests/c/volumes.c").check(&valgrind, &words);
    }
    if let Some(flags) = sanitizers() {
        Program { flags: &flags, ..Program::c("tests/c/volumes.c") }.check(&[], &words);
    }
    server.stop();
}

/// Returns the first program in C of a page of the repository.
fn program_of(page: &str) -> String {
    let page = fs::read_to_string(root().join("../..").join(page)).unwrap();
    page.split("```c\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

fn program_of_guide(page: &str) -> String {
    program_of(&format!("docs/guide/{page}"))
}

/// README.md shows the three calls of a sender, which take the place of the guide's.
#[test]
fn the_lines_of_the_readme_work() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    let calls = program_of("README.md");
    assert_eq!(calls.lines().count(), 3, "{calls}");
    let guide = program_of_guide("containers.md");
    let (before, rest) = guide.split_once("\tif (bywash_path_over(fds[0]").unwrap();
    let (_, after) = rest.split_once("\twait(&status);").unwrap();
    let program = format!(
        "{}\tbywash_path_over(fds[0], defaults, &path);\n{calls}\twait(&status);{after}",
        before.replace("container = ", "frame = ").replace("text[16]", "text[(1 << 20) + 1]")
    );
    let fills = "bywash_container_map(frame, &bytes, NULL);";
    let program = program.replace(fills, &format!("{fills}\n\tstrcpy((char *)bytes, \"hello\");"));
    fs::write(&source, program).unwrap();
    assert_eq!(Program::c(source.to_str().unwrap()).check(&[], &[]), "hello\n");
}

#[test]
fn the_programs_of_the_guides_work() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    for (page, output) in [("containers.md", "hello\n"), ("channels.md", "5\n"), ("flow.md", "1048576\n")] {
        fs::write(&source, program_of_guide(page)).unwrap();
        assert_eq!(Program::c(source.to_str().unwrap()).check(&[], &[]), output, "{page}");
    }
    let (server, socket) = device_server(folder.path());
    let program =
        program_of_guide("serve.md").replace("/tmp/bywash.sock", &socket).replace("\"log\"", "\"slow\"");
    fs::write(&source, program).unwrap();
    assert_eq!(Program::c(source.to_str().unwrap()).check(&[], &[]), "7\n");
    server.stop();
}

/// As the examples' first lines tell.
#[test]
fn pkg_config_finds_the_library() {
    if !is_there("pkg-config") {
        return;
    }
    let installed = Installed::new();
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", installed.library("pkgconfig")).args(["--cflags", "--libs", "bywash"]);
    let flags = run(&mut ask);
    let program = installed.prefix().join("pingpong");
    let mut command = Command::new("cc");
    command.arg(root().join("examples-c/pingpong.c")).arg("-o").arg(&program).args(flags.split_whitespace());
    run(&mut command);
    run(Command::new(&program).arg("10").env("LD_LIBRARY_PATH", installed.library("")));
}

#[test]
fn the_library_has_its_name_with_the_major_version() {
    if !is_there("readelf") {
        return;
    }
    let mut readelf = Command::new("readelf");
    let listed = run(readelf.args(["--dynamic", "--wide"]).arg(shared_library()));
    assert!(listed.contains(&format!("Library soname: [{SONAME}]")), "{listed}");
}

#[test]
fn the_exported_names_are_those_of_the_header() {
    if !is_there("nm") {
        return;
    }
    let mut nm = Command::new("nm");
    let listed = run(nm.args(["-D", "--defined-only", "--format=posix"]).arg(shared_library()));
    let header = fs::read_to_string(root().join("include/bywash.h")).unwrap();
    let mut names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    let strangers: Vec<_> = names.iter().filter(|name| !header.contains(&format!("{name}("))).collect();
    assert!(strangers.is_empty(), "exported, and not in the header: {strangers:?}");
    assert!(names.len() > 40, "{names:?}");
}

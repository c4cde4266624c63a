//! `include/bywash.h` is what the sources say.

use cbindgen::{Config, DocumentationLength, DocumentationStyle, Language, Style};
use std::fs;
use std::path::Path;

/// Opening comment of the header: rules that hold for every function.
const OPENING: &str = "\
/* Bywash: memory that moves between programs instead of being copied (containers and paths), requests from one
 * program to another without a system call (channels), volumes of a device server (clients and queues), data flows
 * from a source to a sink, and windows whose frames are not copied (surfaces).
 *
 * Generated from crates/capi/src; do not edit. BYWASH_UPDATE_HEADER=1 cargo test -p bywash-capi --test header
 *
 * A program allocates a container on a path to another program, fills the container and ships it. The other program
 * receives it, maps it or not, and ships it on or frees it.
 *
 * The client of a channel submits requests, with buffers if needed, and reaps completions. The server takes requests
 * and completes them, in any order. Neither has to trust the other.
 *
 * A device server shares volumes among programs that need not trust each other. A program opens a volume, then reads
 * and writes whole blocks: by calls that wait, or by many requests at a time through a queue. Where the device is memory
 * that can be mapped, reads and writes are copies; elsewhere they go through a channel to the server.
 *
 * A flow has a source, stages and a sink: files, sockets, pipes, programs, described as text. A flow can be planned and
 * explained; a flow that was started can be watched, cancelled and waited for.
 *
 * A surface is a window of a display server, or a screen. A program draws into a frame, in memory that the display has
 * mapped, and presents it; then the frame is the display's until that returns it.
 *
 * Functions return 0, or a negative number of enum bywash_error; bywash_last_error_message() returns the message.
 *
 * Handles are small structs, passed by value; zero is no handle (struct bywash_path path = {0}). Functions that end a
 * handle take its address and set the handle to zero. Every other copy of the handle is dead then: a function that gets
 * one returns BYWASH_ERROR_HANDLE and does nothing. Checking a handle costs about 15 ns.
 *
 * Pointers must be valid or null; where null is not allowed a function returns BYWASH_ERROR_ARGUMENT. A function that
 * fails leaves its output arguments unchanged, unless its comment says otherwise.
 *
 * Memory to be copied from or to belongs to the program, and is not part of a container or a buffer.
 *
 * Threads: several threads at a time may use a path, a listener, an end of a channel, a client of a device server, a
 * volume and a started flow. Of the threads that use a channel's client one at a time may wait for completions, and of
 * those that use a channel's server one at a time may wait for requests. Every other handle is used by one thread at a
 * time, and may be passed to another thread; BYWASH_ERROR_BUSY reports a violation.
 *
 * Processes: handles of the parent are invalid in a forked child (BYWASH_ERROR_FORKED). Fork first, and let each process
 * make its own end. In a child of a process with several threads, call nothing of this header before exec.
 *
 * Signals do not interrupt calls that wait. No exception or panic leaves a function: if the library finds its own state
 * corrupt it aborts the program.
 */";

fn config() -> Config {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        include_guard: Some("BYWASH_H".into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        documentation_style: DocumentationStyle::Doxy,
        documentation_length: DocumentationLength::Full,
        header: Some(OPENING.into()),
        line_length: 110,
        usize_is_size_t: true,
        ..Config::default()
    };
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    config.after_includes = Some(format!(
        "\n#define BYWASH_VERSION_MAJOR {major}\n#define BYWASH_VERSION_MINOR {minor}\n\
         #define BYWASH_VERSION_PATCH {patch}\n#define BYWASH_VERSION \
         (BYWASH_VERSION_MAJOR * 1000000 + BYWASH_VERSION_MINOR * 1000 + BYWASH_VERSION_PATCH)"
    ));
    // Used by number, so no function names them.
    config.export.include = [
        "bywash_error",
        "bywash_class",
        "bywash_wait",
        "bywash_huge_pages",
        "bywash_access",
        "bywash_choice",
        "bywash_trust",
        "bywash_display",
    ]
    .map(str::to_owned)
    .to_vec();
    config
}

#[test]
fn the_header_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder = cbindgen::Builder::new().with_config(config());
    let modules = [
        ["error", "handles", "options", "path", "container", "ship", "message", "pool"].as_slice(),
        ["channel", "channel_options", "buffer", "channel_client", "dispatch", "request", "channel_server"]
            .as_slice(),
        ["client", "volume", "pieces", "queue", "queue_request", "queue_dispatch", "administer"].as_slice(),
        ["flow", "running", "text", "surface_options", "surface"].as_slice(),
    ];
    for module in modules.concat() {
        builder = builder.with_src(root.join("src").join(module).with_extension("rs"));
    }
    let mut generated = Vec::new();
    builder.generate().unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let file = root.join("include/bywash.h");
    if std::env::var_os("BYWASH_UPDATE_HEADER").is_some() {
        fs::write(&file, &generated).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == generated,
        "include/bywash.h is not what the sources say; run\n  \
         BYWASH_UPDATE_HEADER=1 cargo test -p bywash-capi --test header"
    );
}

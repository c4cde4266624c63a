//! `include/bywash.h` is what the sources say.

use cbindgen::{Config, DocumentationLength, DocumentationStyle, Language, Style};
use std::fs;
use std::path::Path;

/// What stands in front: what holds for every function.
const OPENING: &str = "\
/* Bywash: memory that moves between programs instead of being copied (containers and paths), requests from one
 * program to another without a system call on the way (channels), volumes of a device server (storage), and data
 * that goes from here to there the best way that there is (flows).
 *
 * Generated from crates/capi/src; do not edit. BYWASH_UPDATE_HEADER=1 cargo test -p bywash-capi --test header
 *
 * A program allocates a container on a path to another program, fills it and ships it; the other one receives
 * it, looks inside or does not, and ships it on or frees it.
 *
 * Of a channel, a client submits requests, with buffers if it wants to, and reaps completions; a server takes the
 * requests and completes them, in any order. The two need not trust each other.
 *
 * A device server has volumes, which it shares among programs that need not trust each other. A program opens them
 * and reads and writes whole blocks, by calls that wait, or by many requests at a time through a queue; in the
 * medium's own memory where that can be mapped, and through a channel to the server where it cannot.
 *
 * A flow has a source, stages and a sink: files, sockets, pipes, programs, said as text. It can be planned and
 * explained; when it was started, it can be watched, cancelled and waited for.
 *
 * Functions answer 0, or a negative number of enum bywash_error; bywash_last_error_message() has the text.
 *
 * Handles are small structs, passed by value; zero is none (struct bywash_path path = {0}). Functions that
 * end a handle take its address and set it to zero. Any other copy of it is dead then: to use it answers
 * BYWASH_ERROR_HANDLE, and touches nothing. Each handle given costs about 15 ns.
 *
 * Pointers that are given must be valid or null; null answers BYWASH_ERROR_ARGUMENT where it is not allowed.
 * Where a function fails, what it would have written is left alone, unless it says otherwise.
 *
 * Memory that is given to be copied from or to is the program's own, and not part of a container or a buffer.
 *
 * Threads: paths, listeners, clients, servers, storage, volumes and started flows may be used by several threads at a time; of those that use a
 * client one may wait for completions, of those that use a server one may wait for requests. Every other handle
 * is used by one thread at a time, and may go from one to another; BYWASH_ERROR_BUSY tells where that was not kept.
 *
 * Processes: what the parent made is dead in a forked child (BYWASH_ERROR_FORKED). Fork first, and let each
 * process make its own end. In a child of a process with several threads, call nothing here before exec.
 *
 * Signals do not interrupt what waits. No exception or panic comes out of a function: where the library finds
 * itself broken it aborts the program.
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
        ["error", "handles", "options", "path", "container", "ship", "message"].as_slice(),
        ["channel", "channel_options", "buffer", "client", "dispatch", "request", "server"].as_slice(),
        ["storage", "volume", "pieces", "queue", "queue_request", "queue_dispatch", "administer"].as_slice(),
        ["flow", "running", "text"].as_slice(),
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

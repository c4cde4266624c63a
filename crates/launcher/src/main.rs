//! The program `bywash`: starts a program of the plain form of `bywash run`, and passes everything else to
//! `bywash-command`.
//!
//! A script under `bywash run` pays for this program before anything is won, so it has no C library, no
//! runtime and no allocator: the kernel maps two or three pages of it, and a dozen system calls give it all
//! information. Everything else is left to the command, which gets the same arguments and the same
//! environment: other subcommands and options, help, and all failures, so that every message comes from the
//! command.
//!
//! - [`options`]: command lines that the launcher parses
//! - [`places`]: paths of the library and of the command
//! - [`program`]: the program's environment, search and execution
//! - [`text`]: paths and variables in fixed memory
//! - [`freestanding`]: runtime of a program without a C library
//!
//! Architecture invariant: nothing that the program inherits is changed here: no descriptor is left open, and
//! signals, limits and the working directory stay as they were.

#![no_std]
#![no_main]

mod freestanding;
mod options;
mod places;
mod program;
mod text;

use core::cell::UnsafeCell;
use freestanding::{Inherited, exit, say};
use places::InstallFolder;
use program::{ArgumentBuffer, execute};

/// Exit status for a failure of bywash itself; the same as the command's.
const OWN_FAILURE: i32 = 125;

/// Static memory, whose untouched pages are never allocated.
struct Once(UnsafeCell<ArgumentBuffer>);
// SAFETY: only `launch` uses it, once, in a process with one thread.
unsafe impl Sync for Once {}
static ROOM: Once = Once(UnsafeCell::new(ArgumentBuffer::new()));

/// Becomes the program or the command.
fn launch(inherited: &Inherited) -> ! {
    // SAFETY: `launch` is called once, by the entry point, so no other reference exists.
    let room = unsafe { &mut *ROOM.0.get() };
    let own = InstallFolder::own(inherited);
    if let (Some(own), Some(options)) = (&own, options::read(inherited.words())) {
        // A start that returns has had no effect: the command tries again, and reports why it fails.
        let _ = program::start(inherited, &options, own, room);
    }
    let Some(own) = own else {
        say(&[b"cannot find the folder of bywash, where bywash-command lies; is /proc mounted?\n"]);
        exit(OWN_FAILURE)
    };
    for place in places::COMMAND {
        if let Some(path) = own.find(place) {
            // A failure is ignored: the message below names the paths.
            let _ = execute(path.as_c_str(), inherited.arguments(), inherited.environment());
        }
    }
    say(&[
        b"the program bywash-command cannot be started; looked for it at",
        b"\n  ",
        own.sibling(places::COMMAND[0]).as_bytes(),
        b"\n  ",
        own.sibling(places::COMMAND[1]).as_bytes(),
        b"\nbywash: remedy: keep it beside the bywash program, or install both with `make install`\n",
    ]);
    exit(OWN_FAILURE)
}

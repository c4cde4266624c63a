//! The program `bywash`: starts a program of the plain form of `bywash run`, and hands everything else to
//! `bywash-command`.
//!
//! A script under `bywash run` pays for this program before anything is won, so it has no C library, no runtime and no
//! allocator: the kernel maps two pages or three of it, and what it needs to know it reads with a dozen system calls.
//! Whatever it does not do itself, it leaves to the command, which gets the same arguments and the same environment:
//! other subcommands and options, help, and everything that fails, so that every message comes from there.
//!
//! - [`options`]: the command lines that are read here
//! - [`places`]: where the library and the command lie
//! - [`program`]: the program's environment, and how it is found and executed
//! - [`text`]: paths and variables put together in fixed memory
//! - [`freestanding`]: what a program without a C library has to bring along
//!
//! Architecture invariant: nothing that the program inherits is changed here: no descriptor is left open, and signals,
//! limits and the working directory stay as they were.

#![no_std]
#![no_main]

mod freestanding;
mod options;
mod places;
mod program;
mod text;

use core::cell::UnsafeCell;
use freestanding::{Inherited, exit, say};
use places::Place;
use program::{Room, execute};

/// Exit status for a failure of bywash itself, as the command has it.
const OWN_FAILURE: i32 = 125;

/// Memory that costs nothing where it is not touched.
struct Once(UnsafeCell<Room>);
// SAFETY: `launch` alone uses it, once, in a process with one thread.
unsafe impl Sync for Once {}
static ROOM: Once = Once(UnsafeCell::new(Room::new()));

/// Becomes another program.
fn launch(inherited: &Inherited) -> ! {
    // SAFETY: called once, by the entry point.
    let room = unsafe { &mut *ROOM.0.get() };
    let own = Place::own(inherited);
    if let (Some(own), Some(options)) = (&own, options::read(inherited.words())) {
        // What comes back has not happened: the command does it again, and says why it cannot be done.
        let _ = program::start(inherited, &options, own, room);
    }
    let Some(own) = own else {
        say(&[
            b"cannot tell where bywash itself lies, to find bywash-command beside it; is /proc mounted?\n",
        ]);
        exit(OWN_FAILURE)
    };
    for place in places::COMMAND {
        if let Some(path) = own.find(place) {
            // What is there and cannot be executed is named below.
            let _ = execute(path.as_c_str(), inherited.arguments(), inherited.environment());
        }
    }
    say(&[
        b"the program bywash-command cannot be started; looked for it at",
        b"\n  ",
        own.beside(places::COMMAND[0]).as_bytes(),
        b"\n  ",
        own.beside(places::COMMAND[1]).as_bytes(),
        b"\nbywash: remedy: keep it beside the bywash program, or install both with `make install`\n",
    ]);
    exit(OWN_FAILURE)
}

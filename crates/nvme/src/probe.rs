//! Probe of a secondary controller: the admin commands by which its holder could harm users of other parts of the NVM
//! subsystem, and which of them the controller carries out for its holder.
//!
//! Each command is sent to the controller's own admin queue with fields that no controller may act on: values that the
//! specification reserves, and a namespace that does not exist. A controller that refuses the command to its holder ends it
//! with Invalid Command Opcode, whatever the fields are; one that carries it out finds the fault in the fields, and changes
//! nothing.
//!
//! Commands for which nobody knows fields without an effect, those of the vendor and NVMe-MI Send, are looked up in the log page
//! Commands Supported and Effects (section 5.16.1.6), which lists all commands that the controller carries out.
//!
//! Invariant: only Invalid Command Opcode counts as refused, and only if the log page does not list the command either. A
//! command that ends otherwise, or not in time, counts as carried out, and so does all that was not asked when a command does
//! not end. Without the log page vendor specific commands count as carried out. Called by the virtual functions, before they
//! are handed to anybody.

use crate::command::Command;
use crate::completion::StatusField;
use crate::controller::{Controller, Settings};
use crate::error::Error;
use crate::function::Function;
use crate::identify::IDENTIFY_BYTES;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Number of a namespace that no controller has: the greatest one is less, and the broadcast value is another.
const NOBODY: u32 = 0xffff_fffe;
/// Number of commands in flight while the namespace is looked at, which is more than there are.
const DEPTH: usize = 2;

/// Admin command that concerns more than the controller that gets it, with double words 10 and 11 that have no effect.
struct PrivilegedCommand {
    name: &'static str,
    opcode: u8,
    arguments: [u32; 2],
}

/// Makes a row of [`PRIVILEGED`].
const fn privileged(name: &'static str, opcode: u8, ten: u32) -> PrivilegedCommand {
    PrivilegedCommand { name, opcode, arguments: [ten, 0] }
}

/// Commands that the probe sends, in its order (Base Specification 2.0, section 5, Figure 138).
static PRIVILEGED: [PrivilegedCommand; 9] = [
    // SEL: reserved; an empty list of controllers.
    privileged("Namespace Attachment", 0x15, 0xf),
    // SEL: reserved.
    privileged("Namespace Management", 0x0d, 0xf),
    // SES, LBAFU, PI: reserved; LBAF: the last one.
    privileged("Format NVM", 0x80, 0x3 << 12 | 0x7 << 9 | 0x7 << 5 | 0xf),
    // ACT: reserved; CNTLID: no controller's.
    privileged("Virtualization Management", 0x1c, 0xffff << 16 | 0xf),
    // SANACT: reserved.
    privileged("Sanitize", 0x84, 0),
    // CA: reserved; FS: chosen by the controller.
    privileged("Firmware Commit", 0x10, 0x5 << 3),
    // OPER: reserved.
    privileged("Capacity Management", 0x20, 0xf),
    // SCP: reserved.
    privileged("Lockdown", 0x24, 0xf),
    // SECP: the protocol that only tells which protocols there are; TL: no data.
    privileged("Security Send", 0x81, 0),
];

/// Log page Commands Supported and Effects (LID), and its size, in bytes.
const EFFECTS_LOG: (u8, u32) = (0x05, 4096);
/// Size of the log page's entry of a command, in bytes; that of an admin command is at its opcode.
const EFFECTS_BYTES: usize = 4;
/// Bit of an entry: the controller carries the command out (CSUPP).
const IS_SUPPORTED: u8 = 1;
/// Opcode of NVMe-MI Send, which has commands for the whole subsystem in it.
const MI_SEND: u8 = 0x1d;
/// Opcodes of vendor specific admin commands.
const VENDOR: RangeInclusive<u8> = 0xc0..=0xff;
const VENDOR_NAME: &str = "vendor specific commands";

/// Returns the names of the privileged admin commands that the controller of `function` carries out for its holder.
/// `namespace` is one that the controller has. Resets the controller, and shuts it down at the end.
///
/// # Errors
/// [`Error::Removed`] if the function is not there; [`Error::Timeout`], [`Error::Unsupported`] or [`Error::Admin`] if the
/// controller does not become ready; [`Error::Io`] if memory cannot be allocated or mapped.
pub fn carried_out_commands<F: Function>(function: F, namespace: u32) -> Result<Vec<&'static str>, Error> {
    let settings = Settings {
        namespace: Some(namespace),
        queues: 1,
        depth: DEPTH,
        interrupts: false,
        vectors: false,
        shadow_doorbells: false,
    };
    let mut controller = Controller::new(&Arc::new(function), settings)?;
    controller.wait_until_ready(&mut [])?;
    let (page, bytes) = EFFECTS_LOG;
    let read = controller.carry_out(|identifier| Command::log_page(identifier, page, bytes));
    let log = read.filter(|status| status.is_success()).map(|_| controller.page());
    let is_listed = |opcode: u8| {
        log.as_ref().is_some_and(|log| log[EFFECTS_BYTES * usize::from(opcode)] & IS_SUPPORTED != 0)
    };
    let mut is_asked = read.is_some();
    let mut carried_out = Vec::new();
    for PrivilegedCommand { name, opcode, arguments: [ten, eleven] } in &PRIVILEGED {
        let make = |identifier| Command::new(*opcode, identifier, NOBODY).arguments(*ten, *eleven);
        // Nothing is asked after a command that did not end.
        let status = if is_asked { controller.carry_out(make) } else { None };
        is_asked = status.is_some();
        let is_refused = status.is_some_and(|status| status.is_same(StatusField::INVALID_OPCODE));
        if !is_refused || is_listed(*opcode) {
            carried_out.push(*name);
        }
    }
    if is_listed(MI_SEND) {
        carried_out.push("NVMe-MI Send");
    }
    if log.is_none() || VENDOR.into_iter().any(is_listed) {
        carried_out.push(VENDOR_NAME);
    }
    Ok(carried_out)
}

// The page that gets the log page has all of it.
const _: () = assert!(EFFECTS_LOG.1 as usize == IDENTIFY_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn golden_commands() {
        let words = |name: &str| {
            let found = PRIVILEGED.iter().find(|command| command.name == name).unwrap();
            (found.opcode, found.arguments)
        };
        assert_eq!(words("Format NVM"), (0x80, [0x3eef, 0]));
        assert_eq!(words("Virtualization Management"), (0x1c, [0xffff_000f, 0]));
        assert_eq!(words("Firmware Commit"), (0x10, [0x28, 0]));
        let opcodes: BTreeSet<u8> = PRIVILEGED.iter().map(|command| command.opcode).collect();
        assert_eq!(opcodes.len(), PRIVILEGED.len());
    }
}

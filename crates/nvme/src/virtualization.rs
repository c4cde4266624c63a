//! Admin commands by which a primary controller rules its secondary controllers, and the data structures that these
//! commands return (Base Specification 2.0, section 8.26 "Virtualization Enhancements"). Pure.
//!
//! ```text
//!   primary controller (physical function) ── flexible resources: queues, interrupts
//!      ├── secondary controller (virtual function 1) ── resources assigned to it │ namespaces attached to it
//!      └── secondary controller (virtual function 2)   ...
//! ```
//!
//! A secondary controller that is offline carries out no command, whatever its holder writes to its registers. Resources
//! are assigned while it is offline.

use crate::identify::{IDENTIFY_BYTES, word16, word32};

/// Opcode of Identify.
const IDENTIFY: u8 = 0x06;
/// Opcode of Namespace Attachment (section 5.22).
const NAMESPACE_ATTACHMENT: u8 = 0x15;
/// Opcode of Virtualization Management (section 5.28).
const VIRTUALIZATION_MANAGEMENT: u8 = 0x1c;

/// Values of Controller or Namespace Structure (CNS).
const CONTROLLER: u32 = 0x01;
const ALLOCATED_NAMESPACES: u32 = 0x10;
const ATTACHED_CONTROLLERS: u32 = 0x12;
const PRIMARY_CAPABILITIES: u32 = 0x14;
const SECONDARY_CONTROLLERS: u32 = 0x15;

/// Values of Action (ACT) of Virtualization Management.
const PRIMARY_FLEXIBLE: u32 = 0x1;
const SECONDARY_OFFLINE: u32 = 0x7;
const SECONDARY_ASSIGN: u32 = 0x8;
const SECONDARY_ONLINE: u32 = 0x9;

/// Bit of Optional Admin Command Support (OACS): Namespace Management and Namespace Attachment.
const HAS_NAMESPACE_MANAGEMENT: u16 = 1 << 3;
/// Size of an entry of the list of secondary controllers, in bytes.
const SECONDARY_BYTES: usize = 32;
/// Greatest number of entries of that list.
const SECONDARIES_MAX: usize = 127;
/// Greatest number of entries of a list of controllers.
const CONTROLLERS_MAX: usize = 2047;

/// Resource that secondary controllers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Pairs of queues, the admin queues included (VQ).
    Queues,
    /// Interrupts (VI).
    Interrupts,
}

/// An admin command, without the memory that its data is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// Name of the command in the specification.
    pub name: &'static str,
    /// Opcode, whose bits 1:0 tell the direction of the data: 01 to the controller, 10 from the controller.
    pub opcode: u8,
    /// Number of the namespace; 0 if the command concerns none.
    pub namespace: u32,
    /// Command double words 10 and 11.
    pub arguments: [u32; 2],
}

impl AdminCommand {
    fn identify(structure: u32, namespace: u32) -> AdminCommand {
        AdminCommand { name: "Identify", opcode: IDENTIFY, namespace, arguments: [structure, 0] }
    }

    /// Makes the command that describes the controller.
    pub fn identify_controller() -> AdminCommand {
        AdminCommand::identify(CONTROLLER, 0)
    }

    /// Makes the command that lists all namespaces of the subsystem.
    pub fn allocated_namespaces() -> AdminCommand {
        AdminCommand::identify(ALLOCATED_NAMESPACES, 0)
    }

    /// Makes the command that lists the controllers that a namespace is attached to.
    pub fn attached_controllers(namespace: u32) -> AdminCommand {
        AdminCommand::identify(ATTACHED_CONTROLLERS, namespace)
    }

    /// Makes the command that describes the resources of a primary controller.
    pub fn primary_capabilities() -> AdminCommand {
        AdminCommand::identify(PRIMARY_CAPABILITIES, 0)
    }

    /// Makes the command that lists the secondary controllers.
    pub fn secondary_controllers() -> AdminCommand {
        AdminCommand::identify(SECONDARY_CONTROLLERS, 0)
    }

    /// Makes the command that attaches a namespace to the controllers of the list that is its data, or detaches it.
    pub fn attachment(namespace: u32, attaches: bool) -> AdminCommand {
        let select = u32::from(!attaches);
        let arguments = [select, 0];
        AdminCommand { name: "Namespace Attachment", opcode: NAMESPACE_ATTACHMENT, namespace, arguments }
    }

    fn virtualization(controller: u16, resource: u32, action: u32, count: u16) -> AdminCommand {
        AdminCommand {
            name: "Virtualization Management",
            opcode: VIRTUALIZATION_MANAGEMENT,
            namespace: 0,
            arguments: [u32::from(controller) << 16 | resource << 8 | action, count.into()],
        }
    }

    /// Makes the command that leaves the primary controller `count` flexible resources, from its next reset on.
    pub fn keep_flexible(resource: Resource, count: u16) -> AdminCommand {
        AdminCommand::virtualization(0, resource as u32, PRIMARY_FLEXIBLE, count)
    }

    /// Makes the command that assigns `count` flexible resources to a secondary controller, which is offline.
    pub fn assign(controller: u16, resource: Resource, count: u16) -> AdminCommand {
        AdminCommand::virtualization(controller, resource as u32, SECONDARY_ASSIGN, count)
    }

    /// Makes the command that puts a secondary controller online or offline.
    pub fn set_online(controller: u16, is_online: bool) -> AdminCommand {
        let action = if is_online { SECONDARY_ONLINE } else { SECONDARY_OFFLINE };
        AdminCommand::virtualization(controller, 0, action, 0)
    }
}

/// Returns true if the controller that [`AdminCommand::identify_controller`] describes can attach namespaces. Some
/// controllers that can rule secondary controllers do not tell that by OACS bit 7 (QEMU's); the list of these does.
pub fn can_attach(data: &[u8; IDENTIFY_BYTES]) -> bool {
    word16(data, 256) & HAS_NAMESPACE_MANAGEMENT != 0
}

/// Flexible resources of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flexible {
    /// Number of all flexible resources (VQFRT, VIFRT).
    pub total: u32,
    /// Number of flexible resources that the primary controller has (VQRFAP, VIRFAP).
    pub of_primary: u16,
    /// Greatest number of flexible resources that a secondary controller can have (VQFRSM, VIFRSM).
    pub per_secondary: u16,
}

impl Flexible {
    fn read(data: &[u8; IDENTIFY_BYTES], at: usize) -> Flexible {
        Flexible {
            total: word32(data, at),
            of_primary: word16(data, at + 8),
            per_secondary: word16(data, at + 12),
        }
    }

    /// Returns the number of resources that each of `count` secondary controllers gets.
    pub fn share(&self, count: u16) -> u16 {
        let share = self.total / u32::from(count.max(1));
        // Fits: the second number has 16 bits.
        share.min(self.per_secondary.into()) as u16
    }
}

/// Resources of a primary controller: queues and interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryCapabilities {
    /// Pairs of queues.
    pub queues: Flexible,
    /// Interrupts.
    pub interrupts: Flexible,
}

impl PrimaryCapabilities {
    /// Reads the data of [`AdminCommand::primary_capabilities`].
    pub fn read(data: &[u8; IDENTIFY_BYTES]) -> PrimaryCapabilities {
        PrimaryCapabilities { queues: Flexible::read(data, 32), interrupts: Flexible::read(data, 64) }
    }
}

/// A secondary controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondaryController {
    /// Identifier of the controller (SCID).
    pub identifier: u16,
    /// True if it is online (SCS).
    pub is_online: bool,
    /// Number of its virtual function, from 1 on (VFN).
    pub function: u16,
}

/// Reads the data of [`AdminCommand::secondary_controllers`].
pub fn secondary_controllers(data: &[u8; IDENTIFY_BYTES]) -> Vec<SecondaryController> {
    let count = usize::from(data[0]).min(SECONDARIES_MAX);
    let entries = data[SECONDARY_BYTES..].chunks_exact(SECONDARY_BYTES).take(count);
    let read = |entry: &[u8]| SecondaryController {
        identifier: u16::from_le_bytes([entry[0], entry[1]]),
        is_online: entry[4] & 1 == 1,
        function: u16::from_le_bytes([entry[8], entry[9]]),
    };
    entries.map(read).collect()
}

/// Reads a list of controllers: the number of entries, and the identifiers.
pub fn controllers(data: &[u8; IDENTIFY_BYTES]) -> Vec<u16> {
    let count = usize::from(word16(data, 0)).min(CONTROLLERS_MAX);
    (1..=count).map(|index| word16(data, 2 * index)).collect()
}

/// Writes a list of one controller, as Namespace Attachment takes it.
pub fn one_controller(identifier: u16) -> Box<[u8; IDENTIFY_BYTES]> {
    let mut data = Box::new([0; IDENTIFY_BYTES]);
    data[0] = 1;
    [data[2], data[3]] = identifier.to_le_bytes();
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_commands() {
        let words = |command: AdminCommand| (command.opcode, command.namespace, command.arguments);
        assert_eq!(words(AdminCommand::keep_flexible(Resource::Queues, 0)), (0x1c, 0, [0x0001, 0]));
        assert_eq!(words(AdminCommand::keep_flexible(Resource::Interrupts, 3)), (0x1c, 0, [0x0101, 3]));
        assert_eq!(words(AdminCommand::assign(2, Resource::Queues, 2)), (0x1c, 0, [0x0002_0008, 2]));
        assert_eq!(words(AdminCommand::assign(2, Resource::Interrupts, 1)), (0x1c, 0, [0x0002_0108, 1]));
        assert_eq!(words(AdminCommand::set_online(1, true)), (0x1c, 0, [0x0001_0009, 0]));
        assert_eq!(words(AdminCommand::set_online(1, false)), (0x1c, 0, [0x0001_0007, 0]));
        assert_eq!(words(AdminCommand::attachment(7, true)), (0x15, 7, [0, 0]));
        assert_eq!(words(AdminCommand::attachment(7, false)), (0x15, 7, [1, 0]));
        assert_eq!(words(AdminCommand::attached_controllers(7)), (0x06, 7, [0x12, 0]));
        assert_eq!(one_controller(0x0102)[..4], [1, 0, 2, 1]);
    }

    #[test]
    fn structures_are_read_as_qemu_writes_them() {
        let mut data = [0; IDENTIFY_BYTES];
        data[32..48].copy_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5, 0, 2, 0, 1, 0]);
        data[64..80].copy_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 3, 0, 1, 0]);
        let read = PrimaryCapabilities::read(&data);
        assert_eq!(read.queues, Flexible { total: 4, of_primary: 1, per_secondary: 2 });
        assert_eq!((read.queues.share(1), read.queues.share(2), read.queues.share(3)), (2, 2, 1));
        assert_eq!((read.interrupts.share(2), read.interrupts.share(4)), (3, 2));
        let mut data = [0; IDENTIFY_BYTES];
        data[0] = 2;
        data[32..48].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0]);
        data[64..80].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let online =
            |identifier, is_online| SecondaryController { identifier, is_online, function: identifier };
        assert_eq!(secondary_controllers(&data), [online(1, true), online(2, false)]);
        assert_eq!(controllers(&one_controller(9)), [9]);
        let mut data = [0xff; IDENTIFY_BYTES];
        assert_eq!((secondary_controllers(&data).len(), controllers(&data).len()), (127, 2047));
        assert!(can_attach(&data));
        data[256] = !(1 << 3);
        assert!(!can_attach(&data));
    }
}

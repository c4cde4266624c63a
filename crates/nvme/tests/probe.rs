//! Probe of the admin commands that a secondary controller carries out for its holder, on controllers in software.

use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Error, carried_out_commands};

/// Opcodes of Namespace Management, Firmware Commit, Namespace Attachment, Virtualization Management, Capacity Management,
/// Lockdown, Format NVM, Security Send and Sanitize.
const PRIVILEGED: [u8; 9] = [0x0d, 0x10, 0x15, 0x1c, 0x20, 0x24, 0x80, 0x81, 0x84];

fn controller(privileged: &[u8]) -> Model {
    let namespace = ModelNamespace::new(3, 64, 9);
    Model::new(ModelOptions { privileged: privileged.to_vec(), ..ModelOptions::new(namespace) })
}

#[test]
fn a_controller_that_refuses_all_is_told_from_one_that_does_not() {
    for (privileged, expected) in [
        (&PRIVILEGED[..0], vec![]),
        (&[0x80], vec!["Format NVM"]),
        (&[0x1c, 0x15], vec!["Namespace Attachment", "Virtualization Management"]),
        // These are not asked: the log page lists them.
        (&[0x1d], vec!["NVMe-MI Send"]),
        (&[0xc0], vec!["vendor specific commands"]),
        (&[0xff, 0x80], vec!["Format NVM", "vendor specific commands"]),
        (
            &PRIVILEGED,
            vec![
                "Namespace Attachment",
                "Namespace Management",
                "Format NVM",
                "Virtualization Management",
                "Sanitize",
                "Firmware Commit",
                "Capacity Management",
                "Lockdown",
                "Security Send",
            ],
        ),
    ] {
        let model = controller(privileged);
        assert_eq!(carried_out_commands(model.clone(), 3).unwrap(), expected);
        let counts = model.counts();
        assert_eq!((counts.changes, counts.shutdowns), (0, 1), "the probe changes nothing, and shuts down");
        assert!(model.is_cut_off() && model.mapped_bytes() == 0);
    }
}

#[test]
fn only_an_invalid_opcode_is_a_refusal() {
    // Success, Invalid Field, Invalid Namespace, Prohibited by Lockdown, Abort Requested, Access Denied, a vendor's status.
    for (kind, code) in [(0, 0x00), (0, 0x02), (0, 0x0b), (0, 0x28), (0, 0x07), (2, 0x86), (7, 0x01)] {
        let model = controller(&[]);
        model.fail_admin(0x80, kind, code);
        assert_eq!(carried_out_commands(model, 3).unwrap(), ["Format NVM"], "{kind:#x}, {code:#x}");
    }
    // A controller that refuses what its log page lists is not believed.
    let model = controller(&[0x84]);
    model.fail_admin(0x84, 0, 0x01);
    assert_eq!(carried_out_commands(model, 3).unwrap(), ["Sanitize"]);
}

#[test]
fn without_the_log_page_nothing_is_known_of_vendor_specific_commands() {
    let model = controller(&[0x80]);
    // Invalid Log Page.
    model.fail_admin(0x02, 1, 0x09);
    assert_eq!(carried_out_commands(model, 3).unwrap(), ["Format NVM", "vendor specific commands"]);
}

#[test]
fn a_command_without_an_answer_counts_as_carried_out_with_those_behind_it() {
    let model = controller(&[]);
    model.ignore_admin(0x84);
    let expected = ["Sanitize", "Firmware Commit", "Capacity Management", "Lockdown", "Security Send"];
    assert_eq!(carried_out_commands(model.clone(), 3).unwrap(), expected);
    assert!(model.is_cut_off());
    let model = controller(&[]);
    model.ignore_admin(0x02);
    let all = carried_out_commands(model, 3).unwrap();
    assert_eq!((all.len(), all[9]), (10, "vendor specific commands"));
}

#[test]
fn a_controller_that_does_not_become_ready_is_an_error() {
    let model = controller(&[]);
    let error = carried_out_commands(model, 4).unwrap_err().to_string();
    assert!(error.contains("it has no namespace 4"), "{error}");
    let model = controller(&[]);
    model.never_get_ready();
    assert!(matches!(carried_out_commands(model, 3), Err(Error::Timeout { .. })));
    let model = controller(&[]);
    model.remove();
    assert!(matches!(carried_out_commands(model, 3), Err(Error::Removed)));
}

#[test]
fn an_event_between_commands_is_no_answer() {
    let model = controller(&[0x15]);
    // A change of namespaces, reported as soon as the driver requests events.
    model.raise(0x0004_0002);
    model.raise(0x0004_0002);
    assert_eq!(carried_out_commands(model, 3).unwrap(), ["Namespace Attachment"]);
}

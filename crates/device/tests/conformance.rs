//! Conformance suite ([`bywash_device::testing::conformance`]) of the devices of this crate: memory in one chunk, in
//! several and with a simulated speed; files by io_uring and by threads, on a disk and on tmpfs; block devices;
//! passed files; and further queues of them. Every device passes the same cases.
//!
//! `BYWASH_DEVICE_SEED` runs the random commands with that one seed. Block devices are loop devices, which
//! need root; without it, their tests print so and pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "conformance/subjects.rs"]
mod subjects;

use bywash_device::testing::conformance::{CASES, Subject};

/// Runs the case of that name, if there is a subject.
fn run(name: &str, subject: Option<Subject>) {
    let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("a case of the suite");
    if let Some(subject) = subject {
        case(subject);
    }
}

/// Makes a module of tests for each device, with all cases.
macro_rules! conforms {
    ($($device:ident)*) => {
        $(mod $device {
            use super::*;
            cases!($device:
                what_is_written_is_read
                segments_are_filled_one_after_another
                memory_of_any_alignment_is_taken
                zeroes_are_written_and_nothing_else
                what_is_discarded_reads_as_before_or_as_zeros
                a_block_is_compared_and_written
                durable_writes_and_flushes_are_done
                registered_memory_is_used_and_forgotten
                what_is_outside_is_refused
                what_is_uneven_is_refused
                nothing_is_read_and_written_as_well
                what_is_too_long_or_in_too_many_pieces_is_refused
                a_full_device_gives_the_command_back
                overlapping_commands_take_effect_in_order
                no_block_is_ever_torn
                of_those_who_compare_one_wins
                whoever_sleeps_is_woken
                dropping_waits_for_what_is_in_flight
                commands_do_what_a_model_does
            );
        })*
    };
}

macro_rules! cases {
    ($device:ident: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            run(stringify!($case), subjects::$device());
        })*

        #[test]
        fn no_case_is_left_out() {
            assert!(CASES.iter().map(|(name, _)| *name).eq([$(stringify!($case)),*]));
        }
    };
}

conforms! {
    memory
    memory_in_chunks
    memory_behind_a_pipe
    file_by_ring
    file_by_threads
    file_by_ring_on_tmpfs
    file_by_threads_on_tmpfs
    cached_file
    block_by_ring
    block_by_threads
    passed_file_by_ring
    passed_file_by_threads
    passed_memory
    passed_block
    faulty_without_faults
    second_queue_of_memory
    second_queue_of_a_file_by_ring
    second_queue_of_a_file_by_threads
    second_queue_of_a_block_device
    shared_queue_of_memory_behind_a_pipe
    shared_queue_of_a_passed_file
}

//! Conformance suite for all devices, which tests the crate's rules: memory in one chunk, in several and with
//! a simulated speed; files by io_uring and by threads, on a disk and on tmpfs; block devices; and passed
//! files. Every device passes the same cases.
//!
//! `BYWASH_DEVICE_SEED` runs the random commands with that one seed. Block devices are loop devices, which
//! need root; without it, their tests print so and pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance {
    pub mod commands;
    pub mod in_flight;
    pub mod limits;
    pub mod random;
    pub mod subject;
}

use conformance::{commands, in_flight, limits, random, subject};

/// Makes a module of tests for each device, with all cases.
macro_rules! conforms {
    ($($device:ident)*) => {
        $(mod $device {
            use super::*;
            cases!($device:
                commands::what_is_written_is_read
                commands::segments_are_filled_one_after_another
                commands::memory_need_not_be_aligned
                commands::zeroes_are_written_and_nothing_beside_them
                commands::what_is_discarded_reads_as_before_or_as_zeros
                commands::a_block_is_compared_and_written
                commands::durable_writes_and_flushes_are_done
                commands::registered_memory_is_used_and_forgotten
                limits::what_is_outside_is_refused
                limits::what_is_uneven_is_refused
                limits::nothing_is_read_and_written_as_well
                limits::what_is_too_long_or_in_too_many_pieces_is_refused
                limits::a_full_device_gives_the_command_back
                in_flight::overlapping_commands_take_effect_in_order
                in_flight::no_block_is_ever_torn
                in_flight::of_those_who_compare_one_wins
                in_flight::whoever_sleeps_is_woken
                in_flight::dropping_waits_for_what_is_in_flight
                random::commands_do_what_a_model_does
            );
        })*
    };
}

macro_rules! cases {
    ($device:ident: $($group:ident::$case:ident)*) => {
        $(#[test]
        fn $case() {
            if let Some(subject) = subject::$device() {
                $group::$case(subject);
            }
        })*
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
}

#[cfg(feature = "testing")]
conforms! { faulty_without_faults }

//! One suite for all devices: cases that every device passes, which hold [the crate's rules](crate#rules).
//!
//! Each case takes a [`Subject`], a device of its own that contains zeros, and panics if the device breaks a rule.
//!
//! `BYWASH_DEVICE_SEED` runs the random commands with that one seed.

#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

mod commands;
mod in_flight;
mod limits;
mod random;
mod subject;

pub use subject::{Area, Subject, pattern};

/// A case of the suite: its name, and the function that runs it.
pub type Case = (&'static str, fn(Subject));

/// Makes an array of cases from their paths.
macro_rules! cases {
    ($($group:ident::$case:ident)*) => {
        [$((stringify!($case), $group::$case as fn(Subject))),*]
    };
}

/// All cases, in the order of their groups.
pub const CASES: &[Case] = &cases! {
    commands::what_is_written_is_read
    commands::segments_are_filled_one_after_another
    commands::memory_of_any_alignment_is_taken
    commands::zeroes_are_written_and_nothing_else
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
};

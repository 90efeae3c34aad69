//! The contract of a [`MatchingDevice`](tagmatch_device::matching::MatchingDevice) over a library
//! that matches tags, written once. Each function is a promise, and
//! [`matching_contract!`](crate::matching_contract) makes a test of each for one device.
//!
//! Each test runs over all ways of the library: the transports of UCX, the providers of libfabric.
#![allow(missing_docs, reason = "the name of a promise says what it is")]
#![allow(clippy::cast_possible_truncation, reason = "a test that fails loudly")]

mod connecting;
mod ends;
mod fixture;
#[allow(clippy::module_inception, reason = "what all of it is about")]
mod matching;
mod messages;
mod raw;
mod sleep;
mod strangers;
mod support;

pub use self::connecting::*;
pub use self::ends::*;
pub use self::fixture::*;
pub use self::matching::*;
pub use self::messages::*;
pub use self::sleep::*;
pub use self::strangers::*;
pub use self::support::*;

/// Makes a test of each promise, for one device, with the attributes.
#[macro_export]
macro_rules! matching_contract {
    ($(#[$attribute:meta])* $fixture:ty) => {
        $crate::matching_contract!(@each [$(#[$attribute])*] $fixture:
            a_message_to_oneself
            every_size_arrives_expected_and_unexpected
            messages_of_one_sender_do_not_overtake
            immediate_data_comes_with_the_message
            what_is_injected_is_copied
            a_synchronous_send_is_complete_when_it_is_matched
            a_truncated_message_tells_its_full_length_on_every_path
            a_delivered_send_ends_or_is_refused
            what_cannot_be_carried_is_refused_with_its_buffer
            first_posted_first_matched_whatever_the_masks
            first_arrived_first_found_by_a_masked_receive
            a_receive_that_names_its_peer_takes_no_others
            a_cancel_that_wins_leaves_the_buffer_alone
            a_cancel_that_loses_is_a_normal_completion
            a_held_message_is_found_by_nobody_while_a_peer_comes_up
            a_probe_that_is_the_first_to_hear_of_a_peer_loses_no_message
            held_messages_are_received_in_any_order_and_found_by_nobody
            a_message_that_is_discarded_releases_its_sender
            a_probe_takes_nothing
            both_begin_at_once_and_meet_in_one_connection
            sends_wait_for_their_peer_in_order
            nobody_there_is_told_with_the_sends
            workers_of_one_job_reach_each_other_and_no_others
            those_who_carry_tags_in_another_way_are_refused
            no_more_peers_than_the_source_field_numbers
            addresses_of_others_are_refused
            a_sleeper_is_woken_by_a_message
            a_sleeper_is_woken_by_a_connection_and_by_its_end
            an_armed_device_knows_of_work_that_was_begun
            strangers_harm_nobody
            callers_that_know_the_address_and_break_the_rules_are_hung_up_on
            a_peer_that_goes_on_to_talk_after_the_handshake_goes_down
            a_peer_says_goodbye_once
            a_caller_that_is_ready_again_and_again_goes_down
            a_stranger_who_says_nothing_is_sent_away
            an_impostor_is_not_believed
            no_byte_is_exchanged_with_another_user_on_this_machine
            a_killed_peer_ends_what_depends_on_it_and_nothing_else
            what_a_killed_peer_had_sent_whole_can_be_received
            a_rendezvous_of_a_killed_peer_ends_with_it
            a_peer_that_is_killed_midway_leaves_a_defined_end
            what_was_sent_before_a_device_is_dropped_arrives
            a_disconnect_ends_both_sides
            a_device_that_is_closed_ends_everything_once
            a_device_is_dropped_with_everything_under_way
            a_device_can_be_dropped_while_it_connects
            either_side_may_go_while_a_large_message_is_under_way
            a_sender_may_go_at_any_time);
    };
    (@each $attributes:tt $fixture:ty: $($promise:ident)*) => {
        $($crate::matching_contract!(@one $attributes $fixture: $promise);)*
    };
    (@one [$($attributes:tt)*] $fixture:ty: $promise:ident) => {
        #[test]
        $($attributes)*
        fn $promise() {
            $crate::matching::$promise::<$fixture>();
        }
    };
}

//! Tests of the promises of devices.

/// Makes a test of each promise that is named, for one device, with the attributes. `all` stands
/// for the promises that every device keeps which needs no hardware; others may follow.
#[macro_export]
macro_rules! device_contract {
    ($fixture:ty: all $(, $promise:ident)*) => {
        $crate::device_contract! { $fixture:
            every_size_arrives_with_and_without_immediate
            a_full_way_refuses_messages_and_keeps_their_order
            messages_go_both_ways_at_once
            messages_of_one_peer_keep_none_of_another_back
            a_worker_sends_messages_to_itself
            workers_that_connect_at_once_get_one_connection
            workers_on_two_threads_may_connect_at_once
            both_sides_see_a_disconnect_and_it_is_final
            a_closed_worker_refuses_connections
            addresses_of_other_devices_are_refused
            connections_that_end_leave_no_descriptors
            the_number_of_a_forgotten_peer_is_given_again_and_the_old_one_is_none
            peers_read_memory_that_a_worker_allocates
            reads_of_every_size_arrive
            a_bad_span_fails_its_read_and_no_other
            reads_and_messages_go_on_side_by_side
            buffers_of_reads_come_back_at_the_end
            withdrawn_buffers_are_returned_once
            a_read_from_a_peer_that_is_not_up_is_refused
            a_message_that_was_taken_wakes_no_worker
            a_message_to_oneself_wakes_a_sleeping_worker
            every_exchange_wakes_a_sleeping_worker
            the_end_of_a_flush_wakes_a_sleeping_worker
            room_wakes_its_sender
            connections_messages_and_ends_wake_a_sleeping_worker
            a_disconnect_is_told_to_a_sleeping_worker
            a_death_wakes_a_sleeping_worker
            a_peer_that_dies_before_it_answers_is_unreachable
            a_death_in_the_middle_of_a_stream_is_noticed
            flushed_messages_arrive_before_the_death
            nothing_is_lost_when_a_process_drops_its_device_and_exits
            reads_of_a_peer_that_is_killed_come_back
            a_reader_that_is_killed_leaves_the_buffer_to_its_owner
            $($promise)*
        }
    };
    ($(#[$attribute:meta])* $fixture:ty: $($promise:ident)*) => {
        $crate::device_contract!(@each [$(#[$attribute])*] $fixture: $($promise)*);
    };
    (@each $attributes:tt $fixture:ty: $($promise:ident)*) => {
        $($crate::device_contract!(@one $attributes $fixture: $promise);)*
    };
    (@one [$($attributes:tt)*] $fixture:ty: $promise:ident) => {
            #[test]
            $($attributes)*
            fn $promise() {
                $crate::contract::$promise::<$fixture>();
                $crate::contract::no_bugs();
            }
    };
}

//! The contract of devices, kept by the device that joins several: by TCP between two machines, and
//! by shared memory within one.

mod common;

use std::sync::atomic::{AtomicU8, Ordering};

use tagmatch_device::ReadMode;
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device_contract;

use common::{Worker, narrow_worker, role, worker};

/// Each worker is on a machine of its own, those of another process as well.
struct Between;

impl Between {
    fn machine() -> u8 {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let first = if role().is_some() { 128 } else { 0 };
        first + NEXT.fetch_add(1, Ordering::Relaxed) % 128
    }
}

impl Fixture for Between {
    type Device = Worker;
    const MESSAGES: usize = 40_000;
    const CONNECTIONS: usize = 50;
    const TO_ONESELF_MIN: usize = 256;
    const READ_MODE: ReadMode = ReadMode::Copied;

    fn usual() -> Worker {
        worker(Self::machine())
    }

    fn narrow(message_max: u32) -> Worker {
        narrow_worker(Self::machine(), message_max)
    }
}

device_contract! { Between:
    every_size_arrives_with_and_without_immediate
    a_full_way_refuses_messages_and_keeps_their_order
    messages_go_both_ways_at_once
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
    a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes
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
}

/// All workers are on one machine.
mod within {
    use super::*;

    struct Within;

    impl Fixture for Within {
        type Device = Worker;
        const MODULE: &'static str = "within::";
        const MESSAGES: usize = Between::MESSAGES;
        const CONNECTIONS: usize = Between::CONNECTIONS;
        const TO_ONESELF_MIN: usize = Between::TO_ONESELF_MIN;
        const READ_MODE: ReadMode = ReadMode::Direct;

        fn usual() -> Worker {
            worker(1)
        }

        fn narrow(message_max: u32) -> Worker {
            narrow_worker(1, message_max)
        }
    }

    device_contract! { Within:
        every_size_arrives_with_and_without_immediate
        peers_read_memory_that_a_worker_allocates
        a_full_way_refuses_messages_and_keeps_their_order
        messages_go_both_ways_at_once
        workers_on_two_threads_may_connect_at_once
        both_sides_see_a_disconnect_and_it_is_final
        the_number_of_a_forgotten_peer_is_given_again_and_the_old_one_is_none
        reads_and_messages_go_on_side_by_side
        buffers_of_reads_come_back_at_the_end
        withdrawn_buffers_are_returned_once
        a_message_that_was_taken_wakes_no_worker
        every_exchange_wakes_a_sleeping_worker
        room_wakes_its_sender
        a_disconnect_is_told_to_a_sleeping_worker
        a_death_wakes_a_sleeping_worker
        flushed_messages_arrive_before_the_death
        reads_of_a_peer_that_is_killed_come_back
    }
}

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

device_contract! { Between: all,
    a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes
}

/// All workers are on one machine.
mod within {
    use super::*;

    struct Within;

    impl Fixture for Within {
        type Device = Worker;
        const MODULE: &'static str = "within::";
        const MESSAGES: usize = Between::MESSAGES;
        const MAPS_REGIONS: bool = true;
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

//! The contract of a device over libibverbs in this process. What concerns sleeping, several
//! threads, other processes or very many bytes needs an RDMA device: `tests/verbs.rs`.

mod scripted;

use tagmatch_device::ReadMode;
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device::up;
use tagmatch_testkit::device_contract;
use tagmatch_verbs::Verbs;

use scripted::{config, install_one};

struct Scripted;

impl Fixture for Scripted {
    type Device = Verbs;
    const MESSAGES: usize = 2000;
    const CONNECTIONS: usize = 14;
    const TO_ONESELF_MIN: usize = 8;
    const READ_MODE: ReadMode = ReadMode::Direct;

    fn usual() -> Verbs {
        install_one();
        up(Verbs::new(config("a")).unwrap())
    }

    fn narrow(message_max: u32) -> Verbs {
        install_one();
        let config = config("a").message_max(message_max);
        let config = config.receive_buffers(32).queue_depth(32).send_buffers(4);
        up(Verbs::new(config).unwrap())
    }
}

device_contract! { Scripted:
    every_size_arrives_with_and_without_immediate
    a_full_way_refuses_messages_and_keeps_their_order
    messages_of_one_peer_keep_none_of_another_back
    a_worker_sends_messages_to_itself
    workers_that_connect_at_once_get_one_connection
    both_sides_see_a_disconnect_and_it_is_final
    a_closed_worker_refuses_connections
    addresses_of_other_devices_are_refused
    connections_that_end_leave_no_descriptors
    peers_read_memory_that_a_worker_allocates
    reads_of_every_size_arrive
    reads_and_messages_go_on_side_by_side
    withdrawn_buffers_are_returned_once
    a_read_from_a_peer_that_is_not_up_is_refused
    a_message_to_oneself_wakes_a_sleeping_worker
}

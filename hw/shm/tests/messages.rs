//! Messages between workers of one process, and the ways in which workers connect.

mod common;

use tagmatch_device::{Device, DeviceError, DownReason};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device_contract;

use common::{Owned, connect, shm, wait_for};

struct OnShm;

impl Fixture for OnShm {
    type Device = Shm;
    const MESSAGES: usize = 200_000;
    const CONNECTIONS: usize = 200;
    const TO_ONESELF_MIN: usize = 256;

    fn usual() -> Shm {
        shm(ShmConfig::default())
    }

    fn narrow(message_max: u32) -> Shm {
        shm(ShmConfig { ring_slots: 8, ring_bytes: 8192, message_max, ..ShmConfig::default() })
    }
}

device_contract! { OnShm:
    every_size_arrives_with_and_without_immediate
    a_full_way_refuses_messages_and_keeps_their_order
    messages_go_both_ways_at_once
    a_worker_sends_messages_to_itself
    workers_that_connect_at_once_get_one_connection
    workers_on_two_threads_may_connect_at_once
    forty_workers_exchange_messages
    both_sides_see_a_disconnect_and_it_is_final
    addresses_of_other_devices_are_refused
    a_connection_to_a_busy_listener_is_tried_again
    connections_that_end_leave_no_descriptors
    connections_that_end_leave_no_mappings
}

#[test]
fn the_limit_on_peers_holds() {
    let mut a = shm(ShmConfig { peers_max: 2, ..ShmConfig::default() });
    let mut others: Vec<Shm> = (0..3).map(|_| shm(ShmConfig::default())).collect();
    connect(&mut a, &mut others[0]);
    let (_, second) = connect(&mut a, &mut others[1]);
    let address = others[2].address();
    assert!(matches!(a.connect(&address), Err(DeviceError::Exhausted { .. })));
    let refused = others[2].connect(&a.address()).unwrap();
    wait_for(&mut [&mut a, &mut others[2]], "a refusal", |index, event| match (index, event) {
        (1, Owned::Down(peer, DownReason::Unreachable { .. })) if peer == refused => Some(()),
        other => panic!("{other:?}"),
    });
    // A peer that leaves makes room for another one.
    others[1].disconnect(second);
    wait_for(&mut [&mut a], "the peer's end", |_, event| {
        matches!(event, Owned::Down(..)).then_some(())
    });
    let mut fourth = shm(ShmConfig::default());
    connect(&mut a, &mut fourth);
}

//! Messages between workers of one process, and the ways in which workers connect.

mod common;

use std::time::Instant;

use tagmatch_device::{Device, DownReason, Flush, Refused};
use tagmatch_tcp::{Tcp, TcpConfig};
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device_contract;

use common::{Owned, PATIENCE, config, connect, message, pattern, poll, tcp, wait_for};

struct OnTcp;

impl Fixture for OnTcp {
    type Device = Tcp;
    const MESSAGES: usize = 60_000;
    const CONNECTIONS: usize = 100;
    const TO_ONESELF_MIN: usize = 1000;

    fn usual() -> Tcp {
        tcp(config())
    }

    fn narrow(message_max: u32) -> Tcp {
        tcp(TcpConfig { outbox_bytes: 4096, message_max, ..config() })
    }
}

device_contract! { OnTcp:
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
}

#[test]
fn a_flush_after_a_disconnect_waits_for_acknowledgements() {
    let (mut a, mut b) = (tcp(config()), tcp(config()));
    let (to_b, _) = connect(&mut a, &mut b);
    // More than the kernel holds for a receiver that doesn't receive.
    let bytes = pattern(1, 60_000);
    let mut sent = 0;
    while a.send(to_b, message(&bytes)) != Err(Refused::Full) {
        sent += 1;
        assert!(a.poll().is_none());
    }
    a.disconnect(to_b);
    assert!(matches!(poll(&mut a), Some(Owned::Down(_, DownReason::Disconnected))));
    let mut mark = None;
    assert!(matches!(a.flush(to_b, &mut mark), Flush::Pending { messages } if messages > 0));
    let mut got = 0;
    wait_for(&mut [&mut a, &mut b], "all messages", |_, event| {
        got += usize::from(matches!(event, Owned::Message(..)));
        (got == sent).then_some(())
    });
    let start = Instant::now();
    while a.flush(to_b, &mut mark) != Flush::Done {
        assert!(start.elapsed() < PATIENCE);
        assert!(poll(&mut a).is_none());
        poll(&mut b);
    }
}

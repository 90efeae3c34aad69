//! The contract of devices, kept by shared memory.

mod common;

use std::time::Duration;

use tagmatch_device::{Buffer, Device, DeviceError, DownReason, ReadMode, ReadRequest};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::device_contract;

use common::{Owned, READER, connect, message, pattern, poll, shm, wait_for};

struct OnShm;

impl Fixture for OnShm {
    type Device = Shm;
    const MESSAGES: usize = 200_000;
    const MAPS_REGIONS: bool = true;
    const CONNECTIONS: usize = 200;
    const TO_ONESELF_MIN: usize = 256;
    /// Twice the messages after which another ring has its turn.
    const BEFORE_ANOTHER_MAX: usize = 64;
    const READ_MODE: ReadMode = ReadMode::Direct;

    fn usual() -> Shm {
        shm(ShmConfig::default())
    }

    fn narrow(message_max: u32) -> Shm {
        shm(narrow().message_max(message_max))
    }
}

fn narrow() -> ShmConfig {
    ShmConfig::default().ring_bytes(16 << 10)
}

device_contract! { OnShm: all,
    forty_workers_exchange_messages,
    a_connection_to_a_busy_listener_is_tried_again,
    connections_that_end_leave_no_mappings,
    accesses_of_every_size_move_their_bytes,
    an_access_that_its_region_does_not_allow_changes_nothing,
    elements_are_changed_where_their_region_grants_it,
    no_access_is_done_once_its_region_is_unpublished,
    buffers_of_accesses_come_back_before_the_end_of_their_peer,
    a_region_with_a_base_is_found_by_its_key_until_it_is_closed,
    a_region_that_is_closed_under_a_writer_is_left_alone
}

/// Where the kernel forbids one process to read another's memory, and has no membarrier(2).
mod copied {
    use super::*;

    struct Copied;

    impl Fixture for Copied {
        type Device = Shm;
        const MODULE: &'static str = "copied::";
        const READ_MODE: ReadMode = ReadMode::Copied;
        const MESSAGES: usize = OnShm::MESSAGES;
        const MAPS_REGIONS: bool = true;
        const CONNECTIONS: usize = OnShm::CONNECTIONS;
        const TO_ONESELF_MIN: usize = OnShm::TO_ONESELF_MIN;

        fn usual() -> Shm {
            // No sweep finds what nobody was woken for.
            let read = ReadPolicy::Copied;
            let sweep_interval = Duration::from_secs(3600);
            shm(ShmConfig::default().read(read).sweep_interval(sweep_interval).membarrier(false))
        }

        fn narrow(message_max: u32) -> Shm {
            shm(narrow().membarrier(false).message_max(message_max))
        }
    }

    device_contract! { Copied:
        reads_of_every_size_arrive
        a_bad_span_fails_its_read_and_no_other
        a_read_of_a_buffer_that_is_withdrawn_meanwhile_fails_and_takes_no_other_bytes
        reads_and_messages_go_on_side_by_side
        buffers_of_reads_come_back_at_the_end
        every_exchange_wakes_a_sleeping_worker
        room_wakes_its_sender
        reads_of_a_peer_that_is_killed_come_back
        a_reader_that_is_killed_leaves_the_buffer_to_its_owner
    }
}

/// Each piece of a read waits for room.
mod copied_through_small_rings {
    use super::*;

    struct Small;

    impl Fixture for Small {
        type Device = Shm;
        const READ_MODE: ReadMode = ReadMode::Copied;
        const MESSAGES: usize = OnShm::MESSAGES / 4;
        const MAPS_REGIONS: bool = true;
        const CONNECTIONS: usize = OnShm::CONNECTIONS;
        const TO_ONESELF_MIN: usize = OnShm::TO_ONESELF_MIN;

        fn usual() -> Shm {
            Small::narrow(1024)
        }

        fn narrow(message_max: u32) -> Shm {
            shm(narrow().read(ReadPolicy::Copied).message_max(message_max))
        }
    }

    device_contract! { Small:
        reads_of_every_size_arrive
        reads_and_messages_go_on_side_by_side
    }
}

#[test]
fn the_limit_on_peers_holds() {
    let mut a = shm(ShmConfig::default().peers_max(2));
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

#[test]
fn a_copied_read_ends_although_half_of_the_ring_is_always_in_use() {
    let small = || {
        let read = ReadPolicy::Copied;
        shm(narrow().read(read).ring_bytes(4096).message_max(1024))
    };
    let mut a = small();
    let mut b = small();
    let (to_b, to_a) = connect(&mut a, &mut b);
    let exposure = b.expose(READER, Buffer::from(pattern(3, 10_000))).unwrap();
    let remote = exposure.span;
    a.read(ReadRequest { peer: to_b, remote, into: Buffer::zeroed(10_000), token: 5 }).unwrap();
    let mut under_way = 0;
    let is_done = (0..100_000).any(|_| {
        // Messages always take 40 of the 64 lines.
        while under_way < 40 && b.send(to_a, message(b"flood")).is_ok() {
            under_way += 1;
        }
        assert!(poll(&mut b).is_none());
        match poll(&mut a) {
            Some(Owned::Message(..)) => under_way -= 1,
            Some(Owned::ReadDone(5, into, Ok(()))) => {
                assert!(into[..] == pattern(3, 10_000)[..]);
                return true;
            }
            None => {}
            Some(other) => panic!("{other:?}"),
        }
        false
    });
    assert!(is_done, "the read never ends");
}

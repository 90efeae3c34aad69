//! Tests of the verbs device on an RDMA device. `ci/test roce` runs them on soft-RoCE; with another
//! RDMA device, run `cargo test -p tagmatch-verbs --test verbs -- --ignored`.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use common::{Owned, PATIENCE, READER, connect, message, pattern, poll, up, wait_for};
use tagmatch_device::{
    Buffer, Device, DeviceError, DownReason, Outgoing, PeerId, RawMemory, ReadError, ReadMode,
    ReadRequest, Refused, RemoteSpan,
};
use tagmatch_secret::Secret;
use tagmatch_testkit::contract::Fixture;
use tagmatch_testkit::{device as common, device_contract};
use tagmatch_verbs::{Verbs, VerbsConfig};

fn verbs(config: VerbsConfig) -> Verbs {
    up(Verbs::new(config).unwrap())
}

fn pair() -> (Verbs, Verbs, PeerId, PeerId) {
    let mut a = verbs(VerbsConfig::default());
    let mut b = verbs(VerbsConfig::default());
    let (to_b, from_a) = connect(&mut a, &mut b);
    (a, b, to_b, from_a)
}

struct OnVerbs;

impl Fixture for OnVerbs {
    type Device = Verbs;
    const MESSAGES: usize = 2000;
    const CONNECTIONS: usize = 14;
    const TO_ONESELF_MIN: usize = 8;
    const READ_MODE: ReadMode = ReadMode::Direct;
    const KILLED: DownReason = DownReason::Gone;

    /// A NIC that hears nothing gives up after minutes: the kernel tells of the dead.
    fn usual() -> Verbs {
        verbs(VerbsConfig::default().ack_timeout(Some(22)))
    }

    fn narrow(message_max: u32) -> Verbs {
        let receive_buffers = 32;
        let queue_depth = 32;
        let send_buffers = 4;
        let config = VerbsConfig::default()
            .message_max(message_max)
            .receive_buffers(receive_buffers)
            .queue_depth(queue_depth)
            .send_buffers(send_buffers);
        verbs(config)
    }
}

// Left out: what isn't exposed ends the connection (below), and a receiver that doesn't poll has
// room for one message of its peer.
device_contract! { #[ignore = "needs an RDMA device: ci/test roce"] OnVerbs:
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
    peers_read_memory_that_a_worker_allocates
    reads_of_every_size_arrive
    reads_and_messages_go_on_side_by_side
    buffers_of_reads_come_back_at_the_end
    withdrawn_buffers_are_returned_once
    a_read_from_a_peer_that_is_not_up_is_refused
    a_message_to_oneself_wakes_a_sleeping_worker
    every_exchange_wakes_a_sleeping_worker
    the_end_of_a_flush_wakes_a_sleeping_worker
    room_wakes_its_sender
    connections_messages_and_ends_wake_a_sleeping_worker
    a_disconnect_is_told_to_a_sleeping_worker
    a_death_wakes_a_sleeping_worker
    a_death_in_the_middle_of_a_stream_is_noticed
    nothing_is_lost_when_a_process_drops_its_device_and_exits
    reads_of_a_peer_that_is_killed_come_back
    a_reader_that_is_killed_leaves_the_buffer_to_its_owner
}

fn expect_message(device: &mut Verbs, from: PeerId, immediate: Option<u32>, bytes: &[u8]) {
    wait_for(&mut [device], "a message", |_, event| match event {
        Owned::Message(peer, got_immediate, got) => {
            assert_eq!((peer, got_immediate, got.len()), (from, immediate, bytes.len()));
            assert!(got == bytes);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

/// Polls both devices until a read of `a`'s has ended, and returns its result.
fn read_result(a: &mut Verbs, b: &mut Verbs, token: u64) -> (Buffer, Result<(), ReadError>) {
    wait_for(&mut [a, b], "the end of a read", |_, event| match event {
        Owned::ReadDone(got, into, result) => {
            assert_eq!(got, token);
            Some((into, result))
        }
        _ => None,
    })
}

fn down_reason(devices: &mut [&mut Verbs], of: usize, wanted: PeerId) -> DownReason {
    wait_for(devices, "a peer's end", |index, event| match event {
        Owned::Down(peer, reason) if index == of => {
            assert_eq!(peer, wanted);
            Some(reason)
        }
        _ => None,
    })
}

/// How often the RDMA devices of this machine have told a sender that a receiver isn't ready (RNR),
/// by the counters of soft-RoCE and mlx5.
fn receivers_not_ready() -> u64 {
    let mut found = 0;
    let mut counted = 0;
    for device in std::fs::read_dir("/sys/class/infiniband").unwrap() {
        for port in std::fs::read_dir(device.unwrap().path().join("ports")).unwrap() {
            let counters = port.unwrap().path().join("hw_counters");
            for name in ["send_rnr_err", "out_of_buffer"] {
                if let Ok(count) = std::fs::read_to_string(counters.join(name)) {
                    counted += count.trim().parse::<u64>().unwrap();
                    found += 1;
                }
            }
        }
    }
    assert!(found > 0, "no device has such a counter");
    counted
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn streams_both_ways_keep_their_order_and_stop_at_their_credits() {
    let config = VerbsConfig::default().receive_buffers(32).queue_depth(32).send_buffers(4);
    let mut a = verbs(config.clone());
    let mut b = verbs(config);
    let (to_b, to_a) = connect(&mut a, &mut b);
    let not_ready = receivers_not_ready();
    let mut refused = 0;
    let mut sent = [0u32; 2];
    let mut received = [0u32; 2];
    let start = Instant::now();
    while received.iter().any(|count| *count < 2000) {
        for (side, (device, peer)) in [(&mut a, to_b), (&mut b, to_a)].into_iter().enumerate() {
            for _ in 0..40 {
                if sent[side] == 2000 {
                    break;
                }
                let length = (sent[side] * 37 % 900) as usize;
                let payload = pattern(sent[side] as usize, length);
                let header = sent[side].to_le_bytes();
                match device
                    .send(peer, Outgoing { header: &header, payload: &payload, immediate: None })
                {
                    Ok(()) => sent[side] += 1,
                    Err(Refused::Full) => {
                        refused += 1;
                        break;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
        for (side, device) in [&mut a, &mut b].into_iter().enumerate() {
            for _ in 0..60 {
                let Some(event) = poll(device) else { break };
                let Owned::Message(_, None, bytes) = event else { panic!("{event:?}") };
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                assert_eq!(number, received[side], "side {side}");
                assert!(bytes[4..] == pattern(number as usize, (number * 37 % 900) as usize));
                received[side] += 1;
            }
        }
        assert!(start.elapsed() < 3 * PATIENCE, "{sent:?} sent, {received:?} received");
    }
    assert!(refused > 0, "no queue was ever full");
    assert_eq!(receivers_not_ready(), not_ready, "with credits, every message finds a buffer");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_receiver_that_does_not_poll_stops_its_sender() {
    let (mut a, mut b, to_b, from_a) = pair();
    let mut under_way = VecDeque::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        let bytes = pattern(under_way.len(), 100);
        if a.send(to_b, message(&bytes)) == Ok(()) {
            under_way.push_back(bytes);
        }
        assert!(poll(&mut a).is_none());
    }
    assert_eq!(under_way.len(), 1, "an idle peer holds one credit");
    while let Some(bytes) = under_way.pop_front() {
        expect_message(&mut b, from_a, None, &bytes);
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn more_reads_than_may_be_under_way_end_in_order() {
    let (mut a, mut b, to_b, _) = pair();
    let spans: Vec<_> =
        (0..40).map(|n| b.expose(READER, Buffer::from(pattern(n, 5000))).unwrap().span).collect();
    for (token, remote) in (0u64..).zip(&spans) {
        let into = Buffer::zeroed(5000);
        a.read(ReadRequest { peer: to_b, remote: *remote, into, token }).unwrap();
    }
    for token in 0..40 {
        let (into, result) = read_result(&mut a, &mut b, token);
        assert_eq!(result, Ok(()));
        assert!(into[..] == pattern(token as usize, 5000)[..]);
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn registered_memory_is_kept_for_the_next_and_no_longer_than_allowed() {
    const LENGTH: usize = 100_000;
    let mut device = verbs(VerbsConfig::default().idle_memory_max(1 << 18));
    let describe = |buffer: &Buffer| format!("{buffer:?}");
    let short = device.allocate(100).unwrap();
    assert_eq!(
        describe(&short),
        "Buffer(100 bytes, owned)",
        "a short buffer is copied, not registered"
    );
    let mut first = device.allocate(LENGTH).unwrap();
    assert_eq!(describe(&first), "Buffer(100000 bytes, lent by a device)");
    assert_eq!(first.as_mut_slice().unwrap().len(), LENGTH);
    first.as_mut_slice().unwrap().fill(7);
    assert_eq!(first.clone().into_vec(), vec![7; LENGTH]);
    // The key stays the same from one exposure to the next, also for another buffer in the same
    // memory.
    let exposure = device.expose(READER, first).unwrap();
    let first = device.withdraw(READER, exposure.id).unwrap();
    let place = first.as_ptr();
    let key = exposure.span.key;
    drop(first);
    let second = device.allocate(LENGTH + 1000).unwrap();
    assert_eq!((second.as_ptr(), second.len()), (place, LENGTH + 1000));
    let exposure = device.expose(READER, second).unwrap();
    assert_eq!((exposure.span.key, exposure.span.length), (key, LENGTH as u64 + 1000));
    let second = device.withdraw(READER, exposure.id).unwrap();
    // Two buffers of 128 KiB are kept; further ones are freed.
    let many: Vec<_> = (0..4).map(|_| device.allocate(LENGTH).unwrap()).collect();
    let mut places: Vec<_> = many.iter().map(|buffer| buffer.as_ptr()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4, "two buffers share memory");
    assert!(!places.contains(&place), "a buffer got memory that is in use");
    drop((many, second));
    // A buffer may outlive its device, and be dropped by any thread.
    let last = device.allocate(LENGTH).unwrap();
    drop(device);
    std::thread::spawn(move || assert_eq!(last.len(), LENGTH)).join().unwrap();
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn registered_memory_is_read_from_and_into() {
    let (mut a, mut b, to_b, _) = pair();
    let bytes = pattern(5, 300_000);
    for round in 0..3u64 {
        let mut out = b.allocate(bytes.len()).unwrap();
        out.as_mut_slice().unwrap().copy_from_slice(&bytes);
        let exposure = b.expose(READER, out).unwrap();
        let into = a.allocate(bytes.len()).unwrap();
        let remote = exposure.span;
        a.read(ReadRequest { peer: to_b, remote, into, token: round }).unwrap();
        let (into, result) = read_result(&mut a, &mut b, round);
        assert_eq!(result, Ok(()));
        assert!(into[..] == bytes[..]);
        // Memory of another device's pool is registered like any other.
        let exposure = a.expose(READER, b.withdraw(READER, exposure.id).unwrap()).unwrap();
        assert_ne!(exposure.span.key, remote.key);
        drop(a.withdraw(READER, exposure.id));
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_read_of_what_is_not_exposed_ends_that_connection_alone() {
    let (mut a, mut b, to_b, from_a) = pair();
    let mut c = verbs(VerbsConfig::default());
    let (to_c, _) = connect(&mut a, &mut c);
    let exposure = b.expose(READER, Buffer::from(pattern(1, 4096))).unwrap();
    let beyond = RemoteSpan { length: 4097, ..exposure.span };
    let kept = b.expose(READER, Buffer::from(pattern(2, 4096))).unwrap();
    let first = Buffer::zeroed(4097);
    let second = Buffer::zeroed(4096);
    a.read(ReadRequest { peer: to_b, remote: beyond, into: first, token: 1 }).unwrap();
    a.read(ReadRequest { peer: to_b, remote: kept.span, into: second, token: 2 }).unwrap();
    assert_eq!(read_result(&mut a, &mut b, 1).1, Err(ReadError::BadSpan));
    assert_eq!(read_result(&mut a, &mut b, 2).1, Err(ReadError::PeerDown));
    let reason = down_reason(&mut [&mut a, &mut b], 0, to_b);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::EFAULT });
    assert_eq!(a.send(to_b, message(b"more")), Err(Refused::Down));
    down_reason(&mut [&mut b], 0, from_a);
    assert!(b.withdraw(READER, exposure.id).is_some());
    // Other connections keep working.
    a.send(to_c, message(b"still here")).unwrap();
    wait_for(&mut [&mut a, &mut c], "a message", |index, event| match event {
        Owned::Message(_, _, bytes) => {
            assert_eq!((index, &bytes[..]), (1, &b"still here"[..]));
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn an_absent_or_closed_worker_is_detected() {
    let config = VerbsConfig::default().connect_timeout(Duration::from_millis(400));
    let mut a = verbs(config.clone());
    let mut b = verbs(config.clone());
    let gone = verbs(config).address();
    let nobody = a.connect(&gone).unwrap();
    assert_eq!(a.send(nobody, message(&[])), Err(Refused::NotUp));
    let reason = down_reason(&mut [&mut a], 0, nobody);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ETIMEDOUT });
    b.close();
    let closed = a.connect(&b.address()).unwrap();
    let reason = down_reason(&mut [&mut a, &mut b], 0, closed);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
    assert_eq!(a.connect(&b.address()).unwrap(), closed);
    assert_eq!(a.send(closed, message(&[])), Err(Refused::Down));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn workers_of_one_job_connect_and_no_others() {
    let job = |byte| Some(Secret::from_bytes(&[byte; 16]).unwrap());
    let with = |secret| {
        let connect_timeout = Duration::from_millis(400);
        verbs(VerbsConfig::default().secret(secret).connect_timeout(connect_timeout))
    };
    for (callers, listeners) in [(job(1), None), (None, job(1)), (job(1), job(2))] {
        let mut a = with(callers);
        let mut b = with(listeners);
        let to_b = a.connect(&b.address()).unwrap();
        match down_reason(&mut [&mut a, &mut b], 0, to_b) {
            DownReason::Misbehaved { what } => assert!(what.contains("the job's secret")),
            other => panic!("{other:?}"),
        }
        assert!(b.peer_address(PeerId(1)).is_none(), "a worker of another job is no peer");
    }
    connect(&mut with(job(1)), &mut with(job(1)));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn memory_that_is_not_there_is_not_registered() {
    let mut device = verbs(VerbsConfig::default());
    let nowhere = NonNull::new(ptr::without_provenance_mut(1 << 40)).unwrap();
    // SAFETY: no buffer is made of it.
    let memory = unsafe { RawMemory::new(nowhere, 8192) }.unwrap();
    let refused = device.register(memory);
    assert!(matches!(refused, Err(DeviceError::System { call: "ibv_reg_mr", .. })), "{refused:?}");
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn idle_peers_take_little_memory() {
    const PEERS: u64 = 24;
    let mut center = verbs(VerbsConfig::default());
    let mut others: Vec<_> = (0..PEERS).map(|_| verbs(VerbsConfig::default())).collect();
    let before = resident_bytes();
    for other in &mut others {
        connect(other, &mut center);
    }
    // Each connection has two ends here. Soft-RoCE's send queues are longer than others'.
    let resident = resident_bytes().saturating_sub(before) / (2 * PEERS);
    assert!(resident < 112 << 10, "an idle peer takes {resident} bytes");
}

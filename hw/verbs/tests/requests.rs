//! What the device asks of libibverbs: queue pairs, partitions, registered memory, handles.

mod scripted;

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use tagmatch_device::{
    Buffer, Device, DeviceError, EventDescriptor, PeerId, RawMemory, ReadRequest, Refused,
    Registered,
};
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_rdma_core_sys as sys;
use tagmatch_testkit::device::{
    Owned, PATIENCE, READER, connect, message, pattern, poll, up, wait_for,
};
use tagmatch_verbs::{Verbs, VerbsConfig};

use scripted::{Calls, Card, calls, config, install, let_handles_wait};

/// Devices with these settings, which are used by all of them.
fn verbs(settings: &VerbsConfig) -> Verbs {
    up(Verbs::new(settings.clone()).unwrap())
}

fn card() -> Card {
    Card::infiniband("a", 1, 0)
}

/// The changes of queue pairs that set all of `mask`.
fn changes(mask: u32) -> Vec<sys::ibv_qp_attr> {
    let all = calls(|calls| calls.changes.clone());
    all.into_iter().filter(|(_, set)| set & mask == mask).map(|(attr, _)| attr).collect()
}

/// The changes that set all of `mask` while two devices connect with each other.
fn changes_of_pair(settings: &VerbsConfig, mask: u32) -> Vec<sys::ibv_qp_attr> {
    install(&[card()]);
    connect(&mut verbs(settings), &mut verbs(settings));
    changes(mask)
}

/// UCX survives an outage of 5 s: its default is a timeout of 1.07 s and 7 retries
/// (`src/uct/ib/rc/base/rc_iface.c`).
#[test]
fn a_queue_pair_goes_on_sending_through_an_outage_of_five_seconds() {
    let found = changes_of_pair(&config("a"), sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT);
    assert_eq!(found.len(), 2);
    for attr in found {
        let each = Duration::from_nanos(4096 << attr.timeout);
        let all = each * (u32::from(attr.retry_cnt) + 1);
        assert!(all > Duration::from_secs(7), "{} retries of {each:?}", attr.retry_cnt);
    }
}

/// irdma, i40iw and others allow 101, 96, 64 or 48 bytes, and refuse more.
#[test]
fn messages_are_carried_inline_as_far_as_the_device_allows() {
    for limit in [101, 48, 16, 1, 0] {
        install(&[Card { inline_max: limit, ..card() }]);
        let [mut a, mut b, mut c] = [(); 3].map(|()| verbs(&config("a")));
        let (to_b, from_a) = connect(&mut a, &mut b);
        // The device is asked for what it allows, which a first queue pair has found out.
        calls(|calls| calls.inline_sizes.clear());
        connect(&mut a, &mut c);
        let sizes = calls(|calls| calls.inline_sizes.clone());
        assert_eq!(sizes.first(), Some(&limit), "{sizes:?}");
        for length in [0, limit as usize, limit as usize + 1] {
            let bytes = vec![7; length];
            // Credits come back while both sides poll.
            while a.send(to_b, message(&bytes)) == Err(Refused::Full) {
                assert!(poll(&mut a).is_none() && poll(&mut b).is_none());
            }
            let received = wait_for(&mut [&mut b], "a message", |_, event| match event {
                Owned::Message(from, None, bytes) => Some((from, bytes)),
                other => panic!("{other:?}"),
            });
            assert_eq!(received, (from_a, bytes));
        }
    }
}

#[test]
fn what_a_user_sets_reaches_the_queue_pairs() {
    let settings = config("a")
        .service_level(Some(3))
        .traffic_class(Some(106))
        .ack_timeout(Some(17))
        .retry_count(Some(5))
        .mtu(Some(512));
    let paths = changes_of_pair(&settings, sys::IBV_QP_PATH_MTU);
    assert_eq!(paths.len(), 2);
    for attr in paths {
        // The code of 512 bytes.
        assert_eq!((attr.path_mtu, attr.ah_attr.sl), (2, 3));
        assert!(attr.ah_attr.is_global == 0 || attr.ah_attr.grh.traffic_class == 106);
    }
    let times = changes(sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT);
    assert!(times.iter().all(|attr| (attr.timeout, attr.retry_cnt) == (17, 5)));
}

/// Row 0 of a port may be a limited key, whose holders don't reach each other, or that of another
/// job.
#[test]
fn queue_pairs_are_in_the_first_partition_with_full_membership_or_in_the_one_that_is_set() {
    let partition_keys = vec![0x7fff, 0x8005, 0x8001, 0xffff];
    install(&[Card { partition_keys, ..card() }]);
    let with = |partition_key| {
        calls(|calls| calls.changes.clear());
        let settings = config("a").partition_key(partition_key);
        let mut a = verbs(&settings);
        let to_b = a.connect(&verbs(&settings).address());
        assert!(to_b.is_ok(), "{to_b:?}");
        // The queue pairs for datagrams and the one for the connection.
        let rows = changes(sys::IBV_QP_PKEY_INDEX);
        let rows: Vec<u16> = rows.iter().map(|attr| attr.pkey_index).collect();
        (a, rows)
    };
    let (mut default, rows) = with(None);
    assert_eq!(rows, [1, 1, 1]);
    let (set, rows) = with(Some(1));
    assert_eq!(rows, [2, 2, 2]);
    let error = default.connect(&set.address()).unwrap_err().to_string();
    for words in ["0x8005", "0x8001", "TAGMATCH_VERBS_PARTITION_KEY"] {
        assert!(error.contains(words), "{error}");
    }
    let error = Verbs::new(config("a").partition_key(Some(9))).unwrap_err();
    assert!(matches!(error, DeviceError::InvalidValue { setting: "partition_key", .. }), "{error}");
}

/// The regions that are registered now.
fn regions() -> usize {
    calls(|Calls { accesses, unregistered, .. }| accesses.len() - *unregistered)
}

/// The regions that were ever registered.
fn registered_ever() -> usize {
    calls(|calls| calls.accesses.len())
}

/// Has a device register its own buffers, as it does before it registers a user's first one.
fn settle(device: &mut Verbs) {
    let exposure = device.expose(READER, Buffer::default()).unwrap();
    assert!(device.withdraw(READER, exposure.id).is_some());
}

#[test]
fn a_region_is_unregistered_once_it_has_lingered() {
    for linger in [Duration::ZERO, Duration::from_millis(50)] {
        install(&[card()]);
        let mut device = verbs(&config("a").linger(linger));
        settle(&mut device);
        let before = regions();
        let exposure = device.expose(READER, Buffer::from(vec![7; 100_000])).unwrap();
        assert_eq!(regions(), before + 1);
        assert!(device.withdraw(READER, exposure.id).is_some());
        // Nothing was polled, so it lingers, however much time has passed.
        assert_eq!(regions(), before + usize::from(!linger.is_zero()));
        // A sleeper without peers is woken for it, too.
        let start = Instant::now();
        while regions() > before {
            assert!(start.elapsed() < PATIENCE, "still registered");
            if device.arm(&[]) {
                let descriptor = device.event_descriptor();
                let is_woken = sleep_until_readable(&[descriptor.as_fd()], PATIENCE).unwrap();
                assert!(is_woken, "not woken though a region lingers");
                device.disarm();
            }
            assert!(poll(&mut device).is_none());
        }
    }
}

fn registered(device: &mut Verbs, memory: &mut [u8]) -> Registered {
    // SAFETY: the memory is freed after everything that is made of it.
    let memory = unsafe { RawMemory::new(NonNull::from(&mut *memory).cast(), memory.len()) };
    device.register(memory.unwrap()).unwrap()
}

#[test]
fn parts_of_registered_memory_are_not_registered_again() {
    const PART: usize = 100_000;
    install(&[card()]);
    let [mut a, mut b] = [(); 2].map(|()| verbs(&config("a")));
    let (to_b, _) = connect(&mut a, &mut b);
    let mut of_a = vec![0; 3 * PART];
    let mut of_b = pattern(5, 3 * PART);
    for node in [&mut a, &mut b] {
        settle(node);
    }
    let without = regions();
    let to = registered(&mut a, &mut of_a);
    let from = registered(&mut b, &mut of_b);
    assert_eq!(regions(), without + 2);
    let count = registered_ever();
    let ranges = [0..PART, PART..2 * PART, 2 * PART..3 * PART];
    // All parts are exposed and read at once.
    let exposed = ranges.clone().map(|range| {
        // SAFETY: the parts are only read.
        b.expose(READER, unsafe { from.read_only(range) }.unwrap()).unwrap()
    });
    let key = exposed[0].span.key;
    assert!(exposed.iter().all(|exposure| exposure.span.key == key));
    for ((token, range), exposure) in (0..).zip(ranges.clone()).zip(&exposed) {
        // SAFETY: the parts don't overlap.
        let into = unsafe { to.buffer(range) }.unwrap();
        a.read(ReadRequest { peer: to_b, remote: exposure.span, into, token }).unwrap();
    }
    for (token, range) in (0..).zip(ranges) {
        let (into, result) = wait_for(&mut [&mut a], "the end of a read", |_, event| match event {
            Owned::ReadDone(ended, into, result) => {
                assert_eq!(ended, token);
                Some((into, result))
            }
            _ => None,
        });
        assert_eq!(result, Ok(()));
        assert!(into[..] == pattern(5, 3 * PART)[range]);
    }
    let mut parts = exposed.map(|exposure| b.withdraw(READER, exposure.id).unwrap());
    assert_eq!(registered_ever(), count, "a part was registered");
    // Another device registers a part for its operation.
    let exposure = a.expose(READER, std::mem::take(&mut parts[0])).unwrap();
    assert_eq!((registered_ever(), regions()), (count + 1, without + 3));
    drop(a.withdraw(READER, exposure.id));
    // The last part ends the registration, after the handle and the device.
    drop((to, from));
    assert_eq!(regions(), without + 1, "it has no part");
    drop(b);
    let before = regions();
    drop(parts);
    assert_eq!(regions(), before - 1, "it is still registered");
}

#[test]
fn devices_and_idle_peers_register_little_memory() {
    const PEERS: usize = 24;
    install(&[card()]);
    let bytes = || calls(|calls| calls.registered_bytes);
    let mut center = verbs(&config("a"));
    assert!(bytes() < 640 << 10, "a device registers {} bytes", bytes());
    let mut others: Vec<_> = (0..PEERS).map(|_| verbs(&config("a"))).collect();
    let before = bytes();
    for other in &mut others {
        connect(other, &mut center);
    }
    // The center needed one more block of 64 receive buffers.
    let more = bytes() - before;
    assert!(more < 640 << 10, "{PEERS} idle peers take {more} registered bytes");
}

/// Polls until a peer has connected to `victim`, and returns it.
fn first_up(victim: &mut Verbs, others: &mut [Verbs]) -> PeerId {
    let mut devices: Vec<&mut Verbs> = std::iter::once(victim).chain(others).collect();
    wait_for(&mut devices, "a peer to come up", |index, event| match event {
        Owned::Up(peer, _) if index == 0 => Some(peer),
        _ => None,
    })
}

#[test]
fn requests_from_hosts_that_are_not_there_do_not_take_all_the_time() {
    install(&[card()]);
    let mut victim = verbs(&config("a"));
    let mut others: Vec<_> = (0..3).map(|_| verbs(&config("a"))).collect();
    for other in &mut others {
        other.connect(&victim.address()).unwrap();
        // Its request waits in the victim's queue.
        assert!(poll(other).is_none());
    }
    let_handles_wait(Duration::from_millis(60));
    let before = calls(|calls| calls.handles);
    first_up(&mut victim, &mut others);
    assert_eq!(calls(|calls| calls.handles) - before, 1, "only one slow handle was created");
    let_handles_wait(Duration::ZERO);
    // All connect in the end, since requests are repeated.
    for _ in 1..others.len() {
        first_up(&mut victim, &mut others);
    }
}

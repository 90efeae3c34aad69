//! Why connections end that fail at this worker's own end, and what asynchronous events do.

mod scripted;

use tagmatch_device::{Buffer, Device, DownReason, PeerId, ReadError, ReadRequest};
use tagmatch_rdma_core_sys as sys;
use tagmatch_testkit::device::{Owned, READER, connect, message, poll, read_end, wait_for};
use tagmatch_verbs::Verbs;

use scripted::{
    About, Card, Failure, break_queue_pairs, change, complete, counts, fail, fail_receive, install,
    raise, up,
};

/// Two workers that are connected, each on a device of its own.
fn pair() -> (Verbs, Verbs, PeerId) {
    install(&[Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 0)]);
    let mut a = up("a");
    let mut b = up("b");
    let (to_b, _) = connect(&mut a, &mut b);
    (a, b, to_b)
}

/// A message still arrives.
fn says_hello(from: &mut Verbs, to: &mut Verbs, peer: PeerId) {
    from.send(peer, message(b"hello")).unwrap();
    wait_for(&mut [from, to], "a message", |_, event| match event {
        Owned::Message(_, None, bytes) => {
            assert_eq!(bytes, b"hello");
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

/// The worker of a device that is gone.
fn nobody() -> Verbs {
    up("b")
}

fn failure(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Failed { what, .. } => what,
        other => panic!("{other:?}"),
    }
}

fn reason_of_the_end(worker: &mut Verbs, peer: PeerId) -> DownReason {
    wait_for(&mut [worker], "a peer's end", |_, event| match event {
        Owned::Down(down, reason) if down == peer => Some(reason),
        other => panic!("{other:?}"),
    })
}

#[test]
fn workers_on_scripted_devices_exchange_messages() {
    let (mut a, mut b, to_b) = pair();
    says_hello(&mut a, &mut b, to_b);
}

/// The peer lives: nothing is said of it.
#[test]
fn a_queue_pair_that_fails_here_is_said_to_fail_here() {
    let (mut a, _b, to_b) = pair();
    raise("a", sys::IBV_EVENT_QP_FATAL, About::QueuePairs);
    let what = failure(reason_of_the_end(&mut a, to_b));
    assert!(what.contains("IBV_EVENT_QP_FATAL"), "{what}");
}

/// The completion that was flushed comes first; the event that tells why is looked at before it.
#[test]
fn a_flushed_request_is_no_end_of_the_peer() {
    for has_event in [true, false] {
        let (mut a, _b, to_b) = pair();
        break_queue_pairs("a", sys::IBV_WC_WR_FLUSH_ERR);
        if has_event {
            raise("a", sys::IBV_EVENT_QP_FATAL, About::QueuePairs);
        }
        a.send(to_b, message(b"flushed")).unwrap();
        let expected = if has_event { "IBV_EVENT_QP_FATAL" } else { "IBV_WC_WR_FLUSH_ERR" };
        let what = failure(reason_of_the_end(&mut a, to_b));
        assert!(what.contains(expected), "{what}");
    }
}

/// A list of libmlx5 has a queue pair of its own. What that one flushes has any number.
#[test]
fn what_a_queue_pair_of_the_driver_flushes_ends_nothing() {
    let (mut a, mut b, to_b) = pair();
    let random = [0, 1, to_b.index() as u64, 77, 1 << 20, (1 << 24) - 1];
    for upper in random {
        for kind in [0, 1 << 61, 1 << 62] {
            for number in [0, 1, 5, u64::from(u32::MAX)] {
                complete("a", kind | upper << 32 | number, 9999, sys::IBV_WC_WR_FLUSH_ERR);
            }
        }
    }
    look(&mut a);
    says_hello(&mut a, &mut b, to_b);
}

/// All connections end, those that are being set up as well, and no other is tried.
#[test]
fn a_queue_that_fails_ends_what_it_serves_and_is_named() {
    let cases = [
        (sys::IBV_EVENT_CQ_ERR, About::CompletionQueue, "IBV_EVENT_CQ_ERR"),
        (sys::IBV_EVENT_SRQ_ERR, About::ReceiveQueue(0), "IBV_EVENT_SRQ_ERR"),
        (sys::IBV_EVENT_DEVICE_FATAL, About::Port, "IBV_EVENT_DEVICE_FATAL"),
    ];
    for (event, about, name) in cases {
        let (mut a, _b, to_b) = pair();
        let away = a.connect(&nobody().address()).unwrap();
        raise("a", event, about);
        let mut ended = Vec::new();
        wait_for(&mut [&mut a], "both ends", |_, event| {
            if let Owned::Down(peer, reason) = event {
                ended.push((peer, failure(reason).contains(name)));
            }
            (ended.len() == 2).then_some(())
        });
        ended.sort_unstable();
        assert_eq!(ended, [(to_b, true), (away, true)], "{name}");
        let refused = a.connect(&nobody().address()).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
}

/// What is connected goes on. Whoever calls the worker is told that it takes nobody.
#[test]
fn a_worker_whose_queue_pair_for_datagrams_has_failed_meets_nobody_any_more() {
    let (mut a, mut b, to_b) = pair();
    let away = a.connect(&nobody().address()).unwrap();
    raise("a", sys::IBV_EVENT_QP_FATAL, About::Datagrams);
    assert!(failure(reason_of_the_end(&mut a, away)).contains("datagrams"));
    let refused = a.connect(&nobody().address()).unwrap_err().to_string();
    assert!(refused.contains("datagrams"), "{refused}");
    let mut caller = nobody();
    let to_a = caller.connect(&a.address()).unwrap();
    let reason = wait_for(&mut [&mut a, &mut caller], "a refusal", |index, event| match event {
        Owned::Down(peer, reason) if index == 1 && peer == to_a => Some(reason),
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
    says_hello(&mut a, &mut b, to_b);
}

#[test]
fn a_peer_that_breaks_a_rule_goes_down_and_others_are_received() {
    let cases: [(fn(), &str); 2] = [
        (|| raise("a", sys::IBV_EVENT_QP_ACCESS_ERR, About::QueuePairs), "READ"),
        (|| fail_receive("a", sys::IBV_WC_LOC_LEN_ERR), "longer"),
    ];
    for (break_rule, rule) in cases {
        let (mut a, _b, to_b) = pair();
        break_rule();
        let reason = reason_of_the_end(&mut a, to_b);
        let is_told = matches!(reason, DownReason::Misbehaved { what } if what.contains(rule));
        assert!(is_told, "{reason:?}");
        let mut other = up("b");
        let (to_a, _) = connect(&mut other, &mut a);
        says_hello(&mut other, &mut a, to_a);
    }
}

/// Memory that can't be registered is read by messages.
#[test]
fn a_read_by_messages_gives_its_buffer_back_before_the_end_of_its_peer() {
    const LENGTH: usize = 1 << 20;
    let (mut a, mut b, to_b) = pair();
    // The device registers its own buffers before it registers others.
    let own = a.expose(READER, Buffer::default()).unwrap();
    assert!(a.withdraw(READER, own.id).is_some());
    let exposed = b.expose(READER, Buffer::from(vec![1; LENGTH])).unwrap();
    let number = counts()["ibv_reg_mr"];
    fail(Some(Failure { call: "ibv_reg_mr", number, errno: libc::ENOMEM }));
    let into = Buffer::zeroed(LENGTH);
    a.read(ReadRequest { peer: to_b, remote: exposed.span, into, token: 3 }).unwrap();
    assert_eq!(a.unregistered(), 1);
    raise("a", sys::IBV_EVENT_QP_FATAL, About::QueuePairs);
    let (into, result) = read_end(&mut [&mut a]);
    assert_eq!((into.len(), result), (LENGTH, Err(ReadError::PeerDown)));
    assert!(failure(reason_of_the_end(&mut a, to_b)).contains("IBV_EVENT_QP_FATAL"));
    assert!(b.withdraw(READER, exposed.id).is_some());
}

/// The peer's NIC refuses the first of two reads, and with it ends the connection.
#[test]
fn a_read_that_the_peer_refuses_is_bad_and_those_behind_it_are_not() {
    let (mut a, mut b, to_b) = pair();
    let exposed = b.expose(READER, Buffer::from(vec![1; 100_000])).unwrap();
    break_queue_pairs("a", sys::IBV_WC_REM_ACCESS_ERR);
    for token in 0..3 {
        let into = Buffer::zeroed(100_000);
        a.read(ReadRequest { peer: to_b, remote: exposed.span, into, token }).unwrap();
    }
    let results = [(); 3].map(|()| read_end(&mut [&mut a]).1);
    let behind = Err(ReadError::PeerDown);
    assert_eq!(results, [Err(ReadError::BadSpan), behind, behind]);
    assert!(b.withdraw(READER, exposed.id).is_some());
}

/// Each connection has two queue pairs where a NIC matches tags; here none has.
#[test]
fn the_queue_of_fins_serves_only_connections_with_two_queue_pairs() {
    let (mut a, mut b, to_b) = pair();
    raise("a", sys::IBV_EVENT_SRQ_ERR, About::ReceiveQueue(1));
    for _ in 0..1000 {
        assert!(poll(&mut a).is_none());
    }
    says_hello(&mut a, &mut b, to_b);
}

/// Polls long enough for the device to look at its events.
fn look(worker: &mut Verbs) {
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        for _ in 0..600 {
            assert!(poll(worker).is_none());
        }
    }
}

/// What it has connected goes on.
#[test]
fn an_address_that_the_port_has_lost_is_said_to_be_stale() {
    let events = [
        sys::IBV_EVENT_LID_CHANGE,
        sys::IBV_EVENT_GID_CHANGE,
        sys::IBV_EVENT_PKEY_CHANGE,
        sys::IBV_EVENT_CLIENT_REREGISTER,
    ];
    for event in events {
        let (mut a, mut b, to_b) = pair();
        // Nothing has changed yet.
        raise("a", event, About::Port);
        look(&mut a);
        assert!(a.connect(&nobody().address()).is_ok());
        change("a", |card| match event {
            sys::IBV_EVENT_GID_CHANGE => card.gids = Card::infiniband("a", 1, 7).gids,
            sys::IBV_EVENT_PKEY_CHANGE => card.partition_keys.insert(0, 0x8001),
            _ => card.port.lid = 5,
        });
        raise("a", event, About::Port);
        look(&mut a);
        let refused = a.connect(&nobody().address()).unwrap_err().to_string();
        assert!(refused.contains("another"), "{refused}");
        says_hello(&mut a, &mut b, to_b);
        // It comes back.
        change("a", |card| *card = Card::infiniband("a", 1, 0));
        raise("a", event, About::Port);
        look(&mut a);
        assert!(a.connect(&nobody().address()).is_ok());
    }
}

/// A key in another row changes nothing, nor does a table of a port of RoCE.
#[test]
fn a_partition_key_that_stays_in_its_row_stays_in_use() {
    let roce = |name, address| Card::roce(name, address, sys::IBV_GID_TYPE_ROCE_V2);
    let infiniband = [Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 0)];
    let ethernet = [roce("a", "::ffff:10.0.0.1"), roce("b", "::ffff:10.0.0.2")];
    for (cards, keys) in [(infiniband, vec![0xffff, 0x8001]), (ethernet, vec![])] {
        install(&cards);
        let mut a = up("a");
        change("a", |card| card.partition_keys = keys.clone());
        raise("a", sys::IBV_EVENT_PKEY_CHANGE, About::Port);
        look(&mut a);
        assert!(a.connect(&nobody().address()).is_ok());
    }
}

/// The row of the other version has the same address.
#[test]
fn an_address_that_the_port_has_for_the_other_version_of_roce_alone_is_stale() {
    let card = |kind| Card::roce("a", "::ffff:10.0.0.1", kind);
    let other = Card::roce("b", "::ffff:10.0.0.2", sys::IBV_GID_TYPE_ROCE_V2);
    install(&[card(sys::IBV_GID_TYPE_ROCE_V2), other]);
    let mut a = up("a");
    change("a", |found| *found = card(sys::IBV_GID_TYPE_ROCE_V1));
    raise("a", sys::IBV_EVENT_GID_CHANGE, About::Port);
    look(&mut a);
    let refused = a.connect(&nobody().address()).unwrap_err().to_string();
    assert!(refused.contains("another"), "{refused}");
}

/// Its own port has moved, so the peer's acknowledgements go elsewhere.
#[test]
fn silence_after_a_change_of_the_own_port_is_no_fault_of_the_peer() {
    for has_moved in [false, true] {
        let (mut a, _b, to_b) = pair();
        if has_moved {
            change("a", |card| card.port.lid = 5);
            raise("a", sys::IBV_EVENT_LID_CHANGE, About::Port);
        }
        break_queue_pairs("a", sys::IBV_WC_RETRY_EXC_ERR);
        a.send(to_b, message(b"lost")).unwrap();
        let reason = reason_of_the_end(&mut a, to_b);
        if has_moved {
            assert!(failure(reason).contains("another LID"), "{reason:?}");
        } else {
            assert_eq!(reason, DownReason::Unreachable { errno: libc::ETIMEDOUT });
        }
    }
}

thread_local! {
    static LOGGED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}\n", record.level(), record.args());
        LOGGED.with_borrow_mut(|logged| logged.push_str(&line));
    }

    fn flush(&self) {}
}

#[test]
fn what_happens_to_the_port_is_logged() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let (mut a, _b, _) = pair();
    change("a", |card| card.port.lid = 5);
    for event in
        [sys::IBV_EVENT_PORT_ERR, sys::IBV_EVENT_PORT_ACTIVE, sys::IBV_EVENT_CLIENT_REREGISTER]
    {
        raise("a", event, About::Port);
    }
    look(&mut a);
    let logged = LOGGED.take();
    for line in [
        "WARN a, port 1 is down (IBV_EVENT_PORT_ERR)",
        "INFO a, port 1 is up again",
        "INFO a, port 1: IBV_EVENT_CLIENT_REREGISTER",
        "WARN a, port 1: the port has another LID than this worker's address says",
    ] {
        assert!(logged.contains(line), "{line} is not in {logged}");
    }
}

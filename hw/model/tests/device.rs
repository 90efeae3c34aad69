//! The model NIC on a scripted device, event by event, and on shared memory end to end.

mod host;
mod script;

use tagmatch_device::{
    Buffer, Device, DownReason, Event, PeerId, ReadError, Refused, TagEvent, TagRefused,
};
use tagmatch_model::{Chance, Delay, Fault, Knobs, Model, ModelConfig};
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_testkit::device as common;

use host::{eager, rendezvous};
use script::{
    DeviceEvent, MESSAGE_MAX, ROOM, Script, Seen, add, exposed, message, model, poll, push_event,
    settle, try_add, with,
};

const A: PeerId = PeerId(1);

/// Short names of the events.
fn list(seen: &[Seen]) -> Vec<String> {
    let name = |event: &Seen| match event {
        Seen::Tag(TagEvent::Added { entry }) => format!("added {entry}"),
        Seen::Tag(TagEvent::Deleted { entry, buffer }) => {
            format!("deleted {entry} {}", buffer.is_some())
        }
        Seen::Tag(TagEvent::DeleteLost { entry }) => format!("lost {entry}"),
        Seen::Tag(TagEvent::Synced) => "synced".into(),
        Seen::Tag(TagEvent::Matched { entry, peer, tag, app_ctx }) => {
            format!("matched {entry} {} {tag} {app_ctx}", peer.0)
        }
        Seen::Tag(TagEvent::Landed { entry, length, .. }) => format!("landed {entry} {length}"),
        Seen::Tag(TagEvent::Incomplete { entry, .. }) => format!("incomplete {entry}"),
        Seen::Tag(TagEvent::Failed { entry, .. }) => format!("failed {entry}"),
        Seen::Message { peer, through_list, .. } => format!("message {} {through_list}", peer.0),
        Seen::Up(peer) => format!("up {}", peer.0),
        Seen::Down(peer, reason) => format!("down {} {reason:?}", peer.0),
        Seen::ReadDone(token, result) => format!("read {token} {result:?}"),
    };
    seen.iter().map(name).collect()
}

fn landed(seen: Vec<Seen>) -> Vec<u8> {
    let buffer = seen.into_iter().find_map(|event| match event {
        Seen::Tag(TagEvent::Landed { buffer, length, .. }) => {
            Some(buffer[..usize::try_from(length).unwrap()].to_vec())
        }
        _ => None,
    });
    buffer.expect("nothing has landed")
}

fn ctx(tag: u32) -> u32 {
    !tag
}

#[test]
fn an_eager_message_lands_in_the_buffer_of_its_entry() {
    for packet_bytes in [64, 4096] {
        let mut model = model(Knobs::default().packet_bytes(packet_bytes));
        add(&mut model, 70, 5, 0);
        push_event(&mut model, DeviceEvent::Message(A, eager(5, &[3; ROOM]), Some(9)));
        let seen = settle(&mut model);
        let matched = format!("matched 70 1 5 {}", ctx(5));
        assert_eq!(list(&seen), ["added 70", &matched, &format!("landed 70 {ROOM}")]);
        let immediate = seen.iter().find_map(|event| match event {
            Seen::Tag(TagEvent::Landed { immediate, .. }) => *immediate,
            _ => None,
        });
        assert_eq!(immediate, Some(9));
        assert_eq!(landed(seen), [3; ROOM]);
        assert_eq!(model.nic().slots_taken(), 0);
    }
}

#[test]
fn unexpected_messages_are_reported_in_order_with_matches() {
    let mut model = model(Knobs::default());
    add(&mut model, 1, 1, 0);
    push_event(&mut model, DeviceEvent::Up(A));
    message(&mut model, 1, eager(2, b"unexpected"));
    message(&mut model, 1, eager(1, b""));
    message(&mut model, 1, vec![0; 40]);
    let seen = settle(&mut model);
    let matched = format!("matched 1 1 1 {}", ctx(1));
    let expected = ["added 1", "up 1", "message 1 true", &matched, "landed 1 0", "message 1 false"];
    assert_eq!(list(&seen), expected);
    let Seen::Message { bytes, .. } = &seen[2] else { panic!("{:?}", seen[2]) };
    assert_eq!(*bytes, eager(2, b"unexpected"));
}

#[test]
fn a_rendezvous_is_read_through_the_device_and_its_fin_waits_for_room() {
    let mut model = model(Knobs::default());
    add(&mut model, 4, 5, 0);
    model.inner_mut().refuses = Some(Refused::Full);
    message(&mut model, 1, rendezvous(5, 40, 300));
    let seen = settle(&mut model);
    assert_eq!(list(&seen), ["added 4", &format!("matched 4 1 5 {}", ctx(5))]);
    // The device wakes up once there is room to send to this peer.
    assert!(model.arm(&[PeerId(3)]));
    assert_eq!(model.inner().armed_for, Some(vec![PeerId(3), A]));
    model.inner_mut().refuses = None;
    assert_eq!(landed(settle(&mut model)), exposed(40, 300));
    let mut fin = rendezvous(5, 40, 300);
    fin[0] = 2;
    assert_eq!(model.inner().sent, [(A, fin)]);
}

#[test]
fn a_rendezvous_that_does_not_fit_brings_its_headers() {
    let mut model = model(Knobs::default());
    add(&mut model, 4, 5, 0);
    let request = rendezvous(5, 40, u32::MAX);
    message(&mut model, 1, request.clone());
    let seen = settle(&mut model);
    let Some(Seen::Tag(TagEvent::Incomplete { entry: 4, buffer })) = seen.last() else {
        panic!("{seen:?}")
    };
    assert_eq!(buffer[..32], request);
    assert!(model.inner().sent.is_empty());
}

#[test]
fn unusable_buffers_are_returned() {
    let mut model = model(Knobs::default());
    let read_only = Buffer::from(std::sync::Arc::<[u8]>::from(vec![0; ROOM]));
    for buffer in [Buffer::zeroed(ROOM - 1), read_only] {
        let length = buffer.len();
        let (back, refused) = try_add(&mut model, 1, 1, buffer, 0).unwrap_err();
        assert_eq!((back.len(), refused), (length, TagRefused::Buffer));
    }
}

#[test]
fn full_lists_and_queues_refuse() {
    let mut model = with(&ModelConfig::default().slots(1).operations(2));
    let caps = model.tags().unwrap().caps();
    assert_eq!((caps.slots, caps.operations, caps.first_count), (1, 2, 0));
    let handle = add(&mut model, 1, 1, 0);
    let (_, refused) = try_add(&mut model, 2, 1, Buffer::zeroed(ROOM), 0).unwrap_err();
    assert_eq!(refused, TagRefused::ListFull);
    let tags = model.tags().unwrap();
    tags.delete(handle, true, 0).unwrap();
    assert_eq!(tags.sync(0), Err(TagRefused::QueueFull));
    assert_eq!(list(&settle(&mut model)), ["added 1", "deleted 1 true"]);
    let tags = model.tags().unwrap();
    assert_eq!(tags.delete(handle, true, 0), Err(TagRefused::NoSuchEntry));
}

#[test]
fn a_delete_is_lost_to_a_match_until_its_last_event_was_taken() {
    let mut model = model(Knobs::default());
    let handle = add(&mut model, 1, 5, 0);
    message(&mut model, 1, eager(5, b"x"));
    assert!(matches!(poll(&mut model), Some(Seen::Tag(TagEvent::Added { entry: 1 }))));
    assert!(matches!(poll(&mut model), Some(Seen::Tag(TagEvent::Matched { entry: 1, .. }))));
    assert!(model.tags().unwrap().reclaim(handle).is_none());
    model.tags().unwrap().delete(handle, true, 0).unwrap();
    assert_eq!(list(&settle(&mut model)), ["landed 1 1", "lost 1"]);
    assert_eq!(model.nic().slots_taken(), 0);
    assert_eq!(model.nic().faults(), []);
}

#[test]
fn an_entry_that_missed_its_phase_is_deleted_with_its_buffer() {
    let slow = Delay { chance: Chance::ALWAYS, ticks_max: 9 };
    for (operation, answer) in [(Delay::NONE, slow), (slow, Delay::NONE), (slow, slow)] {
        let mut model = model(Knobs::default().operation(operation).answer(answer));
        message(&mut model, 1, eager(5, b"early"));
        assert_eq!(list(&[poll(&mut model).unwrap()]), ["message 1 true"]);
        // The entry is added before software has counted the message.
        let handle = add(&mut model, 1, 5, 0);
        let tags = model.tags().unwrap();
        assert_eq!(tags.reclaim(handle).unwrap().len(), ROOM);
        assert!(tags.reclaim(handle).is_none());
        tags.delete(handle, false, 0).unwrap();
        add(&mut model, 2, 5, 1);
        assert_eq!(list(&settle(&mut model)), ["added 1", "added 2"]);
        message(&mut model, 1, eager(5, b"later"));
        assert_eq!(landed(settle(&mut model)), b"later");
        assert_eq!(model.nic().faults(), []);
    }
}

#[test]
fn a_buffer_can_be_reclaimed_while_its_delete_waits_for_its_answer() {
    let answer = Delay { chance: Chance::ALWAYS, ticks_max: 50 };
    let mut model = model(Knobs::default().answer(answer));
    let handle = add(&mut model, 1, 5, 0);
    model.tags().unwrap().delete(handle, true, 0).unwrap();
    assert!(model.tags().unwrap().reclaim(handle).is_some());
    assert_eq!(list(&settle(&mut model)), ["added 1", "deleted 1 false"]);
}

#[test]
fn a_match_after_its_buffer_was_reclaimed_is_a_fault() {
    let mut model = model(Knobs::default());
    let handle = add(&mut model, 1, 5, 0);
    assert!(model.tags().unwrap().reclaim(handle).is_some());
    message(&mut model, 1, eager(5, b"x"));
    settle(&mut model);
    assert!(matches!(model.nic().faults(), [Fault::BufferGone(_)]));
}

#[test]
fn messages_of_peers_that_the_list_does_not_carry_bypass_it() {
    let mut model = model(Knobs::default());
    model.set_carried(|peer| peer.0 == 2);
    add(&mut model, 1, 5, 0);
    for peer in [0, 1, 2] {
        message(&mut model, peer, eager(5, b""));
    }
    push_event(&mut model, DeviceEvent::ReadDone(33, Buffer::zeroed(1), Ok(())));
    let seen = list(&settle(&mut model));
    let matched = format!("matched 1 2 5 {}", ctx(5));
    let passed = ["added 1", "message 0 false", "message 1 false", &matched, "landed 1 0"];
    assert_eq!(seen[..5], passed);
    assert_eq!(seen[5..], ["read 33 Ok(())"]);
}

#[test]
fn a_failed_read_ends_the_peer_and_no_other() {
    for refused_at_once in [true, false] {
        let mut model = model(Knobs::default());
        let reads_end = refused_at_once.then_some(Err(ReadError::BadSpan));
        model.inner_mut().reads_end = reads_end;
        add(&mut model, 1, 5, 0);
        add(&mut model, 2, 6, 0);
        message(&mut model, 1, rendezvous(5, 0, 100));
        let mut seen = settle(&mut model);
        if let Some(read) = model.inner_mut().reads.pop_front() {
            let error = ReadError::Failed { errno: 14 };
            push_event(&mut model, DeviceEvent::ReadDone(read.token, read.into, Err(error)));
        }
        message(&mut model, 1, eager(6, b"too late"));
        message(&mut model, 2, eager(6, b"other"));
        seen.extend(settle(&mut model));
        let seen = list(&seen);
        assert_eq!(model.inner().disconnected, [A]);
        let at = |what: &str| seen.iter().position(|event| event.starts_with(what)).expect(what);
        assert!(at("matched 1 1") < at("failed 1") && at("failed 1") < at("down 1 Misbehaved"));
        assert!(seen.contains(&"landed 2 5".to_owned()), "{seen:?}");
        assert!(model.nic().slots_taken() == 0 && model.nic().faults().is_empty());
    }
}

#[test]
fn messages_that_arrived_whole_survive_the_end_of_their_peer() {
    let slow = Delay { chance: Chance::ALWAYS, ticks_max: 20 };
    let knobs = Knobs::default().receive(slow).data(slow).packet_bytes(64);
    let mut model = model(knobs);
    model.inner_mut().reads_end = None;
    for entry in 1..=3 {
        add(&mut model, entry, entry.into(), 0);
    }
    message(&mut model, 1, rendezvous(1, 0, 100));
    let mut seen = settle(&mut model);
    // The peer dies: first its reads end, then its last messages arrive, then its end is reported.
    let read = model.inner_mut().reads.pop_front().unwrap();
    push_event(&mut model, DeviceEvent::ReadDone(read.token, read.into, Err(ReadError::PeerDown)));
    message(&mut model, 1, eager(2, &[1; 100]));
    message(&mut model, 1, eager(9, b"unexpected"));
    push_event(&mut model, DeviceEvent::Down(A, DownReason::Gone));
    assert!(!model.arm(&[]));
    seen.extend(settle(&mut model));
    let seen = list(&seen);
    assert_eq!(seen.last().unwrap(), "down 1 Gone");
    for wanted in ["failed 1", "landed 2 100", "message 1 true"] {
        assert!(seen.iter().any(|event| event == wanted), "{wanted} in {seen:?}");
    }
    assert!(model.inner().disconnected.is_empty());
    assert_eq!(model.nic().slots_taken(), 1);
}

/// The data of a peer's last message comes late.
#[test]
fn the_end_of_a_peer_waits_for_the_data_of_its_messages() {
    let late = Delay { chance: Chance::ALWAYS, ticks_max: 20 };
    let mut model = model(Knobs::default().data(late).packet_bytes(64));
    add(&mut model, 1, 5, 0);
    message(&mut model, 1, eager(5, &[1; 100]));
    push_event(&mut model, DeviceEvent::Down(A, DownReason::Gone));
    let matched = format!("matched 1 1 5 {}", ctx(5));
    let expected = ["added 1", &matched, "landed 1 100", "down 1 Gone"];
    assert_eq!(list(&settle(&mut model)), expected);
}

#[test]
fn the_end_of_a_peer_fails_no_read_from_another() {
    let mut model = model(Knobs::default());
    model.inner_mut().reads_end = None;
    for peer in [1, 2] {
        add(&mut model, peer, peer.into(), 0);
        message(&mut model, peer, rendezvous(peer.into(), 0, 100));
    }
    settle(&mut model);
    while let Some(read) = model.inner_mut().reads.pop_front() {
        let result = Err(ReadError::PeerDown);
        push_event(&mut model, DeviceEvent::ReadDone(read.token, read.into, result));
    }
    for peer in [1, 2] {
        push_event(&mut model, DeviceEvent::Down(PeerId(peer), DownReason::Gone));
        let expected = [format!("failed {peer}"), format!("down {peer} Gone")];
        assert_eq!(list(&settle(&mut model)), expected);
    }
}

#[test]
fn a_fin_to_a_peer_that_is_down_ends_with_it() {
    let mut model = model(Knobs::default());
    add(&mut model, 1, 5, 0);
    model.inner_mut().refuses = Some(Refused::Down);
    message(&mut model, 1, rendezvous(5, 0, 10));
    assert_eq!(settle(&mut model).len(), 2);
    push_event(&mut model, DeviceEvent::Down(A, DownReason::Gone));
    assert_eq!(list(&settle(&mut model)), ["failed 1", "down 1 Gone"]);
}

#[test]
fn a_message_longer_than_announced_ends_its_peer() {
    let mut model = model(Knobs::default());
    add(&mut model, 1, 5, 0);
    message(&mut model, 1, eager(5, &[0; MESSAGE_MAX - 15]));
    let seen = list(&settle(&mut model));
    assert!(seen[1].starts_with("down 1 Misbehaved"), "{seen:?}");
    assert_eq!(model.nic().slots_taken(), 1);
    assert_eq!(model.nic().faults(), []);
}

#[test]
fn pending_completions_are_work_and_messages_wait_for_buffers() {
    let receive = Delay { chance: Chance::ALWAYS, ticks_max: 100 };
    let knobs = Knobs::default().receive(receive);
    let mut model = with(&ModelConfig::default().buffers(33).knobs(knobs));
    for n in 0..100u8 {
        message(&mut model, 1, eager(7, &[n]));
    }
    let mut seen = vec![];
    while seen.len() < 100 {
        assert!(model.has_work() && !model.arm(&[]));
        match poll(&mut model) {
            Some(Seen::Message { bytes, through_list: true, .. }) => seen.push(bytes[16]),
            Some(other) => panic!("{other:?}"),
            None => assert!(model.inner().events.len() + seen.len() >= 67, "33 buffers"),
        }
    }
    assert!(seen.into_iter().eq(0..100));
    assert!(!model.has_work() && model.arm(&[]));
}

#[test]
fn settings_are_checked() {
    let config = ModelConfig::default().slots(0);
    let shm = Shm::new(ShmConfig::default()).unwrap();
    let error = Model::new(shm, &config).unwrap_err();
    assert_eq!(error.to_string(), "slots = 0 is out of range: 1 to 65535");
}

/// One side has a list. The other sends to it through shared memory, and exposes the memory that is
/// read.
#[test]
fn on_shared_memory_messages_and_rendezvous_land() {
    let shm = || common::up(Shm::new(ShmConfig::default()).unwrap());
    let a = shm();
    let mut b = shm();
    let mut a = Model::new(a, &ModelConfig::default()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let room = a.limits().message_max;
    for (entry, tag) in [(1, 5), (2, 6)] {
        let buffer = Buffer::zeroed(room);
        let add = tagmatch_device::TagAdd { entry, tag, mask: u64::MAX, buffer, count: 0 };
        a.tags().unwrap().add(add).unwrap();
    }
    let payload = common::pattern(3, 5000);
    let exposure = b.expose(common::READER, Buffer::from(payload.clone())).unwrap();
    let span = exposure.span;
    let tmh = tagmatch_device::tm::Tmh {
        opcode: tagmatch_device::tm::Opcode::Rendezvous,
        app_ctx: 1,
        tag: 6,
    };
    let rvh = tagmatch_device::tm::Rvh {
        va: span.address,
        rkey: span.key,
        len: u32::try_from(span.length).unwrap(),
    };
    let mut outgoing = vec![eager(5, &payload[..400]), [&tmh.emit()[..], &rvh.emit()[..]].concat()];
    let mut landed = vec![];
    let mut fin = None;
    let start = std::time::Instant::now();
    while landed.len() < 2 || fin.is_none() {
        if let Some(Event::Tag(TagEvent::Landed { entry, length, buffer, .. })) = a.poll() {
            let length = usize::try_from(length).unwrap();
            landed.push((entry, buffer[..length].to_vec()));
        }
        let mut is_up = false;
        match common::poll(&mut b) {
            Some(common::Owned::Message(_, _, bytes)) => fin = Some(bytes),
            Some(common::Owned::Up(..)) => is_up = true,
            _ => {}
        }
        if is_up {
            for bytes in outgoing.drain(..) {
                b.send(to_a, common::message(&bytes)).unwrap();
            }
        }
        assert!(start.elapsed() < common::PATIENCE, "waited in vain");
    }
    assert_eq!(landed, [(1, payload[..400].to_vec()), (2, payload)]);
    assert_eq!(fin.map(|bytes| (bytes.len(), bytes[0])), Some((32, 2)));
    assert_eq!(b.withdraw(common::READER, exposure.id).map(|buffer| buffer.len()), Some(5000));
}

/// Random failures never end a match twice or not at all. `order.rs` tests the order of matches.
#[test]
fn spontaneous_failures_end_each_match_once() {
    for seed in 0..200 {
        let knobs = Knobs::random(seed)
            .queue_pair_error(Chance::percent(10))
            .read_failure(Chance::percent(10));
        let first = knobs.first_count;
        let mut model: Model<Script> = with(&ModelConfig::default().seed(seed).knobs(knobs));
        for entry in 0..60 {
            add(&mut model, entry, 5, first);
        }
        for n in 0..60 {
            let peer = 1 + n % 6;
            let rendezvous = rendezvous(5, 3, 200);
            message(&mut model, peer, if n % 4 == 0 { rendezvous } else { eager(5, &[1; 90]) });
        }
        let seen = list(&settle(&mut model));
        for entry in 0..60 {
            let count = |what: &str| seen.iter().filter(|e| e.starts_with(what)).count();
            let matched = count(&format!("matched {entry} "));
            let ended = count(&format!("landed {entry} "))
                + usize::from(seen.contains(&format!("failed {entry}")));
            assert!(matched <= 1 && matched == ended, "entry {entry}, seed {seed}: {seen:?}");
        }
        for peer in &model.inner().disconnected {
            let down = seen.iter().position(|e| e.starts_with(&format!("down {} ", peer.0)));
            let of_peer = |e: &String| {
                e.starts_with("matched") && e.split(' ').nth(2) == Some(&peer.0.to_string())
            };
            assert!(seen.iter().rposition(of_peer) < down, "{seen:?}");
        }
        let matches = seen.iter().filter(|e| e.starts_with("matched")).count();
        assert_eq!(model.nic().slots_taken(), 60 - matches);
        assert_eq!(model.nic().faults(), []);
    }
}

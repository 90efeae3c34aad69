//! Messages of several slices: what they cost the device, and what becomes of them when something
//! fails.

#[allow(dead_code, reason = "each test uses its share")]
mod memory;
mod wire;

use std::rc::Rc;

use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::{Buffer, Device, PeerId};
use tagmatch_fallback::{
    Completion, Delegated, Engine, Fault, MatchEngine, RequestId, Send, SendMode, Started, Status,
};
use tagmatch_model::{Model, ModelConfig};
use tagmatch_soft::{Pattern, Tag, TagMask};

use memory::World;
use wire::{Node, config, meet, nodes, nodes_on, settle};

/// The error number of a system that has no memory.
const ENOMEM: i32 = 12;
const LARGE: usize = 5000;

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// The message of this length, in three slices.
fn message(length: usize) -> Buffer {
    let bytes = bytes(length);
    let (first, rest) = bytes.split_at(length / 3);
    let (second, third) = rest.split_at(length / 4);
    Buffer::from_slices([first, second, third].map(<[u8]>::to_vec))
}

/// Room for so many bytes, in two slices.
fn room(length: usize) -> Buffer {
    Buffer::from_slices([vec![0xee; length / 2], vec![0xee; length - length / 2]])
}

fn send<D: Device>(node: &mut Engine<D>, to: PeerId, length: usize, mode: SendMode) -> RequestId {
    match node.send(Send::new(to, Tag(5), message(length)).immediate(Some(9)), mode) {
        Started::Pending(request) => request,
        other => panic!("{other:?}"),
    }
}

fn end<D: Device>(node: &mut Engine<D>, request: RequestId) -> Completion {
    let done = node.requests_mut().take(request).expect("not over");
    assert!(done.buffer.is_empty() && done.buffer.slices().is_some(), "{:?}", done.buffer);
    done
}

#[test]
fn eager_messages_need_no_memory_of_the_device() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    let early = n[1].receive(&exact(5), room(200)).unwrap();
    // It waits in the backlog until the peer is connected.
    let waits = send(&mut n[0], to, 100, SendMode::Standard);
    settle(&mut n);
    assert_eq!(end(&mut n[0], waits).buffer.into_vec(), bytes(100));
    assert_eq!(end(&mut n[1], early).buffer.into_vec()[..100], bytes(100));
    let at_once = n[0].send(Send::new(to, Tag(5), message(1024)), SendMode::Standard);
    assert!(matches!(at_once, Started::Sent(_)), "{at_once:?}");
    settle(&mut n);
    let late = n[1].receive(&exact(5), room(1025)).unwrap();
    assert_eq!(end(&mut n[1], late).buffer.into_vec()[..1024], bytes(1024));
    // The device has no room for a while.
    let count = 20;
    net.borrow_mut().refuse = std::iter::repeat_n(true, 10).collect();
    let sends: Vec<_> = (0..count).map(|_| send(&mut n[0], to, 300, SendMode::Delivered)).collect();
    (0..10).for_each(|_| settle(&mut n));
    for request in sends {
        let receive = n[1].receive(&exact(5), room(300)).unwrap();
        settle(&mut n);
        assert_eq!(end(&mut n[1], receive).buffer.into_vec(), bytes(300));
        assert_eq!(end(&mut n[0], request).buffer.into_vec(), bytes(300));
    }
    assert_eq!(net.borrow().allocated, [0; 0]);
}

#[test]
fn a_long_message_needs_memory_for_its_own_bytes_only() {
    for capacity in [LARGE - 1, LARGE, 100 * LARGE] {
        let (net, mut n) = nodes(2, &config());
        let to = meet(&mut n, 0, 1);
        settle(&mut n);
        let receive = n[1].receive(&exact(5), room(capacity)).unwrap();
        assert_eq!(net.borrow().allocated, [0; 0], "allocated before there is a message");
        let sent = send(&mut n[0], to, LARGE, SendMode::Standard);
        settle(&mut n);
        assert_eq!(net.borrow().allocated, [LARGE, LARGE.min(capacity)]);
        assert_eq!(end(&mut n[0], sent).buffer.into_vec(), bytes(LARGE));
        let Completion { result, buffer } = end(&mut n[1], receive);
        let length = LARGE as u64;
        let truncated = capacity < LARGE;
        let source = PeerId(1);
        let status = Status { source, tag: Tag(5), length, truncated, immediate: Some(9) };
        assert_eq!(result, Ok(status));
        assert_eq!(buffer.into_vec()[..LARGE.min(capacity)], bytes(LARGE)[..LARGE.min(capacity)]);
    }
}

#[test]
fn no_memory_is_an_error_of_the_operation_alone() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let is_out_of_memory = |is: bool| net.borrow_mut().is_out_of_memory = is;
    is_out_of_memory(true);
    let failed = send(&mut n[0], to, LARGE, SendMode::Standard);
    let Completion { result, buffer } = end(&mut n[0], failed);
    assert_eq!(result, Err(Fault::NoMemory { bytes: LARGE }));
    assert_eq!(buffer.into_vec(), bytes(LARGE));
    is_out_of_memory(false);
    let sent = send(&mut n[0], to, LARGE, SendMode::Standard);
    is_out_of_memory(true);
    let receive = n[1].receive(&exact(5), room(LARGE)).unwrap();
    settle(&mut n);
    let Completion { result, buffer } = end(&mut n[1], receive);
    assert_eq!(result, Err(Fault::ReadFailed { peer: PeerId(1), errno: ENOMEM }));
    assert_eq!(buffer.into_vec(), [0xee; LARGE]);
    let result = end(&mut n[0], sent).result;
    assert_eq!(result, Err(Fault::NotRead { peer: to, errno: ENOMEM }));
    // The peers go on, with or without memory.
    is_out_of_memory(false);
    works(&mut n, to);
}

#[test]
fn a_read_that_fails_gives_the_slices_back_as_they_were() {
    let (net, mut n) = nodes(2, &config());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    net.borrow_mut().reads_fail = Some(5);
    let receive = n[1].receive(&exact(5), room(LARGE)).unwrap();
    let sent = send(&mut n[0], to, LARGE, SendMode::Synchronous);
    settle(&mut n);
    let Completion { result, buffer } = end(&mut n[1], receive);
    assert_eq!(result, Err(Fault::ReadFailed { peer: PeerId(1), errno: 5 }));
    assert_eq!(buffer.into_vec(), [0xee; LARGE]);
    assert_eq!(end(&mut n[0], sent).buffer.into_vec(), bytes(LARGE));
    works(&mut n, to);
}

fn works(n: &mut [Node], to: PeerId) {
    let receive = n[1].receive(&exact(5), room(LARGE)).unwrap();
    let sent = send(&mut n[0], to, LARGE, SendMode::Standard);
    settle(n);
    assert_eq!(end(&mut n[1], receive).buffer.into_vec(), bytes(LARGE));
    assert!(end(&mut n[0], sent).result.is_ok());
}

#[test]
fn receives_of_several_slices_stay_out_of_the_nic() {
    let model = ModelConfig::default();
    let (_, mut n) = nodes_on(2, &config(), |_, wire| Model::new(wire, &model).unwrap());
    let to = meet(&mut n, 0, 1);
    settle(&mut n);
    let lengths = [0, 10, 1000, LARGE];
    for length in lengths {
        let receive = n[1].receive(&exact(5), room(length)).unwrap();
        settle(&mut n);
        let sent = send(&mut n[0], to, length, SendMode::Synchronous);
        settle(&mut n);
        let Completion { result, buffer } = end(&mut n[1], receive);
        let status = result.unwrap();
        assert_eq!((status.length, status.truncated), (length as u64, false));
        assert_eq!(buffer.into_vec(), bytes(length));
        assert_eq!(end(&mut n[0], sent).buffer.into_vec(), bytes(length));
    }
    // A send of several slices is one like any other for the NIC.
    let receive = n[1].receive(&exact(5), vec![0; LARGE].into()).unwrap();
    settle(&mut n);
    send(&mut n[0], to, LARGE, SendMode::Synchronous);
    settle(&mut n);
    assert_eq!(n[1].requests_mut().take(receive).unwrap().buffer[..], bytes(LARGE));
    let counters = n[1].counters();
    assert_eq!((counters.hardware, counters.posted), (1, 4), "{counters:?}");
    assert_eq!((counters.not_offloaded.slices, counters.not_offloaded.total()), (4, 4));
}

#[test]
fn a_device_that_matches_by_itself_gets_one_run_of_bytes() {
    let world = Rc::new(World::default());
    let a = world.worker(1);
    let b = world.worker(2);
    let to = b.address();
    let mut a = Delegated::new(Box::new(a));
    let mut b = Delegated::new(Box::new(b));
    let to = a.connect(&to).unwrap();
    for length in [0, 10, 8192, 8193, 100_000] {
        for capacity in [length, length + 7, length / 2] {
            let receive = b.receive(&exact(5), room(capacity)).unwrap();
            let send =
                |a: &mut Delegated<_>, mode| a.send(Send::new(to, Tag(5), message(length)), mode);
            if let Started::Sent(buffer) = send(&mut a, SendMode::Standard) {
                assert_eq!((buffer.len(), buffer.total_len()), (0, length));
                assert_eq!(buffer.into_vec(), bytes(length));
            }
            assert!(b.progress_until(receive).1);
            let Completion { result, buffer } = b.requests_mut().take(receive).unwrap();
            let status = result.unwrap();
            assert_eq!((status.length, status.truncated), (length as u64, capacity < length));
            assert!(buffer.is_empty(), "{buffer:?}");
            let got = buffer.into_vec();
            let fits = capacity.min(length);
            assert_eq!((&got[..fits], got.len()), (&bytes(length)[..fits], capacity));
            assert!(got[fits..].iter().all(|&byte| byte == 0xee), "wrote past the message");
            // Matched by a probe, and under way until then.
            let Started::Pending(sent) = send(&mut a, SendMode::Synchronous) else { panic!() };
            let (message, _) = b.matched_probe(&exact(5)).unwrap().unwrap();
            let receive = b.receive_message(message, room(capacity)).unwrap();
            assert!(b.progress_until(receive).1 && a.progress_until(sent).1);
            let got = b.requests_mut().take(receive).unwrap().buffer.into_vec();
            assert_eq!(got[..fits], bytes(length)[..fits]);
            let buffer = a.requests_mut().take(sent).unwrap().buffer;
            assert_eq!((buffer.len(), buffer.into_vec()), (0, bytes(length)));
        }
    }
    let cancelled = b.receive(&exact(5), room(LARGE)).unwrap();
    b.cancel(cancelled);
    assert!(b.progress_until(cancelled).1);
    let Completion { result, buffer } = b.requests_mut().take(cancelled).unwrap();
    assert_eq!((result, buffer.len()), (Err(Fault::Cancelled), 0));
    assert_eq!(buffer.into_vec(), [0xee; LARGE]);
    // A refused buffer comes back as it was given.
    let Started::Refused(refused) =
        a.send(Send::new(PeerId(9), Tag(5), message(9)), SendMode::Standard)
    else {
        panic!("sent to nobody");
    };
    assert_eq!((refused.buffer.len(), refused.buffer.into_vec()), (0, bytes(9)));
    let refused = b.receive(&exact(1 << 32), room(9)).unwrap_err();
    assert_eq!((refused.buffer.len(), refused.buffer.total_len()), (0, 9));
}

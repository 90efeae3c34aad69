//! The completion queue, while its ends come up straight in the caller's list.

mod wire;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::{
    End, EndList, EndedBuffer, Fault, MatchEngine, Send, SendMode, Started, Status,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Node, config, meet, nodes, settle};

/// The contexts of ends, in their order, and how many more are wanted.
struct Contexts(Vec<u64>, usize);

impl EndList for Contexts {
    fn has_room(&self) -> bool {
        self.0.len() < self.1
    }

    fn done(&mut self, context: u64, _: Status, buffer: impl EndedBuffer) {
        drop(buffer.take_buffer());
        self.0.push(context);
    }

    fn rare(&mut self, end: End) {
        match end {
            End::Operation { context, completion }
                if completion.result == Err(Fault::Cancelled) =>
            {
                self.0.push(context);
            }
            end => panic!("{end:?}"),
        }
    }
}

fn ends(node: &mut Node, max: usize) -> Vec<u64> {
    let mut contexts = Contexts(vec![], max);
    node.take_ends(&mut contexts);
    contexts.0
}

fn receive(node: &mut Node, tag: u64) {
    let pattern = Pattern::new(Tag(tag), TagMask::EXACT);
    node.receive_with(&pattern, Buffer::zeroed(8), false, Some(tag)).unwrap();
}

fn send(node: &mut Node, to: PeerId, tag: u64, mode: SendMode) {
    if let Started::Pending(request) = node.send(Send::new(to, Tag(tag), Buffer::zeroed(8)), mode) {
        node.requests_mut().queue(request, 100 + tag);
    }
}

#[test]
fn a_message_does_not_overtake_an_end_that_waits() {
    let (_, mut n) = nodes(2, &config());
    let to_one = meet(&mut n, 0, 1);
    let to_zero = meet(&mut n, 1, 0);
    settle(&mut n);
    receive(&mut n[1], 1);
    receive(&mut n[0], 2);
    send(&mut n[0], to_one, 1, SendMode::Synchronous);
    assert_eq!(ends(&mut n[1], 9), [1]);
    send(&mut n[1], to_zero, 2, SendMode::Standard);
    // The acknowledgement of the send, then the message, in one call.
    assert_eq!(ends(&mut n[0], 9), [101, 2]);
    assert!(n[0].requests().is_empty());
}

#[test]
fn a_caller_gets_as_many_ends_as_it_asks_for() {
    let (_, mut n) = nodes(2, &config());
    let to_zero = meet(&mut n, 1, 0);
    settle(&mut n);
    for tag in 0..6 {
        receive(&mut n[0], tag);
    }
    for tag in 0..6 {
        send(&mut n[1], to_zero, tag, SendMode::Standard);
    }
    assert_eq!(ends(&mut n[0], 0), []);
    assert!(n[0].requests().has_ends());
    assert_eq!(ends(&mut n[0], 3), [0, 1, 2]);
    assert_eq!(ends(&mut n[0], 2), [3, 4]);
    assert_eq!(ends(&mut n[0], 5), [5]);
    assert!(n[0].requests().is_empty());
}

#[test]
fn a_list_that_is_full_leaves_later_messages_with_the_device() {
    let (_, mut n) = nodes(2, &config());
    let to_zero = meet(&mut n, 1, 0);
    settle(&mut n);
    for tag in 0..3 {
        receive(&mut n[0], tag);
    }
    for tag in 0..3 {
        send(&mut n[1], to_zero, tag, SendMode::Standard);
    }
    assert_eq!(ends(&mut n[0], 1), [0]);
    assert!(!n[0].requests().has_ends());
    assert_eq!(ends(&mut n[0], 9), [1, 2]);
}

#[test]
fn a_receive_is_refused_once_its_peer_is_disconnected_though_an_equal_one_waits() {
    let (_, mut n) = nodes(2, &config());
    let to_zero = meet(&mut n, 1, 0);
    settle(&mut n);
    let pattern = Pattern::new(Tag(1), TagMask::EXACT).from_source(SourceId(to_zero.0));
    let post = |node: &mut Node| node.receive_with(&pattern, Buffer::zeroed(8), false, None);
    for _ in 0..2 {
        post(&mut n[1]).unwrap();
    }
    n[1].disconnect(to_zero);
    let refused = post(&mut n[1]).unwrap_err();
    assert!(matches!(refused.fault, Fault::PeerDown { .. }), "{:?}", refused.fault);
}

#[test]
fn each_end_has_the_context_of_its_receive_however_it_ends() {
    const LONG: usize = 100_000;
    let (_, mut n) = nodes(2, &config());
    let to_zero = meet(&mut n, 1, 0);
    settle(&mut n);
    for tag in 0..4 {
        receive(&mut n[0], tag);
    }
    // One message in the list at once, one that waits in the queue, one that is read, and none.
    for (tag, length) in [(0, 8), (1, 8), (2, LONG)] {
        n[1].send(Send::new(to_zero, Tag(tag), Buffer::zeroed(length)), SendMode::Standard);
    }
    let cancelled = n[0].requests().find_queued(|context| context == 3).unwrap();
    n[0].cancel(cancelled);
    assert_eq!(ends(&mut n[0], 1), [3]);
    let mut contexts = ends(&mut n[0], 1);
    settle(&mut n);
    contexts.extend(ends(&mut n[0], 9));
    assert_eq!(contexts, [0, 1, 2]);
    assert!(n[0].requests().is_empty());
}

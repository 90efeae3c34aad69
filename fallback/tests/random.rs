//! Random programs on three engines: every send and receive ends once, in order, with its own
//! bytes.

#![allow(clippy::cast_possible_truncation, clippy::needless_range_loop, reason = "small numbers")]

mod wire;

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use tagmatch_device::{Buffer, Device, PeerId};
use tagmatch_fallback::{
    Completion, Fault, MatchEngine, MessageId, RequestId, Send, SendMode, Started, Status,
};
use tagmatch_model::{Knobs, Model, ModelConfig};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Node, config, meet, nodes, nodes_on, settle};

const NODES: usize = 3;
const TAGS: u64 = 4;
const LENGTH_MAX: usize = 3000;

#[derive(Clone, Debug)]
enum Step {
    Send {
        from: usize,
        to: usize,
        tag: u64,
        length: usize,
        mode: u8,
    },
    /// `is_sole`: the receive promises, rightly or not, that nobody else sends messages with its
    /// tag.
    Receive {
        at: usize,
        tag: Option<u64>,
        from: Option<usize>,
        is_sole: bool,
        room: usize,
    },
    Cancel {
        at: usize,
        which: usize,
    },
    Probe {
        at: usize,
        tag: Option<u64>,
    },
    TakeProbed {
        at: usize,
        room: Option<usize>,
    },
    Work {
        at: usize,
        rounds: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES;
    let tag = 0..TAGS;
    let length = prop_oneof![Just(0), 1..64usize, 0..LENGTH_MAX];
    prop_oneof![
        6 => (node.clone(), node.clone(), tag.clone(), length.clone(), 0..3u8)
            .prop_map(|(from, to, tag, length, mode)| Step::Send { from, to, tag, length, mode }),
        6 => (node.clone(), prop::option::of(tag.clone()), prop::option::of(node.clone()), any::<bool>(), length.clone())
            .prop_map(|(at, tag, from, is_sole, room)| Step::Receive { at, tag, from, is_sole, room }),
        1 => (node.clone(), 0..8usize).prop_map(|(at, which)| Step::Cancel { at, which }),
        1 => (node.clone(), prop::option::of(tag)).prop_map(|(at, tag)| Step::Probe { at, tag }),
        1 => (node.clone(), prop::option::of(length)).prop_map(|(at, room)| Step::TakeProbed { at, room }),
        6 => (node, 1..4usize).prop_map(|(at, rounds)| Step::Work { at, rounds }),
    ]
}

/// A message carries its sender and its number among the sender's messages to this receiver with
/// this tag.
fn payload(from: usize, number: u32, length: usize) -> Buffer {
    (0..length).map(|i| (i as u32 * 31 + number * 7 + from as u32) as u8).collect::<Vec<_>>().into()
}

fn check_bytes(message: &[u8], status: &Status, buffer: &[u8]) {
    assert_eq!(status.length, message.len() as u64);
    let fits = message.len().min(buffer.len());
    assert_eq!(buffer[..fits], message[..fits]);
    assert!(buffer[fits..].iter().all(|&b| b == 0xee), "wrote past the message");
    assert_eq!(status.truncated, message.len() > buffer.len());
}

#[derive(Default)]
struct World {
    /// (from, to, tag) -> messages not yet received, as (number, length).
    sent: HashMap<(usize, usize, u64), VecDeque<(u32, usize)>>,
    numbers: HashMap<(usize, usize), u32>,
    receives: Vec<VecDeque<RequestId>>,
    /// Messages that a matched probe took, with what they must be.
    probed: Vec<VecDeque<(MessageId, usize, u32, usize)>>,
    sends: Vec<Vec<RequestId>>,
    /// (from, to) -> messages that a NIC gave to a receive which names another sender.
    lost: HashMap<(usize, usize), usize>,
    /// (from, to) -> sends that failed because of that.
    told: HashMap<(usize, usize), usize>,
    /// node, its number of a peer -> node
    met: Vec<HashMap<PeerId, usize>>,
}

impl World {
    /// A receive or a matched probe took a message of this envelope: the oldest of its kind, or one
    /// that a receive matched earlier and that has not been looked at yet.
    fn take(&mut self, from: usize, at: usize, tag: u64, number: u32) -> usize {
        let waiting = self.sent.get_mut(&(from, at, tag)).expect("never sent");
        let index = waiting.iter().position(|&(n, _)| n == number).expect("received twice");
        waiting.remove(index).unwrap().1
    }

    fn received(&mut self, at: usize, completion: Completion) {
        let status = match completion.result {
            Ok(status) => status,
            Err(Fault::WrongSender { named, sender }) => {
                assert_ne!(named, sender);
                *self.lost.entry((self.met[at][&sender], at)).or_default() += 1;
                return;
            }
            Err(fault) => return assert_eq!(fault, Fault::Cancelled),
        };
        let from = self.met[at][&status.source];
        let number = status.immediate.expect("immediate data is lost");
        let length = self.take(from, at, status.tag.0, number);
        check_bytes(&payload(from, number, length), &status, &completion.buffer);
    }

    fn sweep<D: Device>(&mut self, n: &mut [Node<D>]) {
        for at in 0..NODES {
            for _ in 0..self.receives[at].len() {
                let request = self.receives[at].pop_front().unwrap();
                match n[at].requests_mut().take(request) {
                    Some(completion) => self.received(at, completion),
                    None => self.receives[at].push_back(request),
                }
            }
            self.sends[at].retain(|&send| match n[at].requests_mut().take(send) {
                Some(Completion { result: Err(Fault::NotRead { peer, errno: 0 }), .. }) => {
                    *self.told.entry((at, self.met[at][&peer])).or_default() += 1;
                    false
                }
                Some(completion) => {
                    completion.result.expect("a send failed");
                    false
                }
                None => true,
            });
        }
    }
}

fn pattern(tag: Option<u64>) -> Pattern {
    tag.map_or(Pattern::new(Tag(0), TagMask::ANY), |tag| Pattern::new(Tag(tag), TagMask::EXACT))
}

fn run<D: Device>(steps: Vec<Step>, mut n: Vec<Node<D>>) -> u64 {
    let mut world = World {
        receives: vec![VecDeque::new(); NODES],
        probed: vec![VecDeque::new(); NODES],
        sends: vec![Vec::new(); NODES],
        met: vec![HashMap::new(); NODES],
        ..World::default()
    };
    let mut peers = [[PeerId(0); NODES]; NODES];
    for a in 0..NODES {
        for b in 0..NODES {
            peers[a][b] = meet(&mut n, a, b);
            world.met[a].insert(peers[a][b], b);
        }
    }
    for step in steps {
        match step {
            Step::Send { from, to, tag, length, mode } => {
                let number = world.numbers.entry((from, to)).or_default();
                *number += 1;
                let number = *number;
                world.sent.entry((from, to, tag)).or_default().push_back((number, length));
                let mode = [SendMode::Standard, SendMode::Synchronous, SendMode::Delivered]
                    [usize::from(mode)];
                let bytes = payload(from, number, length);
                match n[from]
                    .send(Send::new(peers[from][to], Tag(tag), bytes).immediate(Some(number)), mode)
                {
                    Started::Sent(_) => {}
                    Started::Pending(send) => world.sends[from].push(send),
                    Started::Refused(refused) => panic!("a send failed: {refused:?}"),
                }
            }
            Step::Receive { at, tag, from, is_sole, room } => {
                let mut pattern = pattern(tag);
                if let Some(from) = from {
                    pattern = pattern.from_source(SourceId(peers[at][from].0));
                }
                let is_sole = is_sole && from.is_some();
                let request =
                    n[at].receive_with(&pattern, vec![0xee; room].into(), is_sole, None).unwrap();
                match n[at].requests_mut().take(request) {
                    Some(done) => world.received(at, done),
                    None => world.receives[at].push_back(request),
                }
            }
            Step::Cancel { at, which } => {
                if let Some(&request) = world.receives[at].get(which) {
                    n[at].cancel(request);
                }
            }
            Step::Probe { at, tag } => {
                let status_of_probe = n[at].probe(&pattern(tag)).unwrap();
                let taken = n[at].matched_probe(&pattern(tag)).unwrap();
                assert_eq!(status_of_probe, taken.map(|(_, status)| status));
                if let Some((message, status)) = taken {
                    let from = world.met[at][&status.source];
                    let number = status.immediate.unwrap();
                    let length = world.take(from, at, status.tag.0, number);
                    assert_eq!((length as u64, false), (status.length, status.truncated));
                    world.probed[at].push_back((message, from, number, length));
                }
            }
            Step::TakeProbed { at, room } => {
                if let Some((message, from, number, length)) = world.probed[at].pop_front() {
                    match room {
                        None => assert!(n[at].discard_message(message)),
                        Some(room) => {
                            let request =
                                n[at].receive_message(message, vec![0xee; room].into()).unwrap();
                            settle(&mut n);
                            let done = n[at].requests_mut().take(request).unwrap();
                            let status = done.result.unwrap();
                            check_bytes(&payload(from, number, length), &status, &done.buffer);
                        }
                    }
                }
            }
            Step::Work { at, rounds } => {
                (0..rounds).for_each(|_| _ = n[at].progress());
            }
        }
        world.sweep(&mut n);
    }
    // At the end everything that was sent can be had, each once, in the order of its sender.
    for at in 0..NODES {
        for request in std::mem::take(&mut world.receives[at]) {
            n[at].cancel(request);
            match n[at].requests_mut().take(request) {
                Some(done) => world.received(at, done),
                None => world.receives[at].push_back(request),
            }
        }
        while let Some((message, ..)) = world.probed[at].pop_front() {
            n[at].discard_message(message);
        }
    }
    settle(&mut n);
    world.sweep(&mut n);
    let mut last: HashMap<(PeerId, usize), u32> = HashMap::new();
    for at in 0..NODES {
        while n[at].probe(&pattern(None)).unwrap().is_some() {
            let receive = n[at].receive(&pattern(None), vec![0xee; LENGTH_MAX].into());
            settle(&mut n);
            let done = n[at].requests_mut().take(receive.unwrap()).unwrap();
            let status = done.result.unwrap();
            let number = status.immediate.unwrap();
            let previous = last.insert((status.source, at), number);
            assert!(previous < Some(number), "a message overtook another of its sender");
            world.received(at, done);
        }
    }
    world.sweep(&mut n);
    for (pair, told) in world.told {
        assert!(world.lost.get(&pair) >= Some(&told), "a send failed, and no receive says why");
    }
    for ((from, to, _), left) in world.sent {
        let lost = world.lost.entry((from, to)).or_default();
        *lost = lost.checked_sub(left.len()).expect("lost, and no receive says so");
    }
    assert!(world.lost.values().all(|lost| *lost == 0), "lost messages that were received");
    assert!(world.sends.iter().all(Vec::is_empty), "sends that never end");
    for node in &n {
        assert_eq!((node.requests().len(), node.operations()), (0, 0));
        let counters = node.counters();
        assert_eq!((counters.unexpected_bytes_now, counters.list_faults), (0, 0));
        assert_eq!(counters.not_offloaded.total(), counters.posted);
    }
    n.iter().map(|node| node.counters().hardware).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_doubled_or_mixed_up(
        steps in prop::collection::vec(step(), 1..200),
        capacity in 1..10usize,
    ) {
        let (net, n) = nodes(NODES, &config());
        net.borrow_mut().capacity = capacity;
        prop_assert_eq!(run(steps, n), 0);
    }

    /// As above, with NICs that match what they can, each by a schedule of its own.
    #[test]
    fn nor_with_nics_that_match(
        steps in prop::collection::vec(step(), 1..200),
        capacity in 1..10usize,
        slots in 1..20u32,
        operations in 1..50u32,
        seed in 0..u64::MAX / 2,
    ) {
        let model = |me: u64, wire| {
            let knobs = Knobs::random(seed + me);
            let model = ModelConfig::default().slots(slots).operations(operations).seed(seed + me).knobs(knobs);
            Model::new(wire, &model).unwrap()
        };
        let (net, n) = nodes_on(NODES, &config(), model);
        net.borrow_mut().capacity = capacity;
        run(steps, n);
    }
}

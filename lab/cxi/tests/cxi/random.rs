//! Random programs: whatever the NIC does, each message is received once, and receives that accept
//! the same messages take them in their order.

use std::collections::HashMap;

use tagmatch_ofi_sys as sys;
use tagmatch_testkit::random::Random;

use crate::client::{Context, Hints, Memory, Message, Node, Wanted, within_limit};
use crate::process::alone;

const ANY: u64 = sys::FI_ADDR_UNSPEC;
const TAGS: u64 = 4;
const MESSAGES: u64 = 300;
const LENGTHS: [usize; 5] = [8, 100, 16384, 16385, 50_000];

/// A receive: its number, what it accepts, and its memory.
#[derive(Clone, Copy)]
struct Posted {
    number: u64,
    pattern: (u64, u64, u64),
    into: Memory,
}

/// A receive that has taken a message: sender, tag and number of the message.
struct Received {
    posted: Posted,
    key: (usize, u64),
    message: u64,
}

/// A receiver with two senders in one thread.
struct World {
    random: Random,
    receiver: Node,
    senders: Vec<(Node, u64, u64)>,
    /// By sender and tag: how many messages were sent.
    sent: HashMap<(usize, u64), u64>,
    received: Vec<Received>,
    posted: HashMap<*mut sys::fi_context2, Posted>,
    receives: u64,
}

impl World {
    fn new(seed: u64, hints: &Hints) -> Self {
        let receiver = Node::of(hints);
        let sender = |_| {
            let sender = Node::of(hints);
            let to = sender.insert(&receiver.name());
            let from = receiver.insert(&sender.name());
            (sender, to, from)
        };
        let senders = (0..2).map(sender).collect();
        let sent = HashMap::new();
        let received = Vec::new();
        let posted = HashMap::new();
        let random = Random::new(seed);
        World { random, receiver, senders, sent, received, posted, receives: 0 }
    }

    fn send(&mut self) {
        let sender = self.random.index(self.senders.len());
        let tag = self.random.below(TAGS);
        let length = self.random.pick(&LENGTHS);
        let number = self.sent.entry((sender, tag)).or_default();
        let mut bytes = vec![0; length];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let (node, to, _) = &self.senders[sender];
        let flags = if self.random.chance(1, 3) { sys::FI_MATCH_COMPLETE } else { 0 };
        let parts = [Memory::of(&bytes)];
        match node.sendmsg(Message::new(&parts, *to, tag, Context::new()), flags) {
            Ok(_) => *number += 1,
            Err(error) => assert_eq!(error, sys::FI_EAGAIN),
        }
    }

    fn post(&mut self) {
        let from = match self.random.below(3) {
            0 => ANY,
            _ => self.random.pick(&[self.senders[0].2, self.senders[1].2]),
        };
        let ignore = if self.random.chance(1, 3) { TAGS - 1 } else { 0 };
        let into = Memory::new(50_000);
        let context = Context::new();
        let tag = self.random.below(TAGS);
        if let Err(error) = self.receiver.recv(into, Wanted { from, tag, ignore }, context) {
            assert_eq!(error, sys::FI_EAGAIN);
            return;
        }
        self.receives += 1;
        // Receives with the same pattern accept the same messages.
        let pattern = (from, tag & !ignore, ignore);
        self.posted.insert(context.0, Posted { number: self.receives, pattern, into });
    }

    fn cancel(&mut self) {
        let all: Vec<_> = self.posted.keys().copied().collect();
        if !all.is_empty() {
            // A receive that was matched can't be cancelled.
            let _ = self.receiver.cancel(Context(self.random.pick(&all)));
        }
    }

    fn poll(&mut self) {
        for (node, ..) in &self.senders {
            let entry = node.poll();
            assert!(entry.is_none_or(|entry| entry.error == 0), "{entry:?}");
        }
        let Some(entry) = self.receiver.poll() else { return };
        let context = entry.context.expect("a context").0;
        let posted = self.posted.remove(&context).expect("an entry for each receive");
        if entry.error == sys::FI_ECANCELED {
            return;
        }
        assert_eq!(entry.error, 0, "{entry:?}");
        let sender = self.senders.iter().position(|(_, _, from)| *from == entry.source);
        let key = (sender.expect("a source"), entry.tag);
        let message: [u8; 8] = posted.into.bytes()[..8].try_into().expect("a number");
        self.received.push(Received { posted, key, message: u64::from_le_bytes(message) });
    }

    /// Each message was received once, and a receive that was posted earlier has the earlier one of
    /// two messages that both could have.
    fn check(&mut self, seed: u64) {
        let mut all: Vec<_> = self.received.iter().map(|got| (got.key, got.message)).collect();
        all.sort_unstable();
        let sent = self.sent.iter().flat_map(|(key, count)| (0..*count).map(|n| (*key, n)));
        let mut sent: Vec<_> = sent.collect();
        sent.sort_unstable();
        assert_eq!(all, sent, "seed {seed}");
        self.received.sort_unstable_by_key(|got| got.posted.number);
        let mut last = HashMap::new();
        for got in &self.received {
            let before = last.insert((got.posted.pattern, got.key), got.message);
            assert!(before.is_none_or(|before| before < got.message), "seed {seed}");
        }
    }
}

fn run(test: &str, mode: &'static std::ffi::CStr, seeds: std::ops::Range<u64>) {
    let knobs = [
        ("TAGMATCH_CXI_SEED", "11"),
        ("TAGMATCH_CXI_AGAIN", "50"),
        ("TAGMATCH_CXI_ENTRIES", "24"),
        ("TAGMATCH_CXI_TAKEN", "3"),
        ("TAGMATCH_CXI_SECOND", "wait"),
        ("TAGMATCH_CXI_PEEK", "5"),
        ("TAGMATCH_CXI_CANCEL", "5"),
        ("TAGMATCH_CXI_GET", "5"),
    ];
    alone(test, &knobs, |_| {
        for seed in seeds {
            let mut world = World::new(seed, &Hints { mode: Some(mode), ..Hints::default() });
            for _ in 0..MESSAGES * 4 {
                match world.random.below(8) {
                    0 | 1 => world.send(),
                    2 if world.posted.len() < 20 => world.post(),
                    3 if world.random.chance(1, 4) => world.cancel(),
                    _ => world.poll(),
                }
            }
            let total: u64 = world.sent.values().sum();
            within_limit("the last message", || {
                if world.posted.len() < 4 {
                    world.post();
                }
                // Receives of messages that don't come would take the room of others.
                if world.random.chance(1, 10) {
                    world.cancel();
                }
                world.poll();
                (world.received.len() as u64 == total).then_some(())
            });
            world.check(seed);
        }
    });
}

#[test]
fn nothing_is_lost_in_hardware_mode() {
    run("random::nothing_is_lost_in_hardware_mode", c"hardware", 0..6);
}

#[test]
fn nothing_is_lost_on_the_way_to_software() {
    run("random::nothing_is_lost_on_the_way_to_software", c"hybrid", 10..16);
}

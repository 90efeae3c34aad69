//! Tags on UCX's wire that no worker of ours sends. UCX's own bytes are for UCX to check.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::*;

/// The peers: the worker itself, and two more.
const PEERS: u64 = 3;
const LENGTH: usize = 5;
const SOURCE: u64 = 0xff << 8;
const PRESENT: u64 = 1 << 63;

/// How the receiver carries tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    /// The receiver numbers its peers. There is room for immediate data.
    Immediate,
    /// The layout leaves no room for immediate data.
    NoImmediate,
    /// The runtime has its own numbers in the tags.
    OwnSource,
}

struct TagRoom {
    carries: Carries,
    received: Vec<Envelope>,
}

impl TagRoom {
    fn used(&self) -> u64 {
        if self.carries == Carries::NoImmediate { 0xffff_ffff } else { 0xff_ffff }
    }
}

impl Room for TagRoom {
    type Situation = Carries;
    type Sender = ();

    fn enter(carries: Carries) -> Self {
        TagRoom { carries, received: Vec::new() }
    }

    fn takes(_: Carries, (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    /// UCX has matched a message with this tag to a receive.
    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Ok(wire) = bytes.try_into().map(u64::from_le_bytes) else { return false };
        let own = (self.carries == Carries::OwnSource).then_some(1);
        let used = self.used();
        let codec = TagCodec::new(used, SOURCE, own).unwrap();
        let carried = codec.read(wire);
        let is_known = carried.number < PEERS;
        let source = PeerId(u32::try_from(carried.number).unwrap());
        let tag = carried.tag;
        let immediate = carried.immediate;
        let envelope = Envelope { source, tag, length: LENGTH as u64, immediate };
        let mut buffer = Buffer::zeroed(LENGTH);
        let result = received(sys::UCS_OK, is_known.then_some(envelope), None, &mut buffer);
        assert!(result.is_ok() || matches!(result, Err(OperationError::Failed { .. })));
        self.received.extend(result);
        is_known
    }

    fn state(&self) -> String {
        format!("{:?}", self.received)
    }

    /// No bit of the wire is taken for a part of the tag, or for immediate data, that isn't one.
    fn audit(self) {
        let kept = if self.carries == Carries::OwnSource { SOURCE } else { 0 };
        for Envelope { tag, immediate, .. } in &self.received {
            assert_eq!(tag & !(self.used() & !SOURCE | kept), 0, "{tag:x}");
            assert!(immediate.is_none() || self.carries != Carries::NoImmediate);
        }
    }
}

#[test]
fn no_tag_on_the_wire_names_a_peer_that_there_is_not() {
    let wire = PRESENT | 7 << 31 | 2 << 8 | 9;
    let message = Message::new("tag", wire.to_le_bytes()).le(1, "low tag", Meaning::Free);
    let message = message.le(1, "number", Meaning::Within(0..=PEERS - 1));
    let message = message.le(1, "high tag", Meaning::Free);
    let message = message.le(1, "bits without a meaning", Meaning::Free);
    let message = message.le(4, "immediate", Meaning::Free);
    let situations = [Carries::Immediate, Carries::NoImmediate, Carries::OwnSource];
    try_all::<TagRoom>(&situations, &[()], &[message]);
}

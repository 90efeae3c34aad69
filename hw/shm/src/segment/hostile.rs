//! The words that another member of a segment stores, and names of segments, as a hostile process
//! changes them.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::*;

/// The member whose words are changed. This member is the one before.
const OTHER: u32 = 1;
const ABOUT: u64 = 7;

/// The round in which this member waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    First,
    /// A round whose slot was used before.
    Later,
}

impl Round {
    fn stamp(self) -> Stamp {
        match self {
            Round::First => Stamp::new(1, 0),
            Round::Later => Stamp::new(1, u32::try_from(memory::SLOTS).unwrap()),
        }
    }
}

struct SegmentRoom {
    segment: Segment,
    other: Segment,
    _name: SegmentName,
    stamp: Stamp,
}

impl Room for SegmentRoom {
    type Situation = Round;
    type Sender = ();

    fn enter(round: Round) -> Self {
        let (mut segment, name) = Segment::create(2, 0).unwrap();
        let mut other = Segment::open(name.as_bytes(), 2, OTHER).unwrap();
        if round == Round::Later {
            let first = Round::First.stamp();
            other.publish(first, false, ABOUT);
            assert_eq!(segment.look(OTHER, first, 1), Published::Contents { about: ABOUT });
        }
        SegmentRoom { segment, other, _name: name, stamp: round.stamp() }
    }

    fn takes(_: Round, (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Some([stamp, about]) = bytes.as_chunks().0.first_chunk::<2>() else { return false };
        if bytes.len() != 16 {
            return false;
        }
        let slot = self.segment.memory.slot(OTHER, self.stamp.slot());
        slot.about.store(u64::from_le_bytes(*about), Relaxed);
        slot.stamp.store(u64::from_le_bytes(*stamp), Release);
        let published = self.segment.look(OTHER, self.stamp, 3);
        let about = u64::from_le_bytes(*about);
        assert!(!matches!(published, Published::Contents { about: found } if found != about));
        published == Published::Contents { about }
    }

    fn state(&self) -> String {
        format!("{:?}", (&self.segment.finished, self.segment.finished_by_all))
    }

    /// The other member's own words count again once it states them.
    fn audit(mut self) {
        self.other.publish(self.stamp, false, ABOUT);
        let published = self.segment.look(OTHER, self.stamp, 1);
        assert_eq!(published, Published::Contents { about: ABOUT });
        let mut contents = [0; SLOT_BYTES];
        self.segment.contents(OTHER, self.stamp, false).read(0, &mut contents);
    }
}

#[test]
fn no_word_of_a_member_is_taken_for_that_of_another_round() {
    for round in [Round::First, Round::Later] {
        let bytes = [round.stamp().0.to_le_bytes(), ABOUT.to_le_bytes()].concat();
        let message = Message::new("slot", bytes).le(8, "stamp", Meaning::Fixed);
        try_all::<SegmentRoom>(&[round], &[()], &[message.le(8, "about", Meaning::Free)]);
    }
}

/// A segment for two members, which others open by its name.
struct NameRoom;

impl Room for NameRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        NameRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        Segment::open(bytes, 2, OTHER).is_ok()
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn no_name_opens_another_memory() {
    let (_segment, name) = Segment::create(2, 0).unwrap();
    let message = Message::new("name", *name.as_bytes());
    // A thread of the same process has the same memory.
    let message = message.bytes_of(4, "process", &Meaning::Open);
    let message = message.bytes_of(NAME_BYTES - 4, "descriptor and token", &Meaning::Fixed);
    try_all::<NameRoom>(&[()], &[()], &[message]);
}

//! A writer that publishes any word, at each distance from the end of a lap, and a reader that says
//! of any lines that it has read them.

use tagmatch_device::bytes::{u32_at, u64_at};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::super::slot::{BODY_BYTES, is_in_two_slots, room};
use super::*;

/// How the reader takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each message is parsed.
    Parsed,
    /// Common messages are taken on the short way, as a device takes them.
    Short,
}

/// Where the reader is: so many lines are left of the lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    left: u32,
    way: Way,
}

struct ReaderRoom {
    place: Place,
    ring: Ring,
    ends: Ends,
    watch: Watch,
    messages: u32,
}

const LINES: u32 = 64;
/// A word in the description: its length, and its flags as a number of their own.
const WORD_BYTES: usize = 5;
const FLAGS_AT: u32 = 27;

/// The longest message of at most so many lines; `None` if no message is that short.
fn longest(lines: u32, immediate: bool) -> Option<u32> {
    let takes = |length: u32| {
        if length <= room(immediate) {
            1
        } else if is_in_two_slots(length, immediate) {
            2
        } else {
            1 + (length - room(immediate)).div_ceil(64)
        }
    };
    (0..=MESSAGE_MAX).rev().find(|length| takes(*length) <= lines)
}

impl Room for ReaderRoom {
    type Situation = Place;
    type Sender = ();

    fn enter(place: Place) -> Self {
        let ring = ring();
        let ends = Ends::new(&ring, LINES - place.left);
        let watch = ends.consumer.watch();
        ReaderRoom { place, ring, ends, watch, messages: 0 }
    }

    fn takes(place: Place, (): (), message: &Message) -> Legality {
        let is_first = place.left == LINES;
        match message.name() {
            "skip" if is_first => Legality::Illegal,
            _ => Legality::Legal,
        }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        if bytes.len() != WORD_BYTES + BODY_BYTES as usize {
            return false;
        }
        let (word, body) = bytes.split_at(WORD_BYTES);
        let before = self.ends.consumer.taken();
        let lap = Meta::of_lap(self.ring.geometry().is_in_odd_lap(before));
        let meta = u32_at(word, 0) | u32::from(word[4]) << FLAGS_AT;
        let slot = self.ring.slot(before);
        for (to, from) in slot.body.0.iter().zip(body.chunks_exact(8)) {
            to.store(u64_at(from, 0), Relaxed);
        }
        slot.word.store(u64::from(meta ^ lap.0) << 32 | u64::from(before), Relaxed);
        let popped = match self.place.way {
            Way::Parsed => pop(&mut self.ends.consumer),
            Way::Short => pop_watched(&mut self.ends.consumer, &mut self.watch),
        };
        match popped {
            Some(Ok((_, bytes))) => {
                assert!(bytes.len() <= MESSAGE_MAX as usize);
                self.messages += 1;
                true
            }
            Some(Err(_)) => false,
            // Lines were skipped, or there is no message of this lap.
            None => self.ends.consumer.taken() != before,
        }
    }

    fn state(&self) -> String {
        format!("{:?}", (self.ends.consumer.taken(), self.messages))
    }

    /// The reader is at most two laps ahead.
    fn audit(self) {
        let gone = self.ends.consumer.taken().wrapping_sub(LINES - self.place.left);
        assert!(gone <= self.ends.consumer.capacity(), "{gone}");
    }
}

/// A word and the body behind it. `meta`: how the word looks with a length of 0.
fn word(name: &'static str, meta: Meta, length: (u32, Meaning), target: (u32, Meaning)) -> Message {
    let flags = u8::try_from(meta.0 >> FLAGS_AT).unwrap();
    let rest = [7; BODY_BYTES as usize - 4];
    let bytes = [&length.0.to_le_bytes()[..], &[flags], &target.0.to_le_bytes(), &rest].concat();
    let message = Message::new(name, bytes).le(4, "length", length.1);
    let message = message.le(1, "flags", Meaning::Open).le(4, "target", target.1);
    message.bytes_of(rest.len(), "body", &Meaning::Free)
}

fn all(place: Place) -> Vec<Message> {
    let mut all = Vec::new();
    for (immediate, is_last) in [(false, false), (true, false), (false, true), (true, true)] {
        // A message that fills the lap says that it is the last one.
        let lines = if is_last { place.left } else { place.left - 1 };
        if let Some(longest) = longest(lines, immediate) {
            let meta = Meta::new(0, immediate, false, is_last);
            // The short way doesn't look whether one line or two are the last of their lap. Such a
            // writer has its own old messages read again, and those of nobody else.
            let is_unseen = place.way == Way::Short && place.left <= 2;
            let lengths =
                if is_unseen { Meaning::Open } else { Meaning::Within(0..=longest.into()) };
            all.push(word("message", meta, (longest.min(20), lengths), (0, Meaning::Free)));
        }
    }
    let none = || (0, Meaning::Open);
    all.push(word("skip", Meta::SKIP, none(), (0, Meaning::Free)));
    all.push(word("change", Meta::SKIP, (1, Meaning::Open), none()));
    if place.left > 1 {
        let next = LINES - place.left + 1;
        let lines = Meaning::Within(next.into()..=u64::from(LINES) - 1);
        all.push(word("jump", Meta::JUMP, none(), (next, lines)));
    }
    all
}

#[test]
fn no_word_of_a_writer_takes_the_reader_beyond_its_lap() {
    for left in [1, 2, 3, 4, 20, 31, 32, LINES] {
        for way in [Way::Parsed, Way::Short] {
            let place = Place { left, way };
            try_all::<ReaderRoom>(&[place], &[()], &all(place));
        }
    }
}

/// How a reader says how far it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    InTheHeader,
    /// In the word of a message of the other direction.
    OnTheWay,
}

/// A writer whose ring is full.
struct WriterRoom {
    ring: Ring,
    ends: Ends,
    told: Told,
    sent: u32,
    /// The last position that was believed.
    read: u32,
}

/// What the reader has said that it has read, in lines.
const READ: u32 = 20;

impl WriterRoom {
    /// Sends messages of one line until there is no room.
    fn fill(&mut self) -> Result<(), &'static str> {
        loop {
            match self.ends.producer.push(&[1; 8], &[], None, &0) {
                Ok(()) => self.sent += 1,
                Err(PushError::Full) => return Ok(()),
                Err(PushError::Broken(what)) => return Err(what),
            }
        }
    }

    fn say(&self, read: u32) {
        match self.told {
            Told::InTheHeader => self.ring.header().consumed.0.store(read, Relaxed),
            Told::OnTheWay => self.ends.piggybacks[0].take(0, read),
        }
    }

    fn new(told: Told) -> Self {
        let ring = ring();
        let ends = Ends::new(&ring, 0);
        let mut room = WriterRoom { ring, ends, told, sent: 0, read: READ };
        room.fill().unwrap();
        room.say(READ);
        room.fill().unwrap();
        room
    }
}

impl Room for WriterRoom {
    type Situation = Told;
    type Sender = ();

    fn enter(told: Told) -> Self {
        Self::new(told)
    }

    fn takes(_: Told, (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Ok(read) = bytes.try_into().map(u32::from_le_bytes) else { return false };
        self.say(read);
        let is_believed = self.fill().is_ok();
        self.read = if is_believed { read } else { self.read };
        is_believed
    }

    fn state(&self) -> String {
        format!("{}", self.sent)
    }

    /// No line is written again that was not read.
    fn audit(self) {
        assert!(self.sent - self.read <= LINES, "{} of {}", self.read, self.sent);
    }
}

#[test]
fn no_word_of_a_reader_frees_what_it_cannot_have_read() {
    for told in [Told::InTheHeader, Told::OnTheWay] {
        let written = WriterRoom::new(told).sent;
        let lines = Meaning::Within(READ.into()..=written.into());
        let message = Message::new("read", READ.to_le_bytes()).le(4, "position", lines);
        try_all::<WriterRoom>(&[told], &[()], &[message]);
    }
}

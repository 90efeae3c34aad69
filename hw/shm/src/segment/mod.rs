//! Memory that the members of a group on one machine map together, for their collective
//! operations.
//!
//! | file | contents |
//! |---|---|
//! | `memory` | the layout, and copies into it and out of it |
//! | `name` | how a member finds the memory that another member has made |
//! | `restate` | how a member undoes what another process has written over its words |
//!
//! Each member has 8 *slots*, each with a stamp, a word about the contents and 112 bytes, and 2
//! *areas* of 64 KiB for longer contents. Only the member itself writes them; all members read
//! them.
//!
//! # The protocol
//! An operation has a number, and *rounds*. Number and round together are a [`Stamp`]. All members
//! count alike, so they agree on the stamps without a message.
//!
//! 1. A member has room for what it will publish in a round when all members have read what it
//!    published before in that round's slot, and in its area if the contents are long
//!    ([`Segment::lacks`]).
//! 2. It writes the contents, and then publishes them: it stores the round's stamp in the slot
//!    ([`Segment::publish`]).
//! 3. A reader waits until it sees the round's stamp there ([`Segment::look`]), and then copies the
//!    contents ([`PublishedContents::read`]).
//! 4. A reader that has read what it needs of a round says so in a word of its own
//!    ([`Segment::finish`]). A member that has published in a round has finished the rounds before.
//! 5. At the end of an operation a member has finished all rounds that the operation could have
//!    ([`Stamp::end`]), even if it failed before. A reader that waits for a round of a member that
//!    has finished the operation without publishing knows that this member gave up
//!    ([`Segment::has_ended`]).
//!
//! # Trust
//! Members are processes of one user, and may write anything anywhere in the segment at any time.
//! They can make contents wrong, and they can make a member wait as if a member never called. They
//! cause no access outside the segment: all places are computed from numbers of this process, and
//! contents are copied before they are looked at.

#[cfg(all(test, not(loom)))]
mod hostile;
mod memory;
#[cfg(all(loom, test))]
mod model;
mod name;
mod restate;

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tagmatch_os::memory::SealedMemory;

use memory::{ContentsPlace, Memory};
pub use name::{NAME_BYTES, SegmentName};

use crate::streaming::{self, Writing};

/// Bytes that a slot holds beside its stamp.
pub const SLOT_BYTES: usize = memory::SLOT_BYTES;
/// Bytes of an area.
pub const AREA_BYTES: usize = memory::AREA_BYTES;
/// The most members of a segment: as many ranks as a machine has, and more. Nothing in the segment
/// depends on the number but its length.
pub const MEMBERS_MAX: u32 = 1024;
/// The most rounds of an operation.
pub const ROUNDS_MAX: u32 = 60_000;

/// Contents up to this length are written past the cache only if that is faster at this distance of
/// the cores; longer ones always, on processors where it is faster at all. An allreduce of 4 KiB by
/// two members of an EPYC took 0.65 and 1.1 microseconds in one cache, and 2.2 and 1.2 apart; one
/// of 16 KiB took 3.0 and 2.9, and 9.7 and 3.0.
const TIMED_MAX: usize = 12 << 10;

const SLOTS: u64 = memory::SLOTS as u64;
const AREAS: u64 = memory::AREAS as u64;
/// Contents up to this length take turns through the parts of their area. A line that is written
/// again soon is still in the reader's nearest cache, and the writer waits until it is gone from
/// there: two members of a Xeon swapped 16 KiB in 4.3 us at one place of each area, in 3.8 at four.
const PART_BYTES: usize = memory::AREA_BYTES / PARTS;
const PARTS: usize = 4;

/// A round of an operation. Later operations have greater stamps, and so have later rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    /// A round of an operation. Operations are numbered from 1, rounds from 0.
    #[inline]
    pub fn new(operation: u64, round: u32) -> Self {
        Stamp(operation << 16 | u64::from(round.min(ROUNDS_MAX)))
    }

    /// After all rounds of this stamp's operation.
    #[inline]
    pub fn end(self) -> Self {
        Stamp(self.0 | 0xffff)
    }

    /// Turns with the rounds of an operation, and from one operation to the next.
    #[inline]
    fn turn(self) -> u64 {
        (self.0 >> 16).wrapping_add(self.0 & 0xffff)
    }

    #[inline]
    fn slot(self) -> usize {
        (self.turn() % SLOTS) as usize
    }

    #[inline]
    fn area(self) -> usize {
        (self.turn() % AREAS) as usize
    }

    /// Where contents of so many bytes, of all that a member publishes in this round, begin in
    /// their area. All members must give the same length.
    #[inline]
    pub fn start_in_area(self, length: usize) -> usize {
        if length > PART_BYTES {
            return 0;
        }
        (self.turn() / AREAS) as usize % PARTS * PART_BYTES
    }

    /// The stamp before this one.
    fn before(self) -> Self {
        Stamp(self.0.saturating_sub(1))
    }
}

/// What a member has published in a round, as far as another member sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Nothing yet.
    NotYet,
    /// Contents, with the word about them.
    Contents {
        /// The word that was given to [`Segment::publish`].
        about: u64,
    },
    /// Something of a later round: the member counts differently, or its slot was overwritten.
    Other,
}

/// Contents of a round, to be read in the segment.
pub struct PublishedContents<'a> {
    memory: &'a Memory,
    place: ContentsPlace,
}

impl PublishedContents<'_> {
    /// Copies the bytes from `offset` on. What is not in the slot or the area stays as it is in
    /// `into`.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.memory.read(self.place, offset, into);
    }

    /// Appends `length` bytes from `offset` on. What is not in the slot or the area is 0.
    pub fn append(&self, offset: usize, length: usize, to: &mut Vec<u8>) {
        let end = to.len() + length;
        self.memory.append(self.place, offset, length, to);
        to.resize(end, 0);
    }
}

/// A member's view of the memory that a group maps together. See the [module](self) for the rules.
pub struct Segment {
    memory: Memory,
    own: u32,
    /// By member: this member knows that the member has finished these rounds.
    finished: Vec<Stamp>,
    /// All members have finished these rounds.
    finished_by_all: Stamp,
    /// By slot: the last stamp published there.
    in_slots: [Stamp; memory::SLOTS],
    /// By area: the stamp of its last contents.
    in_areas: [Stamp; memory::AREAS],
    writing: Writing,
}

impl Segment {
    /// Makes the memory for a group of `members`. The others open it by the name, as long as the
    /// [`SegmentName`]'s owner, which this returns, is kept.
    ///
    /// # Errors
    /// The system refused the memory, or there are more than [`MEMBERS_MAX`] members.
    pub fn create(members: u32, own: u32) -> io::Result<(Self, SegmentName)> {
        let memory = SealedMemory::new(c"tagmatch-segment", length_of(members, own)?)?;
        let mapped = Memory::new(memory.map()?, members)?;
        let name = SegmentName::of(memory, mapped.token())?;
        Ok((Segment::over(mapped, members, own), name))
    }

    /// Maps the memory that another member has made.
    ///
    /// # Errors
    /// The bytes are no name, the memory is on another machine or can't be reached, or it is not
    /// for that many members.
    pub fn open(name: &[u8], members: u32, own: u32) -> io::Result<Self> {
        let memory = name::open(name, length_of(members, own)?)?;
        let mapped = Memory::new(memory.map()?, members)?;
        name::check(name, mapped.token())?;
        Ok(Segment::over(mapped, members, own))
    }

    fn over(memory: Memory, members: u32, own: u32) -> Self {
        Segment {
            memory,
            own,
            finished: vec![Stamp(0); members as usize],
            finished_by_all: Stamp(0),
            in_slots: [Stamp(0); memory::SLOTS],
            in_areas: [Stamp(0); memory::AREAS],
            writing: Writing::new(streaming::is_faster_here(), TIMED_MAX),
        }
    }

    /// The number of members.
    pub fn members(&self) -> u32 {
        self.memory.members()
    }

    /// A member that has still to read what this member published before in the slot of this round,
    /// or in its area if the contents are `long`. `None`: there is room for this round.
    #[inline]
    pub fn lacks(&mut self, stamp: Stamp, long: bool) -> Option<u32> {
        let mut old = self.in_slots[stamp.slot()];
        if long {
            old = old.max(self.in_areas[stamp.area()]);
        }
        if old <= self.finished_by_all {
            return None;
        }
        let Segment { memory, own, finished, .. } = self;
        (0..).zip(finished).find_map(|(member, known)| {
            if *known < old && member != *own {
                *known = Stamp(memory.finished(member).load(Acquire)).max(*known);
                return (*known < old).then_some(member);
            }
            None
        })
    }

    /// Waits no more until this member has read something: its process is down.
    pub fn forget(&mut self, member: u32) {
        if let Some(known) = self.finished.get_mut(member as usize) {
            *known = Stamp(u64::MAX);
        }
    }

    /// Writes contents of a round, from `offset` of its slot on, or of its area if they are `long`.
    /// Contents that do not fit are left out. In an area, the bytes between the end of these
    /// contents and the next multiple of 64 bytes may be overwritten.
    #[inline]
    pub fn write(&mut self, stamp: Stamp, long: bool, offset: usize, contents: &[u8]) {
        let place = place(self.own, stamp, long);
        self.memory.write(place, offset, contents, &mut self.writing);
    }

    /// Publishes the contents that were written for a round, with a word about them. There must be
    /// room for the round ([`lacks`](Self::lacks)).
    #[inline]
    pub fn publish(&mut self, stamp: Stamp, long: bool, about: u64) {
        self.in_slots[stamp.slot()] = stamp;
        if long {
            self.in_areas[stamp.area()] = stamp;
        }
        let slot = self.memory.slot(self.own, stamp.slot());
        slot.about.store(about, Relaxed);
        // The readers see the contents and the word once they see the stamp.
        slot.stamp.store(stamp.0, Release);
    }

    /// What another member has published in a round. Looks at most so many times, at least once,
    /// until there is something.
    #[inline]
    pub fn look(&mut self, member: u32, stamp: Stamp, looks: u32) -> Published {
        let slot = self.memory.slot(member, stamp.slot());
        let mut current = Stamp(slot.stamp.load(Acquire));
        let mut left = looks;
        while current < stamp {
            left = left.saturating_sub(1);
            if left == 0 {
                return Published::NotYet;
            }
            current = Stamp(slot.stamp.load(Acquire));
        }
        if current > stamp {
            return Published::Other;
        }
        let about = slot.about.load(Relaxed);
        // The member has finished the rounds before. So `lacks` need not load its word, whose line
        // the member would have to take back.
        if let Some(known) = self.finished.get_mut(member as usize) {
            *known = stamp.before().max(*known);
        }
        Published::Contents { about }
    }

    /// Takes note that all other members have published in a round, and so have finished the rounds
    /// before.
    #[inline]
    pub fn seen_all(&mut self, stamp: Stamp) {
        self.finished_by_all = stamp.before();
    }

    /// The contents of a round that another member has published.
    #[inline]
    pub fn contents(&self, member: u32, stamp: Stamp, long: bool) -> PublishedContents<'_> {
        PublishedContents { memory: &self.memory, place: place(member, stamp, long) }
    }

    /// Says that this member has read all that it needs of the rounds up to this one.
    #[inline]
    pub fn finish(&mut self, stamp: Stamp) {
        // The reads are before this, for a writer that sees it.
        self.memory.finished(self.own).store(stamp.0, Release);
    }

    /// Fetches the slot in which this member publishes next. The readers of its old contents have
    /// copies of the slot's cache line; publishing is faster once those copies are gone.
    #[inline]
    pub fn prefetch(&self, stamp: Stamp) {
        self.memory.prefetch(self.own, stamp.slot());
    }

    /// Whether a member has finished the operation of this stamp: it will publish nothing more in
    /// the operation. What it published before is current by a [`look`](Self::look) after this.
    pub fn has_ended(&self, member: u32, stamp: Stamp) -> bool {
        self.memory.finished(member).load(Acquire) >= stamp.end().0
    }
}

fn length_of(members: u32, own: u32) -> io::Result<usize> {
    if !(1..=MEMBERS_MAX).contains(&members) || own >= members {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    Ok(memory::length_bytes(members))
}

#[inline]
fn place(member: u32, stamp: Stamp, long: bool) -> ContentsPlace {
    if long {
        ContentsPlace::Area(member, stamp.area())
    } else {
        ContentsPlace::Slot(member, stamp.slot())
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment(member {} of {})", self.own, self.members())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn pair() -> [Segment; 2] {
        let (first, name) = Segment::create(2, 0).unwrap();
        [first, Segment::open(name.as_bytes(), 2, 1).unwrap()]
    }

    #[test]
    fn a_member_that_has_published_has_finished_the_rounds_before() {
        let [mut first, mut second] = pair();
        (1..=SLOTS).for_each(|operation| first.publish(Stamp::new(operation, 0), false, 0));
        let next = Stamp::new(SLOTS + 1, 0);
        assert_eq!(first.lacks(next, false), Some(1));
        let answer = Stamp::new(2, 0);
        second.publish(answer, false, 7);
        assert_eq!(first.look(1, answer, 1), Published::Contents { about: 7 });
        assert_eq!(first.lacks(next, false), None);
        assert_eq!(first.lacks(Stamp::new(SLOTS + 2, 0), false), Some(1));
    }

    #[test]
    fn a_look_ends_although_nothing_is_published() {
        let [mut first, _second] = pair();
        for looks in [0, 1, 100] {
            assert_eq!(first.look(1, Stamp::new(1, 0), looks), Published::NotYet);
        }
    }

    #[test]
    fn short_contents_take_turns_through_all_parts_of_the_areas() {
        let places: HashSet<_> = (0..64)
            .map(|round| {
                let stamp = Stamp::new(1, round);
                assert_eq!(stamp.start_in_area(PART_BYTES + 1), 0);
                let start = stamp.start_in_area(PART_BYTES);
                assert!(start + PART_BYTES <= AREA_BYTES);
                (stamp.area(), start)
            })
            .collect();
        assert_eq!(places.len(), memory::AREAS * PARTS);
    }

    #[test]
    fn appended_contents_have_the_length_that_was_asked_for() {
        let [first, mut second] = pair();
        let stamp = Stamp::new(1, 0);
        second.write(stamp, true, 0, b"abc");
        second.write(stamp, true, AREA_BYTES - 1, b"z");
        second.publish(stamp, true, 0);
        let contents = first.contents(1, stamp, true);
        let mut bytes = vec![b'-'];
        contents.append(1, 2, &mut bytes);
        contents.append(AREA_BYTES - 1, 3, &mut bytes);
        contents.append(AREA_BYTES + 1, 1, &mut bytes);
        assert_eq!(bytes, b"-bcz\0\0\0");
    }
}

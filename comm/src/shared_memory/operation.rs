//! One member's part in an operation: what it publishes in each round, and what it reads.
//!
//! | operation | rounds | a member publishes | and reads |
//! |---|---|---|---|
//! | barrier | one | nothing but the stamp | all others' stamps |
//! | broadcast | one for each piece | the root: the piece | the others: the root's |
//! | allgather | one for each piece | its piece | all others' |
//! | alltoall | one for each piece of a block | a piece of each block | its own one of each other |
//! | reduce | one for each piece | all but the root: the piece | the root: all others' |
//! | allreduce | one for each piece | its piece | all others' |
//! | reduce, sliced | two for each piece | its piece; then all but the root: their combined slice | its slice of all others'; then the root: their slices |
//! | allreduce, sliced | two for each piece | its piece; then its combined slice | its slice of all others'; then their slices |
//!
//! A reduction of more than two members is sliced if it has 2 KiB or more: each member combines a
//! part of each piece.
//!
//! Contents that fit a slot are one piece there. Longer ones go through the areas. Values are
//! combined in the order of ranks, from the last to the first, so all members get equal results,
//! and the operation need not be commutative.

use std::mem;
use std::ops::Range;
use std::time::Duration;

use tagmatch::Buffer;
use tagmatch::shm::segment::{AREA_BYTES, MEMBERS_MAX, ROUNDS_MAX, SLOT_BYTES};
use tagmatch::shm::segment::{Published, Segment, Stamp};

use crate::error::Error;
use crate::plans::{Call, Coll, Op, WorkMemory};

/// Values are combined in blocks of this many bytes, which stay in a processor's nearest cache.
const BLOCK_BYTES: usize = 4096;

/// From this many bytes on, each member of a reduction of more than two combines a slice.
const SLICED_MIN: usize = 2048;

/// Blocks of an alltoall up to this length lie close together, in as few cache lines as they need.
/// Each longer one begins with a cache line, so that it can be written past the cache.
const PACKED_MAX: usize = 1024;

/// The fields of the word about contents: the length, the operation, and the root in the lowest
/// bits.
const COLL_SHIFT: u32 = 16;
const LENGTH_SHIFT: u32 = 24;
const _: () = assert!(MEMBERS_MAX <= 1 << COLL_SHIFT);

/// A member that sees nobody give up is as many times as patient, for each rank of the distance, up
/// to some ranks.
const ALONE: u32 = 8;
const ALONE_RANKS_MAX: u32 = 3;

/// How an operation is cut into rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundShape {
    /// Whether contents go through the areas.
    is_long: bool,
    /// Bytes of a piece; for an alltoall, of each block.
    piece: usize,
    /// Whether a piece takes two rounds: each member combines a slice.
    is_sliced: bool,
    rounds: u32,
}

impl RoundShape {
    /// `None`: values or blocks don't fit an area, or there are too many pieces.
    #[inline]
    pub(crate) fn of(call: &Call, members: u32) -> Option<Self> {
        if call.data.len() <= SLOT_BYTES && call.coll != Coll::Alltoall {
            return Some(RoundShape {
                is_long: false,
                piece: SLOT_BYTES,
                is_sliced: false,
                rounds: 1,
            });
        }
        let members = members as usize;
        let is_long = call.data.len() > SLOT_BYTES;
        let room = if is_long { AREA_BYTES } else { SLOT_BYTES };
        let width = call.op.as_ref().map_or(1, Op::width);
        let is_sliced = matches!(call.coll, Coll::Reduce | Coll::Allreduce)
            && call.data.len() >= SLICED_MIN
            && members > 2;
        let block = call.data.len() / members;
        let (all, piece) = match call.coll {
            Coll::Alltoall if block < PACKED_MAX && call.data.len() <= room => (block, block),
            Coll::Alltoall => (block, room / members / 64 * 64),
            _ => (call.data.len(), room / width * width),
        };
        let pieces = if all == 0 { 1 } else { all.div_ceil((piece > 0).then_some(piece)?) };
        let rounds = u32::try_from(pieces * (1 + usize::from(is_sliced))).ok()?;
        (rounds <= ROUNDS_MAX).then_some(RoundShape { is_long, piece, is_sliced, rounds })
    }
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Done,
    /// This member must have read what this process published before.
    NoRoom(u32),
    /// This member must publish.
    Unpublished(u32),
}

/// How many times as patient a member is that sees nobody give up, and waits for one at a distance.
fn times_as_patient(distance: u32, members: u32) -> u32 {
    ALONE * distance.min(members - distance).min(ALONE_RANKS_MAX)
}

/// A member's block at its place among those of all members. Out of the way of short operations.
#[inline(never)]
fn with_room_for_all(mut block: WorkMemory, own: u32, members: u32) -> WorkMemory {
    let length = block.len();
    block.resize(length * members as usize);
    block.copy_within(..length, length * own as usize);
    block
}

/// One member's part in an operation.
pub(crate) struct SharedOperation {
    coll: Coll,
    root: u32,
    op: Option<Op>,
    /// This member's bytes, which become the result. In an allgather, the blocks of all members.
    memory: WorkMemory,
    shape: RoundShape,
    number: u64,
    round: u32,
    has_published: bool,
    /// The members before this one have published what this member needs in this round.
    next: u32,
    own: u32,
    members: u32,
    /// The word by which the members notice that their calls differ.
    about: u64,
}

impl SharedOperation {
    /// The arguments were checked. `number`: the operation's number.
    #[inline(always)]
    pub(crate) fn new(call: Call, shape: RoundShape, number: u64, own: u32, members: u32) -> Self {
        let Call { coll, root, data, op, .. } = call;
        let length = data.len();
        let data = WorkMemory::from(data);
        let memory = match coll {
            Coll::Allgather => with_room_for_all(data, own, members),
            _ => data,
        };
        let about = (length as u64) << LENGTH_SHIFT | (coll as u64) << COLL_SHIFT | u64::from(root);
        SharedOperation {
            coll,
            root,
            op,
            memory,
            shape,
            number,
            round: 0,
            has_published: false,
            next: 0,
            own,
            members,
            about,
        }
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::new(self.number, self.round)
    }

    /// Goes on as far as possible.
    ///
    /// # Errors
    /// Another member has made another call.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        segment: &mut Segment,
        scratch: &mut Vec<u8>,
    ) -> Result<Stand, Error> {
        loop {
            let stamp = self.stamp();
            if !self.has_published {
                if self.publishes() {
                    if let Some(member) = segment.lacks(stamp, self.shape.is_long) {
                        return Ok(Stand::NoRoom(member));
                    }
                    self.publish(segment, stamp);
                }
                self.has_published = true;
            }
            while let Some(member) = self.awaited() {
                match segment.look(member, stamp) {
                    Published::NotYet => return Ok(Stand::Unpublished(member)),
                    Published::Contents { about } if about == self.about => self.next = member + 1,
                    Published::Contents { about } => return Err(self.mismatch(member, about)),
                    Published::Other => return Err(self.mismatch(member, 0)),
                }
            }
            if self.reads_all() {
                segment.seen_all(stamp);
            }
            self.take(segment, stamp, scratch);
            self.round += 1;
            if self.round == self.shape.rounds {
                segment.finish(stamp.end());
                segment.prefetch(Stamp::new(self.number + 1, 0));
                return Ok(Stand::Done);
            }
            segment.finish(stamp);
            (self.has_published, self.next) = (false, 0);
        }
    }

    /// Gives up this member's part: it publishes nothing more.
    pub(crate) fn give_up(&self, segment: &mut Segment) {
        segment.finish(self.stamp().end());
    }

    /// The time after which this process watches a member that it waits for. Some members are
    /// connected to that one in any case: they notice its death, and give up their parts.
    /// The others see that, or watch by themselves at last, its neighbours first. So few members
    /// connect to one that is late.
    pub(crate) fn patience(&self, segment: &Segment, member: u32, least: Duration) -> Duration {
        if self.others().any(|other| self.has_given_up(segment, other)) {
            return least;
        }
        least * times_as_patient(self.own.abs_diff(member), self.members)
    }

    /// Whether a member has given up its part.
    pub(crate) fn has_given_up(&self, segment: &Segment, member: u32) -> bool {
        segment.has_ended(member, self.stamp())
    }

    fn mismatch(&self, rank: u32, about: u64) -> Error {
        Error::Mismatch { rank, length: about >> LENGTH_SHIFT, due: self.length() }
    }

    /// The result, after the end.
    pub(crate) fn result(&mut self) -> Buffer {
        match self.coll {
            Coll::Reduce if self.own != self.root => Buffer::default(),
            _ => self.take_memory(),
        }
    }

    /// The memory, whatever the operation has made of it.
    pub(crate) fn take_memory(&mut self) -> Buffer {
        mem::take(&mut self.memory).into()
    }

    fn publishes(&self) -> bool {
        match self.coll {
            Coll::Broadcast => self.own == self.root,
            Coll::Reduce => self.own != self.root || self.combines_slice(),
            _ => true,
        }
    }

    /// Whether this member needs the contents of all others in this round.
    #[inline]
    fn reads_all(&self) -> bool {
        match self.coll {
            Coll::Broadcast => false,
            Coll::Reduce => self.own == self.root || self.combines_slice(),
            _ => true,
        }
    }

    /// The next member whose contents this member needs in this round.
    #[inline]
    fn awaited(&self) -> Option<u32> {
        match self.coll {
            Coll::Broadcast if self.own == self.root || self.next > self.root => None,
            Coll::Broadcast => Some(self.root),
            _ if !self.reads_all() => None,
            _ => {
                let next = self.next + u32::from(self.next == self.own);
                (next < self.members).then_some(next)
            }
        }
    }

    /// The place of this round's piece in a block that begins at `start` and has `length` bytes.
    fn piece(&self, start: usize, length: usize) -> Range<usize> {
        let round = self.round as usize >> u32::from(self.shape.is_sliced);
        let at = (round * self.shape.piece).min(length);
        start + at..start + length.min(at + self.shape.piece)
    }

    /// The place of a member's slice of the piece at `piece`.
    fn slice(&self, piece: &Range<usize>, member: u32) -> Range<usize> {
        let width = self.op.as_ref().map_or(1, Op::width);
        let values = piece.len() / width;
        let members = self.members as usize;
        let at = |member: usize| piece.start + values * member / members * width;
        at(member as usize)..at(member as usize + 1)
    }

    /// The length of the bytes that this member gave.
    #[inline]
    fn length(&self) -> usize {
        if self.coll == Coll::Allgather { self.block() } else { self.memory.len() }
    }

    /// The length of a block.
    fn block(&self) -> usize {
        self.memory.len() / self.members as usize
    }

    /// Whether this is the first round of a sliced piece, in which each member combines its slice.
    fn combines_slice(&self) -> bool {
        self.shape.is_sliced && self.round.is_multiple_of(2)
    }

    /// Whether this is the second round of a sliced piece, in which members publish their combined
    /// slices.
    fn shares_slices(&self) -> bool {
        self.shape.is_sliced && !self.round.is_multiple_of(2)
    }

    #[inline]
    fn publish(&self, segment: &mut Segment, stamp: Stamp) {
        let is_long = self.shape.is_long;
        if self.coll == Coll::Alltoall {
            let block = self.block();
            if self.shape.piece == block {
                // The blocks lie in the segment as they lie here. The readers need all but the own.
                let before = block * self.own as usize;
                let after = block * (self.own as usize + 1);
                segment.write(stamp, is_long, 0, &self.memory[..before]);
                segment.write(stamp, is_long, after, &self.memory[after..]);
            } else {
                for member in self.others() {
                    let piece = self.piece(block * member as usize, block);
                    let at = member as usize * self.shape.piece;
                    segment.write(stamp, is_long, at, &self.memory[piece]);
                }
            }
        } else {
            // In an allgather, this piece of the first block is still this member's own.
            let mut piece = self.piece(0, self.length());
            if self.shares_slices() {
                piece = self.slice(&piece, self.own);
            }
            segment.write(stamp, is_long, 0, &self.memory[piece]);
        }
        segment.publish(stamp, is_long, self.about);
    }

    /// Reads what the others have published in this round. All that this member needs is there.
    #[inline]
    fn take(&mut self, segment: &Segment, stamp: Stamp, scratch: &mut Vec<u8>) {
        let is_long = self.shape.is_long;
        let all = self.length();
        match self.coll {
            Coll::Broadcast if self.own != self.root => {
                let piece = self.piece(0, all);
                segment.contents(self.root, stamp, is_long).read(0, &mut self.memory[piece]);
            }
            Coll::Reduce | Coll::Allreduce if self.combines_slice() => {
                let piece = self.piece(0, all);
                let slice = self.slice(&piece, self.own);
                self.combine(segment, slice.start - piece.start, slice, scratch);
            }
            Coll::Reduce if self.own != self.root => {}
            Coll::Reduce | Coll::Allreduce if self.shares_slices() => {
                let piece = self.piece(0, all);
                for member in self.others() {
                    let slice = self.slice(&piece, member);
                    segment.contents(member, stamp, is_long).read(0, &mut self.memory[slice]);
                }
            }
            Coll::Reduce | Coll::Allreduce => {
                self.combine(segment, 0, self.piece(0, all), scratch);
            }
            Coll::Allgather => {
                for member in self.others() {
                    let piece = self.piece(all * member as usize, all);
                    segment.contents(member, stamp, is_long).read(0, &mut self.memory[piece]);
                }
            }
            Coll::Alltoall => {
                let block = self.block();
                let at = self.own as usize * self.shape.piece;
                // The others' blocks take the places of this member's, which are published by now.
                for member in self.others() {
                    let piece = self.piece(block * member as usize, block);
                    segment.contents(member, stamp, is_long).read(at, &mut self.memory[piece]);
                }
            }
            _ => {}
        }
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own;
        (0..self.members).filter(move |member| *member != own)
    }

    /// Combines the bytes at `place` with those of all others, which begin at `offset` of what the
    /// others have published.
    fn combine(
        &mut self,
        segment: &Segment,
        offset: usize,
        place: Range<usize>,
        scratch: &mut Vec<u8>,
    ) {
        let Some(op) = &self.op else { return };
        let stamp = self.stamp();
        let is_long = self.shape.is_long;
        let most = (BLOCK_BYTES / op.width()).max(1) * op.width();
        let most = most.min(place.len());
        if scratch.len() < 2 * most {
            scratch.resize(2 * most, 0);
        }
        let (read, combined) = scratch.split_at_mut(most);
        let mut at = place.start;
        while at < place.end {
            let length = most.min(place.end - at);
            let read = &mut read[..length];
            let combined = &mut combined[..length];
            let own = &mut self.memory[at..at + length];
            let from = at - place.start + offset;
            let last = self.members - 1;
            if self.own < last {
                segment.contents(last, stamp, is_long).read(from, combined);
                for member in (self.own + 1..last).rev() {
                    segment.contents(member, stamp, is_long).read(from, read);
                    op.apply(read, combined);
                }
                op.apply(own, combined);
                own.copy_from_slice(combined);
            }
            for member in (0..self.own).rev() {
                segment.contents(member, stamp, is_long).read(from, read);
                op.apply(read, own);
            }
            at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_look_first_and_nobody_waits_much_longer() {
        let patience = |distance| times_as_patient(distance, 256);
        assert_eq!([1, 2, 3, 128, 253, 254, 255].map(patience), [8, 16, 24, 24, 24, 16, 8]);
    }
}

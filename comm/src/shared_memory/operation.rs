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
use tagmatch::shm::segment::{Published, PublishedContents, Segment, Stamp};

use crate::error::Error;
use crate::plans::{Call, Coll, Op, WorkMemory};

/// Values are combined in blocks of this many bytes, which stay in a processor's nearest cache.
const BLOCK_BYTES: usize = 4096;

/// From this many bytes on, each member of a reduction of more than two combines a slice.
const SLICED_MIN: usize = 2048;

/// Blocks of an alltoall up to this length lie close together, in as few cache lines as they need.
/// Each longer one begins with a cache line, so that it can be written past the cache.
const PACKED_MAX: usize = 1024;
const LINE_BYTES: usize = 64;

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
        let short = |piece| RoundShape { is_long: false, piece, is_sliced: false, rounds: 1 };
        if call.data.len() <= SLOT_BYTES && call.coll != Coll::Alltoall {
            return Some(short(SLOT_BYTES));
        }
        let members = members as usize;
        let block = call.data.len() / members;
        // A member publishes no block for itself.
        let published = if call.coll == Coll::Alltoall {
            let published = call.data.len() - block;
            if published <= SLOT_BYTES {
                return Some(short(block));
            }
            published
        } else {
            call.data.len()
        };
        let width = call.op.as_ref().map_or(1, Op::width);
        let is_sliced = matches!(call.coll, Coll::Reduce | Coll::Allreduce)
            && call.data.len() >= SLICED_MIN
            && members > 2;
        let (all, piece) = match call.coll {
            Coll::Alltoall if block < PACKED_MAX && published <= AREA_BYTES => (block, block),
            Coll::Alltoall => {
                let most = AREA_BYTES / (members - 1).max(1) / LINE_BYTES * LINE_BYTES;
                (block, most.min(block.next_multiple_of(LINE_BYTES)))
            }
            _ => (published, AREA_BYTES / width * width),
        };
        let pieces = if all == 0 { 1 } else { all.div_ceil((piece > 0).then_some(piece)?) };
        let rounds = u32::try_from(pieces * (1 + usize::from(is_sliced))).ok()?;
        let is_long = true;
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

/// A member's block, in its place among those of all members, and at the beginning. The blocks
/// behind its own are not there yet if the memory is a vector, which is longer after each of them:
/// zeros that are then written over would take a tenth of the time. Out of the way of short
/// operations.
#[inline(never)]
fn begin_blocks(block: Buffer, own: u32, members: u32) -> WorkMemory {
    let length = block.len();
    let start = length * own as usize;
    if block.is_vec() {
        let mut blocks = block.into_vec();
        blocks.reserve_exact(length * (members as usize - 1));
        if own > 0 {
            blocks.resize(start, 0);
            blocks.extend_from_within(..length);
        }
        return blocks.into();
    }
    let mut blocks = WorkMemory::from(block);
    blocks.resize(length * members as usize);
    blocks.copy_within(..length, start);
    blocks
}

/// Reads contents into `memory`, which becomes longer if it ends before `place` does.
fn read_into(
    memory: &mut WorkMemory,
    place: Range<usize>,
    contents: &PublishedContents<'_>,
    start: usize,
) {
    if place.end <= memory.len() {
        contents.read(start, &mut memory[place]);
        return;
    }
    let mut bytes = Buffer::from(mem::take(memory)).into_vec();
    bytes.resize(place.start, 0);
    contents.append(start, place.len(), &mut bytes);
    *memory = bytes.into();
}

/// One member's part in an operation.
pub(crate) struct SharedOperation {
    coll: Coll,
    root: u32,
    op: Option<Op>,
    /// This member's bytes, which become the result. In an allgather, the blocks of the members as
    /// far as they are there.
    memory: WorkMemory,
    /// The length of the bytes that this member gave.
    length: usize,
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
        let memory = match coll {
            Coll::Allgather => begin_blocks(data, own, members),
            _ => WorkMemory::from(data),
        };
        let about = (length as u64) << LENGTH_SHIFT | (coll as u64) << COLL_SHIFT | u64::from(root);
        SharedOperation {
            coll,
            root,
            op,
            memory,
            length,
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

    /// Goes on as far as possible. Looks at most so many times for what it waits for.
    ///
    /// # Errors
    /// Another member has made another call.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        segment: &mut Segment,
        scratch: &mut Vec<u8>,
        looks: u32,
    ) -> Result<Stand, Error> {
        if self.shape.is_long {
            self.go_on::<true>(segment, scratch, looks)
        } else {
            self.go_on::<false>(segment, scratch, looks)
        }
    }

    /// As [`advance`](Self::advance). `LONG`: contents go through the areas. So the way of short
    /// ones, which take one round, has none of what only pieces and slices need.
    fn go_on<const LONG: bool>(
        &mut self,
        segment: &mut Segment,
        scratch: &mut Vec<u8>,
        looks: u32,
    ) -> Result<Stand, Error> {
        loop {
            let stamp = self.stamp();
            if !self.has_published {
                if self.publishes::<LONG>() {
                    let mut left = looks;
                    while let Some(member) = segment.lacks(stamp, LONG) {
                        left = left.saturating_sub(1);
                        if left == 0 {
                            return Ok(Stand::NoRoom(member));
                        }
                    }
                    self.publish::<LONG>(segment, stamp);
                }
                self.has_published = true;
            }
            while let Some(member) = self.awaited::<LONG>() {
                match segment.look(member, stamp, looks) {
                    Published::NotYet => return Ok(Stand::Unpublished(member)),
                    Published::Contents { about } if about == self.about => self.next = member + 1,
                    Published::Contents { about } => return Err(self.mismatch(member, about)),
                    Published::Other => return Err(self.mismatch(member, 0)),
                }
            }
            if self.reads_all::<LONG>() {
                segment.seen_all(stamp);
            }
            if !LONG {
                segment.prefetch(Stamp::new(self.number + 1, 0));
            }
            self.take::<LONG>(segment, stamp, scratch);
            self.round += 1;
            if !LONG || self.round == self.shape.rounds {
                segment.finish(stamp.end());
                if LONG {
                    segment.prefetch(Stamp::new(self.number + 1, 0));
                }
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
        Error::Mismatch { rank, length: about >> LENGTH_SHIFT, due: self.length }
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

    #[inline(always)]
    fn publishes<const LONG: bool>(&self) -> bool {
        match self.coll {
            Coll::Broadcast => self.own == self.root,
            Coll::Reduce => self.own != self.root || (LONG && self.combines_slice()),
            _ => true,
        }
    }

    /// Whether this member needs the contents of all others in this round.
    #[inline(always)]
    fn reads_all<const LONG: bool>(&self) -> bool {
        match self.coll {
            Coll::Broadcast => false,
            Coll::Reduce => self.own == self.root || (LONG && self.combines_slice()),
            _ => true,
        }
    }

    /// The next member whose contents this member needs in this round.
    #[inline(always)]
    fn awaited<const LONG: bool>(&self) -> Option<u32> {
        match self.coll {
            Coll::Broadcast if self.own == self.root || self.next > self.root => None,
            Coll::Broadcast => Some(self.root),
            _ if !self.reads_all::<LONG>() => None,
            _ => {
                let next = self.next + u32::from(self.next == self.own);
                (next < self.members).then_some(next)
            }
        }
    }

    /// The place of this round's piece in a block that begins at `start` and has `length` bytes.
    #[inline(always)]
    fn piece<const LONG: bool>(&self, start: usize, length: usize) -> Range<usize> {
        if !LONG {
            return start..start + length;
        }
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

    /// The length of a block of an alltoall.
    fn block(&self) -> usize {
        self.length / self.members as usize
    }

    /// Where the contents of a round begin in an area.
    fn start(&self, stamp: Stamp) -> usize {
        stamp.start_in_area(match self.coll {
            Coll::Alltoall => self.shape.piece * (self.members as usize - 1),
            _ => self.length.min(self.shape.piece),
        })
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

    #[inline(always)]
    fn publish<const LONG: bool>(&self, segment: &mut Segment, stamp: Stamp) {
        let start = if LONG { self.start(stamp) } else { 0 };
        if self.coll == Coll::Alltoall {
            let block = self.block();
            if !LONG || self.shape.piece == block {
                // The blocks lie in the segment as they lie here, without the own one.
                let own = block * self.own as usize;
                segment.write(stamp, LONG, start, &self.memory[..own]);
                segment.write(stamp, LONG, start + own, &self.memory[own + block..]);
            } else {
                for member in self.others() {
                    let piece = self.piece::<LONG>(block * member as usize, block);
                    let at = start + self.block_for(member, self.own);
                    segment.write(stamp, LONG, at, &self.memory[piece]);
                }
            }
        } else {
            // In an allgather, this piece of the first block is still this member's own.
            let mut piece = self.piece::<LONG>(0, self.length);
            if LONG && self.shares_slices() {
                piece = self.slice(&piece, self.own);
            }
            segment.write(stamp, LONG, start, &self.memory[piece]);
        }
        segment.publish(stamp, LONG, self.about);
    }

    /// Reads what the others have published in this round. All that this member needs is there.
    #[inline(always)]
    fn take<const LONG: bool>(&mut self, segment: &Segment, stamp: Stamp, scratch: &mut Vec<u8>) {
        let all = self.length;
        let start = if LONG { self.start(stamp) } else { 0 };
        match self.coll {
            Coll::Broadcast if self.own != self.root => {
                let piece = self.piece::<LONG>(0, all);
                segment.contents(self.root, stamp, LONG).read(start, &mut self.memory[piece]);
            }
            Coll::Reduce | Coll::Allreduce if LONG && self.combines_slice() => {
                let piece = self.piece::<LONG>(0, all);
                let slice = self.slice(&piece, self.own);
                self.combine::<LONG>(segment, start + slice.start - piece.start, slice, scratch);
            }
            Coll::Reduce if self.own != self.root => {}
            Coll::Reduce | Coll::Allreduce if LONG && self.shares_slices() => {
                let piece = self.piece::<LONG>(0, all);
                for member in self.others() {
                    let slice = self.slice(&piece, member);
                    segment.contents(member, stamp, LONG).read(start, &mut self.memory[slice]);
                }
            }
            Coll::Reduce | Coll::Allreduce => {
                self.combine::<LONG>(segment, start, self.piece::<LONG>(0, all), scratch);
            }
            Coll::Allgather => {
                for member in self.others() {
                    let piece = self.piece::<LONG>(all * member as usize, all);
                    let contents = segment.contents(member, stamp, LONG);
                    read_into(&mut self.memory, piece, &contents, start);
                }
            }
            Coll::Alltoall => {
                let block = self.block();
                // The others' blocks take the places of this member's, which are published by now.
                for member in self.others() {
                    let piece = self.piece::<LONG>(block * member as usize, block);
                    let at = start + self.block_for(self.own, member);
                    segment.contents(member, stamp, LONG).read(at, &mut self.memory[piece]);
                }
            }
            _ => {}
        }
    }

    /// Where the block for a member begins among the blocks that another member publishes.
    fn block_for(&self, member: u32, publisher: u32) -> usize {
        (member - u32::from(member > publisher)) as usize * self.shape.piece
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own;
        (0..self.members).filter(move |member| *member != own)
    }

    /// Combines the bytes at `place` with those of all others, which begin at `offset` of what the
    /// others have published.
    fn combine<const LONG: bool>(
        &mut self,
        segment: &Segment,
        offset: usize,
        place: Range<usize>,
        scratch: &mut Vec<u8>,
    ) {
        let Some(op) = &self.op else { return };
        let stamp = self.stamp();
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
                segment.contents(last, stamp, LONG).read(from, combined);
                for member in (self.own + 1..last).rev() {
                    segment.contents(member, stamp, LONG).read(from, read);
                    op.apply(read, combined);
                }
                op.apply(own, combined);
                own.copy_from_slice(combined);
            }
            for member in (0..self.own).rev() {
                segment.contents(member, stamp, LONG).read(from, read);
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

//! The table of requests: one cache line each, written in place.
//!
//! An operation moves through its line from start to end; nothing is handed over between tables on
//! the way of a message.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tagmatch_hw::{Buffer, PeerId};
use tagmatch_soft::{PostedHandle, Tag};

use crate::chunks::Chunks;
use crate::error::Fault;
use crate::request::{Completion, Status};
use crate::slab::Key;
use crate::wire::AppCtx;

/// What a request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing: the line is free.
    Free,
    /// A receive on the posted list.
    Posted,
    /// A receive that has its message, whose bytes are being read out of the sender's memory.
    Reading,
    /// A send that waits for room, for credit or for its FIN; or that a matching device has.
    Sending,
    /// Over, and not yet taken by its owner.
    Done,
    /// Over without success; the fault lies beside the table.
    Failed,
}

/// What a request's owner does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It asks now and then.
    Asks,
    /// It wants to be woken when the request is over.
    Sleeps,
    /// It has let go: nobody will ask for the result.
    Gone,
}

/// A request's line.
///
/// Tag and length are apart from each other: they are stored one by one, and one wide load of both
/// would have to wait until the stores have reached the cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Request {
    pub(crate) buffer: Buffer,
    tag: Tag,
    /// By phase: the next free line; the handle on the posted list; the operation to acknowledge.
    word: u64,
    length: u64,
    source: PeerId,
    immediate: u32,
    generation: u32,
    phase: Phase,
    pub(crate) owner: Owner,
    truncated: bool,
    has_immediate: bool,
}

const _: () = assert!(size_of::<Request>() == 64, "a request is a cache line");

impl Default for Request {
    /// A free line, with none behind it.
    fn default() -> Self {
        Request {
            generation: 0,
            phase: Phase::Free,
            owner: Owner::Asks,
            truncated: false,
            has_immediate: false,
            buffer: Buffer::default(),
            source: PeerId::ONESELF,
            immediate: 0,
            tag: Tag(0),
            length: 0,
            word: NONE.into(),
        }
    }
}

impl Request {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed)
    }

    /// Its handle on the posted list, if it is there.
    pub(crate) fn posted(&self) -> Option<PostedHandle> {
        (self.phase == Phase::Posted).then(|| PostedHandle::from_bits(self.word))
    }

    /// What its read is for, if there is one.
    #[expect(clippy::cast_possible_truncation, reason = "as it was put in")]
    pub(crate) fn reading(&self) -> Option<(Status, AppCtx)> {
        (self.phase == Phase::Reading).then(|| (self.status(), AppCtx(self.word as u32)))
    }

    /// Begins to wait for a read.
    pub(crate) fn read(&mut self, status: &Status, operation: AppCtx) {
        self.set_status(status);
        self.phase = Phase::Reading;
        self.word = operation.0.into();
    }

    /// Ends a send whose envelope [`Requests::begin_send`] was given.
    pub(crate) fn finish_sent(&mut self) {
        self.phase = Phase::Done;
    }

    /// Ends with success.
    #[inline(always)]
    pub(crate) fn finish(&mut self, status: &Status) {
        self.set_status(status);
        self.phase = Phase::Done;
    }

    #[inline(always)]
    fn set_status(&mut self, status: &Status) {
        self.source = status.source;
        self.tag = status.tag;
        self.length = status.length;
        self.truncated = status.truncated;
        self.has_immediate = status.immediate.is_some();
        self.immediate = status.immediate.unwrap_or(0);
    }

    #[inline(always)]
    fn status(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            length: self.length,
            truncated: self.truncated,
            immediate: self.has_immediate.then_some(self.immediate),
        }
    }
}

/// All requests of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    lines: Chunks<Request>,
    /// The line to use next, and from there by `word`; beyond the table if none is free.
    free: u32,
    len: usize,
    /// Why requests failed. Rare, so it has no place in the lines.
    faults: BTreeMap<u32, Fault>,
}

/// Most requests of one engine: as many as a matching list holds.
pub(crate) const REQUESTS_MAX: u32 = 1 << 30;
/// No line.
const NONE: u32 = u32::MAX;

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { lines: Chunks::new(), free: NONE, len: 0, faults: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The key that the next request will have; `None` if there are too many.
    pub(crate) fn vacant(&self) -> Option<Key> {
        let index = self.next_index()?;
        let generation = self.lines.get(index as usize).map_or(0, |line| line.generation);
        Some(Key { index, generation })
    }

    /// The line that the next request will have; `None` if there are too many.
    #[inline(always)]
    pub(crate) fn next_index(&self) -> Option<u32> {
        if self.free != NONE {
            return Some(self.free);
        }
        u32::try_from(self.lines.len()).ok().filter(|&index| index < REQUESTS_MAX)
    }

    /// Puts a receive into the line that [`Requests::next_index`] gave last.
    #[inline(always)]
    pub(crate) fn post(&mut self, handle: PostedHandle, buffer: Buffer) -> Key {
        let (key, line) = self.use_line();
        line.phase = Phase::Posted;
        // A free line's buffer is an empty one: nothing is lost, and no destructor looked for.
        std::mem::forget(std::mem::replace(&mut line.buffer, buffer));
        line.word = handle.to_bits();
        key
    }

    /// Puts in a request of another kind; `None` if there are too many.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Option<Key> {
        self.next_index()?;
        let (key, line) = self.use_line();
        line.phase = Phase::Sending;
        Some(key)
    }

    /// Puts in a send with the envelope that it ends with, under the key that [`Requests::vacant`] gave last.
    pub(crate) fn begin_send(&mut self, status: &Status) {
        let (_, line) = self.use_line();
        line.set_status(status);
        line.phase = Phase::Sending;
    }

    /// Puts in a receive whose buffer and message are elsewhere, under the key that [`Requests::vacant`]
    /// gave last.
    pub(crate) fn begin_receive(&mut self, has_message: bool) {
        let (_, line) = self.use_line();
        line.phase = if has_message { Phase::Reading } else { Phase::Posted };
    }

    /// The line that [`Requests::next_index`] gave last, and the key of what is put there.
    #[inline(always)]
    fn use_line(&mut self) -> (Key, &mut Request) {
        self.len += 1;
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let line = &mut self.lines[index as usize];
        #[expect(clippy::cast_possible_truncation, reason = "as it was put in")]
        {
            self.free = line.word as u32;
        }
        line.owner = Owner::Asks;
        (Key { index, generation: line.generation }, line)
    }

    /// Adds a free line.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        // `vacant` has seen that there are fewer than 2^30.
        self.free = u32::try_from(self.lines.len()).unwrap_or(NONE);
        self.lines.push(Request::default());
    }

    /// All that are not over.
    pub(crate) fn under_way(&self) -> Vec<Key> {
        let lines = (0..).zip(self.lines.iter());
        let under_way = lines.filter(|(_, line)| line.phase != Phase::Free && !line.is_over());
        under_way.map(|(index, line)| Key { index, generation: line.generation }).collect()
    }

    /// How many lines there are, free ones included.
    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The request in a line.
    pub(crate) fn at(&self, index: usize) -> Option<&Request> {
        self.lines.get(index).filter(|line| line.phase != Phase::Free)
    }

    /// Which lines are free, in the order in which they will be used.
    pub(crate) fn hash_free(&self, state: &mut impl Hasher) {
        let mut free = self.free;
        while let Some(line) = self.lines.get(free as usize) {
            free.hash(state);
            #[expect(clippy::cast_possible_truncation, reason = "as it was put in")]
            {
                free = line.word as u32;
            }
        }
    }

    /// Whether the request is over and its result still here.
    #[inline(always)]
    pub(crate) fn is_over(&self, key: Key) -> bool {
        let line = self.lines.get(key.index as usize);
        line.is_some_and(|line| line.generation == key.generation && line.is_over())
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Request> {
        let line = self.lines.get(key.index as usize)?;
        (line.generation == key.generation && line.phase != Phase::Free).then_some(line)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Request> {
        let line = self.lines.get_mut(key.index as usize)?;
        (line.generation == key.generation && line.phase != Phase::Free).then_some(line)
    }

    /// The receive whose entry on the posted list was just taken.
    #[inline(always)]
    pub(crate) fn matched(&mut self, index: u32) -> Option<(Key, &mut Request)> {
        let line = self.lines.get_mut(index as usize)?;
        let key = Key { index, generation: line.generation };
        (line.phase == Phase::Posted).then_some((key, line))
    }

    /// Ends a request without success.
    #[cold]
    pub(crate) fn fail(&mut self, key: Key, fault: Fault, buffer: Buffer) {
        if let Some(request) = self.get_mut(key) {
            request.phase = Phase::Failed;
            request.buffer = buffer;
            self.faults.insert(key.index, fault);
        }
    }

    /// A request that is over with success.
    #[inline(always)]
    pub(crate) fn ended(&mut self, key: Key) -> Option<Ended<'_>> {
        let line = self.lines.get_mut(key.index as usize)?;
        let is_done = line.generation == key.generation && line.phase == Phase::Done;
        is_done.then_some(Ended {
            line,
            index: key.index,
            free: &mut self.free,
            len: &mut self.len,
        })
    }

    /// Frees the line of a request that is over, and gives what it ended with.
    pub(crate) fn take(&mut self, key: Key) -> Option<Completion> {
        if let Some(ended) = self.ended(key) {
            let (status, buffer) = ended.take();
            return Some(Completion { result: Ok(status), buffer });
        }
        match self.get(key)?.phase {
            Phase::Failed => self.take_failed(key),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn take_failed(&mut self, key: Key) -> Option<Completion> {
        let fault = self.faults.remove(&key.index)?;
        let buffer = self.free_line(key.index);
        Some(Completion { result: Err(fault), buffer })
    }

    /// Frees a request's line, in whatever phase it is.
    pub(crate) fn remove(&mut self, key: Key) {
        if self.get(key).is_some() {
            self.faults.remove(&key.index);
            self.free_line(key.index);
        }
    }

    fn free_line(&mut self, index: u32) -> Buffer {
        let line = &mut self.lines[index as usize];
        Ended { line, index, free: &mut self.free, len: &mut self.len }.take().1
    }
}

/// A request that is over, in its line.
#[derive(Debug)]
pub struct Ended<'a> {
    line: &'a mut Request,
    index: u32,
    free: &'a mut u32,
    len: &'a mut usize,
}

impl Ended<'_> {
    /// What it ended with; its line is free then.
    #[inline(always)]
    pub fn take(self) -> (Status, Buffer) {
        let Ended { line, index, free, len } = self;
        let status = line.status();
        line.phase = Phase::Free;
        line.generation = line.generation.wrapping_add(1);
        line.word = (*free).into();
        *free = index;
        *len -= 1;
        (status, std::mem::take(&mut line.buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: Status = Status {
        source: PeerId(3),
        tag: Tag(7),
        length: 5,
        truncated: true,
        immediate: Some(0xffff_ffff),
    };

    #[test]
    fn a_line_is_used_again_under_another_name() {
        let mut requests = Requests::new();
        let first = requests.begin().unwrap();
        let second = requests.begin().unwrap();
        assert!(requests.take(first).is_none() && requests.len() == 2);
        requests.get_mut(first).unwrap().finish(&STATUS);
        assert!(requests.get(first).unwrap().is_over());
        assert_eq!(requests.take(first).unwrap().result, Ok(STATUS));
        assert!(requests.take(first).is_none() && requests.get(first).is_none());
        let third = requests.begin().unwrap();
        assert_eq!((third.index, third.generation), (first.index, first.generation + 1));
        assert!(requests.get_mut(first).is_none() && requests.get(second).is_some());
        requests.fail(third, Fault::Cancelled, Buffer::zeroed(4));
        let failed = requests.take(third).unwrap();
        assert_eq!((failed.result, failed.buffer.len()), (Err(Fault::Cancelled), 4));
        requests.fail(second, Fault::Closed, Buffer::default());
        requests.remove(second);
        assert!(requests.len() == 0 && requests.faults.is_empty());
    }

    #[test]
    fn a_read_keeps_what_it_is_for() {
        let mut requests = Requests::new();
        let key = requests.begin().unwrap();
        let operation = AppCtx::new(9, 511);
        requests.get_mut(key).unwrap().read(&STATUS, operation);
        assert_eq!(requests.get(key).unwrap().reading(), Some((STATUS, operation)));
        assert!(requests.matched(key.index).is_none());
    }
}

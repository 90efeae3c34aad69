//! The table of requests: one cache line each, written in place.
//!
//! An operation stays in its line from start to end, so nothing is copied between tables on the way
//! of a message. Both engines use this table: the one that matches, and the one whose device does.
//! An engine begins requests and ends them; the owner of a request asks here how it ended.

mod queue;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tagmatch_device::chunks::Chunks;
use tagmatch_device::{Buffer, BufferParts, OrBug};
use tagmatch_soft::PostedHandle;

use crate::error::Fault;
use crate::requests::copies::Copies;
use crate::requests::ends::{EndList, EndedBuffer, Ends};
use crate::requests::line::{Line, NO_LINE, RequestOwner, RequestPhase};
use crate::requests::request::{Completion, RequestId, Status, WaitedEnd};
use crate::wire::AppCtx;

/// Most requests of one engine: as many as a matching list holds.
pub(crate) const REQUESTS_MAX: u32 = 1 << 30;

/// All requests of an engine.
#[derive(Clone, Debug)]
pub struct Requests {
    pub(crate) lines: Chunks<Line>,
    /// The line to use next; each free line names the one after it in `word`. [`NO_LINE`]: none is
    /// free.
    free: u32,
    len: usize,
    /// Why requests failed, by line. Failures are rare, so the lines have no room for this.
    pub(crate) faults: BTreeMap<u32, Fault>,
    /// Watched requests that are over.
    woken: Vec<RequestId>,
    /// The messages of requests that nobody waits for.
    copies: Copies,
    /// The completion queue.
    pub(crate) ends: Ends,
    /// Whether the completion queue also tells of peers.
    tells_peers: bool,
}

/// What the owners of requests ask.
impl Requests {
    /// Requests that are under way, or over with their result still here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the request is under way, or over with its result still here.
    pub fn exists(&self, request: RequestId) -> bool {
        self.get(request).is_some()
    }

    /// Whether the request is over and its result still here.
    #[inline(always)]
    pub fn is_over(&self, request: RequestId) -> bool {
        let line = self.lines.get(request.index() as usize);
        line.is_some_and(|line| line.generation == request.generation() && line.is_over())
    }

    /// The result of a request that is over; the request is gone then. `None` while it is under
    /// way, and for a request that is gone.
    #[inline]
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        if let Some(ended) = self.ended(request) {
            let (status, buffer) = ended.take();
            return Some(Completion { result: Ok(status), buffer });
        }
        match self.get(request)?.phase {
            RequestPhase::Failed => self.take_failed(request),
            _ => None,
        }
    }

    /// A request that is over with success, to have its result taken. `None` for all others.
    #[inline(always)]
    pub fn ended(&mut self, request: RequestId) -> Option<Ended<'_>> {
        let index = request.index();
        let line = self.lines.get_mut(index as usize)?;
        let is_done = line.generation == request.generation() && line.phase == RequestPhase::Done;
        is_done.then_some(Ended { line, index, free: &mut self.free, len: &mut self.len })
    }

    /// Whether a request is over, and how.
    #[inline(always)]
    pub fn waited_end(&self, request: RequestId) -> WaitedEnd {
        match self.lines.get(request.index() as usize) {
            Some(line) if line.generation == request.generation() => match line.phase {
                RequestPhase::Done => WaitedEnd::Done,
                _ if line.is_over() => WaitedEnd::Failed,
                _ => WaitedEnd::UnderWay,
            },
            _ => WaitedEnd::UnderWay,
        }
    }

    /// Asks that [`Requests::take_woken`] name the request when it is over. `false` if it is over
    /// already.
    pub fn watch(&mut self, request: RequestId) -> bool {
        match self.get_mut(request) {
            Some(line) if !line.is_over() => {
                line.owner = RequestOwner::Sleeps;
                true
            }
            _ => false,
        }
    }

    /// Watched requests that have ended since the last call.
    pub fn take_woken(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.woken)
    }

    /// Whether [`Requests::take_woken`] would name any.
    #[inline(always)]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }
}

/// What an engine does with requests.
impl Requests {
    pub(crate) fn new() -> Self {
        Requests {
            lines: Chunks::default(),
            free: NO_LINE,
            len: 0,
            faults: BTreeMap::new(),
            woken: Vec::new(),
            copies: Copies::default(),
            ends: Ends::new(),
            tells_peers: false,
        }
    }

    /// A place for another request; `None` if there are too many.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_>> {
        if self.free == NO_LINE && !self.grow() {
            return None;
        }
        Some(Vacant { index: self.free, requests: self })
    }

    /// Begins a send, or a receive whose message is here; `None` if there are too many requests.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Option<RequestId> {
        let (request, line) = self.vacant()?.take();
        line.phase = RequestPhase::Sending;
        Some(request)
    }

    /// Adds a free line. `false`: there are too many.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let index = u32::try_from(self.lines.len()).unwrap_or(REQUESTS_MAX);
        if index < REQUESTS_MAX {
            self.free = index;
            self.lines.push(Line::default());
        }
        index < REQUESTS_MAX
    }

    #[inline]
    pub(crate) fn get(&self, request: RequestId) -> Option<&Line> {
        let line = self.lines.get(request.index() as usize)?;
        let is_here = line.generation == request.generation() && line.phase != RequestPhase::Free;
        is_here.then_some(line)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, request: RequestId) -> Option<&mut Line> {
        let line = self.lines.get_mut(request.index() as usize)?;
        let is_here = line.generation == request.generation() && line.phase != RequestPhase::Free;
        is_here.then_some(line)
    }

    /// The receive whose entry on the posted list was just taken.
    #[inline(always)]
    pub(crate) fn matched(&mut self, index: u32) -> Option<Matched<'_>> {
        let Requests { lines, free, len, ends, .. } = self;
        let line = lines.get_mut(index as usize)?;
        (line.phase == RequestPhase::Posted).then_some(Matched { line, index, free, len, ends })
    }

    /// Ends a request, if it is there, and tells its owner.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        request: RequestId,
        result: Result<Status, Fault>,
        buffer: Buffer,
    ) {
        self.keep_context(request.index());
        let Ok(line) = self.get_mut(request).or_bug("a request ends once") else { return };
        line.buffer = buffer;
        let owner = line.owner;
        match result {
            Ok(status) => line.finish(&status),
            Err(fault) => {
                line.phase = RequestPhase::Failed;
                self.faults.insert(request.index(), fault);
            }
        }
        match owner {
            RequestOwner::Asks => {}
            RequestOwner::Queue => self.push_end(request.index()),
            RequestOwner::Sleeps | RequestOwner::Gone => self.tell_owner(request),
        }
    }

    /// A receive has its message, whose bytes are to be read, and `operation` to be acknowledged.
    pub(crate) fn read(&mut self, request: RequestId, status: &Status, operation: AppCtx) {
        self.keep_context(request.index());
        if let Some(line) = self.get_mut(request) {
            line.read(status, operation);
        }
    }

    /// Ends a request, whose line has its buffer, without success.
    pub(crate) fn fail(&mut self, request: RequestId, fault: Fault) {
        if let Some(buffer) = self.take_buffer(request) {
            self.complete(request, Err(fault), buffer);
        }
    }

    /// Takes the buffer out of a request that isn't over.
    pub(crate) fn take_buffer(&mut self, request: RequestId) -> Option<Buffer> {
        Some(std::mem::take(&mut self.get_mut(request)?.buffer))
    }

    /// A request is over: wakes its owner, or frees the line if the owner is gone. The completion
    /// queue is told by [`Requests::push_end`].
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_owner(&mut self, request: RequestId) {
        match self.get(request).map(|line| line.owner) {
            Some(RequestOwner::Sleeps) => self.woken.push(request),
            Some(RequestOwner::Gone) => self.remove(request),
            Some(RequestOwner::Asks | RequestOwner::Queue) | None => {}
        }
    }

    /// The owner lets go of a request: the line is freed at once if the request is over, else when
    /// it ends. `true`: it is a posted receive, which the engine is to cancel.
    #[must_use]
    pub(crate) fn detach(&mut self, request: RequestId) -> bool {
        let Some(line) = self.get_mut(request) else { return false };
        line.owner = RequestOwner::Gone;
        let is_posted = line.phase == RequestPhase::Posted;
        if line.is_over() {
            self.remove(request);
        }
        is_posted
    }

    #[cold]
    #[inline(never)]
    fn take_failed(&mut self, request: RequestId) -> Option<Completion> {
        let fault = self.faults.remove(&request.index())?;
        let buffer = self.free_line(request.index());
        Some(Completion { result: Err(fault), buffer })
    }

    /// Whether a copy of a message may wait; see [`Copies::allow`].
    pub(crate) fn allow_copy(&self, length: usize, bytes_max: u64) -> bool {
        self.copies.allow(length, bytes_max)
    }

    /// [`Requests::detach`] for a send whose message, of this length, the engine has copied.
    pub(crate) fn detach_copy(&mut self, request: RequestId, length: usize) {
        self.copies.add(request.index(), length);
        let is_posted = self.detach(request);
        debug_assert!(!is_posted, "a send");
    }

    fn remove(&mut self, request: RequestId) {
        self.copies.remove(request.index());
        self.faults.remove(&request.index());
        self.free_line(request.index());
    }

    fn free_line(&mut self, index: u32) -> Buffer {
        let line = &mut self.lines[index as usize];
        Ended { line, index, free: &mut self.free, len: &mut self.len }.free()
    }

    /// Feeds to a hasher which lines are free, in the order in which they will be used, and what
    /// all others do. `posted` adds what is known of a posted receive.
    pub(crate) fn hash_state<H: Hasher>(
        &self,
        hasher: &mut H,
        posted: impl Fn(PostedHandle, &mut H),
    ) {
        let mut free = self.free;
        while let Some(line) = self.lines.get(free as usize) {
            free.hash(hasher);
            #[expect(clippy::cast_possible_truncation, reason = "was put in as 32 bits")]
            {
                free = line.word as u32;
            }
        }
        for (index, line) in self.lines.iter().enumerate() {
            if line.phase != RequestPhase::Free {
                (index, line.phase as u8, line.owner as u8).hash(hasher);
                if let Some(handle) = line.posted() {
                    posted(handle, hasher);
                }
            }
        }
    }
}

/// A free line, which the next request is put into.
#[derive(Debug)]
pub(crate) struct Vacant<'a> {
    requests: &'a mut Requests,
    index: u32,
}

impl<'a> Vacant<'a> {
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The name that the request will have.
    pub(crate) fn name(&self) -> RequestId {
        RequestId::new(self.index, self.requests.lines[self.index as usize].generation)
    }

    /// Begins a posted receive. With a context, its end comes in the completion queue.
    #[inline(always)]
    pub(crate) fn post(
        self,
        handle: PostedHandle,
        buffer: BufferParts,
        context: Option<u64>,
    ) -> RequestId {
        let (request, line) = self.take();
        line.phase = RequestPhase::Posted;
        // A free line's buffer is an empty one: nothing is lost, and no destructor looked for.
        std::mem::forget(std::mem::replace(&mut line.buffer, buffer.into_buffer()));
        line.word = handle.to_bits();
        if let Some(context) = context {
            line.queue(context);
        }
        request
    }

    /// Begins a send that a device has taken, with the envelope that it ends with.
    pub(crate) fn begin_send(self, status: &Status) -> RequestId {
        let (request, line) = self.take();
        line.set_status(status);
        line.phase = RequestPhase::Sending;
        request
    }

    /// Begins a receive whose buffer a device has taken.
    pub(crate) fn begin_receive(self, has_message: bool) -> RequestId {
        let (request, line) = self.take();
        line.phase = if has_message { RequestPhase::Reading } else { RequestPhase::Posted };
        request
    }

    #[inline(always)]
    fn take(self) -> (RequestId, &'a mut Line) {
        let Vacant { requests, index } = self;
        let line = &mut requests.lines[index as usize];
        requests.len += 1;
        #[expect(clippy::cast_possible_truncation, reason = "was put in as 32 bits")]
        {
            requests.free = line.word as u32;
        }
        line.owner = RequestOwner::Asks;
        (RequestId::new(index, line.generation), line)
    }
}

/// A request that is over with success, in its line.
#[derive(Debug)]
pub struct Ended<'a> {
    line: &'a mut Line,
    index: u32,
    free: &'a mut u32,
    len: &'a mut usize,
}

impl Ended<'_> {
    /// What it ended with; its line is free then.
    #[inline(always)]
    pub fn take(self) -> (Status, Buffer) {
        (self.line.status(), self.free())
    }

    /// Frees the line, which had this buffer.
    #[inline(always)]
    fn free(self) -> Buffer {
        let Ended { line, index, free, len } = self;
        line.phase = RequestPhase::Free;
        line.generation = line.generation.wrapping_add(1);
        line.word = (*free).into();
        *free = index;
        *len -= 1;
        std::mem::take(&mut line.buffer)
    }
}

/// Frees the line.
impl EndedBuffer for Ended<'_> {
    #[inline(always)]
    fn take_buffer(self) -> Buffer {
        self.free()
    }
}

/// A receive that has just been matched, in its line.
#[derive(Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) line: &'a mut Line,
    index: u32,
    free: &'a mut u32,
    len: &'a mut usize,
    ends: &'a Ends,
}

impl Matched<'_> {
    pub(crate) fn request(&self) -> RequestId {
        RequestId::new(self.index, self.line.generation)
    }

    /// Ends a queued receive, whose buffer has its message, with success, and gives the end to the
    /// list. `false`, and nothing is done, if an earlier end waits or the list is full.
    #[inline(always)]
    pub(crate) fn end_at_once(self, status: &Status, list: &mut impl EndList) -> bool {
        if !list.has_room() {
            return false;
        }
        let is_next = self.ends.is_empty();
        if is_next {
            let Matched { line, index, free, len, ends } = self;
            let context = line.context().unwrap_or_else(|| ends.context(index));
            let ended = Ended { line, index, free, len };
            list.done(context, *status, ended);
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use tagmatch_device::PeerId;
    use tagmatch_soft::Tag;

    use super::*;
    use crate::wire::AppCtx;

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
        requests.complete(first, Ok(STATUS), Buffer::default());
        assert!(requests.is_over(first) && !requests.has_woken());
        assert_eq!(requests.take(first).unwrap().result, Ok(STATUS));
        assert!(requests.take(first).is_none() && !requests.exists(first));
        let third = requests.begin().unwrap();
        assert_eq!(third, RequestId::new(first.index(), first.generation() + 1));
        assert!(!requests.exists(first) && requests.exists(second));
        requests.complete(third, Err(Fault::Cancelled), Buffer::zeroed(4));
        let failed = requests.take(third).unwrap();
        assert_eq!((failed.result, failed.buffer.len()), (Err(Fault::Cancelled), 4));
        requests.complete(second, Err(Fault::Closed), Buffer::default());
        assert!(!requests.detach(second));
        assert!(requests.is_empty() && requests.faults.is_empty());
    }

    #[test]
    fn an_owner_that_sleeps_is_named_once_and_one_that_is_gone_never() {
        let mut requests = Requests::new();
        let [sleeps, gone] = [(); 2].map(|()| requests.begin().unwrap());
        assert!(requests.watch(sleeps) && !requests.detach(gone));
        for request in [sleeps, gone] {
            requests.complete(request, Ok(STATUS), Buffer::default());
        }
        assert!(requests.has_woken() && !requests.watch(sleeps) && !requests.exists(gone));
        assert_eq!(requests.take_woken(), [sleeps]);
        assert!(!requests.has_woken() && requests.len() == 1);
    }

    #[test]
    fn a_read_keeps_its_envelope_and_operation() {
        let mut requests = Requests::new();
        let request = requests.begin().unwrap();
        let operation = AppCtx::new(9, 511);
        requests.read(request, &STATUS, operation);
        assert_eq!(requests.get(request).unwrap().reading(), Some((STATUS, operation)));
        assert!(requests.matched(request.index()).is_none());
    }
}

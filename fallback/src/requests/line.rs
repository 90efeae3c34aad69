//! One request: a cache line of the table of requests.
//!
//! **A request is one cache line, written in place.** The line in which a receive was posted is
//! where its envelope is written when its message arrives, as a NIC writes a completion, and where
//! its owner takes it from. Nothing moves from table to table, and no `Result` of a hundred bytes
//! moves through calls; faults, which are rare, lie beside the table. Waiting takes events until
//! *its* request is over, and no further.

use tagmatch_device::{Buffer, PeerId};
use tagmatch_soft::{PostedHandle, Tag};

use crate::requests::request::Status;
use crate::wire::AppCtx;

/// What a request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPhase {
    /// Nothing: the line is free.
    Free,
    /// A receive on the posted list.
    Posted,
    /// A receive that has its message, whose bytes are being read out of the sender's memory, or
    /// come in fragments.
    Reading,
    /// A send that waits for room, for credit or for its FIN; or that a matching device has.
    Sending,
    /// Over with success; its owner has not taken the result yet.
    Done,
    /// Over without success; the table keeps the fault beside the lines.
    Failed,
    /// No request: the line is in the completion queue, and says that its source is connected.
    PeerUp,
    /// As [`RequestPhase::PeerUp`]: its source is down, and the table keeps the reason beside the
    /// lines.
    PeerDown,
}

/// What the owner of a request does until the request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOwner {
    /// It asks now and then.
    Asks,
    /// It wants to be woken when the request is over.
    Sleeps,
    /// It has let go: nobody will ask for the result.
    Gone,
    /// It takes the end out of the completion queue.
    Queue,
}

/// A line of the table.
///
/// Tag and length are not neighbours. They are stored one by one, and a load of both at once would
/// have to wait until both stores have reached the cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) buffer: Buffer,
    /// Of a posted receive whose end comes in the completion queue: its context.
    tag: Tag,
    /// In a free line the next free one, of a posted receive its handle on the posted list, during
    /// a read the operation to acknowledge, in the completion queue the next line there.
    pub(crate) word: u64,
    length: u64,
    source: PeerId,
    immediate: u32,
    pub(crate) generation: u32,
    pub(crate) phase: RequestPhase,
    pub(crate) owner: RequestOwner,
    truncated: bool,
    has_immediate: bool,
}

const _: () = assert!(size_of::<Line>() == 64, "a request is a cache line");

/// The number of no line.
pub(crate) const NO_LINE: u32 = u32::MAX;

impl Default for Line {
    /// A free line, the last of the free ones.
    fn default() -> Self {
        Line {
            generation: 0,
            phase: RequestPhase::Free,
            owner: RequestOwner::Asks,
            truncated: false,
            has_immediate: false,
            buffer: Buffer::default(),
            source: PeerId::ONESELF,
            immediate: 0,
            tag: Tag(0),
            length: 0,
            word: NO_LINE.into(),
        }
    }
}

impl Line {
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(
            self.phase,
            RequestPhase::Done
                | RequestPhase::Failed
                | RequestPhase::PeerUp
                | RequestPhase::PeerDown
        )
    }

    /// The receive's handle on the posted list, if it is there.
    pub(crate) fn posted(&self) -> Option<PostedHandle> {
        (self.phase == RequestPhase::Posted).then(|| PostedHandle::from_bits(self.word))
    }

    /// Of a posted receive whose end comes in the completion queue: its context.
    #[inline(always)]
    pub(crate) fn context(&self) -> Option<u64> {
        let is_here = self.phase == RequestPhase::Posted && self.owner == RequestOwner::Queue;
        is_here.then_some(self.tag.0)
    }

    /// The end of this posted receive comes in the completion queue, with this context.
    #[inline(always)]
    pub(crate) fn queue(&mut self, context: u64) {
        self.owner = RequestOwner::Queue;
        self.tag = Tag(context);
    }

    /// Of a receive whose bytes are being read: its envelope, and the operation to acknowledge.
    #[expect(clippy::cast_possible_truncation, reason = "was put in as 32 bits")]
    pub(crate) fn reading(&self) -> Option<(Status, AppCtx)> {
        (self.phase == RequestPhase::Reading).then(|| (self.status(), AppCtx(self.word as u32)))
    }

    /// The receive has its message, whose bytes are to be read.
    pub(super) fn read(&mut self, status: &Status, operation: AppCtx) {
        self.set_status(status);
        self.phase = RequestPhase::Reading;
        self.word = operation.0.into();
    }

    /// The request is over with success. The table tells its owner, if that sleeps or is gone.
    #[inline(always)]
    pub(crate) fn finish(&mut self, status: &Status) {
        self.set_status(status);
        self.phase = RequestPhase::Done;
    }

    /// The line tells of a peer.
    pub(crate) fn set_peer(&mut self, phase: RequestPhase, peer: PeerId) {
        self.phase = phase;
        self.source = peer;
        self.owner = RequestOwner::Queue;
    }

    #[inline(always)]
    pub(crate) fn set_status(&mut self, status: &Status) {
        self.source = status.source;
        self.tag = status.tag;
        self.length = status.length;
        self.truncated = status.truncated;
        self.has_immediate = status.immediate.is_some();
        self.immediate = status.immediate.unwrap_or(0);
    }

    #[inline(always)]
    pub(crate) fn status(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            length: self.length,
            truncated: self.truncated,
            immediate: self.has_immediate.then_some(self.immediate),
        }
    }
}

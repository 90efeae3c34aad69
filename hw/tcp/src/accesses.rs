//! This worker's puts into and gets from the regions of a peer.
//!
//! They begin in their order, and each only once the put before it has been sent, so that a get
//! sees the bytes of earlier puts. They end in their order, too.

use std::collections::VecDeque;

use tagmatch_device::{AccessKind, Buffer, RegionAccess};

use super::frame::RegionBytes;
use super::reads::ReadsFromPeer;
use super::send_half::{ACCESSES_MAX, SendHalf};
use super::sources::StreamSource;

/// The accesses to the regions of one peer.
#[derive(Default)]
pub(crate) struct Accesses {
    waiting: VecDeque<RegionAccess>,
    begun: VecDeque<BegunAccess>,
}

/// An access that has begun, or that has ended before an earlier one.
enum BegunAccess {
    /// The read with this number, which has the buffer.
    Get(u32),
    /// The bytes are being sent, or their answer has not come.
    Put(Buffer),
    Ended(EndedAccess),
}

/// An access that has ended.
pub(crate) struct EndedAccess {
    pub(crate) buffer: Buffer,
    pub(crate) is_done: bool,
}

impl Accesses {
    /// Adds an access behind all others.
    pub(crate) fn add(&mut self, access: RegionAccess) {
        self.waiting.push_back(access);
    }

    /// Whether an access waits, and may begin now.
    pub(crate) fn may_begin(&self, out: &SendHalf) -> bool {
        !self.waiting.is_empty() && self.begun.len() < ACCESSES_MAX && !out.is_putting()
    }

    /// Whether an access has begun and not ended.
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Begins the next access if it may begin now.
    pub(crate) fn begin_next(&mut self, out: &mut SendHalf, reads: &mut ReadsFromPeer) {
        if self.may_begin(out)
            && let Some(access) = self.waiting.pop_front()
        {
            self.begin(access, out, reads);
        }
        let next = self.waiting.front();
        out.note_next_put(next.is_some_and(|next| next.kind == AccessKind::Write));
    }

    fn begin(&mut self, access: RegionAccess, out: &mut SendHalf, reads: &mut ReadsFromPeer) {
        let RegionAccess { of, kind, buffer, .. } = access;
        let bytes = RegionBytes { key: of.key, offset: of.offset, length: buffer.len() as u64 };
        self.begun.push_back(match kind {
            AccessKind::Read => BegunAccess::Get(reads.start_get(out, bytes, buffer)),
            AccessKind::Write => {
                out.note_one_sided();
                out.begin(0, StreamSource::Put(bytes));
                BegunAccess::Put(buffer)
            }
        });
    }

    /// The bytes of the put that is being sent: no other access begins meanwhile.
    pub(crate) fn put(&self) -> Option<&Buffer> {
        match self.begun.back() {
            Some(BegunAccess::Put(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// The oldest put has been answered.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn end_put(&mut self, out: &SendHalf, is_done: bool) -> Result<(), &'static str> {
        let put = self.begun.iter().position(|begun| matches!(begun, BegunAccess::Put(_)));
        let is_sent = |at: &usize| at + 1 < self.begun.len() || !out.is_putting();
        let at = put.filter(is_sent).ok_or("an answer to no put that was sent")?;
        if let BegunAccess::Put(buffer) = &mut self.begun[at] {
            let buffer = std::mem::take(buffer);
            self.begun[at] = BegunAccess::Ended(EndedAccess { buffer, is_done });
        }
        Ok(())
    }

    /// The read of a get has ended.
    pub(crate) fn end_get(&mut self, id: u32, ended: EndedAccess) {
        let is_get = |begun: &&mut BegunAccess| matches!(begun, BegunAccess::Get(of) if *of == id);
        if let Some(get) = self.begun.iter_mut().find(is_get) {
            *get = BegunAccess::Ended(ended);
        }
    }

    /// The oldest access, if it has ended.
    pub(crate) fn next_ended(&mut self) -> Option<EndedAccess> {
        match self.begun.pop_front()? {
            BegunAccess::Ended(ended) => Some(ended),
            other => {
                self.begun.push_front(other);
                None
            }
        }
    }

    /// Ends all accesses whose buffers are here: the peer is down, and its reads have ended.
    pub(crate) fn end_all(&mut self) {
        for begun in &mut self.begun {
            if let BegunAccess::Put(buffer) = begun {
                let buffer = std::mem::take(buffer);
                *begun = BegunAccess::Ended(EndedAccess { buffer, is_done: false });
            }
        }
        let undone = |access: RegionAccess| EndedAccess { buffer: access.buffer, is_done: false };
        self.begun.extend(self.waiting.drain(..).map(|access| BegunAccess::Ended(undone(access))));
    }

    /// For tests: an error in the books, if there is one.
    pub(crate) fn error(&self, out: &SendHalf) -> Option<&'static str> {
        if matches!(self.begun.front(), Some(BegunAccess::Ended(_))) {
            return Some("an access has ended, and was not reported");
        }
        if out.is_putting() && self.put().is_none() {
            return Some("bytes are put that no access has");
        }
        let waits = self.may_begin(out) && !self.has_begun();
        waits.then_some("an access waits, and may begin")
    }
}

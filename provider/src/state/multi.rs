//! Multi-receive buffers: receives that take one untagged message after the other (`FI_MULTI_RECV`,
//! fi_msg(3)).
//!
//! The worker has one part of one buffer at a time: the rest of the oldest buffer. When a message
//! has ended the part, what remains is posted as the next part, until less than the endpoint's
//! minimum remains. Messages that come in between wait in the worker's unexpected list, and the
//! next part takes them in their order. Untagged receives that were posted later wait here, since a
//! message must not reach them before the buffer is used up. If one of all these names its source,
//! `sorting` takes over.

use tagmatch::{Match, Peer};
use tagmatch_ofi_provider::{Entry, Memory, UNTAGGED};
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::operation::Receive;
use super::pending::Pending;
use crate::errno::{self, Errno, Reason, Result};
use crate::memory::buffer;

impl Endpoint {
    /// Posts a multi-receive buffer.
    pub(crate) fn post_whole(
        &mut self,
        sinks: &mut Sinks<'_>,
        source: u64,
        rest: Memory,
        receive: Receive,
    ) -> Result<()> {
        if !self.bound.may_receive() {
            return Err(Errno::BAD_STATE);
        }
        let source: Option<Peer> = self.named(sinks, source)?;
        let number = self.multis;
        self.multis += 1;
        self.push_pending(Pending::Multi {
            rest,
            source,
            receive: Receive { multi: Some(number), ..receive },
            is_posted: false,
            is_cancelled: false,
        });
        self.settle(sinks);
        Ok(())
    }

    /// Appends a receive to those that wait.
    pub(crate) fn push_pending(&mut self, pending: Pending) {
        self.directed += usize::from(pending.source().is_some());
        self.unwanted = 0;
        self.pending.push_back(pending);
    }

    /// Takes a receive out of those that wait.
    pub(crate) fn remove_pending(&mut self, index: usize) -> Option<Pending> {
        let pending = self.pending.remove(index)?;
        self.directed -= usize::from(pending.source().is_some());
        Some(pending)
    }

    /// Hands the worker what it may have: the receives before the oldest multi-receive buffer, and
    /// the next part of that buffer. Gives whether there was any.
    pub(crate) fn settle(&mut self, sinks: &mut Sinks<'_>) -> bool {
        let mut has_begun = false;
        if self.directed > 0 || !self.strays.is_empty() {
            has_begun = self.sort(sinks);
            if self.directed > 0 || !self.strays.is_empty() {
                return has_begun;
            }
        }
        while self.vacant().is_ok() {
            match self.pending.front_mut() {
                Some(Pending::Multi { rest, receive, is_posted: posted @ false, .. }) => {
                    *posted = true;
                    let which = Match::tag(UNTAGGED);
                    let part = Receive { start: rest.start(), room: rest.len(), ..*receive };
                    let buffer = buffer(*rest);
                    // There is a vacant operation.
                    if self.begin(sinks, which, buffer, part) == Ok(true) {
                        return true;
                    }
                    self.remove_pending(0);
                }
                Some(Pending::Plain { .. }) => {
                    if let Some(Pending::Plain { which, buffer, receive, .. }) =
                        self.remove_pending(0)
                    {
                        // There is a vacant operation.
                        let _ = self.begin(sinks, which, buffer, receive);
                        has_begun = true;
                    }
                }
                Some(Pending::Multi { .. }) | None => break,
            }
        }
        has_begun
    }

    /// A part of a multi-receive buffer has ended: with a message, or because it was cancelled.
    pub(crate) fn finish_part(
        &mut self,
        sinks: &mut Sinks<'_>,
        part: u64,
        mut entry: Entry,
        tells: bool,
    ) {
        let minimum = self.bound.multi_min;
        let is_whole = |pending: &Pending| pending.receive().multi == Some(part);
        let Some(index) = self.pending.iter().position(is_whole) else { return };
        let Some(Pending::Multi { rest, is_posted, is_cancelled, .. }) =
            self.pending.get_mut(index)
        else {
            return;
        };
        *is_posted = false;
        *rest = rest.after(entry.length);
        let is_over = *is_cancelled || rest.len() < minimum.max(1);
        if is_over {
            entry.flags |= sys::FI_MULTI_RECV;
            self.remove_pending(index);
        }
        self.bound.tell(sinks, entry, tells || is_over);
    }

    /// Cancels the first of these receives with this context. Gives whether there is one.
    pub(crate) fn cancel_pending(&mut self, sinks: &mut Sinks<'_>, context: usize) -> bool {
        let found = self.pending.iter().position(|pending| pending.receive().context == context);
        let Some(index) = found else { return false };
        if let Some(Pending::Multi { is_posted: true, is_cancelled, receive, .. }) =
            self.pending.get_mut(index)
        {
            *is_cancelled = true;
            let number = receive.multi;
            for key in self.operations.keys_where(|operation| operation.receive.multi == number) {
                if let Some(operation) = self.operations.get(key) {
                    self.worker.cancel_queued(operation.request);
                }
            }
            return true;
        }
        if let Some(pending) = self.remove_pending(index) {
            let failure = errno::failure(Errno::CANCELED, Reason::Cancelled);
            self.fail(sinks, pending.receive(), failure);
        }
        true
    }
}

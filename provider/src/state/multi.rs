//! Multi-receive buffers: receives that take one untagged message after the other (`FI_MULTI_RECV`,
//! fi_msg(3)).
//!
//! The worker has one part of one buffer at a time: the rest of the oldest buffer. When a message
//! has ended the part, what remains is posted as the next part, until less than the endpoint's
//! minimum remains. Messages that come in between wait in the worker's unexpected list, and the next
//! part takes them in their order. Untagged receives that were posted later wait here, since a
//! message must not reach them before the buffer is used up.

use tagmatch::Match;
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::entry::Entry;
use super::operation::{Receive, UNTAGGED};
use super::pending::Pending;
use crate::errno::{Errno, Reason, Result};
use crate::memory::Memory;

impl Endpoint {
    /// Posts a multi-receive buffer.
    pub(crate) fn post_multi(
        &mut self,
        sinks: &mut Sinks<'_>,
        rest: Memory,
        receive: Receive,
    ) -> Result<()> {
        if !self.may_receive() {
            return Err(Errno::BAD_STATE);
        }
        let number = self.multis;
        self.multis += 1;
        self.pending.push_back(Pending::Multi {
            rest,
            receive: Receive { multi: Some(number), ..receive },
            number,
            is_posted: false,
            is_cancelled: false,
        });
        self.settle(sinks);
        Ok(())
    }

    /// Hands the worker what it may have: the receives before the oldest multi-receive buffer, and
    /// the next part of that buffer.
    pub(crate) fn settle(&mut self, sinks: &mut Sinks<'_>) {
        while self.vacant().is_ok() {
            match self.pending.front_mut() {
                Some(Pending::Multi { rest, receive, is_posted: posted @ false, .. }) => {
                    *posted = true;
                    let which = Match::tag(UNTAGGED);
                    let part = Receive { start: rest.start(), room: rest.len(), ..*receive };
                    let buffer = rest.buffer();
                    // There is a vacant operation.
                    let _ = self.begin(sinks, which, buffer, part);
                    return;
                }
                Some(Pending::Plain { .. }) => {
                    if let Some(Pending::Plain { which, buffer, receive }) =
                        self.pending.pop_front()
                    {
                        // There is a vacant operation.
                        let _ = self.begin(sinks, which, buffer, receive);
                    }
                }
                Some(Pending::Multi { .. }) | None => return,
            }
        }
    }

    /// A part of a multi-receive buffer has ended: with a message, or because it was cancelled.
    pub(crate) fn finish_part(
        &mut self,
        sinks: &mut Sinks<'_>,
        part: u64,
        mut entry: Entry,
        tells: bool,
    ) {
        let minimum = self.multi_min;
        let Some(Pending::Multi { rest, number, is_posted, is_cancelled, .. }) =
            self.pending.front_mut()
        else {
            return;
        };
        if *number != part {
            return;
        }
        *is_posted = false;
        *rest = rest.after(entry.length);
        let is_over = *is_cancelled || rest.len() < minimum.max(1);
        if is_over {
            entry.flags |= sys::FI_MULTI_RECV;
            self.pending.pop_front();
        }
        self.tell(sinks, entry, tells || is_over);
    }

    /// Cancels the first of these receives with this context. Gives whether there is one.
    pub(crate) fn cancel_pending(&mut self, sinks: &mut Sinks<'_>, context: usize) -> bool {
        let found = self.pending.iter().position(|pending| pending.receive().context == context);
        let Some(index) = found else { return false };
        if let Some(Pending::Multi { is_posted: true, is_cancelled, number, .. }) =
            self.pending.get_mut(index)
        {
            *is_cancelled = true;
            let number = *number;
            for key in self.operations.keys_where(|operation| operation.multi == Some(number)) {
                if let Some(operation) = self.operations.get(key) {
                    self.worker.cancel_queued(operation.request);
                }
            }
            return true;
        }
        if let Some(pending) = self.pending.remove(index) {
            let receive = pending.receive();
            let gives_back = if receive.multi.is_some() { sys::FI_MULTI_RECV } else { 0 };
            let numbers = (Errno::CANCELED, Reason::Cancelled);
            let entry = Entry::failed(receive.context, receive.kind | gives_back, numbers);
            self.tell(sinks, entry, true);
        }
        true
    }
}

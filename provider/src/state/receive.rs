//! Receives, probes, and the receives of claimed messages.

use tagmatch::{Buffer, Error, Failed, Match, QueuedRequest};
use tagmatch_device::slab::Key;
use tagmatch_ofi_provider::{Entry, Failure, Incoming, Memory, Pattern};
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::held::{self, HeldReceive};
use super::operation::{OperationUnderWay, Receive, word_of};
use super::pending::Pending;
use crate::errno::{self, Errno, Reason, Result};
use crate::memory::buffer;

impl Endpoint {
    /// Posts a receive into one piece of memory that nothing has to be done for. `false`: nothing
    /// was done; [`Endpoint::post_buffer`] posts it.
    #[inline(always)]
    pub(crate) fn post_plain(
        &mut self,
        sinks: &mut Sinks<'_>,
        incoming: &Incoming,
        memory: Memory,
        tells: bool,
    ) -> Result<bool> {
        let Incoming { pattern, context, kind, .. } = *incoming;
        if self.held.is_some()
            || (pattern.is_untagged() && !(self.pending.is_empty() && self.strays.is_empty()))
            || (memory.len() == 0 && held::is_suspect(pattern))
        {
            return Ok(false);
        }
        let Some(word) = word_of(context as usize, kind, tells) else { return Ok(false) };
        let which = self.which(sinks, pattern)?;
        match self.worker.recv_queued(which, buffer(memory), word) {
            Ok(_) => self.depths.posted(),
            Err(Failed { error, .. }) => self.refused(sinks, (context as usize, kind), error),
        }
        Ok(true)
    }

    /// The worker has refused a receive.
    #[cold]
    #[inline(never)]
    fn refused(&self, sinks: &mut Sinks<'_>, (context, kind): (usize, u64), error: Error) {
        let entry = Entry::failed(context, sys::FI_RECV | kind, errno::of_error(&error));
        self.bound.tell(sinks, entry, true);
    }

    /// Posts a receive.
    #[cold]
    #[inline(never)]
    pub(crate) fn post_buffer(
        &mut self,
        sinks: &mut Sinks<'_>,
        pattern: Pattern,
        buffer: Buffer,
        receive: Receive,
    ) -> Result<()> {
        if self.held.is_some() {
            self.release(sinks, None);
        }
        let which = self.which(sinks, pattern)?;
        if receive.room == 0 && held::is_suspect(pattern) {
            self.held = Some(HeldReceive { pattern, buffer, receive });
            return Ok(());
        }
        if pattern.is_untagged() && !(self.pending.is_empty() && self.strays.is_empty()) {
            let source = self.named(sinks, pattern.source)?;
            self.push_pending(Pending::Plain { which, source, buffer, receive });
            self.settle(sinks);
            return Ok(());
        }
        self.begin(sinks, which, buffer, receive).map(|_| ())
    }

    /// Posts the receive that is held back. `sent`: the address and the tag of the message that is
    /// about to be sent, if the call sends one.
    #[cold]
    pub(crate) fn release(&mut self, sinks: &mut Sinks<'_>, sent: Option<(u64, u64)>) {
        let Some(held) = self.held.take() else { return };
        let which = self.which(sinks, held.pattern(sent));
        // An address that is not in the vector is an error of the send, not of the receive.
        let which = which.or_else(|_| self.which(sinks, held.pattern(None)));
        let HeldReceive { buffer, receive, .. } = held;
        if which.and_then(|which| self.begin(sinks, which, buffer, receive)).is_err() {
            // The named address was taken out of the vector meanwhile.
            let failure = errno::failure(Errno::HOST_UNREACHABLE, Reason::PeerUnreachable);
            self.fail(sinks, &receive, failure);
        }
    }

    /// Hands a receive to the worker. `false`: the worker has refused it.
    #[inline(never)]
    pub(crate) fn begin(
        &mut self,
        sinks: &mut Sinks<'_>,
        which: Match,
        buffer: Buffer,
        receive: Receive,
    ) -> Result<bool> {
        let key = self.vacant()?;
        let posted = self.worker.recv_queued(which, buffer, key.to_bits());
        Ok(self.begun(sinks, key, receive, posted))
    }

    /// The worker has a receive, or has refused it. A receive whose source is down ends with an
    /// error entry, as if the source had gone down afterwards.
    pub(crate) fn begun(
        &mut self,
        sinks: &mut Sinks<'_>,
        key: Key,
        receive: Receive,
        posted: std::result::Result<QueuedRequest, Failed>,
    ) -> bool {
        match posted {
            Ok(request) => {
                self.operations.fill(key, OperationUnderWay { receive, request });
                self.depths.posted();
                true
            }
            Err(Failed { error, .. }) => {
                self.fail(sinks, &receive, errno::of_error(&error));
                false
            }
        }
    }

    /// Ends a receive that the worker doesn't have with an error entry. It gives a multi-receive
    /// buffer back.
    #[cold]
    pub(crate) fn fail(&self, sinks: &mut Sinks<'_>, receive: &Receive, failure: Failure) {
        let gives_back = if receive.multi.is_some() { sys::FI_MULTI_RECV } else { 0 };
        let entry = Entry::failed(receive.context, receive.kind | gives_back, failure);
        self.bound.tell(sinks, entry, true);
    }

    /// Looks for a message that waits, as `FI_PEEK` does, and adds the entry that says what was
    /// found: with `FI_CLAIM` the message is kept for the receive with the same context, and with
    /// `FI_DISCARD` it is dropped (fi_tagged(3)).
    pub(crate) fn look_for(
        &mut self,
        sinks: &mut Sinks<'_>,
        pattern: Pattern,
        receive: Receive,
        flags: u64,
    ) -> Result<()> {
        let Receive { context, kind, .. } = receive;
        if self.held.is_some() {
            self.release(sinks, None);
        }
        let which = self.which(sinks, pattern)?;
        let takes = flags & (sys::FI_CLAIM | sys::FI_DISCARD) != 0;
        if flags & sys::FI_CLAIM != 0 && self.claimed.contains_key(&context) {
            return Err(Errno::BUSY);
        }
        let found = if takes {
            self.worker.mprobe(which).map(|found| {
                found.map(|message| {
                    let status = message.status();
                    if flags & sys::FI_DISCARD != 0 {
                        message.discard();
                    } else {
                        self.claimed.insert(context, message);
                    }
                    status
                })
            })
        } else {
            self.worker.probe(which)
        };
        let entry = match found {
            Ok(Some(status)) => self.described(sinks.vectors(), &receive, &status),
            Ok(None) => {
                let failure = errno::failure(Errno::NO_MESSAGE, Reason::NoMessage);
                Entry::failed(context, kind, failure)
            }
            Err(error) => Entry::failed(context, kind, errno::of_error(&error)),
        };
        // Counters count messages that were received (fi_endpoint(3)): none was, up to now.
        self.bound.put(sinks, entry, receive.tells);
        Ok(())
    }

    /// Receives the message that was claimed with this context, or drops it.
    pub(crate) fn receive_claimed(
        &mut self,
        sinks: &mut Sinks<'_>,
        buffer: Buffer,
        receive: Receive,
        flags: u64,
    ) -> Result<()> {
        let key = self.vacant()?;
        let message = self.claimed.remove(&receive.context).ok_or(Errno::INVALID)?;
        if flags & sys::FI_DISCARD != 0 {
            message.discard();
            let entry = Entry::new(receive.context, receive.kind);
            self.bound.put(sinks, entry, receive.tells);
            return Ok(());
        }
        let posted = message.recv_queued(buffer, key.to_bits());
        self.begun(sinks, key, receive, posted);
        Ok(())
    }
}

//! Sends.

use tagmatch::{Buffer, Failed, Peer, QueuedSend, SendMode, SendOptions};
use tagmatch_ofi_provider::{Entry, Injected};
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::operation::{OperationUnderWay, Receive};
use crate::errno::{self, Errno, Result};

/// A message to send, without its bytes.
pub(crate) struct EndpointSend {
    /// The address in the endpoint's vector.
    pub(crate) destination: u64,
    /// The worker's tag.
    pub(crate) tag: u64,
    pub(crate) immediate: Option<u32>,
    pub(crate) context: usize,
    /// The flags of its entry: `FI_SEND` and `FI_TAGGED` or `FI_MSG`.
    pub(crate) kind: u64,
    /// `FI_COMPLETION`, and when the operation is complete.
    pub(crate) flags: u64,
}

/// 32 bits of immediate data travel with a message (`cq_data_size`); a caller has no more.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the rest is cut off, as fi_msg(3) says")]
pub(super) fn immediate(data: Option<u64>) -> Option<u32> {
    data.map(|data| data as u32)
}

impl Endpoint {
    /// Sends a short message that can leave at once. `false`: nothing was done.
    #[inline(always)]
    pub(crate) fn send_short(
        &mut self,
        sinks: &mut Sinks<'_>,
        send: &EndpointSend,
        payload: &[u8],
    ) -> Result<bool> {
        const LATER: u64 = sys::FI_DELIVERY_COMPLETE | sys::FI_MATCH_COMPLETE | sys::FI_FENCE;
        if send.flags & LATER != 0 {
            return Ok(false);
        }
        let peer = self.peer_of_send(sinks, send.destination, send.tag)?;
        let sent = self.worker.inject_at_once(peer, send.tag, payload, send.immediate);
        let is_sent = sent.map_err(|error| errno::of_error(&error).errno())?;
        if is_sent {
            let EndpointSend { context, kind, flags, .. } = *send;
            self.bound.tell_sent(sinks, context, kind, self.bound.send_tells(flags));
        }
        Ok(is_sent)
    }

    /// Sends a message. A send that is complete at once has its entry at once. A send to a peer
    /// that is down ends with an error entry, as if the peer had gone down afterwards.
    #[cold]
    pub(crate) fn send_buffer(
        &mut self,
        sinks: &mut Sinks<'_>,
        send: &EndpointSend,
        buffer: Buffer,
    ) -> Result<()> {
        let EndpointSend { destination, tag, immediate, context, kind, flags } = *send;
        let peer = self.peer_of_send(sinks, destination, tag)?;
        if flags & sys::FI_FENCE != 0 {
            self.check_fence()?;
        }
        let tells = self.bound.send_tells(flags);
        let mode = if flags & sys::FI_DELIVERY_COMPLETE != 0 {
            SendMode::Delivered
        } else if flags & sys::FI_MATCH_COMPLETE != 0 {
            SendMode::Synchronous
        } else {
            SendMode::Standard
        };
        let key = self.vacant()?;
        let options = SendOptions::default().mode(mode).immediate(immediate);
        match self.worker.send_queued_with(peer, tag, buffer, options.context(key.to_bits())) {
            Ok(QueuedSend::Complete(_)) => self.bound.tell(sinks, Entry::new(context, kind), tells),
            Ok(QueuedSend::UnderWay(request)) => {
                let receive = Receive { context, kind, start: 0, room: 0, tells, multi: None };
                self.operations.fill(key, OperationUnderWay { receive, request });
            }
            Err(Failed { error, .. }) => {
                self.bound.tell(sinks, Entry::failed(context, kind, errno::of_error(&error)), true);
            }
        }
        Ok(())
    }

    /// Whether a message may be sent that waits for all earlier operations to be complete.
    ///
    /// # Errors
    /// Some are under way; or the endpoint wasn't opened with `FI_FENCE`.
    fn check_fence(&self) -> Result<()> {
        if self.bound.opened.caps & sys::FI_FENCE == 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let is_busy = self.remote_under_way > 0 || self.has_sends();
        if is_busy { Err(Errno::AGAIN) } else { Ok(()) }
    }

    /// Sends a copy of a message; there is no entry.
    #[inline(always)]
    pub(crate) fn inject_bytes(
        &mut self,
        sinks: &mut Sinks<'_>,
        payload: &[u8],
        &Injected { destination, tag, data, .. }: &Injected,
    ) -> Result<()> {
        let peer = self.peer_of_send(sinks, destination, tag)?;
        let immediate = immediate(data);
        match self.worker.inject_at_once(peer, tag, payload, immediate) {
            Ok(true) => {}
            _ => self.inject_later(peer, tag, payload, immediate)?,
        }
        self.bound.count(sinks, sys::FI_SEND, true);
        Ok(())
    }

    /// Sends a copy of a message that can't leave at once.
    #[cold]
    #[inline(never)]
    fn inject_later(
        &self,
        peer: Peer,
        tag: u64,
        payload: &[u8],
        immediate: Option<u32>,
    ) -> Result<()> {
        match self.worker.inject_with(peer, tag, payload, immediate) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::AGAIN),
            Err(error) => Err(errno::of_error(&error).errno()),
        }
    }

    #[inline(always)]
    fn peer_of_send(&mut self, sinks: &mut Sinks<'_>, destination: u64, tag: u64) -> Result<Peer> {
        if self.held.is_some() {
            self.release(sinks, Some((destination, tag)));
        }
        if !self.bound.may_send() {
            return Err(Errno::BAD_STATE);
        }
        self.peer(sinks, destination)
    }
}

//! Eager messages: header and payload in one message of the device.

use tagmatch_device::{Buffer, Device, Outgoing};

use super::Sending;
use super::backlog::{SendOutcome, WhyQueued};
use crate::credit::Amount;
use crate::peers::peer::BacklogSend;
use crate::requests::request::{Send, SendMode};
use crate::slices;
use crate::state::ProtocolState;
use crate::todo::{Operation, SendMemory};
use crate::wire::{AppCtx, Opcode, Tmh};

impl Sending {
    /// See [`MatchEngine::inject_at_once`](crate::MatchEngine::inject_at_once).
    #[inline(always)]
    pub(crate) fn at_once<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        message: Send<&[u8]>,
    ) -> bool {
        let Send { peer: id, tag, immediate, payload } = message;
        let Some(peer) = state.peers.get_mut(id.index()) else { return false };
        let cost = Amount::eager(payload.len());
        let fits = payload.len() <= self.eager_max.min(peer.eager_max);
        if !fits || !peer.is_open_for(id) || !peer.allowance.covers(cost) {
            return false;
        }
        let header = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx::default(), tag }.emit();
        let sent = device.send(id, Outgoing { header: &header, payload, immediate }).is_ok();
        if sent {
            peer.allowance.spend(cost);
            state.counters.eager_sent += 1;
        }
        sent
    }

    /// [`Sending::at_once`] for an empty message, or for several slices.
    #[inline(never)]
    pub(crate) fn gathered_at_once<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        message: &Send<Buffer>,
    ) -> bool {
        if message.payload.total_len() > self.eager_max {
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let payload = scratch.bytes(&message.payload);
        let is_sent = self.at_once(state, device, message.of(payload));
        self.scratch = scratch;
        is_sent
    }

    pub(super) fn send_eager<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        send: BacklogSend,
        cost: Amount,
    ) -> SendOutcome {
        let status = send.message.status();
        let operation = if send.mode == SendMode::Standard {
            None
        } else {
            let memory = SendMemory::Sent(Buffer::default());
            match self.begin(state, Operation { request: send.request, status, memory }) {
                Some(key) => Some(key),
                None => return Err((send, WhyQueued::Place)),
            }
        };
        let app_ctx =
            operation.map_or(AppCtx::default(), |k| AppCtx::new(k.index, k.generation).with_ack());
        let header = Tmh { opcode: Opcode::Eager, app_ctx, tag: status.tag }.emit();
        let payload = self.scratch.bytes(&send.message.payload);
        let message = Outgoing { header: &header, payload, immediate: status.immediate };
        if let Err(refused) = device.send(status.source, message) {
            operation.map(|key| state.operations.remove(key));
            return Err((send, refused.into()));
        }
        state.peer_mut(status.source).allowance.spend(cost);
        state.counters.eager_sent += 1;
        match operation.and_then(|key| state.operations.get_mut(key)) {
            Some(operation) => operation.memory = SendMemory::Sent(send.message.payload),
            None => {
                let buffer = slices::of_owner(send.message.payload);
                state.requests.complete(send.request, Ok(status), buffer);
            }
        }
        Ok(())
    }
}

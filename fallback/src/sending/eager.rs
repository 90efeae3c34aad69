//! Eager messages: header and payload in one message of the device.

use tagmatch_device::{Buffer, Device, Outgoing, PeerId};
use tagmatch_soft::Tag;

use super::backlog::{Blocked, Sending, Sent};
use crate::core::Core;
use crate::credit::Amount;
use crate::peers::peer::Queued;
use crate::requests::request::SendMode;
use crate::slices;
use crate::todo::{Operation, SendMemory};
use crate::wire::{AppCtx, Opcode, Tmh};

impl Sending {
    /// See [`MatchEngine::inject_at_once`](crate::MatchEngine::inject_at_once).
    #[inline(always)]
    pub(crate) fn at_once<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> bool {
        let state = &mut core.state;
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
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: &Buffer,
    ) -> bool {
        if buffer.total_len() > self.eager_max {
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let payload = scratch.bytes(buffer);
        let is_sent = self.at_once(core, device, id, tag, immediate, payload);
        self.scratch = scratch;
        is_sent
    }

    pub(super) fn send_eager<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        send: Queued,
        cost: Amount,
    ) -> Sent {
        let status = send.status(id);
        let operation = if send.mode == SendMode::Standard {
            None
        } else {
            let memory = SendMemory::Sent(Buffer::default());
            match self.begin(core, Operation { request: send.request, status, memory }) {
                Some(key) => Some(key),
                None => return Err((send, Blocked::Place)),
            }
        };
        let app_ctx =
            operation.map_or(AppCtx::default(), |k| AppCtx::new(k.index, k.generation).with_ack());
        let header = Tmh { opcode: Opcode::Eager, app_ctx, tag: send.tag }.emit();
        let payload = self.scratch.bytes(&send.buffer);
        let message = Outgoing { header: &header, payload, immediate: send.immediate };
        if let Err(refused) = device.send(id, message) {
            operation.map(|key| core.operations.remove(key));
            return Err((send, refused.into()));
        }
        core.state.peer_mut(id).allowance.spend(cost);
        core.state.counters.eager_sent += 1;
        match operation.and_then(|key| core.operations.get_mut(key)) {
            Some(operation) => operation.memory = SendMemory::Sent(send.buffer),
            None => core.state.requests.complete(
                send.request,
                Ok(status),
                slices::of_owner(send.buffer),
            ),
        }
        Ok(())
    }
}

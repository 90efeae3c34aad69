//! Rendezvous: a request, whose receiver reads the payload out of this process's memory.

use tagmatch_device::{Device, DeviceError, Outgoing, PeerId};

use super::backlog::{Blocked, Sending, Sent};
use crate::core::Core;
use crate::credit::Amount;
use crate::error::Fault;
use crate::peers::peer::Queued;
use crate::slices;
use crate::todo::{Operation, SendMemory};
use crate::wire::{AppCtx, Rendezvous};

impl Sending {
    pub(super) fn send_rendezvous<D: Device>(
        &mut self,
        core: &mut Core,
        device: &mut D,
        id: PeerId,
        mut send: Queued,
    ) -> Sent {
        let status = send.status(id);
        let buffer = match slices::to_expose(device, std::mem::take(&mut send.buffer)) {
            Ok(buffer) => buffer,
            Err(buffer) => {
                let fault = slices::no_memory(&buffer);
                core.state.requests.complete(send.request, Err(fault), buffer);
                return Ok(());
            }
        };
        let exposure = match device.expose(id, buffer) {
            Ok(exposure) => exposure,
            Err((buffer, DeviceError::Exhausted { .. })) if self.exposed > 0 => {
                send.buffer = buffer;
                return Err((send, Blocked::Place));
            }
            Err((buffer, error)) => {
                let fault = Fault::not_exposed(id, &error);
                let buffer = slices::of_owner(buffer);
                core.state.requests.complete(send.request, Err(fault), buffer);
                return Ok(());
            }
        };
        self.exposed += 1;
        let memory = SendMemory::Exposed(exposure.id);
        let operation = Operation { request: send.request, status, memory };
        let Some(key) = self.begin(core, operation) else {
            send.buffer = self.take_back(device, id, exposure.id);
            return Err((send, Blocked::Place));
        };
        let app_ctx = AppCtx::new(key.index, key.generation);
        let rendezvous = Rendezvous::new(app_ctx, send.tag, exposure.span, send.immediate);
        let header = rendezvous.emit();
        let message = Outgoing { header: &header, payload: &[], immediate: None };
        if let Err(refused) = device.send(id, message) {
            core.operations.remove(key);
            send.buffer = self.take_back(device, id, exposure.id);
            return Err((send, refused.into()));
        }
        core.state.peer_mut(id).allowance.spend(Amount::RENDEZVOUS);
        core.state.counters.rendezvous_sent += 1;
        for companion in rendezvous.companions() {
            self.control(core, device, id, companion);
        }
        Ok(())
    }
}

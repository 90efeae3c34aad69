//! Rendezvous: a request, whose receiver reads the payload out of this process's memory.

use tagmatch_device::{Device, DeviceError, Outgoing};

use super::Sending;
use super::backlog::{SendOutcome, WhyQueued};
use crate::credit::Amount;
use crate::error::Fault;
use crate::peers::peer::BacklogSend;
use crate::slices;
use crate::state::ProtocolState;
use crate::todo::{Operation, SendMemory};
use crate::wire::{AppCtx, Rendezvous};

impl Sending {
    pub(super) fn send_rendezvous<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        mut send: BacklogSend,
    ) -> SendOutcome {
        let status = send.message.status();
        let id = status.source;
        let buffer = match slices::to_expose(device, std::mem::take(&mut send.message.payload)) {
            Ok(buffer) => buffer,
            Err(buffer) => {
                let fault = slices::no_memory(&buffer);
                state.requests.complete(send.request, Err(fault), buffer);
                return Ok(());
            }
        };
        let exposure = match device.expose(id, buffer) {
            Ok(exposure) => exposure,
            Err((buffer, DeviceError::Exhausted { .. })) if self.exposed > 0 => {
                send.message.payload = buffer;
                return Err((send, WhyQueued::Place));
            }
            Err((buffer, error)) => {
                let fault = Fault::not_exposed(id, &error);
                let buffer = slices::of_owner(buffer);
                state.requests.complete(send.request, Err(fault), buffer);
                return Ok(());
            }
        };
        self.exposed += 1;
        let memory = SendMemory::Exposed(exposure.id);
        let operation = Operation { request: send.request, status, memory };
        let Some(key) = self.begin(state, operation) else {
            send.message.payload = self.take_back(device, id, exposure.id);
            return Err((send, WhyQueued::Place));
        };
        let app_ctx = AppCtx::new(key.index, key.generation);
        let rendezvous = Rendezvous::new(app_ctx, status.tag, exposure.span, status.immediate);
        let header = rendezvous.emit();
        let message = Outgoing { header: &header, payload: &[], immediate: None };
        if let Err(refused) = device.send(id, message) {
            state.operations.remove(key);
            send.message.payload = self.take_back(device, id, exposure.id);
            return Err((send, refused.into()));
        }
        state.peer_mut(id).allowance.spend(Amount::RENDEZVOUS);
        state.counters.rendezvous_sent += 1;
        for companion in rendezvous.companions() {
            self.control(state, device, id, companion);
        }
        Ok(())
    }
}

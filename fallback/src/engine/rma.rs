//! One-sided operations on the engine that matches.

use tagmatch_device::{Buffer, Device, PeerId, QuickAccess, RegionPlace, RegionSpan};

use crate::engine::Engine;
use crate::error::Fault;
use crate::requests::request::{Posted, refuse};
use crate::requests::table::REQUESTS_MAX;
use crate::rma::EngineNotice;
use crate::rma::initiator::RemoteOperation;
use crate::rma::regions::{NamedRegion, RegionKey, RegionUse, Rights};
use crate::rma_engine::RmaEngine;
use crate::slices;
use crate::todo::Todo;
use crate::wire::FetchInto;

const OF_SLICES: Fault = Fault::NotCarried { why: "a region of several slices" };

impl<D: Device> RmaEngine for Engine<D> {
    fn expose_region(
        &mut self,
        memory: Buffer,
        rights: Rights,
    ) -> Result<RegionKey, (Buffer, Fault)> {
        if memory.slices().is_some() {
            return Err((memory, OF_SLICES));
        }
        let Engine { core, device, .. } = self;
        let regions = &mut core.state_mut().rma.regions;
        let key = regions.expose(memory, rights);
        let key = key.map_err(|memory| (memory, Fault::ReadOnlyBuffer))?;
        regions.publish(key, |region| device.publish(region));
        Ok(key)
    }

    fn region_place(&self, key: RegionKey) -> RegionPlace {
        self.core.state().rma.regions.place(key)
    }

    fn expose_named(&mut self, memory: Buffer, region: NamedRegion) -> Result<(), (Buffer, Fault)> {
        if memory.slices().is_some() {
            return Err((memory, OF_SLICES));
        }
        let Engine { core, device, .. } = self;
        let regions = &mut core.state_mut().rma.regions;
        regions.expose_named(memory, region)?;
        if !region.is_counted {
            regions.publish(region.key, |region| device.publish(region));
        }
        Ok(())
    }

    fn close_named(&mut self, key: RegionKey) -> bool {
        let is_left_alone = self.device.unpublish(key.0);
        let regions = &mut self.core.state_mut().rma.regions;
        if is_left_alone {
            drop(regions.close(key));
        } else {
            regions.conceal(key);
        }
        is_left_alone
    }

    fn close_region(&mut self, key: RegionKey) -> Option<Buffer> {
        let is_left_alone = self.device.unpublish(key.0);
        let memory = self.core.state_mut().rma.close_region(key)?;
        if is_left_alone {
            return Some(memory);
        }
        let mut copy = vec![0; memory.len()];
        memory.copy_out(0, &mut copy);
        std::mem::forget(memory);
        Some(copy.into())
    }

    fn region_memory(&mut self, key: RegionKey) -> Option<&mut Buffer> {
        self.core.state_mut().rma.regions.memory(key)
    }

    fn region_use(&self, key: Option<RegionKey>) -> RegionUse {
        self.core.state().rma.regions.done(key)
    }

    #[cold]
    fn begin_remote(&mut self, operation: RemoteOperation) -> Posted {
        let state = self.core.state_mut();
        let peer = operation.peer;
        let action = operation.action.checked()?;
        if let Some(fault) = state.fault_of(peer) {
            return refuse(fault, slices::of_owner(action.into_buffer()));
        }
        let Some(request) = state.requests.begin() else {
            return refuse(
                Fault::TooMany { limit: REQUESTS_MAX },
                slices::of_owner(action.into_buffer()),
            );
        };
        let mut operation = RemoteOperation { action, ..operation };
        let is_done = self.do_at_once(&mut operation);
        let state = self.core.state_mut();
        if is_done {
            operation.end(request, &mut state.requests);
        } else {
            state.rma.begin(request, operation);
            state.todo.push(Todo::Flush(peer));
            self.settle();
        }
        Ok(request)
    }

    fn do_at_once(&mut self, operation: &mut RemoteOperation) -> bool {
        let Engine { core, device, .. } = self;
        let RemoteOperation { peer, key, place, offset, ref mut action } = *operation;
        let of = RegionSpan { key: key.0, place, offset };
        let rma = &mut core.state_mut().rma;
        action.do_at_once(|access| rma.access_at_once(device, peer, of, access))
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        let Engine { core, device, .. } = self;
        core.state_mut().rma.access_at_once(device, peer, of, access)
    }

    fn fetch_at_once(&mut self, peer: PeerId, of: RegionSpan, fetch: FetchInto<'_>) -> bool {
        let FetchInto { element, operands, old } = fetch;
        let count = old.len() / element.of.size();
        element.change_at_once(count, operands, Some(old), |access| {
            self.access_at_once(peer, of, access)
        })
    }

    fn fence(&mut self, peer: PeerId) {
        self.core.state_mut().rma.fence(peer);
    }

    fn remote_under_way(&self, peer: PeerId) -> usize {
        self.core.state().rma.under_way(peer)
    }

    fn take_notice(&mut self) -> Option<EngineNotice> {
        let (notice, peer) = self.core.state_mut().rma.take_notice()?;
        if let Some(peer) = peer {
            self.core.state_mut().todo.push(Todo::Flush(peer));
            self.settle();
        }
        Some(notice)
    }
}

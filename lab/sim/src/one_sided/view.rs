//! Operations that are done in the call that begins them.

use tagmatch_device::{Buffer, Device};
use tagmatch_fallback::{Posted, RemoteOperation, RmaEngine};

use super::world::OneSidedWorld;
use crate::wire::RegionView;

impl<D: Device> OneSidedWorld<D> {
    /// Begins an operation of a worker, while the wires reach the memory of the region with this
    /// number if another worker that lives has it open. `None`: the worker is dead.
    pub(super) fn begin_in_view(
        &mut self,
        from: usize,
        number: usize,
        operation: RemoteOperation,
    ) -> Option<Posted> {
        let region = &self.regions[number];
        let owner = region.owner;
        let key = region.key;
        let node = self.members[owner].node;
        let engine = self.members[owner].engine.as_mut().filter(|_| owner != from);
        let bytes = engine.and_then(|engine| engine.region_memory(key)).map(|all| all.to_vec());
        let view = bytes.map(|bytes| RegionView { owner: node, key: key.0, bytes });
        self.net.borrow_mut().view = view;
        let begun = self.members[from].engine.as_mut()?.begin_remote(operation);
        let view = self.net.borrow_mut().view.take();
        let memory = self.members[owner].engine.as_mut();
        let memory = memory.and_then(|engine| engine.region_memory(key));
        if let Some(memory) = memory.and_then(Buffer::as_mut_slice)
            && let Some(view) = view
        {
            memory.copy_from_slice(&view.bytes);
        }
        Some(begun)
    }
}

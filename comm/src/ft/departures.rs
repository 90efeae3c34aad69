//! Members that leave an allocation of a context id because their round of it has failed.

use super::control::Control;
use super::control_context::ControlContext;
use super::service_io::ServiceIo;
use crate::life::Key;
use crate::net::{Net, ProcessId};

/// An allocation that this process takes part in.
#[derive(Debug)]
struct AllocationUnderWay {
    key: Key,
    /// The members that have left, and how many rounds each of them had begun.
    left: Vec<(ProcessId, u32)>,
}

#[derive(Debug, Default)]
pub(super) struct Departures {
    allocations: Vec<AllocationUnderWay>,
}

impl Departures {
    pub(super) fn enter(&mut self, key: Key) {
        self.allocations.push(AllocationUnderWay { key, left: Vec::new() });
    }

    /// Ends this process's part in an allocation. `has_left`: it has told its partners. If not, it
    /// answers those that have told it that they left.
    pub(super) fn exit<N: Net>(
        &mut self,
        net: &mut N,
        context: &ControlContext<N>,
        key: Key,
        has_left: bool,
    ) {
        let found = self.allocations.iter().position(|allocation| allocation.key == key);
        let Some(allocation) = found.map(|at| self.allocations.swap_remove(at)) else { return };
        for (process, _) in allocation.left.into_iter().filter(|_| !has_left) {
            context.send(net, process, &Control::Left { key, rounds: 0 });
        }
    }

    /// The number of allocations that this process takes part in.
    pub(super) fn count(&self) -> usize {
        self.allocations.len()
    }

    /// The members that have left an allocation, and how many rounds each of them had begun.
    pub(super) fn left(&self, key: Key) -> &[(ProcessId, u32)] {
        let found = self.allocations.iter().find(|allocation| allocation.key == key);
        found.map_or(&[], |allocation| &allocation.left)
    }

    /// Another process has left an allocation.
    pub(super) fn hear<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        from: ProcessId,
        key: Key,
        rounds: u32,
    ) {
        match self.allocations.iter_mut().find(|allocation| allocation.key == key) {
            Some(allocation) if allocation.left.iter().any(|(process, _)| *process == from) => {}
            Some(allocation) => allocation.left.push((from, rounds)),
            // This process takes no part any more, and the sender waits for it to say so. A message
            // with 0 rounds is an answer, which gets no answer itself.
            None if rounds > 0 => io.send(from, &Control::Left { key, rounds: 0 }),
            None => {}
        }
    }
}

//! How the parts of the service reach other processes.

use super::control::Control;
use super::control_context::ControlContext;
use super::registry::Registry;
use crate::net::{Net, ProcessId};

/// The transport, the context of control messages, and what is known of other processes.
pub(super) struct ServiceIo<'a, N: Net> {
    pub(super) net: &'a mut N,
    pub(super) context: &'a ControlContext<N>,
    pub(super) registry: &'a Registry,
}

impl<'a, N: Net> ServiceIo<'a, N> {
    pub(super) fn new(
        net: &'a mut N,
        context: &'a ControlContext<N>,
        registry: &'a Registry,
    ) -> Self {
        ServiceIo { net, context, registry }
    }

    pub(super) fn send(&mut self, to: ProcessId, control: &Control) {
        self.context.send(self.net, to, control);
    }
}

//! State machines over the transport, and where they leave their results.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::net::Net;

use super::port::{Operations, Port};

/// A state machine over the transport: an operation that takes more than one message. Progress steps it until it
/// ends; then it is dropped.
///
/// It is stepped while the driver is locked, so it must not call a communicator.
pub(crate) trait Machine<N: Net>: Send {
    /// What it ends with.
    type Output: Send;

    /// Does what can be done now. `None`: it has not ended.
    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Self::Output, Error>>;
}

/// Where a machine's result is left for its request.
pub(crate) struct ResultSlot<T>(Mutex<Option<Result<T, Error>>>);

impl<T> ResultSlot<T> {
    /// The slot of an operation that has this result already, or has none yet.
    pub(crate) fn new(result: Option<Result<T, Error>>) -> Arc<Self> {
        Arc::new(ResultSlot(Mutex::new(result)))
    }

    /// The result, once.
    pub(crate) fn take(&self) -> Option<Result<T, Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, result: Result<T, Error>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

/// A machine under way, with its operations.
pub(super) struct RunningMachine<N: Net> {
    machine: Box<dyn Drive<N>>,
    operations: Operations<N>,
}

impl<N: Net> RunningMachine<N> {
    pub(super) fn new<M>(
        machine: M,
        operations: Operations<N>,
        slot: &Arc<ResultSlot<M::Output>>,
    ) -> Self
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        let machine = Box::new(Driven { machine, slot: Arc::clone(slot) });
        RunningMachine { machine, operations }
    }

    /// Steps it; whether it has ended.
    pub(super) fn drive(&mut self, net: &mut N, ft: &mut crate::ft::Service<N>) -> bool {
        self.machine.drive(&mut Port { net, ft, operations: &mut self.operations })
    }
}

/// A machine and its slot, whatever it ends with.
trait Drive<N: Net>: Send {
    fn drive(&mut self, port: &mut Port<'_, N>) -> bool;
}

struct Driven<M, T> {
    machine: M,
    slot: Arc<ResultSlot<T>>,
}

impl<N: Net, M: Machine<N>> Drive<N> for Driven<M, M::Output> {
    fn drive(&mut self, port: &mut Port<'_, N>) -> bool {
        let Some(result) = self.machine.step(port) else { return false };
        self.slot.put(result);
        true
    }
}

//! State machines over the transport, and the slots for their results.

use std::sync::{Arc, Mutex, PoisonError};

use super::machine_io::{MachineIo, Operations};
use crate::error::Error;
use crate::net::Net;

/// A state machine over the transport: an operation that takes more than one message. Progress
/// steps it until it ends, and then drops it.
///
/// The driver is locked during a step, so a machine must not call a communicator.
pub(crate) trait Machine<N: Net>: Send {
    /// The result of a success.
    type Output: Send;

    /// Does everything that is possible now. `None`: the machine has not ended.
    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Self::Output, Error>>;
}

/// Steps a machine, until the settings of two processes of the job turn out to differ. From then on
/// the machine is not stepped. It ends with that error, once this process has told others.
pub(super) fn step<N: Net, M: Machine<N>>(
    machine: &mut M,
    io: &mut MachineIo<'_, N>,
) -> Option<Result<M::Output, Error>> {
    if io.ft.fault().is_none() {
        let ended = machine.step(io)?;
        if ended.is_err() {
            // The reason of the failure may have arrived before the failure.
            io.ft.look(io.net);
        }
        if io.ft.fault().is_none() {
            return Some(ended);
        }
    }
    io.ft.expect();
    io.ft.told_fault(io.net).map(Err)
}

/// The place where a machine leaves its result for its request.
pub(crate) struct ResultSlot<T>(Mutex<Option<Result<T, Error>>>);

impl<T> ResultSlot<T> {
    /// A new slot. `result` is `Some` if the operation has ended already.
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

/// A machine under way, with its sends and receives.
pub(super) struct RunningMachine<N: Net> {
    /// Steps the machine, and puts its result into its slot. Returns whether it has ended.
    drive: Box<Drive<N>>,
    operations: Operations<N>,
}

type Drive<N> = dyn FnMut(&mut MachineIo<'_, N>) -> bool + Send;

impl<N: Net> RunningMachine<N> {
    pub(super) fn new<M>(
        mut machine: M,
        operations: Operations<N>,
        slot: &Arc<ResultSlot<M::Output>>,
    ) -> Self
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        let slot = Arc::clone(slot);
        let drive = Box::new(move |io: &mut MachineIo<'_, N>| {
            let result = step(&mut machine, io);
            result.map(|result| slot.put(result)).is_some()
        });
        RunningMachine { drive, operations }
    }

    /// Steps the machine. Returns whether it has ended.
    pub(super) fn drive(&mut self, net: &mut N, ft: &mut crate::ft::Service<N>) -> bool {
        (self.drive)(&mut MachineIo { net, ft, operations: &mut self.operations })
    }
}

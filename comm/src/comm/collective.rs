//! Collective operations that have not begun.

use tagmatch::Buffer;

use super::communicator::Comm;
use super::table::CollRequest;
use crate::driver::Machine;
use crate::error::Error;
use crate::net::Net;
use crate::plans::Call;

/// A collective operation that has not begun. Every collective call returns one, and `T` is the
/// result.
///
/// - [`wait`](Self::wait) carries the operation out, and blocks. This is the cheapest form.
/// - [`start`](Self::start) begins it, and returns a request.
/// - `.await` begins it, and waits as [requests](crate::Request) do.
///
/// All members begin the collective operations of a communicator in the same order. The order of
/// the calls that make these values doesn't matter. A value that is dropped does nothing.
///
/// ```
/// # use tagmatch::{Config as WorkerConfig, Worker};
/// # use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
/// # use tagmatch_comm::net::worker::WorkerNet;
/// # use tagmatch_comm::{Config, Runtime};
/// # let worker = Worker::new(WorkerConfig::default())?;
/// # let addresses = vec![worker.address()];
/// # let runtime = Runtime::new(WorkerNet::new(worker, addresses, 0)?, Config::default())?;
/// # let world = runtime.world();
/// world.barrier().wait()?;
/// let sum = world.allreduce(to_bytes(&[20u64]), &Op::sum::<u64>()).start();
/// let copy = world.dup().start();
/// assert_eq!(from_bytes::<u64>(&sum.wait()?), [20]);
/// let copy = copy.wait()?;
/// runtime.block_on(async { copy.barrier().await })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a collective operation begins with `wait`, `start` or `.await`"]
pub struct Collective<'a, N: Net, T = Buffer>(Begin<'a, N, T>);

enum Begin<'a, N: Net, T> {
    /// A call through the communicator's table. It allocates nothing before it begins.
    Table {
        comm: &'a Comm<N>,
        call: Call,
        start: fn(&Comm<N>, Call) -> CollRequest<N, T>,
        /// Makes the result of the bytes that the operation gives.
        result: fn(Buffer) -> T,
    },
    Other(Box<dyn DeferredCall<N, T> + 'a>),
}

/// An operation that has not begun.
trait DeferredCall<N: Net, T> {
    fn start(self: Box<Self>) -> CollRequest<N, T>;

    /// Carries the operation out. Blocks.
    fn run(self: Box<Self>) -> Result<T, Error> {
        self.start().wait()
    }
}

impl<N: Net, T, F: FnOnce() -> CollRequest<N, T>> DeferredCall<N, T> for F {
    fn start(self: Box<Self>) -> CollRequest<N, T> {
        self()
    }
}

/// An operation whose result is the output of a state machine.
struct OfMachine<'a, N: Net, F> {
    comm: &'a Comm<N>,
    machine: F,
}

impl<N, M, F> DeferredCall<N, M::Output> for OfMachine<'_, N, F>
where
    N: Net,
    M: Machine<N> + 'static,
    M::Output: 'static,
    F: FnOnce() -> Result<M, Error>,
{
    fn start(self: Box<Self>) -> CollRequest<N, M::Output> {
        match (self.machine)() {
            Ok(machine) => self.comm.start(machine),
            Err(error) => self.comm.ended(Err(error)),
        }
    }

    fn run(self: Box<Self>) -> Result<M::Output, Error> {
        let ended = (self.machine)().and_then(|machine| self.comm.driver().run(machine));
        self.comm.raise(ended)
    }
}

impl<'a, N: Net> Collective<'a, N> {
    /// A call through the communicator's table.
    pub(crate) fn call(comm: &'a Comm<N>, call: Call) -> Self {
        let start = |comm: &Comm<N>, call| comm.table().start(comm, call);
        Collective(Begin::Table { comm, call, start, result: |data| data })
    }
}

impl<'a, N: Net> Collective<'a, N, ()> {
    /// A call through the communicator's table that gives no bytes.
    pub(crate) fn without_result(comm: &'a Comm<N>, call: Call) -> Self {
        let start = |comm: &Comm<N>, call| comm.table().start(comm, call).map(drop);
        Collective(Begin::Table { comm, call, start, result: drop })
    }
}

impl<'a, N: Net, T> Collective<'a, N, T> {
    /// An operation that this function begins.
    pub(crate) fn begun_by(start: impl FnOnce() -> CollRequest<N, T> + 'a) -> Self {
        Collective(Begin::Other(Box::new(start)))
    }

    /// An operation whose result is the output of a state machine. The machine is made when the
    /// operation begins.
    pub(crate) fn of_machine<M>(
        comm: &'a Comm<N>,
        machine: impl FnOnce() -> Result<M, Error> + 'a,
    ) -> Self
    where
        M: Machine<N, Output = T> + 'static,
        T: 'static,
    {
        Collective(Begin::Other(Box::new(OfMachine { comm, machine })))
    }

    /// Begins the operation.
    pub fn start(self) -> CollRequest<N, T> {
        match self.0 {
            Begin::Table { comm, call, start, .. } => start(comm, call),
            Begin::Other(operation) => operation.start(),
        }
    }

    /// Carries the operation out. Blocks.
    ///
    /// # Errors
    /// The method that returned this value lists the errors.
    pub fn wait(self) -> Result<T, Error> {
        match self.0 {
            Begin::Table { comm, call, result, .. } => comm.table().run(comm, call).map(result),
            Begin::Other(operation) => operation.run(),
        }
    }
}

impl<N: Net, T> IntoFuture for Collective<'_, N, T> {
    type Output = Result<T, Error>;
    type IntoFuture = CollRequest<N, T>;

    fn into_future(self) -> CollRequest<N, T> {
        self.start()
    }
}

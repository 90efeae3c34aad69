//! What a communicator keeps of its small collective operations.
//!
//! Programs repeat them: the next call of the same shape finds its plan made, and the memory of all that it
//! has under way. It allocates nothing.

use std::sync::Arc;

use crate::comm::Comm;
use crate::error::Error;
use crate::net::Net;
use crate::port::{INJECT_MAX, Operations};

use super::exchange::Exchange;
use super::number::Turn;
use super::{COLLS, Call};

/// Largest own part, in bytes, of an operation that is kept.
const LENGTH_MAX: usize = INJECT_MAX;
/// Most bytes of memory for messages that are kept with one.
const SPARE_MAX: usize = 64 << 10;

/// How many of each kind are kept: roots may take turns.
const PLACES: usize = 4;

/// What a plan is a function of, besides the communicator and the operation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    root: u32,
    length: usize,
    /// Width of the values, and whether their order matters.
    op: Option<(usize, bool)>,
}

impl Shape {
    /// `None`: it is not worth keeping.
    fn of(call: &Call) -> Option<Self> {
        let Call { root, data, sends, receives, op, .. } = call;
        let is_small = data.len() <= LENGTH_MAX && sends.is_empty() && receives.is_empty();
        let op = op.as_ref().map(|op| (op.width(), op.is_commutative()));
        is_small.then_some(Shape { root: *root, length: data.len(), op })
    }
}

struct Repeat<N: Net> {
    shape: Shape,
    /// Bytes of memory that the plan works on.
    length: usize,
    exchange: Exchange,
    operations: Operations<N>,
}

/// The last ones of each kind, the very last one first.
pub(crate) struct Kept<N: Net>([Vec<Repeat<N>>; COLLS]);

impl<N: Net> Default for Kept<N> {
    fn default() -> Self {
        Kept(std::array::from_fn(|_| Vec::new()))
    }
}

/// Ends an operation's number, also when an operator panics: what is kept of the operation has it still.
struct Ends(Option<Arc<Turn>>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.end();
        }
    }
}

impl<N: Net> Kept<N> {
    /// Carries an operation out, and blocks.
    pub(super) fn run(&mut self, comm: &Comm<N>, call: Call) -> Result<Vec<u8>, Error> {
        let Some(shape) = Shape::of(&call) else { return comm.shared.run(comm.planned(call)?) };
        let places = &mut self.0[call.coll as usize];
        match places.iter().position(|repeat| repeat.shape == shape) {
            Some(at) => {
                places.swap(0, at);
                let Repeat { exchange, length, .. } = &mut places[0];
                exchange.again(comm, call.data, *length, call.op);
            }
            None => {
                let exchange = comm.planned(call)?;
                let length = exchange.length();
                places.truncate(PLACES - 1);
                places.push(Repeat { shape, length, exchange, operations: Operations::default() });
                let last = places.len() - 1;
                places.swap(0, last);
            }
        }
        let Repeat { exchange, operations, .. } = &mut places[0];
        let ends = Ends(exchange.turn());
        let result = comm.shared.run_with(exchange, operations);
        drop(ends);
        // After a failure something may still be under way.
        if result.is_err() || exchange.spare() > SPARE_MAX {
            places.swap_remove(0);
        }
        result
    }
}

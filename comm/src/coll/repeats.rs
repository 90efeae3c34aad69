//! The plans of small collective operations that a communicator keeps.
//!
//! Programs repeat small operations. The next call of the same shape finds its plan, and the memory for its messages,
//! and allocates nothing.

use std::sync::Arc;

use crate::driver::{Channel, Driver, INJECT_MAX, Operations, Turn};
use crate::error::Error;
use crate::net::Net;

use super::call::{COLLS, Call};
use super::exchange::Exchange;

/// Most bytes that a member gives in an operation that is kept.
const LENGTH_MAX: usize = INJECT_MAX;
/// Most bytes of memory for messages that are kept with an operation.
const SPARE_MAX: usize = 64 << 10;

/// How many operations of each kind are kept. There are several because a program's roots may take turns.
const PLACES: usize = 4;

/// What a plan depends on, besides the communicator and the kind of operation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    root: u32,
    length: usize,
    /// Width of the values, and whether their order matters.
    op: Option<(usize, bool)>,
}

impl Shape {
    /// `None`: the call is too large to be worth keeping.
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

/// The last operations of each kind. The very last one is the first of its list.
pub(crate) struct Repeats<N: Net>([Vec<Repeat<N>>; COLLS]);

impl<N: Net> Default for Repeats<N> {
    fn default() -> Self {
        Repeats(std::array::from_fn(|_| Vec::new()))
    }
}

/// Ends an operation's number, also when an operator panics. It has to be said, because the kept operation still has
/// the number.
struct Ends(Option<Arc<Turn>>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.end();
        }
    }
}

impl<N: Net> Repeats<N> {
    /// Carries an operation out, and blocks. `plan` makes its plan, where none is kept; `renumber` gives the channel of
    /// one that is kept the next number.
    pub(super) fn run(
        &mut self,
        driver: &Driver<N>,
        call: Call,
        plan: impl FnOnce(Call) -> Result<Exchange, Error>,
        renumber: impl FnOnce(&mut Channel),
    ) -> Result<Vec<u8>, Error> {
        let Some(shape) = Shape::of(&call) else { return driver.run(plan(call)?) };
        let places = &mut self.0[call.coll as usize];
        match places.iter().position(|repeat| repeat.shape == shape) {
            Some(at) => {
                places.swap(0, at);
                let Repeat { exchange, length, .. } = &mut places[0];
                renumber(exchange.channel_mut());
                exchange.again(call.data, *length, call.op);
            }
            None => {
                let exchange = plan(call)?;
                let length = exchange.length();
                places.truncate(PLACES - 1);
                places.push(Repeat { shape, length, exchange, operations: Operations::default() });
                let last = places.len() - 1;
                places.swap(0, last);
            }
        }
        let Repeat { exchange, operations, .. } = &mut places[0];
        let ends = Ends(exchange.turn());
        let result = driver.run_with(exchange, operations);
        drop(ends);
        // After a failure something may still be under way.
        if result.is_err() || exchange.spare() > SPARE_MAX {
            places.swap_remove(0);
        }
        result
    }
}

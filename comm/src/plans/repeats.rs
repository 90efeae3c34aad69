//! The plans of small collective operations that a communicator keeps.
//!
//! Programs repeat small operations. The next call of the same shape uses the kept plan and the
//! kept memory for messages, and allocates nothing.

use std::sync::Arc;

use tagmatch::Buffer;

use super::call::{COLLS, Call};
use super::exchange::Exchange;
use crate::driver::{Channel, Driver, INJECT_MAX, Operations, Turn};
use crate::error::Error;
use crate::net::Net;

/// Plans are kept for operations in which a member contributes up to this many bytes.
const LENGTH_MAX: usize = INJECT_MAX;
/// Up to this many bytes of memory for messages are kept with a plan.
const SPARE_MAX: usize = 64 << 10;

/// The number of plans that are kept for each operation. There are several because a program may
/// use several roots in turn.
const PLACES: usize = 4;

/// The arguments that a plan depends on, besides the communicator and the operation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PlanKey {
    root: u32,
    length: usize,
    /// The width of the values, and whether the operation is commutative.
    op: Option<(usize, bool)>,
}

impl PlanKey {
    /// `None`: the call is too large, so its plan is not kept.
    fn of(call: &Call) -> Option<Self> {
        let Call { root, data, sends, receives, op, .. } = call;
        let is_small = data.len() <= LENGTH_MAX && sends.is_empty() && receives.is_empty();
        let op = op.as_ref().map(|op| (op.width(), op.is_commutative()));
        is_small.then_some(PlanKey { root: *root, length: data.len(), op })
    }
}

struct Repeat<N: Net> {
    shape: PlanKey,
    /// Bytes of memory that the plan works on.
    length: usize,
    exchange: Exchange,
    operations: Operations<N>,
}

/// The plans of the last calls of each operation. The last one that was used is the first of its
/// list.
pub(crate) struct Repeats<N: Net>([Vec<Repeat<N>>; COLLS]);

impl<N: Net> Default for Repeats<N> {
    fn default() -> Self {
        Repeats(std::array::from_fn(|_| Vec::new()))
    }
}

/// Ends an operation's number when it is dropped, even if an operator panics. The kept exchange
/// still holds the number, so it would not end otherwise.
struct Ends(Option<Arc<Turn>>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.end();
        }
    }
}

impl<N: Net> Repeats<N> {
    /// Carries an operation out, and blocks. `plan` makes the exchange if none is kept. `renumber`
    /// gives the channel of a kept exchange the next number.
    pub(crate) fn run(
        &mut self,
        driver: &Driver<N>,
        call: Call,
        plan: impl FnOnce(Call) -> Result<Exchange, Error>,
        renumber: impl FnOnce(&mut Channel),
    ) -> Result<Buffer, Error> {
        let Some(shape) = PlanKey::of(&call) else { return driver.run(plan(call)?) };
        let places = &mut self.0[call.coll as usize];
        match places.iter().position(|repeat| repeat.shape == shape) {
            Some(at) => {
                places.swap(0, at);
                let Repeat { exchange, length, .. } = &mut places[0];
                renumber(&mut exchange.channel);
                exchange.again(call.data, *length, call.op);
            }
            None => {
                let exchange = plan(call)?;
                let length = exchange.plan.memory.len();
                places.truncate(PLACES - 1);
                places.push(Repeat { shape, length, exchange, operations: Operations::default() });
                let last = places.len() - 1;
                places.swap(0, last);
            }
        }
        let Repeat { exchange, operations, .. } = &mut places[0];
        let ends = Ends(exchange.channel.turn.clone());
        let result = driver.run_with(exchange, operations);
        drop(ends);
        // After a failure some messages may still be under way.
        if result.is_err() || exchange.spare() > SPARE_MAX {
            places.swap_remove(0);
        }
        result
    }
}

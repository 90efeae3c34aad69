//! Collective operations as plans, and the machine that carries plans out. They know a channel, and
//! no communicator.
//!
//! | file | contents |
//! |---|---|
//! | `call` | [`Coll`], the list of operations, and [`Call`], the arguments of one call |
//! | `op` | [`Op`], the operations that combine values |
//! | `plan` | [`Plan`]: the messages that one member sends, receives and combines, as data |
//! | `algorithms/` | they make plans of calls |
//! | `exchange` | [`Exchange`], the state machine that carries out all plans |
//! | `repeats` | the small plans that a communicator keeps for the next call of the same shape |
//! | `memory` | the memory that a plan works on |

pub(crate) mod algorithms;
mod call;
mod exchange;
mod memory;
mod op;
mod plan;
mod repeats;

pub(crate) use call::COLLS;
pub use call::{Call, Coll};
pub(crate) use exchange::Exchange;
pub(crate) use memory::WorkMemory;
pub use op::{Element, Op, from_bytes, into_elements, to_bytes};
pub(crate) use plan::{Placement, Plan};
pub(crate) use repeats::Repeats;

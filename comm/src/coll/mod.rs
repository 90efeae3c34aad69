//! Collective operations, and the table by which layers override them.
//!
//! All members of a communicator call them in the same order, blocking or not. Their messages are in the
//! communicator's collective context: no receive of the program sees them.
//!
//! A call goes through the communicator's table. At the bottom of the table an algorithm makes a plan of the call: what
//! this member sends, receives and combines, as data. One machine, the exchange, carries out all plans.

pub(crate) mod algorithms;
mod call;
mod calls;
mod exchange;
mod op;
mod plan;
mod repeats;
mod table;

pub use algorithms::Algorithms;
pub use call::{Call, Coll};
pub use op::{Element, Op, from_bytes, to_bytes};
pub use table::{Attached, CollLayer, CollRequest, CollTable, Run, Start, TableBuilder};

pub(crate) use exchange::Exchange;
pub(crate) use plan::{Placement, Plan};
pub(crate) use repeats::Repeats;
pub(crate) use table::{Bound, Tables};

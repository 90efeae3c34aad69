//! Collective operations, and the table in which layers override them.
//!
//! A collective call returns a [`Collective`], which is waited for, started or awaited. All members
//! of a communicator begin the operations in the same order. The messages of these operations are
//! in the communicator's collective context, so no receive of the program matches them.
//!
//! A call takes a buffer, and its result is one. The operation works in the caller's memory as long
//! as that can be written and has the length that the operation needs, and a result of the same
//! length is in it. A result of another length is in new memory, which is made of numbers if the
//! caller's was ([`Buffer::from_elements`](tagmatch::Buffer::from_elements)): [`into_elements`]
//! gives them without a copy.
//!
//! A call goes through the communicator's table (`table.rs`). At the bottom of the table an
//! algorithm (`algorithms/`) makes a plan of the call: the messages that this member sends,
//! receives and combines, as data (`plan.rs`). One state machine, the exchange (`exchange.rs`),
//! carries out all plans.
//!
//! The lowest layer (`shared/`) carries out some operations in memory that the members map
//! together, if all of them are on one machine.

pub(crate) mod algorithms;
mod call;
mod calls;
mod collective;
mod exchange;
pub(crate) mod memory;
mod op;
mod plan;
mod repeats;
mod shared;
mod table;

pub use algorithms::Algorithms;
pub use call::{Call, Coll};
pub use collective::Collective;
pub use op::{Element, Op, from_bytes, into_elements, to_bytes};
pub use table::{Attached, CollLayer, CollRequest, CollTable, Run, Start, TableBuilder};

pub(crate) use exchange::Exchange;
pub(crate) use plan::{Placement, Plan};
pub(crate) use repeats::Repeats;
pub(crate) use shared::{SharedLayer, SharedMembers, allgather_machine};
pub(crate) use table::{Bound, Tables};

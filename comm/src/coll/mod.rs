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
//! A call goes through the communicator's table (`comm/table.rs`). At the bottom of the table an
//! algorithm (`plans/algorithms/`) makes a plan of the call: the messages that this member sends,
//! receives and combines, as data (`plans/plan.rs`). One state machine, the exchange
//! (`plans/exchange.rs`), carries out all plans.
//!
//! The lowest layer carries out some operations in memory that the members map together
//! (`shared_memory/`).
//!
//! | file | contents |
//! |---|---|
//! | `calls` | the operations as methods of a communicator |
//! | `layer` | the lowest layer: for which communicators it is, and the entries that it overrides |
//! | `running` | how an operation in shared memory is carried out: by the calling thread, or by progress |
//! | `leaders` | operations of members on several machines |

mod calls;
mod layer;
mod leaders;
mod running;

pub use crate::comm::{
    Attached, CollLayer, CollRequest, CollTable, Collective, Run, Start, TableBuilder,
};
pub use crate::plans::{Call, Coll, Element, Op, from_bytes, into_elements, to_bytes};
pub use crate::settings::Algorithms;
pub(crate) use layer::SharedLayer;
pub(crate) use running::allgather_machine;

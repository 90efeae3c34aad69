//! What the objects of a domain contain. Their life is in `crate::state`.

mod bound;
mod counter;
mod entry;
mod output;
mod queue;
mod vector;

pub(crate) use bound::{Binding, CounterSleep, Counts, DomainTables, ThreadWatch};
pub use bound::{Bindings, Sinks};
pub(crate) use counter::Counter;
pub use entry::{Entry, Failure};
pub use output::Output;
pub(crate) use output::entry_bytes;
pub(crate) use queue::{Queue, Waiter};
pub use vector::Vector;

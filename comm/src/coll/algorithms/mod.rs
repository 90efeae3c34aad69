//! Which messages each member sends, receives and combines in a collective operation: the standard algorithms. Each
//! gives one member's plan.

pub(crate) mod blocks;
mod choice;
mod long;
mod settings;
mod short;
mod tree;
mod uneven;

pub(crate) use choice::plan_of;
pub use settings::Algorithms;
pub(crate) use short::{allgather, allreduce, barrier, broadcast};

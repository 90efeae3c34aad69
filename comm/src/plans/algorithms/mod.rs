//! The algorithms of collective operations. Each one makes the plan of one member: the messages
//! that it sends, receives and combines.

pub(crate) mod blocks;
mod choice;
mod long;
mod short;
mod tree;
mod uneven;

pub(crate) use choice::{check, plan_of};
pub(crate) use short::{allgather, allreduce, barrier, broadcast};

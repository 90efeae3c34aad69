//! Context ids: their fields, and which of them a process has left.

mod layout;
mod mask;
#[cfg(test)]
mod tests;

pub use layout::{ContextId, IdLayout, Sub};
pub use mask::IdMask;
pub(crate) use mask::next_of;

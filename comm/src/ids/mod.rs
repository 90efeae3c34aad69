//! Context ids: their fields, and the mask of ids that are free in a process.

mod layout;
mod mask;
#[cfg(test)]
mod tests;

pub use crate::context_id::ContextId;
pub use layout::{IdLayout, Sub};
pub use mask::IdMask;
pub(crate) use mask::next_of;

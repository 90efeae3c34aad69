//! Messages that were received, and the receives that match them.

pub(crate) mod arriving;
pub(crate) mod fragments;
pub(crate) mod store;
pub(crate) mod unexpected;
mod waiting;

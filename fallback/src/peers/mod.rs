//! What is known of each peer, what it may send, and how it is forgotten.

pub(crate) mod credit;
pub(crate) mod departed;
pub(crate) mod forget;
pub(crate) mod peer;

//! The record of each peer, and the peers that went down.

pub(crate) mod departed;
pub(crate) mod peer;

//! The record of each peer, its credit, and how a peer is forgotten.

pub(crate) mod credit;
pub(crate) mod departed;
pub(crate) mod forget;
pub(crate) mod peer;

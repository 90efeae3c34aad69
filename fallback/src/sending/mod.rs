//! Messages to peers, from a call to the device.

pub(crate) mod backlog;
mod eager;
mod fragments;
mod rendezvous;

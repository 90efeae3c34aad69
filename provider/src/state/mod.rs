//! Endpoints, as the tables of functions use them.

mod calls;
mod depths;
mod endpoint;
mod held;
mod multi;
mod operation;
mod pending;
mod receive;
mod remote;
mod send;
mod served;
mod sorting;
mod stalls;

pub(crate) use endpoint::Endpoint;

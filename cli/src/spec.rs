//! Specifications: the values that say what to measure. Plain data; no other room of the command is
//! used here.

pub(crate) mod bounds;
mod case;
mod device;
mod host;
pub(crate) mod hw_tags;
mod limits;
mod pin;
mod text;

pub(crate) use case::{Case, Completions, OneSided, Order, Queue, Traffic, WorkerNeeds};
pub(crate) use device::DeviceArg;
pub(crate) use host::Host;
pub(crate) use hw_tags::HwTagsArg;
pub(crate) use limits::Limits;
pub(crate) use pin::{Pin, PinChoice};

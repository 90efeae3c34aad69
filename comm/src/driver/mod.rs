//! The driver of one process: its transport, the state machines that progress steps, and the ways
//! in which calls wait.
//!
//! | file | contents |
//! |---|---|
//! | `shared` | [`Driver`]: the transport and all machines under one lock, one turn of progress |
//! | `machine` | [`Machine`], and the slot in which a machine leaves its result |
//! | `machine_io` | [`MachineIo`]: the sends and receives of a machine |
//! | `channel` | [`Channel`]: the members, context and tag of one collective operation's messages |
//! | `agree` | [`Agree`]: the part of one process in an agreement, as a step of another machine |
//! | `numbers` | the numbers that tell a communicator's collective operations apart |
//! | `buffered` | buffered sends: the driver keeps their bytes |
//! | `waiting` | the wait of a blocking call: it polls, yields, then sleeps |
//! | `request` | [`Request`]: an operation under way, to be tested, waited for or awaited |

mod agree;
mod buffered;
mod channel;
mod machine;
mod machine_io;
mod numbers;
mod request;
mod shared;
mod waiting;

pub(crate) use agree::Agree;
pub(crate) use buffered::BUFFER_OVERHEAD;
pub(crate) use channel::{Channel, in_group, unpackable};
pub(crate) use machine::{Machine, ResultSlot};
pub(crate) use machine_io::{Ended, Handle, INJECT_MAX, MachineIo, Operations};
pub(crate) use numbers::{Numbers, TagPart, Turn, numbers};
pub use request::{Pending, Request};
pub(crate) use shared::{Driver, DriverState, Settings};
pub(crate) use waiting::Waiting;

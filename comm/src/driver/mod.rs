//! The driver of one process: its transport, the state machines that progress moves, and how calls wait for them.
//!
//! | file | what it has |
//! |---|---|
//! | `shared` | [`Driver`]: the transport and all machines under one lock, one turn of progress |
//! | `machine` | [`Machine`], and the slot in which a machine leaves its result |
//! | `port` | [`Port`]: how a machine sends and receives |
//! | `channel` | [`Channel`]: the members, context and tag of one collective operation's messages |
//! | `numbers` | the numbers that tell a communicator's collective operations apart |
//! | `buffered` | buffered sends, whose bytes the driver keeps |
//! | `waiting` | how a blocking call waits: it looks, yields, then sleeps |
//! | `request` | [`Request`]: an operation under way, to be tested, waited for or awaited |

mod buffered;
mod channel;
mod machine;
mod numbers;
mod port;
mod request;
mod shared;
mod waiting;

pub(crate) use buffered::BUFFER_OVERHEAD;
pub(crate) use channel::{Channel, in_group, unpackable};
pub(crate) use machine::{Machine, ResultSlot};
pub(crate) use numbers::{Numbers, Turn, numbers};
pub(crate) use port::{Ended, Handle, INJECT_MAX, Operations, Port};
pub use request::{Pending, Request};
pub(crate) use shared::{Driver, DriverState, Settings};
pub use waiting::ProgressThread;
pub(crate) use waiting::Waiting;

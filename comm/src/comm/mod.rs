//! Communicators.
//!
//! | file | contents |
//! |---|---|
//! | `communicator` | [`Comm`], and what its handles share |
//! | `info` | id, members and rank |
//! | `create`, `allocating` | the calls that make communicators; the rounds of an allocation of a context id |
//! | `parts` | the communicators of one machine and across machines, which are made without a message |
//! | `send_recv` | sends and receives |
//! | `transfer` | the requests of sends and receives |
//! | `probe`, `message` | probes, and messages that a matched probe took |
//! | `envelope` | ranks, tags and lengths of messages |
//! | `attributes`, `error_handler`, `kept` | attributes and error handlers of communicators |

mod allocating;
mod attributes;
mod choices;
mod communicator;
mod create;
mod envelope;
mod error_handler;
mod info;
mod kept;
mod message;
mod parts;
mod probe;
mod send_recv;
mod transfer;

pub(crate) use allocating::{conclude, round};
pub use attributes::Keyval;
pub(crate) use choices::{SplitChoice, chosen};
pub use communicator::Comm;
pub(crate) use communicator::Running;
pub(crate) use create::Created;
pub use envelope::{Destination, Received, Source, Status, TagChoice};
pub use error_handler::ErrorHandler;
pub use info::CommInfo;
pub use message::Message;
pub use transfer::{RecvRequest, SendRequest};

//! Intercommunicators: two groups of processes, whose members communicate with the members of the
//! other group.
//!
//! An intercommunicator has a pair of context ids. Each group receives in the id that it has
//! allocated for itself, and sends in the other group's. So neither id needs to be free in all
//! processes.
//!
//! | file | content |
//! |---|---|
//! | `intercomm` | [`InterComm`], the handle |
//! | `create`, `connect`, `spawn` | the calls that create one: from two leaders in one communicator, at a port, with a new job |
//! | `split` | the calls that make intercommunicators of parts of one |
//! | `create_machine` | the state machine that carries out a creation, in numbered steps |
//! | `leader_link`, `accepting`, `description` | how the two leaders communicate, and what they send |
//! | `allocate` | a context id that all living members of a group get, or none |
//! | `of_comm`, `coll`, `attributes` | communication, collective operations, attributes and error handlers |
//! | `agree`, `shrink`, `merge` | agreement, and what is made of an intercommunicator |

mod accepting;
mod agree;
mod allocate;
mod attributes;
mod coll;
mod connect;
mod create;
mod create_machine;
mod description;
mod intercomm;
mod leader_link;
mod merge;
mod of_comm;
mod shrink;
mod spawn;
mod split;
mod uniformity;

pub use agree::InterAgreed;
pub use coll::InterRoot;
pub use connect::{OpenPort, PortName};
pub use intercomm::InterComm;
pub use uniformity::Uniformity;

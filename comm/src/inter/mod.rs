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
//! | `creating` | the state machine that carries out a creation, in numbered steps |
//! | `leader_link`, `accepting`, `description` | how the two leaders communicate, and what they send |
//! | `allocate` | a context id that all living members of a group get, or none |
//! | `p2p`, `coll`, `attributes` | communication, collective operations, attributes and error handlers |
//! | `failures`, `shrink`, `merge` | agreement and the like, and what is made of an intercommunicator |

mod accepting;
mod allocate;
mod attributes;
mod coll;
mod connect;
mod create;
mod creating;
mod description;
mod failures;
mod intercomm;
mod leader_link;
mod merge;
mod p2p;
mod shrink;
mod spawn;
mod uniformity;

pub use coll::InterRoot;
pub use connect::{OpenPort, PortName};
pub use failures::InterAgreed;
pub use intercomm::InterComm;
pub use uniformity::Uniformity;

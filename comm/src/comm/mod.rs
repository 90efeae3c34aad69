//! Communicators.
//!
//! | file | contents |
//! |---|---|
//! | `communicator` | [`Comm`], and what its handles share |
//! | `info` | id, members and rank |
//! | `parts` | the communicators of one machine and across machines, which are made without a message |
//! | `table`, `collective` | the table in which layers override collective operations; an operation that has not begun |
//! | `failures` | the calls about failures, except shrinking |
//! | `send_recv` | sends and receives |
//! | `transfer` | the requests of sends and receives |
//! | `probe`, `message` | probes, and messages that a matched probe took |
//! | `envelope` | ranks, tags and lengths of messages |
//! | `attributes`, `error_handler`, `kept` | attributes and error handlers of communicators |
//!
//! # Rules, and where they come from
//! | rule | from | where we differ, and why |
//! |---|---|---|
//! | processes compare their settings when they first meet | | MPICH and Open MPI compare none: processes whose settings differ wait for ever, or report a wrong length |
//! | fields of a context id; the lowest word's highest bit is taken first; freeing a derived id frees nothing | MPICH | Y = 3 belongs to the merge alone. MPICH gives it to two uses, which can clash. Both of MPICH's 16-bit forms are presets: 4096 ids and the bit L together don't fit into 16 bits |
//! | a first round about the eager words, then rounds about the whole mask for the first allocation of an ordered list | MPICH | a first round offers 8 ids of the eager words, and none when fewer than 32 ids are left. MPICH's first round offers all of them and holds them until all members have begun. An allocation that another process waits for before it begins can then never end. Our later rounds offer the whole mask. The allocation fails only if no later round of another allocation holds ids. Ids that a first round holds count as taken |
//! | a freed id rests until no process sends in it any more | | MPICH gives a freed id out again at once, so that a message of a revoked communicator can be received in a later one. Here the reductions of later allocations carry two more things: which ids all members have freed, and whether the last messages in them have arrived (`alloc/settling.rs`). Only where that can't tell, processes ask each other (`ft/rest.rs`) |
//! | exhaustion is told from fragmentation | MPICH | two flags in the word that each round reduces anyway. MPICH needs one more reduction, and leaves it out of non-blocking calls. Here all members get the same error |
//! | a failed allocation holds nothing | | MPICH leaves its lock taken, and a list with a pointer to a dead stack frame. Here dropping the allocation releases everything |
//! | a message comes from the rank in its tag | | the rank is checked against the peer that sent the message. A mismatch is an error |
//! | receives name the peer, beside the source rank in the tag | | so they end when the peer dies. Point-to-point receives, and receives of collective operations of a whole communicator, state that the tag has no other sender (`Net::receive_by_tag`), so that a NIC may match them. A message of another peer then gives `Error::Forged`. Where several processes may use one rank in a context (parts of a communicator, callers of a port, the two groups of an intercommunicator), receives don't state this, and stay in software: no other process can send to them. In every other run the simulated network compares tags alone, so each test checks that the statement is true |
//! | matched probe, message from no process, truncation on receive | MPI-3 | a message is received by value, so no handle to a received message can be left. `discard` is from the proposal; MPI has no such call |
//! | after a death, collective operations end at all members that live | MPICH's error bit in tags | a member that knows of a failure carries its plan to the end, and marks the messages that it sends. So no member waits for one that gave up, and every member that depends on the dead one learns of the failure. The result is not uniform: that takes agreement |
//! | more collective operations may be under way than a tag has numbers for | MPICH refuses a call that finds too many; Open MPI's libnbc wraps around without a check | a call is never refused, and does not block. The operation begins in a process once that process has ended the earlier operation with the same bits (`driver/numbers.rs` says why this is enough). So a layout may give most bits to contexts and sources. A layout with 10 bits for tags allows 256 operations at once |
//! | a call that is refused when it is made uses up no number | | so a member may correct the call and repeat it. The other members notice nothing |
//! | message lengths at which the algorithms for long messages begin | Thakur, Rabenseifner, Gropp 2005, as MPICH | settings of the runtime. It is an error if members give different lengths. If the lengths fall on two sides of such a boundary, the members may wait for each other |
//! | attributes are copied when a duplication begins | MPI-4.1 | always copied in the order in which they were set, and deleted in reverse order. MPI fixes the order only for the end of a process. Deletion can't fail |
//! | an error handler is inherited, and is told of each error once | MPI-4.1 | the default handler returns the error. Arguments that are refused before anything begins are only returned |
//! | internode and intranode parts, with derived ids | MPICH | made when they are first asked for. They keep the id of the whole communicator allocated, so that a part may outlive the whole. Parts have no parts: the derived ids would clash |
//! | a table per communicator, chained, by layers | MPICH (until 2017), Open MPI | levels decide, not the order of registration, which MPICH got the wrong way round. Layers are undone by dropping, not by hand, which Open MPI's `sync` got wrong |

mod attributes;
mod collective;
mod communicator;
mod envelope;
mod error_handler;
mod failures;
mod info;
mod kept;
mod message;
mod parts;
mod probe;
mod send_recv;
mod table;
mod transfer;

pub use attributes::Keyval;
pub use collective::Collective;
pub use communicator::Comm;
pub(crate) use communicator::CommOrigin;
pub use envelope::{Destination, Received, Source, Status, TagChoice};
pub use error_handler::ErrorHandler;
pub use info::CommInfo;
pub use message::Message;
pub(crate) use table::Tables;
pub use table::{Attached, CollLayer, CollRequest, CollTable, Run, Start, TableBuilder};
pub use transfer::{RecvRequest, SendRequest};

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
//!
//! # How it works
//! An intercommunicator (`inter/`) has two groups; the members of each send to the members of the
//! other. It has a pair of context ids: a group receives in the id that it has allocated for
//! itself, and sends in the other group's. So no id needs to be free in all processes of both
//! groups. Point-to-point operations are those of a communicator, with other peers. Operations of
//! both groups together are ordinary plans, on a channel over both groups that sends to each member
//! in the context of its group. A collective operation (`inter/coll/`) has several steps: an
//! operation of the local group, which gives rank 0 the result or takes the data from it; messages
//! between the groups; and again an operation of the local group. Each step starts from the result
//! of the step before. After a failure, a process still goes through all steps, and each step is
//! told of the failure. So no process waits in any of them, and none takes the partial data for a
//! result. `inter/create_machine.rs` lists the steps by which an intercommunicator is created. All
//! members of a group go through the same steps to the end, even after a failure, so that no
//! process waits for one that has given up.
//!
//! The caller chooses what is promised about the other processes' results, even if this process
//! dies after it has its own:
//!
//! | `Uniformity` | promise | how |
//! |---|---|---|
//! | `None` | only that no process hangs | |
//! | `Eventual` | all members of a group have the same result. If one group has the intercommunicator and the other has not, it is revoked, and the group that has it learns of that later | two agreements in each group, with an exchange between the leaders in between; a process at which the second one fails revokes |
//! | `Strict` | all living members of both groups have the same result | one agreement of both groups as one |
//!
//! `Eventual` is the algorithm that was published for ULFM, except that there the flag that the
//! leaders have agreed on is inverted: as printed it always fails. Corrected, the algorithm is not
//! uniform, though it is often taken to be. If a process dies between the leaders' exchange and the
//! second agreement, that agreement fails in its own group. The other group has no failure in it,
//! and its agreement succeeds. Only the revocation repairs this.
//!
//! Why `Strict` is uniform. A process *joins* the agreement of both groups, with a 1, once it knows
//! the other group and that group's id, and only then. The process *refuses* if it was not told of
//! the other group: because a leader died, a group had no id, or the message was lost. Its attempt
//! ends with the refusal. The agreement succeeds if all members of both groups have contributed,
//! and all of them a 1.
//!
//! 1. A process that joins gets its result from the agreement, which is the same for all living
//!    processes.
//! 2. A process that has refused contributes a 0, or nothing. So if a living process has refused,
//!    which is a failure for that process, the agreement also fails for all others.
//!
//! Why it ends. A process that has refused may not even know the other group, which waits for it.
//! So the messages of this agreement are *invitations*: they name the attempts of both groups (an
//! attempt's name is a hash of its parent and its number) and list all members.
//!
//! 1. A process that enters the agreement asks its neighbours in the tree, and the neighbours that
//!    a death gives it later. A process that answers asks its own neighbours. So if any process has
//!    joined, all living processes are asked.
//! 2. A process that has refused and is asked answers at once, with a 0, also outside of any call,
//!    as long as it makes progress. A process whose attempt is under way answers when the attempt
//!    is over. The steps of an attempt end: in them a process waits only for living members, which
//!    go through the same steps, and for the other leader. A process that has not made the call yet
//!    is waited for, as in any collective call.
//! 3. From there on this is an agreement, and agreements end.
//!
//! An answer is valid for one agreement only: an attempt is told to only one other leader, so it
//! can belong to no second agreement. A process remembers the refusals among its last 1024
//! attempts. A failure has the same error class everywhere (`NotCreated`). The cause inside it is
//! what this process knows, and may differ between processes.
//!
//! A shrink (`inter/shrink.rs`) has the same result at all living members of both groups:
//!
//! 1. Both groups agree on which members are dead. From then on all have the same members of both
//!    groups.
//! 2. Each group allocates its id among its living members. The groups may need different numbers
//!    of rounds; only the own group agrees on each round.
//! 3. Both groups agree on the outcome in each group: an id, no id left, or no id because another
//!    member has died. A group's outcome takes one half of the agreement's flags, encoded so that
//!    the AND of two members' outcomes is the worse one. In the last case both groups start again.
//!    Each restart takes one more death, so there are only so many. A group with no living member
//!    is an error.
//!
//! A split, and a creation from a part of each group, go through the same steps (`inter/split.rs`).
//! Each group gathers the colours and keys of its members, the leaders exchange them, and all
//! processes compute the same parts. Then each group allocates one id, which all parts share. A
//! process receives messages of its own part only, so a shared id mixes up nothing, and the id of a
//! process rests until the members of that part are done with it. The epochs of the parts differ,
//! since they contain the members' ranks in the whole. A process knows everybody who may be told of
//! its id, so no id is lost when leaders die.
//!
//! # Rules, and where they come from
//! | rule | from | where we differ, and why |
//! |---|---|---|
//! | a pair of ids, one from each group's pool; the id of the local communicator is derived by the bit L; Y = 3 places a merge in the order of allocations | MPICH | the ids are freed only once the local communicator is gone, too. A program may keep it longer |
//! | create and split: all parts share a pair of ids; members that get no part keep out of a split's allocation, except for rank 0, which passes the id on | MPI-4.1 sections 7.4.2 and 7.6, MPICH | the ids of rank 0, and of members that a creation leaves out, rest before they are used again |
//! | agreement: each group gets the flags of the other one | ULFM | 32 flags for each group, in one agreement over both groups. Open MPI has a communicator of both groups beside the intercommunicator for this |
//! | receives from any source report failures of either group | Open MPI | |
//! | a port is a mailbox, whose number is never used again; calls to a closed port are answered | MPICH: a port is a context id, which is given out again; Open MPI: a name at a server | the names need no server. The queue of a port is bounded: 4096 calls |
//! | a spawn is an accept at the parents' root; the code that starts the children gives them the port's name | MPICH: by PMI, as the key `PARENT_ROOT_PORT_NAME`, which the children's `MPI_Init` connects to | the caller's closure decides how processes are started: this crate knows no launcher. The child connects by a call of its own, not when it starts |
//! | a failure to start is the result at all members | MPI-4.1 | the root's error has the closure's text. There are no error codes per process: a start succeeds or fails as a whole |
//! | reduction, exchange between the leaders, broadcast; pairs over the larger group's size; linear where block sizes differ and there is a root | MPICH | the caller gives the length of the result, not the bytes of both groups: they may differ, as in MPI |
//! | an error handler is for one kind of communicator | | MPI has one kind of handler for both. An intercommunicator that is made of one inherits its handler. A communicator made from an intercommunicator, or the reverse, has none |
//! | layers override nothing here | | except in the local communicator, and in the result of a merge |

mod accepting;
mod agree;
mod allocate;
mod attributes;
mod coll;
mod connect;
mod create;
mod create_machine;
pub(crate) mod description;
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
pub use create::RemoteLeader;
pub use intercomm::InterComm;
pub use uniformity::Uniformity;

//! Collective operations in memory that the members of a communicator map together: what one member
//! keeps for them, and its part in one operation. `coll/layer.rs` puts them beneath all layers. If
//! the members are on several machines, the members of each machine map memory together, and one
//! leader of each machine exchanges messages with the others.
//!
//! | file | contents |
//! |---|---|
//! | `members` | one member's state: the order of operations, the segment |
//! | `making` | how the members get the segment, and agree on it |
//! | `operation` | one member's part in an operation, round by round |
//! | `local` | which members are on which machine |
//!
//! # How an operation runs
//! 1. The first call of a communicator makes the segment (`making`). The lowest rank of a machine
//!    makes the memory and tells the machine's other members its name, by messages. Each member
//!    tries to map it. Then all members of the communicator agree whether all could. If not, this
//!    and all later operations go by messages. The agreement is uniform, so living members never
//!    differ about this, whoever dies meanwhile. The agreement is numbered apart from those of the
//!    program: a member may revoke the communicator instead of making the call, and agree with the
//!    others about something else. The revocation then ends this agreement.
//! 2. Each operation has a number, which all members count alike. A process carries out the
//!    operations of a communicator in their order.
//! 3. In each round of an operation a member publishes some bytes, waits until the members that it
//!    needs have published theirs, and reads those (`tagmatch::shm::segment` has the rules).
//! 4. A member that waits makes progress, as every blocking call does. So it learns of a
//!    revocation, and of the deaths of processes that it is connected to. If it waits long, it
//!    watches the member that it waits for (`Net::watch_after`), and so learns of that one's death,
//!    too.
//!
//! # Failures
//! An operation fails at a member that waits for a member which is down or gave up; the errors are
//! those of operations by messages. A member whose operation failed gives up its part in that
//! operation, and says so in the segment. Later operations begin afresh, whatever happened before:
//! their rounds have other stamps. So they go on, and fail where they depend on a dead member.
//!
//! # Decisions
//! - *The members agree, uniformly, on the segment or on messages.* Otherwise a death at the wrong
//!   moment would leave living members that wait for each other, one in memory and one for a
//!   message. The agreement is the one of `Comm::agree`, but numbered apart: a member that revokes
//!   instead of calling must not count the program's agreements otherwise. So it is with all
//!   agreements that are a part of an operation. The revocation of the communicator ends this one,
//!   those of merges, and those of creations without uniformity (`Life::within`).
//! - *An operation begins afresh.* Its stamps depend on its number alone. So after a failure, or
//!   calls that differ, the next operation is in step, and a member that gives up needs one store
//!   to say so.
//! - *The form of a call doesn't matter*, as before: one member may wait where another one starts.
//!   So such operations are numbered apart from those by messages, since not all members know at
//!   the same call whether they will need a number.
//! - *The memory is found through `/proc/PID/fd`*, checked by its seals, its size and a random
//!   token. It needs no socket and leaves nothing behind. The kernel allows it where it allows
//!   reading memory, whatever Yama says.
//! - *All members read what all others publish*, however many they are. Groups of members with
//!   leaders would read less: each of 256 members reads 255 stamps in a barrier, and with groups of
//!   16 no more than 30. But each phase of a group costs its members a turn on their
//!   processors, and where processors have several members each, the turns take most of the time.
//!   There, two turns are enough without groups: a member publishes and yields, and then all others
//!   have published. On two processors, barriers of 64, 128 and 256 members take some 0.2, 0.4 and
//!   1.3 ms. Where each member has a processor of its own, groups may be faster; that was not
//!   measured.
//! - *A member watches those alone that it waits for long.* A watch may cost a connection, and n
//!   members that watch each other n (n - 1) of them: 256 members would need 65,280 connections
//!   before their first barrier. Connections that are made while others wait make more members
//!   wait. A member is connected to those alone that it has exchanged messages with in the
//!   agreement on the segment (`Agree::watching_few`), some 2 log N. These learn of its death at
//!   once, and give up their parts, as the segment tells all others. Those that wait watch the
//!   member then; so each of them still hears of a death from its own transport. If nobody gives
//!   up, they watch it at last, its neighbours first. They watch after a time, not after a number
//!   of looks, because a look may take 50 ns or a millisecond.
//! - *Two copies, through the areas.* Reading a member's memory in place (`process_vm_readv`) is
//!   one copy, and takes more time up to 256 KiB: two members of a Xeon swapped 16 KiB in 4.2 us
//!   through areas and 5.2 in place, 64 KiB in 8.8 and 11, 256 KiB in 32 and 36, and only 1 MiB in
//!   158 and 130. Pieces are as long as an area: with 16 KiB at a time, 64 KiB took 17 us, because
//!   bytes that were just written are dear to read. And the result of most operations takes the
//!   place of the data that other members would read.
//! - *A member that has published in a round has finished the rounds before.* So a publisher seldom
//!   loads the word that says what a reader has finished. Its line would change hands twice for
//!   that, and the reader's next stamp would wait behind its store: broadcasts with roots in turn
//!   took 290 ns, and 237 without.
//! - *No wake-up.* A store into the segment wakes nobody, so a thread that waits for one sleeps 50
//!   us to 1 ms at a time. A flag that asks for a wake-up would cost each publisher a fence.
//! - *One leader of each machine* (`coll/leaders.rs`). A phase within a machine is an
//!   operation of the segment, with a number of its own. The phase between the leaders is a plan of
//!   the leaders, whose ranks are then replaced by those in the communicator. So both phases are
//!   tested code, the messages name their senders as all others do, and a NIC may match them. The
//!   parts that `intranode` and `internode` give are not used: the program may call their
//!   operations in an order of its own. All members take a number for each call, whether they send
//!   messages or not, because another root has other leaders. The members of all machines agree on
//!   memory or messages together. A leader that knows of a failure carries its messages to the end,
//!   and gives up in the segment.

mod local;
mod making;
mod members;
mod operation;

pub(crate) use local::{LocalMembers, Machines};
pub(crate) use making::Making;
pub(crate) use members::{SharedMembers, SharedState, Way};
pub(crate) use operation::{RoundShape, SharedOperation, Stand};

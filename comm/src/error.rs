//! What can go wrong, by who can do something about it.

use tagmatch::Buffer;

use crate::ids::ContextId;
use crate::net::NetError;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Some process that was to take part has no context id left.
    #[error("a process has none of its {ids} context ids left; free a communicator")]
    Exhausted {
        /// Ids that each process has.
        ids: u32,
    },
    /// Every process has context ids left, but none that is free in all of them.
    #[error("no context id is free in all processes, though each has some of its {ids} left")]
    Fragmented {
        /// Ids that each process has.
        ids: u32,
    },
    /// The id was freed before.
    #[error("context id {id} was freed twice")]
    DoubleFree {
        /// Which id.
        id: ContextId,
    },
    /// Predefined communicators are not freed.
    #[error("context id {id} is predefined and can't be freed")]
    FreePredefined {
        /// Which id.
        id: ContextId,
    },
    /// The bits are no context id of this layout.
    #[error("{bits:#x} is no context id of {width} bits")]
    NotAnId {
        /// The bits.
        bits: u32,
        /// Bits that an id has.
        width: u32,
    },
    /// Intercommunicators want a layout of context ids with the bit L.
    #[error("this layout of context ids has no bit for local communicators")]
    NoLocalcomm,
    /// A setting is out of range.
    #[error("{what}: at most {max}")]
    Layout {
        /// Which setting.
        what: &'static str,
        /// The largest value.
        max: u32,
    },
    /// A process that the operation depends on is down.
    #[error("{}", failed(*.rank))]
    ProcessFailed {
        /// Its rank in the communicator, in the remote group of an intercommunicator; `None`: another process has
        /// said so, or it is of the local group.
        rank: Option<u32>,
    },
    /// Of one of an intercommunicator's groups nobody lives.
    #[error("all processes of the intercommunicator's remote group are down")]
    GroupFailed,
    /// A member has failed, which may have been the one to send what a receive from any source waits for.
    #[error("a member has failed and was not acknowledged: the receive from any source goes on")]
    ProcessFailedPending,
    /// The communicator was revoked.
    #[error("a member has revoked the communicator")]
    Revoked,
    /// The message was longer than the receive's buffer, which holds its first bytes.
    #[error("the message has {length} bytes, the receive room for {room}")]
    Truncated {
        /// The message's length in bytes.
        length: u64,
        /// The buffer's.
        room: usize,
    },
    /// There is no memory for a message.
    #[error("there is no memory for a message of {length} bytes")]
    NoMemory {
        /// Its length in bytes, by its sender's word.
        length: u64,
    },
    /// The receive was cancelled before a message matched it.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// There is no such rank.
    #[error("rank {rank} in a communicator of {size}")]
    Rank {
        /// The rank that was given.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// The tag doesn't fit its field.
    #[error("tag {tag} is larger than {max}")]
    Tag {
        /// The tag that was given.
        tag: u32,
        /// The largest one.
        max: u32,
    },
    /// The group has a process that the communicator has not, or not this one.
    #[error("the group of the new communicator is not a part of its parent's, or lacks the caller")]
    Group,
    /// The leader of a group that is to have an intercommunicator has to give a communicator of both leaders.
    #[error("the leader of an intercommunicator's group gave no communicator of both leaders")]
    NoPeer,
    /// No other process has an open port of this name.
    #[error(
        "no open port of another process has this name: a process in hexadecimal and a number, as 5eaf:0"
    )]
    Port,
    /// Both groups together have more processes than the layout of tags has sources, or one has more than
    /// 65536, which is the most that the other one is told of.
    #[error("a group has more than 65536 processes, or both more than a message's tag can name")]
    Members,
    /// The processes that were to be spawned could not be started.
    #[error("{}", not_started(.why.as_deref()))]
    NotStarted {
        /// What starting them said; `None` where another process has tried to.
        why: Option<String>,
    },
    /// Something of it is left that would be under way when it is freed.
    #[error("a clone, a request or a held message of the intercommunicator is left")]
    InUse,
    /// An intercommunicator's groups have no process in common.
    #[error("the two groups of the intercommunicator have a process in common")]
    Overlap,
    /// What one leader told the other, or its group, can't be; or it could not take part.
    #[error("a leader told what can't be, or could not take part in making the intercommunicator")]
    Leader,
    /// Not all of both groups have agreed to an intercommunicator: none of them has it.
    #[error("not all processes of both groups have agreed to the intercommunicator: {cause}")]
    NotCreated {
        /// Why, as far as this process knows: others may know something else.
        cause: Box<Error>,
    },
    /// The lengths that were given can't be.
    #[error("{length} bytes: {what}")]
    Length {
        /// What was given.
        length: usize,
        /// What would be right.
        what: &'static str,
    },
    /// Buffered sends have no room, or no buffer was attached.
    #[error("a buffered send of {needed} bytes, overhead included, of which {left} are left")]
    BufferFull {
        /// What the send would take.
        needed: usize,
        /// What is left.
        left: usize,
    },
    /// A buffer for buffered sends is attached already.
    #[error("a buffer for buffered sends is attached already")]
    BufferAttached,
    /// The communicator is the part of another one on a machine, or one member of each: it has no such parts.
    #[error("a communicator of one machine, or of one member of each, has no such parts itself")]
    NoChildren,
    /// A member sent other than the operation asks for: it called another one, or with another length.
    #[error("rank {rank} sent {length} bytes where {due} were due: all must make the same call")]
    Mismatch {
        /// Whose message.
        rank: u32,
        /// Its length in bytes.
        length: u64,
        /// What was expected.
        due: usize,
    },
    /// A message claims to be of a rank that its sender does not have.
    #[error("a message of rank {rank} came from another process")]
    Forged {
        /// The rank that it claims.
        rank: u64,
    },
    /// A layer could not patch the table of collective operations.
    #[error("layer {layer}: {what}")]
    Layer {
        /// Its name.
        layer: String,
        /// What it says.
        what: String,
    },
    /// Two layers want the same level.
    #[error("two layers are of level {level}")]
    SameLevel {
        /// The level.
        level: u32,
    },
    /// The transport's own words.
    #[error(transparent)]
    Net(NetError),
    /// The result was taken before.
    #[error("the request's result was taken before")]
    AlreadyTaken,
    /// What other processes contributed to an allocation can't be right.
    #[error("the reduction for a context id gave what this process has not offered")]
    NotOffered,
}

/// Errors by what a caller can do about them, as MPI's error classes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The caller gave something that can't be.
    Argument,
    /// Something has run out; free some of it.
    Resource,
    /// Another process sent what it should not have.
    Peer,
    /// A message was longer than its receive.
    Truncate,
    /// A process is down.
    ProcessFailed,
    /// A process is down, and the operation goes on.
    ProcessFailedPending,
    /// New processes could not be started.
    NotStarted,
    /// Processes that were to have something together have agreed that they have not.
    NotCreated,
    /// The communicator was revoked.
    Revoked,
    /// The operation was cancelled.
    Cancelled,
    /// The transport failed otherwise.
    Transport,
}

/// A failed operation: what went wrong, and the buffer that it owned.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What went wrong.
    pub error: Error,
    /// The operation's buffer.
    pub buffer: Buffer,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Error {
    /// The error's class.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Exhausted { .. }
            | Error::Fragmented { .. }
            | Error::BufferFull { .. }
            | Error::Members
            | Error::NoMemory { .. } => ErrorClass::Resource,
            Error::NotOffered | Error::Mismatch { .. } | Error::Forged { .. } | Error::Leader => {
                ErrorClass::Peer
            }
            Error::NotCreated { .. } => ErrorClass::NotCreated,
            Error::NotStarted { .. } => ErrorClass::NotStarted,
            Error::Truncated { .. } => ErrorClass::Truncate,
            Error::ProcessFailed { .. } | Error::GroupFailed => ErrorClass::ProcessFailed,
            Error::ProcessFailedPending => ErrorClass::ProcessFailedPending,
            Error::Revoked => ErrorClass::Revoked,
            Error::Cancelled => ErrorClass::Cancelled,
            Error::Net(_) => ErrorClass::Transport,
            _ => ErrorClass::Argument,
        }
    }
}

fn not_started(why: Option<&str>) -> String {
    match why {
        Some(why) => format!("the new processes could not be started: {why}"),
        None => "another process could not start the new processes".to_owned(),
    }
}

fn failed(rank: Option<u32>) -> String {
    match rank {
        Some(rank) => format!("rank {rank} is down"),
        None => "another process found that a process is down".to_owned(),
    }
}

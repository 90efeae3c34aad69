//! The errors of this crate, and their classes.

use tagmatch::{Buffer, Tag, TagLayout, TagMask};

use crate::context_id::ContextId;
use crate::net_values::NetError;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A process that has to take part has no free context id.
    #[error("a process has none of its {ids} context ids left; free a communicator")]
    Exhausted {
        /// Number of context ids that each process has.
        ids: u32,
    },
    /// Every process has free context ids, but no id is free in all processes.
    #[error("no context id is free in all processes, though each has some of its {ids} left")]
    Fragmented {
        /// Number of context ids that each process has.
        ids: u32,
    },
    /// The context id was freed before.
    #[error("context id {id} was freed twice")]
    DoubleFree {
        /// The context id.
        id: ContextId,
    },
    /// The context id of a predefined communicator can't be freed.
    #[error("context id {id} is predefined and can't be freed")]
    FreePredefined {
        /// The context id.
        id: ContextId,
    },
    /// The bits are no context id of this layout.
    #[error("{bits:#x} is not a context id of {width} bits")]
    NotAnId {
        /// The bits.
        bits: u32,
        /// Number of bits of a context id.
        width: u32,
    },
    /// Intercommunicators need a layout of context ids with the bit L.
    #[error("this layout of context ids has no bit for local communicators")]
    NoLocalcomm,
    /// A setting is out of range.
    #[error("{setting} = {value} is out of range: from {min} to {max}")]
    BadSetting {
        /// Name of the setting.
        setting: &'static str,
        /// The value that was given.
        value: u64,
        /// The smallest value that is allowed.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// The transport carries no tags of this layout, because it uses some bits of a tag itself.
    #[error(
        "the transport leaves the bits {:#x} of a tag to its user, which a layout of {} + {} + {} \
         bits doesn't fit in: `tags` = TagLayout::new(16, 12, 19), with TagLayout::new(0, 12, 47) \
         as the layout of the worker, fits every device",
        .free.0, .tags.context_bits(), .tags.source_bits(), .tags.tag_bits()
    )]
    NotCarried {
        /// The layout that was given.
        tags: TagLayout,
        /// The bits of a tag that the transport leaves free.
        free: TagMask,
    },
    /// Two processes that communicate have different values of a setting.
    #[error(
        "{setting} is {own} here and {other} in another process: processes that communicate need equal settings"
    )]
    UnequalSetting {
        /// Name of the setting.
        setting: &'static str,
        /// The value in this process; 0 and 1 stand for `false` and `true`.
        own: u64,
        /// The value in another process.
        other: u64,
    },
    /// A process that the operation depends on is down.
    #[error("{}", failed(*.rank))]
    ProcessFailed {
        /// The process's rank in the communicator, or in the remote group of an intercommunicator.
        /// `None`: another process reported the failure, or the process is in the local group.
        rank: Option<u32>,
    },
    /// All processes of the intercommunicator's remote group are down.
    #[error("all processes of the intercommunicator's remote group are down")]
    GroupFailed,
    /// A member has failed that may have been the sender for a receive from any source. The receive
    /// goes on.
    #[error("a member has failed and was not acknowledged: the receive from any source goes on")]
    ProcessFailedPending,
    /// This process has counted itself out: it lacks what a connection to another process of its
    /// job needs, there is no way to one on another machine (often for want of the job's secret),
    /// its transport has refused a message that another one waits for, or it has lost the
    /// connection to one that lives. The other processes are told that it has
    /// failed. Each of its operations ends with this error, those under way and later ones.
    #[error("this process has left its job, because it can take no part any more: {why}")]
    CountedOut {
        /// Which limit of this process was reached, why there is no way to another process, or why
        /// a message could not be sent, as the transport says it; or which process lives that this
        /// one has lost.
        why: String,
    },
    /// The communicator was revoked.
    #[error("a member has revoked the communicator")]
    Revoked,
    /// The message was longer than the receive's buffer. The buffer has the message's first bytes.
    #[error("the message has {length} bytes, but the receive's buffer has {room}")]
    Truncated {
        /// The message's length in bytes.
        length: usize,
        /// The buffer's length in bytes.
        room: usize,
    },
    /// There is no memory for a message.
    #[error("there is no memory for a message of {length} bytes")]
    NoMemory {
        /// The message's length in bytes, as its sender gives it.
        length: usize,
    },
    /// The receive was cancelled before a message matched it.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// The communicator has no such rank.
    #[error("there is no rank {rank} in a communicator of {size} processes")]
    Rank {
        /// The rank that was given.
        rank: u32,
        /// Number of processes of the communicator.
        size: u32,
    },
    /// The tag doesn't fit its field.
    #[error("tag {tag} is larger than {max}")]
    Tag {
        /// The tag that was given.
        tag: u32,
        /// The largest tag.
        max: u32,
    },
    /// The group has a process that is not in the communicator, or lacks this process.
    #[error("the group of the new communicator is not a part of its parent's, or lacks the caller")]
    Group,
    /// The leader of a group gave no communicator of both leaders, which creating an
    /// intercommunicator needs.
    #[error("the leader of an intercommunicator's group gave no communicator of both leaders")]
    NoPeer,
    /// No other process has an open port of this name.
    #[error(
        "no open port of another process has this name: a process in hexadecimal and a number, as 5eaf:0"
    )]
    Port,
    /// Both groups together have more processes than the layout of tags has sources, or one has
    /// more than 65536, which is the most that the other one is told of.
    #[error("a group has more than 65536 processes, or both more than a message's tag can name")]
    Members,
    /// The processes that were to be spawned could not be started.
    #[error("{}", not_started(.why.as_deref()))]
    NotStarted {
        /// The reason; `None` if another process tried to start them.
        why: Option<String>,
    },
    /// The intercommunicator can't be freed: a clone, a request or a message of it is still in use.
    #[error("a clone, a request or a message of the intercommunicator is still in use")]
    InUse,
    /// The two groups of an intercommunicator have a process in common, which MPI forbids.
    #[error("the two groups of the intercommunicator have a process in common")]
    Overlap,
    /// A leader sent an invalid message to the other leader or to its group, or it could not take
    /// part.
    #[error(
        "a leader sent an invalid message, or could not take part in creating the intercommunicator"
    )]
    Leader,
    /// Not all processes of both groups have agreed to the intercommunicator, so no process has it.
    #[error("not all processes of both groups have agreed to the intercommunicator: {cause}")]
    NotCreated {
        /// The reason that this process knows. Other processes may know another one.
        cause: Box<Error>,
    },
    /// A length is invalid.
    #[error("{length} bytes: {what}")]
    Length {
        /// The length in bytes.
        length: usize,
        /// The rule for this length.
        what: &'static str,
    },
    /// The attached buffer has too little room left for a buffered send, or no buffer is attached.
    #[error("a buffered send needs {needed} bytes with its overhead, but {left} are left")]
    BufferFull {
        /// Bytes that the send needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A buffer for buffered sends is attached already.
    #[error("a buffer for buffered sends is attached already")]
    BufferAttached,
    /// The communicator is an intranode or internode part of another one, and so has no parts of
    /// its own.
    #[error("an intranode or internode part of a communicator has no such parts itself")]
    NoChildren,
    /// A member sent a message of the wrong length: it called another operation, or with another
    /// length.
    #[error(
        "rank {rank} sent {length} bytes instead of {due}: all members must make the same call"
    )]
    Mismatch {
        /// The sender's rank.
        rank: u32,
        /// The message's length in bytes.
        length: u64,
        /// The expected length in bytes.
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
        /// The layer's name.
        layer: String,
        /// The layer's reason.
        what: String,
    },
    /// Two layers have the same level.
    #[error("two layers have level {level}")]
    SameLevel {
        /// The level.
        level: u32,
    },
    /// An error of the transport.
    #[error(transparent)]
    Net(NetError),
    /// The result was taken before.
    #[error("the request's result was taken before")]
    AlreadyTaken,
    /// The contributions of other processes to the allocation of a context id are invalid.
    #[error("the reduction for a context id gave an id that this process has not offered")]
    NotOffered,
}

/// Classes of errors, by what a caller can do about them, as MPI's error classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The caller gave an invalid argument.
    Argument,
    /// A resource is exhausted; free some of it.
    Resource,
    /// Another process sent an invalid message.
    Peer,
    /// A message was longer than its receive.
    Truncate,
    /// A process is down.
    ProcessFailed,
    /// A process is down, and the operation goes on.
    ProcessFailedPending,
    /// New processes could not be started.
    NotStarted,
    /// The processes have agreed that the object was not created.
    NotCreated,
    /// The communicator was revoked.
    Revoked,
    /// The operation was cancelled.
    Cancelled,
    /// Another failure of the transport.
    Transport,
}

/// Checks that a setting is in its range.
pub(crate) fn in_range(setting: &'static str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    let is_in = (min..=max).contains(&value);
    is_in.then_some(()).ok_or(Error::BadSetting { setting, value, min, max })
}

/// Checks that a transport carries tags of a layout.
/// `free`: see [`Net::free_tag_bits`](crate::net::Net::free_tag_bits).
pub(crate) fn check_carried((free, given): (TagMask, Tag), tags: TagLayout) -> Result<(), Error> {
    let used = tags.context_mask().0 | tags.source_mask().0 | tags.tag_mask().0;
    let is_carried = used & !free.0 == 0 && given == Tag(0);
    is_carried.then_some(()).ok_or(Error::NotCarried { tags, free })
}

/// A failed operation: its error, and the buffer that it owned.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// The error.
    #[source]
    pub error: Error,
    /// The operation's buffer.
    pub buffer: Buffer,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// A value that has an error: the error itself, or a failed operation.
pub(crate) trait HasError {
    fn error_mut(&mut self) -> &mut Error;
}

impl HasError for Error {
    fn error_mut(&mut self) -> &mut Error {
        self
    }
}

impl HasError for Failed {
    fn error_mut(&mut self) -> &mut Error {
        &mut self.error
    }
}

impl Error {
    /// The error's class.
    #[deny(clippy::wildcard_enum_match_arm, reason = "a new error needs a class of its choice")]
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Exhausted { .. }
            | Error::Fragmented { .. }
            | Error::BufferFull { .. }
            | Error::Members
            | Error::CountedOut { .. }
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
            Error::DoubleFree { .. }
            | Error::FreePredefined { .. }
            | Error::NotAnId { .. }
            | Error::NoLocalcomm
            | Error::BadSetting { .. }
            | Error::NotCarried { .. }
            | Error::UnequalSetting { .. }
            | Error::Rank { .. }
            | Error::Tag { .. }
            | Error::Group
            | Error::NoPeer
            | Error::Port
            | Error::InUse
            | Error::Overlap
            | Error::Length { .. }
            | Error::BufferAttached
            | Error::NoChildren
            | Error::Layer { .. }
            | Error::SameLevel { .. }
            | Error::AlreadyTaken => ErrorClass::Argument,
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

//! Operations on the list, and the command queue in which they wait.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use crate::Handle;

/// `struct ibv_ops_wr`: an operation on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number that the operation's completion carries.
    pub wr_id: u64,
    /// `IBV_OPS_SIGNALED`: the operation has a completion. An unsignalled operation keeps its place
    /// in the queue until the host has polled the completion of a later operation.
    pub signalled: bool,
    /// `unexpected_cnt`, which the NIC reads only with the flag `IBV_OPS_TM_SYNC`; `None` is
    /// without the flag.
    pub unexpected_count: Option<u16>,
    /// What the operation does.
    pub kind: OperationKind,
}

/// `enum ibv_ops_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `IBV_WR_TAG_ADD`: appends an entry.
    Add {
        /// The number that the completions of a match carry.
        recv_wr_id: u64,
        /// The tag that the entry waits for. The NIC does not mask it.
        tag: u64,
        /// The bits of a message's tag that are compared.
        mask: u64,
        /// Scatter elements (`num_sge`): 0 or 1. More are an error here; mlx5 ignores them.
        elements: u32,
        /// Bytes in the scatter element.
        length: u64,
    },
    /// `IBV_WR_TAG_DEL`: removes an entry.
    Delete {
        /// The entry to remove.
        handle: Handle,
    },
    /// `IBV_WR_TAG_SYNC`: only carries the count.
    Sync,
}

/// Why an operation was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// `ENOMEM`: the command queue is full.
    #[error("the command queue is full")]
    QueueFull,
    /// `ENOMEM`: all slots are in use.
    #[error("the list is full")]
    ListFull,
    /// `EINVAL`: no such entry, or more than one scatter element.
    #[error("no such entry, or more than one scatter element")]
    Invalid,
}

/// `ENOMEM` of errno(3) on Linux.
const ENOMEM: i32 = 12;
/// `EINVAL` of errno(3) on Linux.
const EINVAL: i32 = 22;

impl PostError {
    /// The error number that `ibv_post_srq_ops(3)` returns.
    pub fn errno(self) -> i32 {
        match self {
            PostError::QueueFull | PostError::ListFull => ENOMEM,
            PostError::Invalid => EINVAL,
        }
    }
}

/// An operation in the command queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) operation: Operation,
    /// The entry that the operation adds or deletes.
    pub(crate) handle: Option<Handle>,
    /// The number of the operation, counted from the first one posted.
    pub(crate) number: u64,
    /// The first tick at which the operation may be executed.
    due: u64,
}

/// The command queue. Operations are executed in order; polled completions free their places.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    waiting: VecDeque<Command>,
    posted: u64,
    /// The number of operations whose places are free again.
    freed: u64,
    limit: u64,
}

impl Commands {
    pub(crate) fn new(limit: u32) -> Self {
        Commands { waiting: VecDeque::new(), posted: 0, freed: 0, limit: limit.into() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.limit
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.posted - self.freed
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, operation: Operation, handle: Option<Handle>, due: u64) {
        self.waiting.push_back(Command { operation, handle, number: self.posted, due });
        self.posted += 1;
    }

    /// The operation that is executed next.
    pub(crate) fn front(&self) -> Option<&Operation> {
        self.waiting.front().map(|command| &command.operation)
    }

    pub(crate) fn pop(&mut self, now: u64) -> Option<Command> {
        let is_due = self.waiting.front()?.due <= now;
        if is_due { self.waiting.pop_front() } else { None }
    }

    /// The number of signalled operations that wait.
    pub(crate) fn signalled(&self) -> usize {
        self.waiting.iter().filter(|command| command.operation.signalled).count()
    }

    /// The number of operations whose places are free again.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// See [`Nic::hash_state`](crate::Nic::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher, counted: u16) {
        self.outstanding().hash(state);
        for Command { operation, handle, .. } in &self.waiting {
            let count = operation.unexpected_count.map(|count| counted.wrapping_sub(count));
            (operation.signalled, count, handle.map(Handle::slot)).hash(state);
            match operation.kind {
                OperationKind::Add { recv_wr_id, tag, mask, elements, length } => {
                    (recv_wr_id, tag, mask, elements, length).hash(state);
                }
                OperationKind::Delete { .. } => 1.hash(state),
                OperationKind::Sync => 2.hash(state),
            }
        }
    }

    /// Frees the places of all operations up to this one, whose completion the host has polled, as
    /// mlx5 does.
    pub(crate) fn free_up_to(&mut self, number: u64) {
        self.freed = self.freed.max(number + 1);
    }
}

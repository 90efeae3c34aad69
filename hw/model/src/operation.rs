//! Operations on the list, and the queue in which they wait to be taken up.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::Handle;

/// `struct ibv_ops_wr`: an operation on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Comes back in its completion.
    pub wr_id: u64,
    /// `IBV_OPS_SIGNALED`: it has a completion. One without stays in the queue until the completion of a
    /// later one with was taken.
    pub signalled: bool,
    /// `unexpected_cnt`; counts only with the flag `IBV_OPS_TM_SYNC`, which is `Some` here.
    pub unexpected_count: Option<u16>,
    /// What to do.
    pub kind: OperationKind,
}

/// `enum ibv_ops_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `IBV_WR_TAG_ADD`: appends an entry.
    Add {
        /// Comes back in the completions of a match.
        recv_wr_id: u64,
        /// What is looked for; not masked by the NIC.
        tag: u64,
        /// The bits of a message's tag that are looked at.
        mask: u64,
        /// Scatter elements (`num_sge`): 0 or 1. mlx5 ignores further ones; here they are an error.
        elements: u32,
        /// Bytes in the element.
        length: u64,
    },
    /// `IBV_WR_TAG_DEL`: removes an entry.
    Delete {
        /// Which.
        handle: Handle,
    },
    /// `IBV_WR_TAG_SYNC`: nothing but the count.
    Sync,
}

/// Why an operation was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// `ENOMEM`: as many operations are outstanding as there may be.
    #[error("the command queue is full")]
    QueueFull,
    /// `ENOMEM`: all slots are taken.
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

/// A posted operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) operation: Operation,
    /// The entry that it adds or deletes.
    pub(super) handle: Option<Handle>,
    /// Which operation it is, counted from the NIC's beginning.
    pub(super) number: u64,
    /// The tick at which it may be taken up.
    due: u64,
}

/// The command queue: taken up in order, freed by completions.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    waiting: VecDeque<Command>,
    posted: u64,
    /// Operations whose places are free again.
    freed: u64,
    limit: u64,
}

impl Commands {
    pub(super) fn new(limit: u32) -> Self {
        Commands { waiting: VecDeque::new(), posted: 0, freed: 0, limit: limit.into() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.outstanding() >= self.limit
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.posted - self.freed
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, operation: Operation, handle: Option<Handle>, due: u64) {
        self.waiting.push_back(Command { operation, handle, number: self.posted, due });
        self.posted += 1;
    }

    /// The next to be taken up.
    pub(super) fn front(&self) -> Option<&Operation> {
        self.waiting.front().map(|command| &command.operation)
    }

    pub(super) fn pop(&mut self, now: u64) -> Option<Command> {
        let is_due = self.waiting.front()?.due <= now;
        if is_due { self.waiting.pop_front() } else { None }
    }

    /// Operations with a completion that wait.
    pub(super) fn signalled(&self) -> usize {
        self.waiting.iter().filter(|command| command.operation.signalled).count()
    }

    /// Operations whose places are free again.
    pub(super) fn freed(&self) -> u64 {
        self.freed
    }

    /// See [`Nic::hash_state`](super::Nic::hash_state).
    pub(super) fn hash_state(&self, state: &mut impl Hasher, counted: u16) {
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

    /// The completion of this operation was taken: mlx5 frees its place and those before it.
    pub(super) fn free_up_to(&mut self, number: u64) {
        self.freed = self.freed.max(number + 1);
    }
}

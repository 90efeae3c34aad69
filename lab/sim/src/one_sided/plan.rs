//! Operations as a program names them, and what is known of one that has begun.

use tagmatch_device::Buffer;
use tagmatch_fallback::{AtomicOp, AtomicType, ElementUse, RemoteAction, RemoteFault, Rights};

use super::bytes::GetValues;

/// An operation that a worker is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedAction {
    /// Puts bytes, with a notice or without.
    Put {
        at: usize,
        length: usize,
        has_notice: bool,
    },
    Get {
        at: usize,
        length: usize,
    },
    /// Adds 1 to so many counters.
    Add {
        first: usize,
        count: usize,
        fetches: bool,
    },
    /// Replaces the value that the worker has last seen in a counter by the next one.
    Swap {
        counter: usize,
    },
    /// Fetches so many counters.
    Read {
        first: usize,
        count: usize,
    },
    /// Changes the element that no other worker uses.
    Own(OwnUse),
    /// An operation whose bytes don't all lie in the region, from this place on.
    Beyond {
        offset: u64,
        puts: bool,
    },
}

/// How a worker changes the element that no other worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnUse {
    Add,
    Fetch,
    Put,
}

/// What is known of an operation that has begun.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// It fails, and changes nothing.
    Fault(RemoteFault),
    Put {
        at: usize,
        length: usize,
        has_notice: bool,
    },
    Get(GetValues),
    /// The least old values, if they are fetched.
    Add {
        first: usize,
        count: usize,
        least: Option<Vec<u64>>,
    },
    Swap {
        counter: usize,
        guess: u64,
        least: u64,
    },
    Read {
        first: usize,
        least: Vec<u64>,
    },
    /// The old value, if it is fetched.
    Own {
        at: usize,
        old: Option<u64>,
    },
}

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct LiveOperation {
    pub(super) id: u64,
    /// The region, by its number in the run.
    pub(super) region: usize,
    pub(super) began: u64,
    /// The worker's fences to the region's owner before it.
    pub(super) fences: u64,
    pub(super) expected: Expected,
}

impl PlannedAction {
    /// The right that it needs.
    pub(super) fn right(self) -> Rights {
        match self {
            PlannedAction::Put { .. }
            | PlannedAction::Own(OwnUse::Put)
            | PlannedAction::Beyond { puts: true, .. } => Rights::WRITE,
            PlannedAction::Get { .. } | PlannedAction::Beyond { .. } => Rights::READ,
            _ => Rights::ATOMIC,
        }
    }
}

/// An atomic operation on elements of 64 bits, with buffers for what it needs.
pub(super) fn atomic(op: AtomicOp, operands: &[u64], fetched: usize) -> Option<RemoteAction> {
    let element = ElementUse::new(op, AtomicType::U64)?;
    let bytes: Vec<u8> = operands.iter().flat_map(|operand| operand.to_ne_bytes()).collect();
    let each = op.operands();
    let count = operands.len().checked_div(each).unwrap_or(fetched);
    let old = (fetched > 0).then(|| Buffer::zeroed(8 * fetched));
    Some(RemoteAction::Atomic { element, operands: bytes.into(), count, old })
}

/// Bytes that a put of this number has, mostly different from those of near numbers.
pub(super) fn bytes_of(id: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (id.wrapping_mul(29).wrapping_add(at * 3) % 251) as u8).collect()
}

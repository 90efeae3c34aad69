//! Operations as a program names them, and what is known of one that has begun.

use tagmatch_device::Buffer;
use tagmatch_fallback::{AtomicOp, AtomicType, ElementUse, RemoteAction, RemoteFault, Rights};

use super::bytes::GetValues;
use super::region::{OWN_WORDS, SimRegion, WORD};

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
        length: usize,
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

    /// The place and the action of an operation with this number.
    pub(super) fn action(
        self,
        region: &SimRegion,
        from: usize,
        id: u64,
    ) -> Option<(u64, RemoteAction)> {
        let counter = |first: usize| (first * WORD) as u64;
        Some(match self {
            PlannedAction::Put { at, length, has_notice } => {
                let notice = has_notice.then_some(id);
                (at as u64, RemoteAction::Put { from: bytes_of(id, length).into(), notice })
            }
            PlannedAction::Get { at, length } => {
                (at as u64, RemoteAction::Get { into: Buffer::zeroed(length) })
            }
            PlannedAction::Add { first, count, fetches } => {
                let fetched = if fetches { count } else { 0 };
                (counter(first), atomic(AtomicOp::Sum, &vec![1; count], fetched)?)
            }
            PlannedAction::Swap { counter: of } => {
                let guess = region.counters[of].seen[from];
                (counter(of), atomic(AtomicOp::CompareSwap, &[guess, guess + 1], 1)?)
            }
            PlannedAction::Read { first, count } => {
                (counter(first), atomic(AtomicOp::Read, &[], count)?)
            }
            PlannedAction::Own(kind) => {
                let at = OWN_WORDS + from * WORD;
                let action = if kind == OwnUse::Put {
                    let from = own_put(id).to_ne_bytes().to_vec().into();
                    RemoteAction::Put { from, notice: None }
                } else {
                    atomic(AtomicOp::Sum, &[id], usize::from(kind == OwnUse::Fetch))?
                };
                (at as u64, action)
            }
            PlannedAction::Beyond { offset, length, puts: true } => {
                (offset, RemoteAction::Put { from: bytes_of(id, length).into(), notice: None })
            }
            PlannedAction::Beyond { offset, length, .. } => {
                (offset, RemoteAction::Get { into: Buffer::zeroed(length) })
            }
        })
    }
}

/// An atomic operation on elements of 64 bits, with buffers for what it needs.
fn atomic(op: AtomicOp, operands: &[u64], fetched: usize) -> Option<RemoteAction> {
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

/// What a put of this number leaves in the worker's own element.
pub(super) fn own_put(id: u64) -> u64 {
    id.wrapping_mul(0x0101_0101_0101_0101)
}

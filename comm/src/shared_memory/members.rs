//! One member's state: the order of its operations, and the segment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tagmatch::shm::segment::{Segment, Stamp};

use super::making::Making;
use super::operation::Stand;
use crate::life::Life;

/// A member's state for the operations of one communicator in shared memory.
pub(crate) struct SharedMembers {
    /// The number of the next operation.
    next: AtomicU64,
    /// Whether the members have agreed on messages instead.
    goes_by_messages: AtomicBool,
    /// Whether the members have agreed on the segment.
    has_segment: AtomicBool,
    state: Mutex<SharedState>,
}

/// How the operations of a communicator are carried out.
pub(crate) enum Way {
    /// The first call has not begun to make the segment yet.
    Unmade,
    Making(Box<Making>),
    Shared(Box<Segment>),
    Messages,
}

pub(crate) struct SharedState {
    pub(crate) way: Way,
    /// The life of the agreement on the segment, once it has begun. It stays as long as the
    /// communicator, because members that are late may ask for the decision.
    agreement: Option<Arc<Life>>,
    /// The operation that uses the segment, or the next one that may. All operations before it have
    /// ended.
    pub(crate) turn: u64,
    /// Memory for values that are combined.
    pub(crate) scratch: Vec<u8>,
    /// The last wait that was looked at closely, and when it began.
    wait: Option<(Stamp, Stand, Instant)>,
}

impl SharedState {
    /// For how long the operation has stood like this, as far as anybody has looked.
    pub(crate) fn waited(&mut self, stamp: Stamp, stand: Stand) -> Duration {
        match self.wait {
            Some((of, stood, since)) if (of, stood) == (stamp, stand) => since.elapsed(),
            _ => {
                self.wait = Some((stamp, stand, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

impl SharedMembers {
    pub(crate) fn new() -> Self {
        SharedMembers {
            next: AtomicU64::new(1),
            goes_by_messages: AtomicBool::new(false),
            has_segment: AtomicBool::new(false),
            state: Mutex::new(SharedState {
                way: Way::Unmade,
                agreement: None,
                turn: 1,
                scratch: Vec::new(),
                wait: None,
            }),
        }
    }

    /// The number of a new operation. Number 1 makes the segment.
    pub(crate) fn take_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an operation has begun to make the segment. All members give the same answer at the
    /// same call.
    pub(crate) fn has_begun(&self) -> bool {
        self.next.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn goes_by_messages(&self) -> bool {
        self.goes_by_messages.load(Ordering::Relaxed)
    }

    pub(crate) fn has_segment(&self) -> bool {
        self.has_segment.load(Ordering::Relaxed)
    }

    /// The state; `None` while another thread uses it. That thread may be in a blocking operation,
    /// so nothing waits for it here.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, SharedState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            // A reduction's operator has panicked. Its operation was ended.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The state, for the operation that has its turn. Other operations use it for a moment only.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to make the segment. `life` is that of the agreement on it.
    pub(crate) fn make(&self, life: Arc<Life>, making: Making) {
        let mut state = self.lock();
        state.agreement = Some(life);
        state.way = Way::Making(Box::new(making));
    }

    /// Notes what the members have agreed on.
    pub(crate) fn agreed(&self, state: &mut SharedState, segment: Option<Segment>) {
        match segment {
            Some(segment) => {
                state.way = Way::Shared(Box::new(segment));
                self.has_segment.store(true, Ordering::Relaxed);
            }
            None => {
                state.way = Way::Messages;
                self.goes_by_messages.store(true, Ordering::Relaxed);
            }
        }
    }
}

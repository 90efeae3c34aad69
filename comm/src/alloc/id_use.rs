//! One use of a context id: by one communicator, from its creation until the id is free again.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::group::Group;
use crate::net::ProcessId;

/// A set of processes that only grows. Its memory is allocated with the first process.
#[derive(Debug, Default)]
struct ProcessSet(OnceLock<Box<[AtomicU64]>>);

impl ProcessSet {
    /// Adds a process; whether it is new. `all` has all processes that are ever added.
    #[inline]
    fn insert(&self, process: ProcessId, all: &Group) -> bool {
        let words = self.0.get_or_init(|| room(all));
        let Some(word) = words.get((process.0 / u64::BITS) as usize) else { return true };
        let bit = 1 << (process.0 % u64::BITS);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    fn count(&self) -> u32 {
        self.words().map(|(_, word)| word.count_ones()).sum()
    }

    fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.words().flat_map(|(at, word)| {
            let bits = (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| ProcessId(at * u64::BITS + bit))
        })
    }

    fn words(&self) -> impl Iterator<Item = (u32, u64)> {
        let words = self.0.get().into_iter().flatten();
        (0..).zip(words.map(|word| word.load(Ordering::Relaxed)))
    }
}

/// Memory for one bit of each process up to the last one of a group.
#[cold]
fn room(all: &Group) -> Box<[AtomicU64]> {
    let last = all.processes().iter().map(|process| process.0).max();
    (0..=last.unwrap_or(0) / u64::BITS).map(|_| AtomicU64::new(0)).collect()
}

/// One use of a context id by a communicator, as one member knows it.
#[derive(Debug)]
pub(crate) struct IdUse {
    /// Tells this use apart from all others of any id. The same at all members; 0 if the members
    /// do not settle this use by their allocations.
    name: u64,
    /// The members: all processes that send in the id for this communicator.
    group: Arc<Group>,
    /// The processes that this one has sent to in the id.
    sent: ProcessSet,
    /// The processes that have closed the id towards this one.
    closed: ProcessSet,
    /// Whether the processes must be asked about the id once it is freed.
    is_stray: AtomicBool,
}

impl IdUse {
    pub(crate) fn new(name: u64, group: &Arc<Group>) -> Arc<Self> {
        let (sent, closed, is_stray) = Default::default();
        Arc::new(IdUse { name, group: Arc::clone(group), sent, closed, is_stray })
    }

    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Messages are sent in the id that are not counted here. So the other processes must be asked
    /// about the id once it is freed.
    pub(crate) fn settle_by_asking(&self) {
        self.is_stray.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stray(&self) -> bool {
        self.is_stray.load(Ordering::Relaxed)
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// This process is about to send to a member in the id. Returns whether it does so for the
    /// first time.
    #[inline]
    pub(crate) fn send_to(&self, process: ProcessId) -> bool {
        self.sent.insert(process, &self.group)
    }

    /// The processes that this one has sent to in the id.
    pub(crate) fn sent_to(&self) -> impl Iterator<Item = ProcessId> {
        self.sent.processes()
    }

    /// How many these are.
    pub(crate) fn sent_count(&self) -> u32 {
        self.sent.count()
    }

    /// A process has closed the id towards this one: it sends no more in it. A process that is not
    /// a member has nothing to close.
    pub(crate) fn close_from(&self, process: ProcessId) {
        if self.group.rank(process).is_some() {
            self.closed.insert(process, &self.group);
        }
    }

    /// How many processes have closed the id towards this one.
    pub(crate) fn closed_by(&self) -> u32 {
        self.closed.count()
    }
}

impl PartialEq for IdUse {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for IdUse {}

impl Hash for IdUse {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_new_once_and_only_members_close() {
        let group = Arc::new(Group::new([3, 200, 64].map(ProcessId)));
        let used = IdUse::new(7, &group);
        assert_eq!(used.sent_to().count(), 0);
        for (process, is_new) in [(200, true), (3, true), (200, false), (64, true), (3, false)] {
            assert_eq!(used.send_to(ProcessId(process)), is_new, "{process}");
        }
        assert_eq!(used.sent_to().collect::<Vec<_>>(), [3, 64, 200].map(ProcessId));
        for from in [3, 5, 3, 200, 900] {
            used.close_from(ProcessId(from));
        }
        assert_eq!(used.closed_by(), 2);
    }
}

//! What the members of a communicator have in common about failures, as one of them knows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::group::Group;
use crate::ids::ContextId;
use crate::net::Net;
use crate::port::Abroad;

/// Tells a communicator from all others that these processes have had or will have.
///
/// Context ids are given out again. The epoch is a function of how the communicator came to be: its parent's
/// epoch, the number of the call, its members' ranks in the parent. So all members know it without a message, and
/// all the same, also those of other jobs, who number processes otherwise. No process is in two that have the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) context: u32,
    pub(crate) epoch: u64,
}

impl Key {
    pub(crate) fn new(id: ContextId, epoch: u64) -> Self {
        Key { context: id.bits(), epoch }
    }
}

/// A communicator's epoch from those things that no other one has in common with it, and the ranks of its members
/// in a group that they all know.
pub(crate) fn epoch(parts: &[u64], group: &Group, whole: &Group) -> u64 {
    let all = group.size();
    let parts = parts.iter().copied().chain([all.into()]);
    if group == whole {
        // The commonest: nobody's rank says anything.
        return digest(parts);
    }
    let ranks: Vec<u32> = (0..all).collect();
    let ranks = group.translate(&ranks, whole);
    digest(parts.chain(ranks.into_iter().map(|rank| rank.map_or(u64::MAX, u64::from))))
}

fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, |digest, part| mix(digest ^ mix(part)))
}

/// SplitMix64's output function: every bit of the value changes half of the result's.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// What this process knows of a communicator's failures.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) key: Key,
    pub(crate) group: Arc<Group>,
    pub(crate) own: u32,
    /// The context in which this process receives.
    receives_in: ContextId,
    /// The members that receive in another one, of an intercommunicator.
    abroad: Option<Abroad>,
    revoked: AtomicBool,
    known: AtomicU32,
    acknowledged: AtomicU32,
    is_watched: AtomicBool,
    /// Agreements below this number have ended at all members.
    over: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Ranks, in the order in which their failures became known.
    failed: Vec<u32>,
    agreements: u32,
    /// Agreements that this process has begun and that have not ended, the oldest first.
    open: Vec<u32>,
    /// How often a communicator of a group was made with a tag.
    made: HashMap<(u64, u32), u64>,
}

impl Life {
    pub(crate) fn new(id: ContextId, epoch: u64, group: &Arc<Group>, own: u32) -> Self {
        Life {
            key: Key::new(id, epoch),
            group: Arc::clone(group),
            own,
            receives_in: id,
            abroad: None,
            revoked: AtomicBool::new(false),
            known: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            over: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    /// Of an intercommunicator: the context in which this process receives, and that of the other group.
    pub(crate) fn between(self, receives_in: ContextId, abroad: Abroad) -> Self {
        Life { receives_in, abroad: Some(abroad), ..self }
    }

    pub(crate) fn receives_in(&self) -> ContextId {
        self.receives_in
    }

    /// The context in which a member receives.
    pub(super) fn context_of(&self, rank: u32) -> ContextId {
        let abroad = self.abroad.as_ref().filter(|abroad| abroad.ranks.contains(&rank));
        abroad.map_or(self.receives_in, |abroad| abroad.context)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What panics while it holds the lock is memory that ran out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }

    /// Whether a member is known to have failed whose failure was not acknowledged.
    pub(crate) fn has_news(&self) -> bool {
        self.known.load(Ordering::Relaxed) > self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn fail(&self, rank: u32) {
        let failed = &mut self.state().failed;
        if !failed.contains(&rank) {
            failed.push(rank);
            self.known.store(u32::try_from(failed.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self) -> Vec<u32> {
        self.state().failed.clone()
    }

    pub(super) fn acknowledged(&self) -> Vec<u32> {
        let mut failed = self.failed();
        failed.truncate(self.acknowledged.load(Ordering::Relaxed) as usize);
        failed
    }

    /// Acknowledges the first failures that are known; how many are acknowledged then.
    pub(super) fn acknowledge(&self, count: u32) -> u32 {
        let count = count.min(self.known.load(Ordering::Relaxed));
        self.acknowledged.fetch_max(count, Ordering::Relaxed).max(count)
    }

    /// Sees to it that the death of each member becomes known.
    pub(crate) fn watch<N: Net>(&self, net: &mut N) {
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            self.group.processes().iter().for_each(|process| net.watch(*process));
        }
    }

    /// The number of an agreement that begins, and of the oldest one that has not ended.
    pub(super) fn begin(&self) -> (u32, u32) {
        let mut state = self.state();
        let number = state.agreements;
        state.agreements = number.wrapping_add(1);
        state.open.push(number);
        (number, state.open.first().copied().unwrap_or(number))
    }

    pub(super) fn end(&self, number: u32) {
        self.state().open.retain(|open| *open != number);
    }

    /// All members have seen the end of agreements below this number.
    pub(super) fn pass(&self, number: u32) {
        self.over.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether all have seen its end: what still comes of it is late.
    pub(super) fn is_over(&self, number: u32) -> bool {
        number < self.over.load(Ordering::Relaxed)
    }

    /// How often this was called with these values before.
    pub(crate) fn made(&self, group: &Group, tag: u32) -> u64 {
        let mut state = self.state();
        // By this process's own numbers: nobody else hears of it.
        let group = digest(group.processes().iter().map(|process| process.0.into()));
        let count = state.made.entry((group, tag)).or_default();
        *count += 1;
        *count - 1
    }
}

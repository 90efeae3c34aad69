//! The life of a communicator: its key and members, and what one process knows of its failures.

mod key;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::alloc::IdUse;
use crate::context_id::ContextId;
use crate::group::Group;
use crate::net::Net;
use crate::remote::RemoteRanks;
pub(crate) use key::{Key, digest, epoch};

/// A communicator's key and members, and what this process knows of its failures, its revocation
/// and its agreements.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) key: Key,
    pub(crate) group: Arc<Group>,
    pub(crate) own: u32,
    /// The context in which this process receives.
    receives_in: ContextId,
    /// The use of the communicator's id, with the processes that this one has sent to.
    used: Arc<IdUse>,
    /// In an intercommunicator: the members of the remote group, which receive in another context.
    remote: Option<RemoteRanks>,
    revoked: AtomicBool,
    /// The communicator that an operation belongs to, if this is the life of that operation's
    /// agreements, and the revocation of the communicator ends them.
    within: Option<Arc<Life>>,
    /// The number of known failures.
    known: AtomicU32,
    /// The number of acknowledged failures: the first ones of those known.
    acknowledged: AtomicU32,
    /// Whether the transport was asked to report the deaths of the members.
    is_watched: AtomicBool,
    /// Agreements below this number have ended at all members.
    over: AtomicU64,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    /// The ranks that have failed, in the order in which that became known.
    failed: Vec<u32>,
    /// The number of agreements that this process has begun.
    agreements: u64,
    /// The agreements that this process has begun and not ended, the oldest first.
    open: Vec<u64>,
    /// How often a communicator was made of a group with a tag, by a hash of the group, and the
    /// tag.
    made: HashMap<(u64, u32), u64>,
}

impl Life {
    pub(crate) fn new(id: ContextId, epoch: u64, group: &Arc<Group>, own: u32) -> Self {
        Life {
            key: Key::new(id, epoch),
            group: Arc::clone(group),
            own,
            receives_in: id,
            used: IdUse::new(0, group),
            remote: None,
            revoked: AtomicBool::new(false),
            within: None,
            known: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            over: AtomicU64::new(0),
            lists: Mutex::default(),
        }
    }

    /// For an intercommunicator: the context in which this process receives, and the one in which
    /// the remote group receives.
    pub(crate) fn between(self, receives_in: ContextId, remote: RemoteRanks) -> Self {
        Life { receives_in, remote: Some(remote), ..self }
    }

    /// For a communicator whose members settle its id together: the use of the id, which the
    /// communicators with derived ids share.
    pub(crate) fn using(self, used: Option<&Arc<IdUse>>) -> Self {
        Life { used: used.map_or(self.used, Arc::clone), ..self }
    }

    #[inline]
    pub(crate) fn used(&self) -> &Arc<IdUse> {
        &self.used
    }

    pub(crate) fn receives_in(&self) -> ContextId {
        self.receives_in
    }

    /// The context in which a member receives.
    pub(crate) fn context_of(&self, rank: u32) -> ContextId {
        let remote = self.remote.as_ref().and_then(|remote| remote.context_of(rank));
        remote.unwrap_or(self.receives_in)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // A panic while the lock is held can only come from a failed allocation of memory.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the agreements of an operation of a communicator: they are numbered apart from the
    /// program's agreements, because not all members may reach the operation. The revocation of the
    /// communicator ends them, as it ends the operation.
    pub(crate) fn within(self, of: &Arc<Life>) -> Self {
        Life { within: Some(Arc::clone(of)), ..self }
    }

    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Whether the agreements of this life have ended without a decision.
    pub(crate) fn is_given_up(&self) -> bool {
        self.within.as_ref().is_some_and(|life| life.is_revoked())
    }

    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }

    /// Whether there is a failure that was not acknowledged.
    pub(crate) fn has_news(&self) -> bool {
        self.known.load(Ordering::Relaxed) > self.acknowledged.load(Ordering::Relaxed)
    }

    pub(crate) fn fail(&self, rank: u32) {
        let failed = &mut self.lists().failed;
        if !failed.contains(&rank) {
            failed.push(rank);
            self.known.store(u32::try_from(failed.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self) -> Vec<u32> {
        self.lists().failed.clone()
    }

    pub(crate) fn acknowledged(&self) -> Vec<u32> {
        let mut failed = self.failed();
        failed.truncate(self.acknowledged.load(Ordering::Relaxed) as usize);
        failed
    }

    /// Acknowledges the first `count` failures. Returns how many are acknowledged now.
    pub(crate) fn acknowledge(&self, count: u32) -> u32 {
        let count = count.min(self.known.load(Ordering::Relaxed));
        self.acknowledged.fetch_max(count, Ordering::Relaxed).max(count)
    }

    /// Asks the transport to report the death of each member.
    pub(crate) fn watch<N: Net>(&self, net: &mut N) {
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            self.group.processes().iter().for_each(|process| net.watch(*process));
        }
    }

    /// Begins an agreement. Returns its number, and the number of the oldest agreement that has not
    /// ended.
    pub(crate) fn begin(&self) -> (u64, u64) {
        let mut lists = self.lists();
        let number = lists.agreements;
        lists.agreements = number + 1;
        lists.open.push(number);
        (number, lists.open.first().copied().unwrap_or(number))
    }

    /// How many agreements this process has begun.
    pub(crate) fn begun(&self) -> u64 {
        self.lists().agreements
    }

    pub(crate) fn end(&self, number: u64) {
        self.lists().open.retain(|open| *open != number);
    }

    /// Notes that all members have seen the end of the agreements below this number.
    pub(crate) fn pass(&self, number: u64) {
        self.over.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether all members have seen the end of an agreement: a message of it is late.
    pub(crate) fn is_over(&self, number: u64) -> bool {
        number < self.over.load(Ordering::Relaxed)
    }

    /// Counts the communicators that are made of a group with a tag. Returns how many there were
    /// before.
    pub(crate) fn made(&self, group: &Group, tag: u32) -> u64 {
        let mut lists = self.lists();
        // The hash uses the process numbers of this process, which is safe: it is not sent to
        // others.
        let group = digest(group.processes().iter().map(|process| process.0.into()));
        let count = lists.made.entry((group, tag)).or_default();
        *count += 1;
        *count - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IdLayout;
    use crate::net::ProcessId;

    #[test]
    fn failures_are_acknowledged_in_their_order_and_never_taken_back() {
        let group = Arc::new(Group::new([0, 1, 2, 3].map(ProcessId)));
        let life = Life::new(IdLayout::BITS_16.world(), 7, &group, 0);
        assert_eq!((life.acknowledge(1), life.has_news()), (0, false), "there is no failure yet");
        for rank in [3, 1, 3, 2] {
            life.fail(rank);
        }
        for (count, now) in [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (9, 3)] {
            assert_eq!(life.acknowledge(count), now);
            assert_eq!(life.acknowledged(), [3, 1, 2][..now as usize]);
            assert_eq!(life.has_news(), now < 3);
        }
    }
}

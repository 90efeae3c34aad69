//! The communicators of one process, and the processes that it knows to be down.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use crate::life::{Key, Life};
use crate::net::ProcessId;

#[derive(Debug)]
pub(super) struct Registry {
    pub(super) own: ProcessId,
    /// The processes that are down, in the order in which that became known.
    down: Vec<ProcessId>,
    is_down: HashSet<ProcessId>,
    lives: BTreeMap<Key, Weak<Life>>,
}

impl Registry {
    pub(super) fn new(own: ProcessId) -> Self {
        Registry { own, down: Vec::new(), is_down: HashSet::new(), lives: BTreeMap::new() }
    }

    /// Adds a communicator of this process.
    pub(super) fn register(&mut self, life: &Arc<Life>) {
        self.lives.retain(|_, life| life.strong_count() > 0);
        self.lives.insert(life.key, Arc::downgrade(life));
        for rank in self.down.iter().filter_map(|process| life.group.rank(*process)) {
            life.fail(rank);
        }
    }

    /// The communicators that are not freed.
    pub(super) fn lives(&self) -> impl Iterator<Item = Arc<Life>> {
        self.lives.values().filter_map(Weak::upgrade)
    }

    pub(super) fn life(&self, key: Key) -> Option<Arc<Life>> {
        self.lives.get(&key).and_then(Weak::upgrade)
    }

    /// Whether this process has freed the communicator, or never had it.
    pub(super) fn is_freed(&self, key: Key) -> bool {
        self.lives.get(&key).is_none_or(|life| life.strong_count() == 0)
    }

    /// Notes that a process is down; whether that is new.
    pub(super) fn learn(&mut self, process: ProcessId) -> bool {
        if process == self.own || !self.is_down.insert(process) {
            return false;
        }
        self.down.push(process);
        for life in self.lives() {
            if let Some(rank) = life.group.rank(process) {
                life.fail(rank);
            }
        }
        true
    }

    /// The processes that are down, in the order in which that became known.
    pub(super) fn down(&self) -> &[ProcessId] {
        &self.down
    }

    pub(super) fn is_down(&self, process: ProcessId) -> bool {
        self.is_down.contains(&process)
    }
}

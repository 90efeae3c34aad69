//! An audit of a worker's connections, for tests: what was taken is back, and what is written down
//! twice agrees.

use std::collections::HashSet;
use std::hash::Hash;

use tagmatch_device::PeerId;

use super::Connections;
use crate::connection::Connection;
use crate::peers::PeerState;

impl Connections {
    /// The errors in the books, one line each; none in a worker without a bug. To be asked between
    /// calls. Linear in everything.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut note = |is_right: bool, text: String| {
            if !is_right {
                wrong.push(text);
            }
        };
        let lost = self.lost_bits();
        note(lost == 0, format!("{lost} doorbell bits were not given back"));

        let open: Vec<(PeerId, &Connection)> = self
            .peers
            .states()
            .filter_map(|(peer, state)| Some((peer, state.connection()?)))
            .collect();
        for (peer, connection) in &open {
            let inbox = self.inboxes.inbox(connection.inbox);
            let is_read = inbox.is_some_and(|inbox| inbox.peer == *peer);
            note(is_read, format!("the ring of {peer:?} is not read"));
        }
        let rings = self.inboxes.read_count();
        note(rings == open.len(), format!("{rings} rings of {} peers are read", open.len()));

        let callers = open.iter().filter_map(|(_, connection)| connection.counted_for);
        let miscounted = self.quota.audit(callers);
        note(miscounted.is_none(), miscounted.unwrap_or_default());

        let is_draining = |state: &PeerState| matches!(state, PeerState::Draining(..));
        let draining = self.peers.states().filter(|(_, state)| is_draining(state));
        let draining: HashSet<PeerId> = draining.map(|(peer, _)| peer).collect();
        let listed = self.draining.iter().map(|(peer, _)| *peer);
        note(
            same(listed.clone(), &draining),
            format!("{draining:?} are draining, {:?} are listed", listed.collect::<Vec<_>>()),
        );

        let parting = self.parting.iter().map(|(peer, connection)| (*peer, &**connection));
        let all: Vec<_> = open.into_iter().chain(parting).collect();
        let known: HashSet<PeerId> = all.iter().map(|(peer, _)| *peer).collect();
        wrong.extend(self.reads.audit(&known));
        let lifelines = all.iter().filter_map(|(_, connection)| connection.other_end.as_ref());
        let lifelines: Vec<_> = lifelines.map(|other| &other.lifeline).collect();
        wrong.extend(self.lifelines.audit(&lifelines));
        wrong
    }

    /// In a build with debug assertions: panics if something is to be done that no poll does before
    /// the next tick.
    pub(crate) fn audit_attention(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let has_reads = self.reads.has_work() || self.reads.is_waiting();
            let has_more = !self.events.is_empty() || self.regions.has_work();
            let is_due = has_reads || has_more || self.is_draining();
            assert!(self.needs_attention || !is_due, "polls do nothing until the next tick");
        }
    }
}

/// Whether a list has each value of a set once, and no other.
fn same<T: Eq + Hash>(mut listed: impl Iterator<Item = T>, set: &HashSet<T>) -> bool {
    let mut seen = HashSet::new();
    let is_right = listed.all(|value| set.contains(&value) && seen.insert(value));
    is_right && seen.len() == set.len()
}

//! An audit of the device's books, for tests: what was taken is back, and what is written down
//! twice agrees.

use std::collections::HashSet;

use super::device::Tcp;
use super::peers::PeerState;

impl Tcp {
    /// In a build with debug assertions: panics if the books are wrong. To be asked between calls.
    /// Linear in everything.
    pub(crate) fn audit(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.audit_books();
            assert!(wrong.is_empty(), "an audit of TCP: {}", wrong.join("; "));
        }
    }

    /// In a build with debug assertions: panics if the timer wakes a worker that sleeps too late
    /// for what another thread has begun. To be asked when such a call is over. Whoever polls arms
    /// the worker again.
    #[inline]
    pub(crate) fn audit_timer(&self) {
        let is_set = self.is_armed && !self.is_timer_stale && self.polls == self.sleep_timer.polls;
        if cfg!(debug_assertions) && is_set && !std::thread::panicking() {
            let set = self.sleep_timer.due;
            let is_late = self.next_due().is_some_and(|due| set.is_none_or(|set| due < set));
            assert!(!is_late, "an audit of TCP: a worker sleeps, and its timer is set too late");
        }
    }

    fn audit_books(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut note = |is_right: bool, text: String| {
            if !is_right {
                wrong.push(text);
            }
        };
        let own: usize = self.own_messages.iter().map(|(_, bytes)| bytes.len() + 1).sum();
        let counted = self.own_bytes;
        note(
            own == counted,
            format!("messages to oneself have {own} bytes, {counted} are counted"),
        );

        let mut listed = HashSet::new();
        for peer in &self.busy {
            note(listed.insert(*peer), format!("{peer:?} is busy twice"));
        }
        let mut callers = Vec::new();
        let mut up = HashSet::new();
        for (peer, state) in self.peers.states() {
            let PeerState::Up(connection) = state else { continue };
            up.insert(peer);
            callers.extend(connection.counted_for);
            let out = &connection.out;
            let is_busy = connection.busy_since.is_some();
            note(is_busy == listed.contains(&peer), format!("{peer:?} is busy, or listed, alone"));
            let waits = out.accepted() > out.taken() && !connection.is_broken;
            note(is_busy || !waits, format!("nobody looks whether the machine of {peer:?} lives"));
            if let Some(what) = out.error().or_else(|| connection.reads.error()).or_else(|| {
                // A broken connection begins nothing.
                connection.accesses.error(out).filter(|_| !connection.is_broken)
            }) {
                note(false, format!("{peer:?}: {what}"));
            }
        }
        note(listed.is_subset(&up), "a peer is busy that has no connection".into());
        let miscounted = self.hosts.audit(callers.into_iter());
        note(miscounted.is_none(), miscounted.unwrap_or_default());
        let owner = self.inbox.owner();
        note(
            owner.is_none_or(|owner| up.contains(&owner)),
            format!("the bytes of {owner:?} are kept, which has no connection"),
        );
        for leaving in self.leaving.iter() {
            let peer = leaving.peer;
            note(!up.contains(&peer), format!("{peer:?} is up, and its connection is leaving"));
        }
        wrong
    }
}

//! An audit of buffers, work requests, queue pairs and lists, for tests: those that were taken are
//! back, and two records of one thing agree.

use std::collections::HashSet;

use tagmatch_device::PeerId;

use super::link::Link;
use super::peer::PeerState;
use super::{SPARE, Verbs};

impl Verbs {
    /// In a build with debug assertions: panics if the books are wrong. To be asked between calls.
    /// Linear in everything.
    pub(super) fn audit(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.audit_books();
            assert!(wrong.is_empty(), "an audit of verbs: {}", wrong.join("; "));
        }
    }

    fn audit_books(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut connecting = HashSet::new();
        let mut up = HashSet::new();
        let mut ending = HashSet::new();
        let mut links: Vec<(PeerId, &Link)> = Vec::new();
        for known in self.peers.iter() {
            let peer = known.id;
            let (set, link) = match &known.state {
                PeerState::Connecting(state) => (&mut connecting, &state.link),
                PeerState::Up(link) => (&mut up, &**link),
                PeerState::Ending(state) => (&mut ending, &state.link),
                PeerState::Unmet | PeerState::Down | PeerState::Oneself => continue,
            };
            set.insert(peer);
            links.push((peer, link));
            wrong.extend(link.error().map(|what| format!("{peer:?}: {what}")));
        }
        let lists = [
            ("connecting", &self.connecting, &connecting),
            ("up", &self.up, &up),
            ("ending", &self.ending, &ending),
        ];
        for (name, list, set) in lists {
            let listed: HashSet<PeerId> = list.iter().copied().collect();
            if listed != *set || list.len() != set.len() {
                wrong.push(format!("{set:?} are {name}, {list:?} are listed"));
            }
        }
        let sum = |of: fn(&Link) -> usize| links.iter().map(|(_, link)| of(link)).sum::<usize>();
        let books = [
            ("receive buffers", self.receives.needed(), SPARE + sum(Link::receives_needed)),
            ("buffers for FINs", self.fins.needed(), sum(|link| link.fins)),
            (
                "work requests",
                self.outbox.under_way as usize,
                sum(|link| link.under_way() as usize),
            ),
            ("send buffers", self.outbox.buffers.used(), sum(Link::buffers)),
            ("queue pairs", self.by_qp.len(), sum(|link| link.numbers().count())),
        ];
        for (what, counted, used) in books {
            if counted != used {
                wrong.push(format!("{counted} {what} are counted, {used} are in use"));
            }
        }
        for (peer, link) in &links {
            if link.numbers().any(|number| self.by_qp.get(&number) != Some(peer)) {
                wrong.push(format!("a queue pair of {peer:?} is not in the table"));
            }
        }
        let lost = self.list.iter().flat_map(|list| list.senders());
        let lost = lost.filter(|peer| !up.contains(peer) && !ending.contains(peer));
        wrong.extend(lost.map(|peer| format!("a message of {peer:?} lands, which is down")));
        wrong
    }
}

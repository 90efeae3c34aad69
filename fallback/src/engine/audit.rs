//! An audit of the engine's books, for tests: what was taken is back, and what is written down
//! twice agrees.

use tagmatch_device::Device;

use crate::engine::Engine;
use crate::offload::Offload;
use crate::peers::peer::Peer;
use crate::state::ProtocolState;

impl<D: Device> Engine<D> {
    /// The errors in the engine's books, one line each; none in an engine without a bug. To
    /// be asked between calls. `is_closed`: after [`MatchEngine::close`]; then nothing is under way
    /// any more. Linear in everything.
    ///
    /// [`MatchEngine::close`]: crate::MatchEngine::close
    pub(crate) fn audit_books(&self, is_closed: bool) -> Vec<String> {
        let state = self.core.state();
        let mut wrong = self.sending.audit(state, is_closed);
        wrong.extend(state.peers.iter().filter_map(sends_of));
        wrong.extend(stalls_of(state));
        wrong.extend(state.rma.audit(is_closed));
        let partial = state.peers.iter().filter_map(|peer| peer.arriving.as_ref());
        let stored = partial.filter_map(|partial| partial.stored_bytes()).sum();
        let waiting = self.core.offload().map_or(0, Offload::waiting);
        wrong.extend(state.unexpected.audit(stored, waiting));
        wrong.extend(state.pool.audit(state.peers.iter().map(|peer| &peer.grant)));
        wrong.extend(held_by(state));
        if is_closed {
            let operations = state.operations.len();
            let cut_short = state.cut_short.len();
            let todo = state.todo.len();
            if operations + cut_short + todo > 0 {
                wrong.push(format!(
                    "a closed engine has {operations} operations, {cut_short} receives that were \
                     cut short, and {todo} things to do"
                ));
            }
        }
        wrong
    }
}

/// The grant of each peer holds what its waiting messages cost.
fn held_by(state: &ProtocolState) -> Vec<String> {
    let mut costs = state.unexpected.costs();
    let mut wrong = Vec::new();
    for Peer { id, grant, arriving, .. } in &state.peers {
        let partial = arriving.as_ref().map(|partial| partial.cost()).unwrap_or_default();
        let cost = costs.remove(id).unwrap_or_default().plus(partial);
        let held = grant.held();
        if held != cost {
            wrong.push(format!("messages of {id:?} cost {cost:?}, its grant holds {held:?}"));
        }
    }
    wrong.extend(costs.keys().map(|id| format!("messages of {id:?} wait, which is not known")));
    wrong
}

/// Each send of a peer is in its backlog, or has left it.
fn sends_of(peer: &Peer) -> Option<String> {
    let Peer { id, sends_gone, sends_queued, .. } = peer;
    let waiting = peer.backlog.len() as u64;
    (sends_gone + waiting != *sends_queued).then(|| {
        format!("of {sends_queued} sends to {id:?}, {sends_gone} have gone and {waiting} wait")
    })
}

/// A send waits for credit once at most. The sends of a peer that was forgotten are not known.
fn stalls_of(state: &ProtocolState) -> Option<String> {
    let stalls = state.counters.credit_stalls;
    let queued: u64 = state.peers.iter().map(|peer| peer.sends_queued).sum();
    let is_known = state.counters.peers_forgotten == 0;
    (is_known && stalls > queued).then(|| format!("{queued} sends have begun {stalls} waits"))
}

#[cfg(test)]
mod tests {
    use tagmatch_device::PeerId;

    use super::*;

    #[test]
    fn a_send_that_is_nowhere_is_an_error() {
        let mut peer = Peer::new(PeerId(1));
        assert_eq!(sends_of(&peer), None);
        peer.sends_queued = 1;
        assert!(sends_of(&peer).is_some());
        peer.sends_gone = 1;
        assert_eq!(sends_of(&peer), None);
    }
}

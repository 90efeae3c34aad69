//! An audit of the books of connections and peers, for tests.

use std::collections::HashSet;

use tagmatch_device::PeerId;

use super::meeting::Meeting;
use super::peers::{Peer, PeerState};

impl<L: Default> Meeting<L> {
    /// For tests: the errors in the books, one line each; none in a device without a bug.
    pub fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut note = |is_right: bool, text: String| {
            if !is_right {
                wrong.push(text);
            }
        };
        let owners = self.connections.values().filter(|connection| connection.owner.is_none());
        let unowned = owners.count();
        let pending = self.pending;
        note(unowned == pending, format!("{unowned} connections are pending, {pending} counted"));
        for (id, connection) in &self.connections {
            let owner = connection.owner.and_then(|peer| self.peers.find(peer));
            let is_its = owner.is_none_or(|peer| peer.connection == Some(*id));
            note(is_its, format!("connection {id} of {:?} is not its own", connection.owner));
        }
        let peers: Vec<_> =
            self.peers.ids().filter_map(|id| Some((id, self.peers.find(id)?))).collect();
        for &(id, peer) in &peers {
            let is_open = matches!(peer.state, PeerState::Up | PeerState::Unconfirmed);
            let is_connected = peer.connection.is_some_and(|id| self.connections.contains_key(&id));
            let is_right = !is_open || is_connected || id == PeerId::ONESELF;
            note(is_right, format!("{id:?} is up without a connection"));
            let known = self.peers.by_address.get(&peer.address);
            note(known == Some(&id), format!("the address of {id:?} is that of {known:?}"));
        }
        let in_state = |wanted: fn(&Peer<L>) -> bool| {
            let found = peers.iter().filter(|(_, peer)| wanted(peer));
            found.map(|(id, _)| *id).collect::<HashSet<PeerId>>()
        };
        let unconfirmed = in_state(|peer| peer.state == PeerState::Unconfirmed).len();
        let counted = self.peers.unconfirmed;
        note(unconfirmed == counted, format!("{unconfirmed} are unconfirmed, {counted} counted"));
        let connecting = in_state(|peer| peer.state == PeerState::Connecting);
        let listed = &self.peers.connecting;
        note(are(&connecting, listed), format!("{connecting:?} connect, {listed:?} are listed"));
        let leaving = in_state(|peer| peer.is_leaving() && peer.state != PeerState::Down);
        let listed = &self.peers.leaving;
        note(are(&leaving, listed), format!("{leaving:?} are leaving, {listed:?} are listed"));
        wrong
    }

    pub(crate) fn is_down(&self, peer: PeerId) -> bool {
        self.peers.find(peer).is_some_and(|peer| peer.state == PeerState::Down)
    }
}

/// Whether a list has each of these peers once, and no other.
fn are(peers: &HashSet<PeerId>, listed: &[PeerId]) -> bool {
    listed.len() == peers.len() && listed.iter().all(|peer| peers.contains(peer))
}

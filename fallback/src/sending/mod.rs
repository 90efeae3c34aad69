//! The sending side. A message goes out at once if no other message to its peer waits; otherwise it
//! waits behind the others, in order.
//!
//! ```text
//!            eager, in credit, nothing before it, room
//! send --------------------------------------------------> on its way, complete
//!   \
//!    +--> backlog of the peer --head--> eager        --> complete, or waits for its FIN
//!               ^                 |\--> fragments    --> complete after the last one
//!               |                  \--> rendezvous   --> waits for its FIN
//!               +---- no room: at the next progress; no credit: when a credit message comes
//! ```

pub(crate) mod backlog;
mod eager;
mod fragments;
mod rendezvous;

use std::collections::HashSet;

use tagmatch_device::PeerId;

use crate::config::EngineConfig;
use crate::peers::peer::{Peer, PeerState};
use crate::slices::Scratch;
use crate::state::ProtocolState;

/// The state of the sending side.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    eager_max: usize,
    fragmented_max: usize,
    operations_max: u32,
    /// Peers whose queues wait for room on the way to them.
    waiting_for_room: Vec<PeerId>,
    /// Peers whose backlogs wait for an operation to end.
    waiting_for_place: Vec<PeerId>,
    /// Buffers that the device exposes, including those of operations that have ended and are not
    /// yet cleaned up.
    exposed: usize,
    /// Whether one-sided operations went out before messages the last time.
    rma_goes_first: bool,
    /// Whether one of the peers that wait for room only waits for its next turn. The device has
    /// room for it, so it would wake nobody.
    has_more: bool,
    scratch: Scratch,
}

impl Sending {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Sending {
            eager_max: config.eager_max,
            fragmented_max: config.fragmented_max,
            operations_max: config.operations_max,
            waiting_for_room: Vec::new(),
            waiting_for_place: Vec::new(),
            exposed: 0,
            rma_goes_first: false,
            has_more: false,
            scratch: Scratch::default(),
        }
    }

    /// The errors in the lists of peers that wait, and in the count of exposed buffers.
    pub(crate) fn audit(&self, state: &ProtocolState, is_closed: bool) -> Vec<String> {
        let is_known = |id: &PeerId| state.peers.get(id.index()).is_some_and(|peer| peer.id == *id);
        let waits_for_room = |id: &PeerId| is_known(id) && state.peers[id.index()].waits_for_room;
        let lost = self.waiting_for_place.iter().filter(|id| !is_known(id));
        let mut wrong: Vec<String> =
            lost.map(|id| format!("{id:?} waits for a place, and is not known")).collect();
        let listed: HashSet<&PeerId> = self.waiting_for_place.iter().collect();
        if listed.len() != self.waiting_for_place.len() {
            wrong.push(format!("{:?} wait for a place: one twice", self.waiting_for_place));
        }
        // The end of an operation has each of them tried again.
        let is_free = state.operations.is_empty() && self.exposed == 0 && state.todo.is_empty();
        let waits = |peer: &&Peer| {
            let is_up = peer.state == PeerState::Up && !peer.backlog.is_empty();
            is_up && listed.contains(&peer.id)
        };
        let stuck = state.peers.iter().filter(|peer| is_free && waits(peer));
        wrong
            .extend(stuck.map(|peer| format!("{:?} waits for a place, and all are free", peer.id)));
        let unmarked = self.waiting_for_room.iter().filter(|id| !waits_for_room(id));
        wrong.extend(unmarked.map(|id| format!("{id:?} waits for room, and is not marked")));
        let marked = state.peers.iter().filter(|peer| peer.waits_for_room);
        let unlisted = marked.filter(|peer| !self.waiting_for_room.contains(&peer.id));
        wrong.extend(unlisted.map(|peer| format!("{:?} is marked, and not listed", peer.id)));
        let exposed = self.exposed;
        let least = state.operations.iter().filter(|operation| operation.is_unread()).count();
        if exposed < least || is_closed && exposed > 0 {
            wrong.push(format!("{exposed} exposed buffers are counted, {least} are in use"));
        }
        wrong
    }

    /// Whether something can go out now, at the next progress.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether a peer's backlog waits for an operation to end.
    pub(crate) fn waits_for_place(&self, peer: PeerId) -> bool {
        self.waiting_for_place.contains(&peer)
    }

    /// Peers whose queues wait for room on the way to them, or for their next turn.
    #[inline(always)]
    pub(crate) fn waiting_for_room(&self) -> &[PeerId] {
        &self.waiting_for_room
    }
}

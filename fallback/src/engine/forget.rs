//! Forgetting peers that went down: their numbers are given back, so that a worker can meet any
//! number of peers in its life.
//!
//! The last ones are remembered, since a program may ask about them. A peer is forgotten when
//! nothing of it is left: what is still to be received, taken or told names it by its number.
//!
//! **Peers that went down are forgotten**, so that a server meets
//! any number of clients. The engine remembers the last ones (`Config::departed_max`), because a
//! program asks why a peer went down; then `Device::forget` gives the number back, unless a waiting
//! message, a result, an end or an entry of a NIC's list names the peer. What names a peer is
//! looked for by one walk over these tables in as many ends as are remembered, so no message counts
//! references. A number is an index of 20 bits, which is used again, and a generation of 12 bits,
//! which doesn't wrap: an index is given up after 4095 peers. So an old number is an error for
//! ever, and a worker meets 2^32 peers at most. A send compares the generation in the engine's
//! record of the peer, which it loads anyway; the devices compare it on their other ways.

use std::collections::{HashSet, VecDeque};

use tagmatch_device::{Device, PeerId};

use crate::core::Core;
use crate::error::Fault;
use crate::offload::Offload;
use crate::peers::peer::{self, Peer};
use crate::requests::line::{Line, RequestPhase};
use crate::requests::table::Requests;

/// Forgets the peers that went down first, until as many are left as are remembered, and returns
/// them. What was to be done was done before.
pub(crate) fn forget<D: Device>(core: &mut Core, device: &mut D) -> HashSet<PeerId> {
    let state = core.state();
    let operations = state.operations.iter().map(|operation| operation.status.source);
    let of_list = core.offload().into_iter().flat_map(Offload::named);
    let of_messages = state.unexpected.senders().chain(operations).chain(of_list);
    let named: HashSet<_> = results(&state.requests).chain(of_messages).collect();
    let state = core.state_mut();
    let max = state.departed.max;
    let mut kept = VecDeque::new();
    let mut forgotten = HashSet::new();
    let mut kept_for_loss = 0;
    let surplus = state.departed.peers.len().saturating_sub(max);
    for id in state.departed.peers.drain(..surplus) {
        let known = state.peers.get_mut(id.index()).filter(|known| known.id == id);
        let Some(known) = known else { continue };
        let is_lost = known.lost_sends > 0 || device.flush(id, &mut None).lost() > 0;
        let tells_loss = is_lost && !known.is_loss_reported && kept_for_loss < max;
        kept_for_loss += usize::from(tells_loss);
        let can_go = !named.contains(&id) && !tells_loss && is_idle(known);
        if can_go && device.forget(id) {
            *known = peer::forgotten(id);
            forgotten.insert(id);
        } else {
            kept.push_back(id);
        }
    }
    kept.append(&mut state.departed.peers);
    state.departed.look_at = kept.len().saturating_add(max);
    state.departed.peers = kept;
    state.dead.retain(|peer| !forgotten.contains(peer));
    state.counters.peers_forgotten += forgotten.len() as u64;
    forgotten
}

/// Whether nothing of a peer that is down is left in its own record.
fn is_idle(peer: &Peer) -> bool {
    peer.fault().is_some()
        && !peer.grant.is_held()
        && !peer.waits_for_room
        && peer.backlog.is_empty()
        && peer.arriving.is_none()
}

/// The peers that results name which were not taken yet, and messages that are being read.
fn results(requests: &Requests) -> impl Iterator<Item = PeerId> + '_ {
    let has_peer = |line: &&Line| match line.phase {
        RequestPhase::Reading
        | RequestPhase::Done
        | RequestPhase::PeerUp
        | RequestPhase::PeerDown => true,
        // The fault names the peer. What is under way with a peer ends when it goes down.
        RequestPhase::Failed
        | RequestPhase::Free
        | RequestPhase::Posted
        | RequestPhase::Sending => false,
    };
    let named = requests.lines.iter().filter(has_peer).map(|line| line.status().source);
    named.chain(requests.faults.values().flat_map(Fault::peers))
}

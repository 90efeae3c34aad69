//! The flush of the engine that matches: which messages have left this process.

use tagmatch_device::slab::Key;
use tagmatch_device::{Device, PeerId};

use crate::engine::Engine;
use crate::flush::{FlushEngine, Flushing, PeerFlush, Unsent, WhyUnsent};
use crate::peers::peer::Peer;
use crate::state::ProtocolState;

/// The rendezvous that peers have not read yet, those of one peer or all.
fn unread(state: &ProtocolState, peer: Option<PeerId>) -> Vec<Key> {
    state.operations.keys_where(|operation| {
        operation.is_unread() && peer.is_none_or(|peer| operation.status.source == peer)
    })
}

impl<D: Device> FlushEngine for Engine<D> {
    fn begin_flush(&mut self) -> Flushing {
        let begin = |waiting: &Peer| {
            let sends_gone = waiting.sends_gone + waiting.backlog.len() as u64;
            let operations = waiting.backlog.is_empty().then(Vec::new);
            PeerFlush { peer: waiting.id, sends_gone, operations, mark: None }
        };
        let state = self.core.state();
        let others = state.peers.iter().skip(1);
        let mut flushing = Flushing { peers: others.map(begin).collect() };
        for key in unread(state, None) {
            let Some(operation) = state.operations.get(key) else { continue };
            // Number 0 is oneself, which is not in this list.
            let at = operation.status.source.index().wrapping_sub(1);
            let of = flushing.peers.get_mut(at).and_then(|of| of.operations.as_mut());
            if let Some(operations) = of {
                operations.push(key);
            }
        }
        flushing
    }

    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool {
        flushing.peers.retain_mut(|flush| !self.has_left(flush));
        flushing.peers.is_empty()
    }

    fn unsent(&mut self) -> Vec<Unsent> {
        let Engine { device, core, .. } = self;
        let state = core.state_mut();
        let mut unread_of = vec![0; state.peers.len()];
        for key in unread(state, None) {
            let source = state.operations.get(key).map(|operation| operation.status.source);
            if let Some(count) = source.and_then(|source| unread_of.get_mut(source.index())) {
                *count += 1;
            }
        }
        let peers = state.peers.iter().skip(1).map(|peer| {
            let id = peer.id;
            let why = match peer.fault() {
                Some(fault) => WhyUnsent::Down(fault),
                None if peer.is_connected() => WhyUnsent::NotTaken,
                None => WhyUnsent::NotConnected,
            };
            let with_device = device.flush(id, &mut None).pending();
            Unsent {
                peer: id,
                messages: peer.backlog.len() + unread_of[id.index()] + with_device,
                why,
            }
        });
        peers.filter(|unsent| unsent.messages > 0).collect()
    }

    fn take_lost(&mut self) -> Vec<Unsent> {
        let Engine { device, core, .. } = self;
        let peers = &mut core.state_mut().peers;
        let lost = peers.iter_mut().skip(1).filter_map(|peer| {
            let id = peer.id;
            let fault = peer.fault()?;
            let messages = peer.lost_sends + device.flush(id, &mut None).lost();
            let is_news = messages > 0 && !std::mem::replace(&mut peer.is_loss_reported, true);
            is_news.then_some(Unsent { peer: id, messages, why: WhyUnsent::Down(fault) })
        });
        lost.collect()
    }
}

impl<D: Device> Engine<D> {
    fn has_left(&mut self, flush: &mut PeerFlush) -> bool {
        let Engine { device, core, .. } = self;
        let state = core.state();
        let known = state.peers.get(flush.peer.index());
        // A peer that was forgotten meanwhile has taken its messages, or they are lost.
        let Some(peer) = known.filter(|known| known.id == flush.peer) else { return true };
        if peer.sends_gone < flush.sends_gone || !peer.controls.is_empty() {
            return false;
        }
        let left = flush.operations.get_or_insert_with(|| unread(state, Some(flush.peer)));
        left.retain(|key| state.operations.get(*key).is_some());
        let is_read = left.is_empty();
        // Asked while reads are under way as well, so that the transport acknowledges meanwhile.
        device.flush(flush.peer, &mut flush.mark).pending() == 0 && is_read
    }
}

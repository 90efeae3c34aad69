//! The flush of the engine that matches: which messages have left this process.

use tagmatch_device::slab::Key;
use tagmatch_device::{Device, PeerId};

use crate::core::Core;
use crate::engine::Engine;
use crate::flush::{FlushEngine, Flushing, PeerFlush, Unsent, WhyUnsent};
use crate::peers::peer::Peer;

impl Core {
    /// The rendezvous that peers have not read yet, those of one peer or all.
    fn unread(&self, peer: Option<PeerId>) -> Vec<Key> {
        self.operations.keys_where(|operation| {
            operation.is_unread() && peer.is_none_or(|peer| operation.status.source == peer)
        })
    }
}

/// All peers, oneself aside.
fn others(peers: &[Peer]) -> Vec<PeerId> {
    peers.iter().skip(1).map(|peer| peer.id).collect()
}

impl<D: Device> FlushEngine for Engine<D> {
    fn begin_flush(&mut self) -> Flushing {
        let begin = |waiting: &Peer| {
            let sends_gone = waiting.sends_gone + waiting.backlog.len() as u64;
            let operations = waiting.backlog.is_empty().then(Vec::new);
            PeerFlush { peer: waiting.id, sends_gone, operations, mark: None }
        };
        let others = self.core.state.peers.iter().skip(1);
        let mut flushing = Flushing { peers: others.map(begin).collect() };
        for key in self.core.unread(None) {
            let Some(operation) = self.core.operations.get(key) else { continue };
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
        let mut unread = vec![0; core.state.peers.len()];
        for key in core.unread(None) {
            let source = core.operations.get(key).map(|operation| operation.status.source);
            if let Some(count) = source.and_then(|source| unread.get_mut(source.index())) {
                *count += 1;
            }
        }
        let peers = others(&core.state.peers).into_iter().map(|id| {
            let peer = core.state.peer_mut(id);
            let why = match peer.fault() {
                Some(fault) => WhyUnsent::Down(fault),
                None if peer.is_connected() => WhyUnsent::NotTaken,
                None => WhyUnsent::NotConnected,
            };
            let with_device = device.flush(id, &mut None).pending();
            Unsent {
                peer: id,
                messages: peer.backlog.len() + unread[id.index()] + with_device,
                why,
            }
        });
        peers.filter(|unsent| unsent.messages > 0).collect()
    }

    fn take_lost(&mut self) -> Vec<Unsent> {
        let Engine { device, core, .. } = self;
        let peers = &mut core.state.peers;
        let lost = peers.iter_mut().skip(1).filter_map(|peer| {
            let id = peer.id;
            let fault = peer.fault()?;
            let messages = peer.lost_sends + device.flush(id, &mut None).lost();
            let is_news = messages > 0 && !std::mem::replace(&mut peer.is_loss_told, true);
            is_news.then_some(Unsent { peer: id, messages, why: WhyUnsent::Down(fault) })
        });
        lost.collect()
    }
}

impl<D: Device> Engine<D> {
    fn has_left(&mut self, flush: &mut PeerFlush) -> bool {
        let Engine { device, core, .. } = self;
        let known = core.state.peers.get(flush.peer.index());
        // A peer that was forgotten meanwhile has taken its messages, or they are lost.
        let Some(peer) = known.filter(|known| known.id == flush.peer) else { return true };
        if peer.sends_gone < flush.sends_gone || !peer.controls.is_empty() {
            return false;
        }
        let unread = flush.operations.get_or_insert_with(|| core.unread(Some(flush.peer)));
        unread.retain(|key| core.operations.get(*key).is_some());
        let is_read = unread.is_empty();
        // Asked while reads are under way as well, so that the transport acknowledges meanwhile.
        device.flush(flush.peer, &mut flush.mark).pending() == 0 && is_read
    }
}

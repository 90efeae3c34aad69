//! Which of the accepted messages have not left this process yet, and which never will.
//!
//! A message has left once it reaches its peer, if the peer lives, whatever this process does next:
//! 1. It was sent from its peer's backlog, behind which it had to wait for a connection, for credit
//!    or for room.
//! 2. If the peer reads its payload out of this process's memory (a rendezvous), the FIN has come.
//! 3. The device says that it has left ([`Device::flush`]), which may take an acknowledgement.
//!
//! Messages to oneself don't count, nor do acknowledgements of messages that have left.

use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::slab::Key;
use tagmatch_device::{Device, PeerId};

use crate::core::Core;
use crate::delegated::Delegated;
use crate::engine::Engine;
use crate::error::PeerFault;
use crate::match_engine::MatchEngine;
use crate::peer::Peer;

/// Messages to one peer that have not left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The peer.
    pub peer: PeerId,
    /// How many messages, at least 1.
    pub messages: usize,
    /// Why the messages have not left, or why they are lost.
    pub why: WhyUnsent,
}

/// Why messages have not left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyUnsent {
    /// The peer is not connected yet.
    #[error("not connected yet")]
    NotConnected,
    /// The peer is connected. It has not made room for the messages, has not received and read the
    /// large ones, or its transport has not acknowledged them.
    #[error("connected, but has not taken them")]
    NotTaken,
    /// The peer is down: the messages are lost, or it isn't known whether they arrived.
    #[error("down: {0}")]
    Down(PeerFault),
}

/// A flush that is under way: for each peer, the messages that were accepted before it began.
#[derive(Clone, Debug)]
pub struct Flushing {
    peers: Vec<PeerFlush>,
}

/// The part of a flush that concerns one peer.
#[derive(Clone, Debug)]
struct PeerFlush {
    peer: PeerId,
    /// The value that [`Peer::sends_gone`] reaches when the sends have gone that were in the backlog
    /// when the flush began.
    sends_gone: u64,
    /// The rendezvous that have to end. `None` until the sends have gone that were in the backlog
    /// when the flush began.
    operations: Option<Vec<Key>>,
    /// See [`Device::flush`].
    mark: Option<u64>,
}

/// The calls of both engines about messages that have not left.
pub trait FlushEngine {
    /// Begins a flush of everything that was accepted by now.
    fn begin_flush(&mut self) -> Flushing;

    /// Whether everything that was accepted before the flush began has left, or is lost. A device
    /// that matches by itself also waits for later messages, as long as it always has some. Makes no
    /// progress by itself.
    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool;

    /// The messages that have not left yet, by peer. Looks at all peers and operations.
    fn unsent(&mut self) -> Vec<Unsent>;

    /// The messages that were lost because their peer went down. Each peer is told of once.
    fn take_lost(&mut self) -> Vec<Unsent>;
}

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
        let others = self.core.receiver.peers.iter().skip(1);
        let mut flushing = Flushing { peers: others.map(begin).collect() };
        for key in self.core.unread(None) {
            let Some(operation) = self.core.operations.get(key) else { continue };
            // Number 0 is oneself, which is not in this list.
            let at = operation.status.source.index().wrapping_sub(1);
            let of = flushing.peers.get_mut(at).and_then(|of| of.operations.as_mut());
            of.into_iter().for_each(|operations| operations.push(key));
        }
        flushing
    }

    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool {
        flushing.peers.retain_mut(|flush| !self.has_left(flush));
        flushing.peers.is_empty()
    }

    fn unsent(&mut self) -> Vec<Unsent> {
        let Engine { device, core, .. } = self;
        let mut unread = vec![0; core.receiver.peers.len()];
        for key in core.unread(None) {
            let source = core.operations.get(key).map(|operation| operation.status.source);
            if let Some(count) = source.and_then(|source| unread.get_mut(source.index())) {
                *count += 1;
            }
        }
        let peers = others(&core.receiver.peers).into_iter().map(|id| {
            let peer = core.receiver.peer_mut(id);
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
        let peers = &mut core.receiver.peers;
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
        let known = core.receiver.peers.get(flush.peer.index());
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

impl<D: MatchingDevice + ?Sized> FlushEngine for Delegated<D> {
    fn begin_flush(&mut self) -> Flushing {
        let begin = |peer| PeerFlush { peer, sends_gone: 0, operations: None, mark: None };
        Flushing { peers: self.others().into_iter().map(begin).collect() }
    }

    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool {
        flushing.peers.retain(|flush| self.device.flush(flush.peer).pending() > 0);
        flushing.peers.is_empty()
    }

    fn unsent(&mut self) -> Vec<Unsent> {
        let unsent = self.others().into_iter().map(|peer| {
            let why = match self.peer_fault(peer) {
                Some(fault) => WhyUnsent::Down(fault),
                None if self.flush_note(peer).is_up => WhyUnsent::NotTaken,
                None => WhyUnsent::NotConnected,
            };
            Unsent { peer, messages: self.device.flush(peer).pending(), why }
        });
        unsent.filter(|unsent| unsent.messages > 0).collect()
    }

    fn take_lost(&mut self) -> Vec<Unsent> {
        let lost = self.others().into_iter().filter_map(|peer| {
            let (fault, messages) = (self.peer_fault(peer)?, self.device.flush(peer).lost());
            let is_news =
                messages > 0 && !std::mem::replace(&mut self.flush_note(peer).is_loss_told, true);
            is_news.then_some(Unsent { peer, messages, why: WhyUnsent::Down(fault) })
        });
        lost.collect()
    }
}

impl<D: MatchingDevice + ?Sized> Delegated<D> {
    fn others(&self) -> Vec<PeerId> {
        let is_known = |peer: &PeerId| self.device.peer_address(*peer).is_some();
        (1..).map(PeerId).take_while(is_known).collect()
    }
}

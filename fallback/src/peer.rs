//! What is known of a peer, from its first mention to its end.
//!
//! ```text
//! Connecting --PeerUp--> Up --PeerDown--> Down
//!      \-------------PeerDown-------------^
//! ```

use std::collections::{BTreeMap, VecDeque};

use tagmatch_device::{Buffer, PeerId};
use tagmatch_shadow::Cancel;
use tagmatch_soft::{SourceId, Tag};

use crate::core::{Core, Todo};
use crate::credit::{Allowance, Amount, Grant};
use crate::error::{Fault, PeerFault};
use crate::message::Body;
use crate::request::{RequestId, SendMode};
use crate::slab::Key;
use crate::wire::{AppCtx, TMH_BYTES};

/// A peer's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PeerState {
    #[default]
    Connecting,
    Up,
    Down(PeerFault),
}

/// A send that waits its turn.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) request: RequestId,
    pub(crate) mode: SendMode,
    pub(crate) tag: Tag,
    pub(crate) immediate: Option<u32>,
    pub(crate) buffer: Buffer,
}

/// One peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) state: PeerState,
    /// The largest eager payload that it takes.
    pub(crate) eager_max: usize,
    /// What we may send to it.
    pub(crate) allowance: Allowance,
    /// What it may send to us.
    pub(crate) grant: Grant,
    /// FINs, credits and aborts that found no room. Bounded: each answers something that came in
    /// on a credit, a peer's credits are bounded, and no more are granted while any wait here.
    pub(crate) controls: VecDeque<[u8; 16]>,
    /// Sends that wait for room or credit, first in, first out: none ever passes another.
    pub(crate) backlog: VecDeque<Queued>,
    /// A rendezvous request whose companion is to come, and the receive if a NIC has matched it. One at
    /// most: it comes before the peer's next request.
    pub(crate) awaited: Option<(AppCtx, Option<Key>)>,
    /// Is in the engine's list of peers whose queues wait for room.
    pub(crate) waits_for_room: bool,
    /// It is down, and messages of it were dropped that nobody had received.
    pub(crate) lost_messages: bool,
}

impl Peer {
    /// Whether a send may go out at once, without passing another.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state == PeerState::Up && self.backlog.is_empty() && self.controls.is_empty()
    }
}

impl Core {
    pub(crate) fn peer_up(&mut self, id: PeerId, message_max: usize) {
        if self.peer_mut(id).state != PeerState::Connecting {
            return;
        }
        let (grant, first) = Grant::open(&mut self.pool);
        let peer = self.peer_mut(id);
        peer.state = PeerState::Up;
        peer.eager_max = message_max.saturating_sub(TMH_BYTES);
        peer.grant = grant;
        self.send_credit(id, first);
        self.todo.push(Todo::Flush(id));
    }

    /// Ends everything that depends on the peer, and nothing else:
    /// its complete eager messages stay receivable, its rendezvous requests leave the list.
    pub(crate) fn peer_down(&mut self, id: PeerId, fault: PeerFault) {
        self.peer_mut(id);
        let Core { peers, pool, .. } = self;
        let peer = &mut peers[id.index()];
        if !matches!(peer.state, PeerState::Down(_)) {
            peer.state = PeerState::Down(fault);
            self.counters.peer_faults += u64::from(fault.is_counted());
        }
        peer.grant.close(pool);
        peer.controls = VecDeque::new();
        let backlog = std::mem::take(&mut peer.backlog);
        let down = self.down(id);
        for send in backlog {
            self.requests.complete(send.request, Err(down), send.buffer);
        }
        for key in self.operations.keys_where(|op| op.status.source == id) {
            if let Some(operation) = self.operations.remove(key) {
                self.todo.push(Todo::Finish(operation, Err(down)));
            }
        }
        self.end_posted(Some(SourceId(id.0)), down);
        self.lose_companion(id);
        // First those that wait for the NIC: of the others, all that aren't on the list are held.
        self.nic_lose_rendezvous(id);
        self.lose_rendezvous(id);
        if self.peer_mut(id).grant.is_held() && !self.dead.contains(&id) {
            self.dead.push_back(id);
        }
    }

    /// Drops waiting messages of peers that are down, until these keep at most half of the pool or it is no longer
    /// short. The peers that went down first come first; of each, all messages are dropped that are on the list.
    ///
    /// Linear in the waiting messages, as the end of a peer is.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_the_dead(&mut self) {
        let mut waiting: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for (handle, _, source, index) in self.unexpected.iter_in_order() {
            waiting.entry(source.0).or_default().push((handle, index));
        }
        for _ in 0..self.dead.len() {
            if !self.pool.is_kept_by_the_dead() {
                return;
            }
            let Some(id) = self.dead.pop_front() else { return };
            for (handle, index) in waiting.remove(&id.0).unwrap_or_default() {
                let key = self.messages.key_at(index);
                if let Some(message) = key.and_then(|key| self.messages.remove(key))
                    && self.unexpected.remove(handle).is_ok()
                    && let (status, Body::Stored(stored)) = (message.status(), message.body)
                {
                    self.counters.lost_messages += 1;
                    self.peer_mut(id).lost_messages = true;
                    self.drop_stored(&status, stored);
                }
            }
            // A message that a probe has taken is not on the list; one that waits for a NIC is not there yet.
            if self.peer_mut(id).grant.is_held() {
                self.dead.push_back(id);
            }
        }
    }

    /// Ends all receives that are posted.
    pub(crate) fn close_posted(&mut self) {
        self.is_closing = true;
        self.end_posted(None, Fault::Closed);
    }

    /// Ends the receives that are posted for this source, or all. One that the NIC holds is asked back: it
    /// ends with the answer, or with the message that was faster.
    fn end_posted(&mut self, named: Option<SourceId>, fault: Fault) {
        let posted = self.posted.iter_in_order();
        let posted = posted.filter(|(_, pattern, _)| named.is_none() || pattern.source() == named);
        let posted: Vec<_> = posted.map(|(handle, _, index)| (handle, index)).collect();
        for (handle, index) in posted {
            if self.cancel_in_shadow(index) == Cancel::Software
                && let Ok(index) = self.posted.cancel(handle)
            {
                let request = self.requests.matched(index).map(|(request, _)| request);
                request.into_iter().for_each(|request| self.requests.fail(request, fault));
            }
        }
    }

    /// Rendezvous requests of a dead peer can't be answered: those that wait leave the list, those
    /// that a matched probe holds turn into an error for whoever receives them.
    fn lose_rendezvous(&mut self, id: PeerId) {
        let of_peer = |(handle, _, source, index): (_, Tag, SourceId, u32)| {
            (source == SourceId(id.0)).then_some((handle, index))
        };
        let waiting: Vec<_> = self.unexpected.iter_in_order().filter_map(of_peer).collect();
        for (handle, index) in waiting {
            let key = self.messages.key_at(index);
            let remote = key.filter(|&key| {
                matches!(self.messages.get(key), Some(m) if matches!(m.body, Body::Remote { .. }))
            });
            if let Some(key) = remote {
                self.counters.lost_rendezvous += u64::from(self.unexpected.remove(handle).is_ok());
                self.messages.remove(key);
                self.freed(id, Amount::RENDEZVOUS);
            }
        }
        let held =
            self.messages.keys_where(|m| m.source == id && matches!(m.body, Body::Remote { .. }));
        for key in held {
            if let Some(message) = self.messages.get_mut(key) {
                message.body = Body::Lost;
                self.counters.lost_rendezvous += 1;
                self.freed(id, Amount::RENDEZVOUS);
            }
        }
    }
}

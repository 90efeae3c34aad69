//! The sending side of an endpoint.

use std::collections::{HashMap, VecDeque};

use tagmatch_ofi_provider::Failure;
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::effects::{Completion, failure};
use crate::transport::{Sent, Transport};
use crate::wire::{Name, Packet};

const SEND: u64 = sys::FI_SEND | sys::FI_TAGGED;

/// A send, as its completion will tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) context: usize,
    /// Its success has a completion, too.
    pub(crate) tells: bool,
    /// Not 0: it ends when the receiver has matched this number.
    pub(crate) id: u64,
}

struct Unsent {
    packet: Vec<u8>,
    send: Send,
}

#[derive(Default)]
struct Peer {
    /// Answers to the peer's messages. They overtake messages, so two endpoints that have paused
    /// each other go on.
    answers: VecDeque<Vec<u8>>,
    messages: VecDeque<Unsent>,
    is_paused: bool,
}

/// The sending side: messages leave in their order as soon as the receiver's socket has room.
pub(crate) struct Sender {
    pub(crate) name: Name,
    peers: HashMap<Name, Peer>,
    /// Sends that wait for a match, by their numbers.
    waiting: HashMap<u64, (Name, Send)>,
    unsent: usize,
    next_id: u64,
    sends_max: usize,
    match_ids: usize,
    death: Errno,
}

impl Sender {
    pub(crate) fn new(name: Name, sends_max: usize, match_ids: usize, death: Errno) -> Self {
        let peers = HashMap::new();
        let waiting = HashMap::new();
        let unsent = 0;
        let next_id = 1;
        Sender { name, peers, waiting, unsent, next_id, sends_max, match_ids, death }
    }

    /// Whether packets wait for room.
    pub(crate) fn has_unsent(&self) -> bool {
        self.peers.values().any(|peer| !peer.answers.is_empty() || !peer.messages.is_empty())
    }

    /// Whether sends are under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_unsent() || !self.waiting.is_empty()
    }

    /// Checks that a message can be accepted now, and gives its number if it waits for a match.
    pub(crate) fn admit(&mut self, to: Name, waits: bool) -> Result<u64> {
        let is_paused = self.peers.get(&to).is_some_and(|peer| peer.is_paused);
        let has_no_id = waits && self.waiting.len() >= self.match_ids;
        if is_paused || has_no_id || self.unsent + self.waiting.len() >= self.sends_max {
            return Err(Errno::AGAIN);
        }
        if !waits {
            return Ok(0);
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    /// Accepts a message.
    pub(crate) fn push(&mut self, to: Name, packet: &Packet, send: Send) {
        if send.id != 0 {
            self.waiting.insert(send.id, (to, send));
        }
        let packet = packet.bytes(self.name);
        self.peers.entry(to).or_default().messages.push_back(Unsent { packet, send });
        self.unsent += 1;
    }

    /// Accepts an answer to a peer's message.
    pub(crate) fn answer(&mut self, to: Name, packet: &Packet) {
        let packet = packet.bytes(self.name);
        self.peers.entry(to).or_default().answers.push_back(packet);
    }

    /// A peer has matched a message.
    pub(crate) fn matched(&mut self, peer: Name, id: u64, done: &mut Vec<Completion>) {
        // A number that the peer was not given stays what it is.
        if self.waiting.get(&id).is_some_and(|(to, _)| *to == peer)
            && let Some((_, send)) = self.waiting.remove(&id)
        {
            complete(send, None, done);
        }
    }

    /// A peer is in flow control, or no longer.
    pub(crate) fn set_paused(&mut self, peer: Name, is_paused: bool) {
        self.peers.entry(peer).or_default().is_paused = is_paused;
    }

    /// Sends what there is room for.
    pub(crate) fn flush(&mut self, transport: &Transport, done: &mut Vec<Completion>) {
        for (name, peer) in &mut self.peers {
            while let Some(packet) = peer.answers.front() {
                if transport.send(*name, packet) == Sent::Full {
                    break;
                }
                peer.answers.pop_front();
            }
            while let Some(unsent) = peer.messages.front().filter(|_| !peer.is_paused) {
                let failure = match transport.send(*name, &unsent.packet) {
                    Sent::Full => break,
                    Sent::Yes => None,
                    Sent::Gone => Some(failure(self.death)),
                };
                let send = unsent.send;
                peer.messages.pop_front();
                self.unsent -= 1;
                if send.id == 0 || failure.is_some() {
                    self.waiting.remove(&send.id);
                    complete(send, failure, done);
                }
            }
        }
    }
}

fn complete(send: Send, failure: Option<Failure>, done: &mut Vec<Completion>) {
    if send.tells || failure.is_some() {
        done.push(Completion::of(send.context, SEND, failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_peer_that_has_a_message_tells_its_match() {
        let [own, peer, other] = [1, 2, 3].map(Name);
        let mut sender = Sender::new(own, 10, 10, Errno::IO);
        let id = sender.admit(peer, true).unwrap();
        sender.push(peer, &Packet::Pause, Send { context: 7, tells: true, id });
        let mut done = Vec::new();
        sender.matched(other, id, &mut done);
        sender.matched(peer, id + 1, &mut done);
        assert!(done.is_empty());
        sender.matched(peer, id, &mut done);
        sender.matched(peer, id, &mut done);
        assert_eq!((done.len(), done[0].entry.context), (1, 7));
    }
}

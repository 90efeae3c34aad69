//! The next event of a worker.

use tagmatch_device::{DownReason, Network};

use super::net::{Frame, LinkState, Net, Note, Reading, Ready, UNTAGGED, number};

/// Keys of rendezvous requests that are remembered: more than one peer can have under way, which
/// the number of the receiver's waiting messages bounds. Keys of discarded messages are never read.
const KEYS_MAX: usize = 512;

impl Net {
    /// The next event that a network has for the worker: the next event of any peer, chosen at
    /// random.
    pub(super) fn next(&mut self, at: u32, network: Network) -> Option<Ready> {
        let now = self.tick();
        let count = number(self.nodes[at as usize].peers.len());
        if self.nodes[at as usize].budget == 0 {
            return None;
        }
        let start = self.random.below_u32(count + 1);
        for turn in 0..=count {
            let which = (start + turn) % (count + 1);
            let ready = if which == count {
                self.next_read(at, network).or_else(|| self.next_accessed(at, network))
            } else if self.nodes[at as usize].peers[which as usize].network == network {
                self.next_of(at, which, now)
            } else {
                None
            };
            if let Some(ready) = ready {
                self.nodes[at as usize].budget -= 1;
                self.events += 1;
                return Some(ready);
            }
        }
        None
    }

    /// Whether a network has something for the worker, now or after a while.
    pub(super) fn has_work(&self, at: u32, network: Network) -> bool {
        let me = &self.nodes[at as usize];
        let mut ends = me.peers.iter().filter(|end| end.network == network);
        let mut reads = me.reads.iter().map(|reading| &me.peers[reading.request.peer.index()]);
        let mut accesses = me.accesses_to().map(|peer| &me.peers[peer.index()]);
        reads.any(|end| end.network == network)
            || accesses.any(|end| end.network == network)
            || ends.any(|end| match (end.link, end.ends) {
                (LinkState::Down, _) => false,
                (LinkState::Connecting, Some(_)) => end.is_asked_for || !end.inbox.is_empty(),
                (LinkState::Connecting, None) => true,
                (LinkState::Up, ends) => ends.is_some() || !end.inbox.is_empty(),
            })
    }

    fn next_read(&mut self, at: u32, network: Network) -> Option<Ready> {
        let me = &self.nodes[at as usize];
        if me.reads.is_empty() {
            return None;
        }
        let start = self.random.below_u32(number(me.reads.len())) as usize;
        let me = &self.nodes[at as usize];
        let clock = self.clock;
        let hurry = self.hurry;
        let is_ready = |reading: &Reading| {
            let end = &me.peers[reading.request.peer.index()];
            end.network == network && (hurry || reading.ready <= clock || end.ends.is_some())
        };
        let turns = (start..me.reads.len()).chain(0..start);
        let index = turns.into_iter().find(|&index| is_ready(&me.reads[index]))?;
        Some(self.end_read(at, index))
    }

    fn next_of(&mut self, at: u32, peer: u32, now: u64) -> Option<Ready> {
        let hurry = self.hurry;
        let me = &mut self.nodes[at as usize];
        let end = &mut me.peers[peer as usize];
        match end.link {
            LinkState::Down => None,
            LinkState::Connecting => {
                if let Some(reason) = end.ends.filter(|_| end.inbox.is_empty()) {
                    let is_asked_for = end.is_asked_for;
                    return is_asked_for.then(|| self.end_link(at, peer, reason));
                }
                if !hurry && end.up_at > now {
                    return None;
                }
                end.link = LinkState::Up;
                Some(Ready::Up(peer))
            }
            LinkState::Up => {
                if end.inbox.front().is_some_and(|frame| hurry || frame.ready <= now) {
                    let frame = end.inbox.pop_front()?;
                    let Frame { ordinal, begins, eager, .. } = frame;
                    let from = end.node;
                    if let Some(key) = key_of(&frame) {
                        end.keys.retain(|&(other, _)| other != key);
                        if end.keys.len() == KEYS_MAX {
                            end.keys.remove(0);
                        }
                        end.keys.push((key, ordinal));
                    }
                    if let Some(ordinal) = begins {
                        self.notes.push(Note::Began { at, from, ordinal });
                    }
                    if ordinal != UNTAGGED {
                        self.notes.push(Note::Arrived { at, from, ordinal, eager, tick: now });
                    }
                    return Some(Ready::Message(peer, frame));
                }
                let reason = end.ends.filter(|_| end.inbox.is_empty())?;
                // Reads and accesses are given back before the peer is reported as down.
                if let Some(end) = me.end_access_to(peer) {
                    return Some(Ready::Accessed(end));
                }
                if me.reads.iter().any(|reading| reading.request.peer.0 == peer) {
                    return None;
                }
                Some(self.end_link(at, peer, reason))
            }
        }
    }

    fn end_link(&mut self, at: u32, peer: u32, reason: DownReason) -> Ready {
        let end = &mut self.nodes[at as usize].peers[peer as usize];
        end.link = LinkState::Down;
        let from = end.node;
        let tick = self.clock;
        self.notes.push(Note::Down { at, from, tick });
        Ready::Down(peer, reason)
    }
}

/// The key in a rendezvous request.
fn key_of(frame: &Frame) -> Option<u32> {
    let is_request = frame.ordinal != UNTAGGED && !frame.eager && frame.bytes.len() >= 32;
    is_request
        .then(|| frame.bytes[24..28].iter().fold(0, |key, &byte| (key << 8) | u32::from(byte)))
}

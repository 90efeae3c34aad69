//! How connections end: their transfers first, then they.

use std::time::{Duration, Instant};

use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::context::Happening;
use super::peer::{Ending, PeerState};
use super::queued::Queued;
use super::wire::Signal;
use tagmatch_device::{DownReason, PeerId, ReadError};

/// How long a failed queue pair may take to end its requests, and a peer to acknowledge last words.
const PATIENCE: Duration = Duration::from_secs(2);

impl Verbs {
    /// Ends a connection that failed, or that the peer has ended. What came from it before is still
    /// delivered.
    pub(super) fn end(&mut self, peer: PeerId, reason: DownReason, first_read: Option<ReadError>) {
        let is_heard = !matches!(reason, DownReason::Misbehaved { .. });
        self.start_ending(peer, reason, is_heard);
        self.give_up_on(peer, first_read);
    }

    /// Moves a connection from up to ending.
    fn start_ending(&mut self, peer: PeerId, reason: DownReason, is_heard: bool) {
        let Some(entry) = self.peers.get_mut(peer.index()) else { return };
        match std::mem::replace(&mut entry.state, PeerState::Down) {
            PeerState::Up(link) => {
                self.up.retain(|other| *other != peer);
                self.ending.push(peer);
                entry.state = PeerState::Ending(Box::new(Ending {
                    link: *link,
                    reason,
                    is_heard,
                    until: Instant::now() + PATIENCE,
                    has_failed: false,
                    is_drained: false,
                    first_read: None,
                }));
            }
            other => entry.state = other,
        }
    }

    /// Waits for nothing more from a connection that is ending.
    pub(super) fn give_up_on(&mut self, peer: PeerId, first_read: Option<ReadError>) {
        if let Some(PeerState::Ending(ending)) =
            self.peers.get_mut(peer.index()).map(|entry| &mut entry.state)
        {
            ending.give_up(peer, &mut self.outbox);
            ending.first_read = ending.first_read.or(first_read);
        }
    }

    /// The peer can't be reached, or we can't work with it.
    pub(super) fn lose(&mut self, peer: PeerId, errno: i32) {
        self.end(peer, DownReason::Unreachable { errno }, None);
    }

    pub(super) fn lose_all(&mut self, errno: i32) {
        for peer in self.up.clone() {
            self.lose(peer, errno);
        }
    }

    /// The peer broke a rule.
    pub(super) fn accuse(&mut self, peer: PeerId, what: &'static str) {
        self.end(peer, DownReason::Misbehaved { what }, None);
    }

    /// A message of the peer found no place in its buffer, or its queue pair failed meanwhile.
    pub(super) fn receive_failed(&mut self, peer: PeerId, status: sys::ibv_wc_status) {
        match status {
            sys::IBV_WC_LOC_LEN_ERR => self.accuse(peer, "a message longer than was announced"),
            sys::IBV_WC_WR_FLUSH_ERR => {}
            _ => self.lose(peer, libc::EIO),
        }
    }

    /// Asynchronous events: what happened to queue pairs that no completion tells of.
    pub(super) fn hear_kernel(&mut self) {
        while let Some(happening) = self.context.next_happening() {
            match happening {
                Happening::QueuePair { number, was_intruded } => {
                    let Some(peer) = self.by_qp.get(&number).copied() else { continue };
                    if was_intruded {
                        self.accuse(peer, "a read of memory that isn't exposed");
                    } else {
                        self.lose(peer, libc::EIO);
                    }
                }
                Happening::DeviceLost => self.lose_all(libc::ENODEV),
                Happening::Other => {}
            }
        }
    }

    /// See [`Device::disconnect`](tagmatch_device::Device::disconnect).
    pub(super) fn part_from(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(peer.index()) else { return };
        match &mut entry.state {
            PeerState::Oneself => {
                entry.state = PeerState::Down;
                self.events.push_back(Queued::Down(peer, DownReason::Disconnected));
            }
            PeerState::Connecting(connecting) => {
                connecting.is_wanted = true;
                self.give_up(peer, DownReason::Disconnected);
            }
            PeerState::Up(link) => {
                let said = link.signal(peer, Signal::Bye, &mut self.outbox);
                self.start_ending(peer, DownReason::Disconnected, false);
                if said.is_err() {
                    self.give_up_on(peer, None);
                }
            }
            PeerState::Ending(_) | PeerState::Down => {}
        }
    }

    /// Reports the peers whose connections have come to their end. To be called when no completion is
    /// waiting.
    pub(super) fn finish_ended(&mut self) {
        if self.ending.is_empty() {
            return;
        }
        let now = Instant::now();
        for at in (0..self.ending.len()).rev() {
            let peer = self.ending[at];
            let is_done = match &mut self.peers[peer.index()].state {
                PeerState::Ending(ending) => ending.is_done() || now >= ending.until,
                _ => true,
            };
            if is_done {
                self.ending.swap_remove(at);
                self.finish(peer);
            }
        }
    }

    fn finish(&mut self, peer: PeerId) {
        let entry = &mut self.peers[peer.index()];
        let PeerState::Ending(ending) = std::mem::replace(&mut entry.state, PeerState::Down) else {
            return;
        };
        let Ending { link, reason, first_read, .. } = *ending;
        self.receives.spare(link.receives_needed());
        for number in link.numbers() {
            self.by_qp.remove(&number);
        }
        self.fins.spare(link.fins);
        // Events of the queue pair must be acknowledged before it can be destroyed.
        self.hear_kernel();
        let mut error = first_read.unwrap_or(ReadError::PeerDown);
        for read in link.end(&mut self.outbox) {
            let result = Err(std::mem::replace(&mut error, ReadError::PeerDown));
            self.events.push_back(read.end(result));
        }
        if let Some(list) = &mut self.list {
            list.fail(peer);
            self.events.extend(list.take_events().map(Queued::Tag));
        }
        self.events.push_back(Queued::Down(peer, reason));
    }

    /// Last words to all, and time for what was sent to arrive: what a peer's NIC has not acknowledged is
    /// lost with the queue pair.
    pub(super) fn say_goodbye(&mut self) {
        self.is_closed = true;
        for peer in self.up.clone() {
            self.part_from(peer);
        }
        let until = Instant::now() + PATIENCE;
        while !self.ending.is_empty() && Instant::now() < until {
            while self.next_event().is_some() {}
        }
    }
}

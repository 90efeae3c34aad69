//! How connections end: first their transfers, then the queue pairs.

use std::time::{Duration, Instant};

use tagmatch_device::{DownReason, Event, Flush, PeerId, ReadError};
use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::failure;
use super::list::List;
use super::peer::{Ending, PeerState};
use super::wire::Signal;

/// How long a failed queue pair may take to complete its requests, and a peer to acknowledge the
/// leave signal.
const ENDING_TIME_MAX: Duration = Duration::from_secs(2);

impl Verbs {
    /// Ends a connection that failed or that the peer has left. Messages that came before are still
    /// delivered, unless the peer broke a rule.
    pub(super) fn end(&mut self, peer: PeerId, reason: DownReason, first_read: Option<ReadError>) {
        let delivers_messages = !matches!(reason, DownReason::Misbehaved { .. });
        self.start_ending(peer, reason, delivers_messages);
        let is_landing = self.list.as_ref().is_some_and(|list| list.is_landing(peer));
        if reason == DownReason::Left
            && is_landing
            && let Some(ending) = self.peers.ending(peer)
        {
            ending.awaits_landings = true;
        } else {
            self.stop_waiting_for(peer, first_read);
        }
    }

    /// Moves a connection from up to ending.
    fn start_ending(&mut self, peer: PeerId, reason: DownReason, delivers_messages: bool) {
        let Some(known) = self.peers.numbered(peer, &mut self.events) else { return };
        match std::mem::replace(&mut known.state, PeerState::Down) {
            PeerState::Up(link) => {
                self.up.retain(|other| *other != peer);
                self.local_processes.forget(peer);
                self.ending.push(peer);
                known.state = PeerState::Ending(Box::new(Ending {
                    link: *link,
                    reason,
                    delivers_messages,
                    until: Instant::now() + ENDING_TIME_MAX,
                    has_failed: false,
                    awaits_landings: false,
                    is_drained: false,
                    first_read: None,
                }));
            }
            other => known.state = other,
        }
    }

    /// Stops waiting for the requests of a connection that is ending: they complete as flushed.
    pub(super) fn stop_waiting_for(&mut self, peer: PeerId, first_read: Option<ReadError>) {
        if let Some(ending) = self.peers.ending(peer) {
            ending.flush(&mut self.outbox);
            ending.first_read = ending.first_read.or(first_read);
        }
    }

    /// Ends a connection whose peer can't be reached, or that failed on our side.
    pub(super) fn lose_peer(&mut self, peer: PeerId, reason: DownReason) {
        self.end(peer, reason, None);
    }

    pub(super) fn lose_all_peers(&mut self, reason: DownReason) {
        for peer in self.up.clone() {
            self.lose_peer(peer, reason);
        }
    }

    /// Ends a connection whose peer broke a rule.
    pub(super) fn end_for_violation(&mut self, peer: PeerId, what: &'static str) {
        self.end(peer, DownReason::Misbehaved { what }, None);
    }

    /// Handles a failed receive: the message was longer than its buffer, or the queue pair has
    /// failed.
    pub(super) fn receive_failed(&mut self, peer: PeerId, status: sys::ibv_wc_status) {
        match status {
            sys::IBV_WC_LOC_LEN_ERR => {
                self.end_for_violation(peer, "a message longer than the announced limit");
            }
            sys::IBV_WC_WR_FLUSH_ERR => {}
            _ => self.lose_peer(peer, failure::of_status(status, None)),
        }
    }

    /// See [`Device::disconnect`](tagmatch_device::Device::disconnect).
    pub(super) fn leave_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.numbered(peer, &mut self.events) else { return };
        match &mut known.state {
            PeerState::Oneself => {
                known.state = PeerState::Down;
                self.events.push_back(Event::PeerDown { peer, reason: DownReason::Disconnected });
            }
            PeerState::Connecting(connecting) => {
                connecting.is_wanted = true;
                self.fail_connecting(peer, DownReason::Disconnected);
            }
            PeerState::Up(link) => {
                let sent = link.signal(Signal::Leave, &mut self.outbox);
                self.start_ending(peer, DownReason::Disconnected, false);
                if sent.is_err() {
                    self.stop_waiting_for(peer, None);
                }
            }
            PeerState::Ending(_) | PeerState::Down | PeerState::Unmet => {}
        }
    }

    /// See [`Device::flush`](tagmatch_device::Device::flush).
    pub(super) fn flush_peer(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        let Some(known) = self.peers.get_mut(peer) else { return Flush::Done };
        let pending = |messages| {
            if messages == 0 { Flush::Done } else { Flush::Pending { messages } }
        };
        match &mut known.state {
            PeerState::Up(link) => match link.flush(mark, &mut self.outbox) {
                Ok(messages) => pending(messages),
                Err(error) => {
                    self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
                    // Its end tells which messages have not arrived.
                    Flush::Pending { messages: 1 }
                }
            },
            PeerState::Ending(ending) => pending(ending.link.unacknowledged()),
            PeerState::Down if known.lost > 0 => Flush::Lost { messages: known.lost },
            // A device that is not connected has taken no messages.
            PeerState::Connecting(_) | PeerState::Down | PeerState::Oneself | PeerState::Unmet => {
                Flush::Done
            }
        }
    }

    /// Ends the connections of peers whose processes have ended. Must be called when no completion
    /// is waiting: a peer may have left before its process ended.
    pub(super) fn end_gone(&mut self) {
        while let Some(peer) = self.local_processes.take_gone() {
            self.end(peer, DownReason::Gone, None);
        }
    }

    /// Reports the peers whose connections have ended. Must be called when no completion is
    /// waiting, so that their messages are delivered first.
    pub(super) fn finish_ended(&mut self) {
        if self.ending.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_mute = self.impairment.is_mute;
        for at in (0..self.ending.len()).rev() {
            let peer = self.ending[at];
            let is_done = match self.peers.ending(peer) {
                Some(ending) => {
                    let is_landing = |list: &List| list.is_landing(peer);
                    if ending.awaits_landings && !self.list.as_ref().is_some_and(is_landing) {
                        ending.flush(&mut self.outbox);
                    }
                    ending.is_done() || is_mute || now >= ending.until
                }
                None => true,
            };
            if is_done {
                self.ending.swap_remove(at);
                self.finish(peer);
            }
        }
    }

    fn finish(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let PeerState::Ending(ending) = std::mem::replace(&mut known.state, PeerState::Down) else {
            return;
        };
        let Ending { mut link, reason, first_read, .. } = *ending;
        // A peer that left in order takes no messages any more, so none is missed there.
        if reason != DownReason::Left {
            known.lost = link.unacknowledged();
        }
        self.forget(&link);
        self.fins.spare(link.fins);
        // A queue pair can't be destroyed before its asynchronous events are acknowledged
        // (ibv_destroy_qp waits for that).
        self.take_async_events();
        for (token, into) in link.copied.take_reads() {
            let result = Err(ReadError::PeerDown);
            self.events.push_back(Event::ReadDone { token, into, result });
        }
        let mut error = first_read.unwrap_or(ReadError::PeerDown);
        for read in link.end(&mut self.outbox) {
            let result = Err(std::mem::replace(&mut error, ReadError::PeerDown));
            self.events.push_back(read.end(result));
        }
        if let Some(list) = &mut self.list {
            list.fail_peer(peer);
            self.events.extend(list.take_events().map(Event::Tag));
        }
        self.events.push_back(Event::PeerDown { peer, reason });
    }

    /// Sends a leave signal to all peers, and gives messages already sent time to arrive: a message
    /// that the peer's NIC has not acknowledged is lost when the queue pair is destroyed.
    pub(super) fn leave_all(&mut self) {
        self.is_closed = true;
        for peer in self.up.clone() {
            self.leave_peer(peer);
        }
        let until = Instant::now() + ENDING_TIME_MAX;
        while !self.ending.is_empty() && Instant::now() < until {
            while self.next_event().is_some() {}
        }
    }
}

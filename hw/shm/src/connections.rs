//! The connections of a worker with everything that belongs to them, and how they end.

mod audit;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use tagmatch_device::{DeviceError, DownReason, Event, InCall, PeerId, Quota};

use super::arena::Arena;
use super::config::ShmConfig;
use super::connection::Connection;
use super::doorbell::{Doorbell, DoorbellBit};
use super::inboxes::Inboxes;
use super::lifelines::Lifelines;
use super::peers::{HelloAttempt, PeerState, Peers};
use super::processes::CallingProcess;
use super::reads::Reads;
use super::regions::OpenRegions;
use super::ring::PushError;
use super::ring::slot::MessageShape;
use super::watcher::Watcher;

/// The connections of a worker.
pub(crate) struct Connections {
    pub(crate) watcher: Watcher,
    /// Dropped before `reads`: what ends with a connection ends before the exposed buffers.
    pub(crate) peers: Peers,
    /// The connections that each other process has made to this worker.
    pub(crate) quota: Quota<CallingProcess>,
    pub(crate) inboxes: Inboxes,
    pub(crate) reads: Reads,
    pub(crate) regions: OpenRegions,
    pub(crate) events: VecDeque<Event<'static>>,
    /// Peers in the state `Draining`, each with the count of messages taken from its ring before.
    draining: Vec<(PeerId, u32)>,
    /// Peers that this worker has disconnected from, and that may still be writing into a buffer.
    parting: Vec<(PeerId, Box<Connection>)>,
    /// The next poll has more to do than to look at rings.
    pub(crate) needs_attention: bool,
    /// The last part that is dropped: connections tell it that they end.
    pub(crate) lifelines: Lifelines,
}

impl Connections {
    /// No connections yet. `doorbell` is the one that peers will ring.
    pub(crate) fn new(
        config: &ShmConfig,
        doorbell: Arc<Doorbell>,
        makes_barriers: bool,
        arena: Option<Arena>,
    ) -> Result<Self, DeviceError> {
        Ok(Connections {
            watcher: Watcher::new()?,
            peers: Peers::default(),
            quota: Quota::new(config.process_peers_max),
            // One ring more, for messages to oneself.
            inboxes: Inboxes::new(doorbell, config.peers_max + 1, makes_barriers),
            reads: Reads::new(config, arena.clone()),
            regions: OpenRegions::new(config.direct_regions, arena, makes_barriers)
                .in_call("getrandom")?,
            events: VecDeque::new(),
            draining: Vec::new(),
            parting: Vec::new(),
            needs_attention: true,
            lifelines: Lifelines::new(),
        })
    }

    /// Whether something is to be done that only a poll of this worker can do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.events.is_empty()
            || self.reads.has_work()
            || self.regions.has_work()
            || !self.inboxes.wake.is_empty()
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        !self.draining.is_empty() || !self.parting.is_empty()
    }

    /// How many doorbell bits are reserved though no attempt to connect has them. Not zero: some
    /// were not given back.
    fn lost_bits(&self) -> usize {
        let has_one = |state: &PeerState| matches!(state, PeerState::Connecting(peer) if peer.attempt.is_some());
        let attempts = self.peers.states().filter(|(_, state)| has_one(state)).count();
        self.inboxes.reserved_count().saturating_sub(attempts)
    }

    /// Takes back an attempt to connect: its socket and its ring.
    pub(crate) fn withdraw(&mut self, attempt: HelloAttempt) {
        self.watcher.forget(attempt.socket.as_fd());
        self.inboxes.release(attempt.offer.bit);
    }

    /// Takes a message that a peer's device has sent to this device.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn receive_internal(
        &mut self,
        peer: PeerId,
        bit: DoorbellBit,
        shape: MessageShape,
    ) -> Result<(), &'static str> {
        let Some(taken) = self.inboxes.take(bit, shape) else { return Ok(()) };
        // Messages of a peer that is draining are dropped: its reads end when its ring is empty.
        let Some(connection) = self.peers.connection_mut(peer) else { return Ok(()) };
        self.reads.receive(peer, connection, &taken.bytes, &mut self.events)?;
        self.needs_attention = true;
        Ok(())
    }

    /// Brings the reads forward that are under way.
    pub(crate) fn push_reads(&mut self) {
        if let Some((peer, what)) = self.reads.push_direct(&mut self.peers, &mut self.events) {
            self.finish(peer, DownReason::Misbehaved { what });
        }
        self.regions.push(&self.peers, &mut self.events);
        self.reads.push_offered(&mut self.peers);
        let mut at = 0;
        while let Some((peer, what)) = self.reads.push_copied(&mut self.peers, &mut at) {
            // Takes the peer out of the list that `at` is an index of.
            self.finish(peer, DownReason::Misbehaved { what });
        }
    }

    /// Lets idle connections take less memory.
    pub(crate) fn rest(&mut self) {
        let up =
            |(peer, state): (PeerId, &PeerState)| matches!(state, PeerState::Up(_)).then_some(peer);
        for peer in self.peers.states().filter_map(up).collect::<Vec<_>>() {
            let Some(connection) = self.peers.connection_mut(peer) else { continue };
            if let Err(PushError::Broken(what)) = connection.rest() {
                self.finish(peer, DownReason::Misbehaved { what });
            }
        }
    }

    /// Wakes the peers that sleep until there is room for their messages.
    pub(crate) fn wake_writers(&mut self) {
        while let Some(peer) = self.inboxes.wake.pop() {
            if let Some(connection) = self.peers.connection_mut(peer) {
                connection.wake();
            }
        }
    }

    /// Ends a connection whose peer is gone. Messages that the peer has written are delivered
    /// first.
    pub(crate) fn drain(&mut self, peer: PeerId, reason: DownReason) {
        if self.peers.connection_mut(peer).is_none() {
            return;
        }
        if let Some(PeerState::Up(connection)) = self.peers.replace(peer, PeerState::Down) {
            self.unwatch(&connection);
            self.inboxes.look_at(connection.inbox);
            let inbox = self.inboxes.inbox(connection.inbox);
            self.draining.push((peer, inbox.map_or(0, |inbox| inbox.consumer.taken())));
            self.needs_attention = true;
            self.peers.replace(peer, PeerState::Draining(connection, reason));
        }
    }

    /// A connection is at its end, and this is how.
    pub(crate) fn note_end(&mut self, peer: PeerId, reason: DownReason) {
        match reason {
            DownReason::Left | DownReason::Gone => self.drain(peer, reason),
            _ => self.finish(peer, reason),
        }
    }

    /// Takes the ends that threads have seen.
    pub(crate) fn take_reports(&mut self) {
        for (peer, reason) in self.lifelines.reports() {
            self.note_end(peer, reason);
        }
    }

    /// Reports the draining peers whose rings are empty now.
    pub(crate) fn finish_drained(&mut self) {
        self.finish_parting();
        let mut at = 0;
        while at < self.draining.len() {
            let (peer, taken_before) = self.draining[at];
            let is_done = match self.peers.state(peer) {
                Some(PeerState::Draining(connection, _)) => {
                    self.inboxes.inbox(connection.inbox).is_none_or(|inbox| {
                        // A dead peer's ring holds no more messages than fit into it. A peer that
                        // closed its socket and goes on writing is not waited for.
                        let taken = inbox.consumer.taken().wrapping_sub(taken_before);
                        inbox.consumer.peek().is_none() || taken >= inbox.consumer.capacity()
                    })
                }
                _ => true,
            };
            if is_done {
                self.draining.swap_remove(at);
                self.finish(peer, DownReason::Gone);
            } else {
                at += 1;
            }
        }
    }

    /// Reports the peers that were disconnected from and no longer write into any buffer.
    fn finish_parting(&mut self) {
        for (peer, mut connection) in std::mem::take(&mut self.parting) {
            if self.reads.take_back(peer, &connection) {
                self.parting.push((peer, connection));
            } else {
                self.reads.end_all(peer, &mut connection, &mut self.events);
                self.regions.end_all(peer, &mut self.events);
                let reason = DownReason::Disconnected;
                self.events.push_back(Event::PeerDown { peer, reason });
            }
        }
    }

    /// Ends a connection, or the attempts to connect, now: ends its reads, frees its resources, and
    /// reports the peer as down. A draining peer is reported with the reason that was found first.
    pub(crate) fn finish(&mut self, peer: PeerId, reason: DownReason) {
        let reason = match self.peers.replace(peer, PeerState::Down) {
            None | Some(PeerState::Down) => return,
            Some(PeerState::Connecting(connecting)) => {
                if let Some(attempt) = connecting.attempt {
                    self.withdraw(attempt);
                }
                reason
            }
            Some(PeerState::Up(connection)) => {
                self.unwatch(&connection);
                if let (DownReason::Disconnected, Some(other)) = (reason, &connection.other_end) {
                    // After all messages: the peer delivers what is in its ring by now.
                    other.lifeline.say_bye();
                    if self.reads.take_back(peer, &connection) {
                        self.release(&connection);
                        self.parting.push((peer, connection));
                        self.needs_attention = true;
                        return;
                    }
                }
                self.end(peer, *connection);
                reason
            }
            Some(PeerState::Draining(connection, first_reason)) => {
                self.end(peer, *connection);
                self.draining.retain(|(other, _)| *other != peer);
                first_reason
            }
        };
        self.events.push_back(Event::PeerDown { peer, reason });
        self.needs_attention = true;
    }

    fn unwatch(&mut self, connection: &Connection) {
        if let Some(other) = &connection.other_end {
            self.lifelines.unwatch(&other.lifeline, &self.watcher);
        }
    }

    fn end(&mut self, peer: PeerId, mut connection: Connection) {
        self.release(&connection);
        self.reads.end_all(peer, &mut connection, &mut self.events);
        self.regions.end_all(peer, &mut self.events);
    }

    /// Gives back what a connection takes of this worker, except its reads.
    fn release(&mut self, connection: &Connection) {
        // Before any buffer is given back, and before the look at what the peer writes.
        if let Some(other) = &connection.other_end {
            other.own_nonce.erase();
        }
        self.regions.note_end(connection);
        self.inboxes.remove(connection.inbox);
        if let Some(process) = connection.counted_for {
            self.quota.remove(&process);
        }
    }

    /// Drops all reads, before the worker is dropped. Peers may be writing into their buffers.
    pub(crate) fn abandon_reads(&mut self) {
        let states = self.peers.states();
        let up = states.filter_map(|(peer, state)| Some((peer, state.connection()?)));
        let parting = self.parting.iter().map(|(peer, connection)| (*peer, &**connection));
        for (peer, connection) in up.chain(parting) {
            self.reads.abandon(peer, connection);
        }
    }
}

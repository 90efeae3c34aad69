//! Sleeping until there is something to do, without polling.

use std::time::Instant;

use tagmatch_device::{DownReason, PeerId};
use tagmatch_os::safety;

use super::device::Shm;
use super::doorbell::SleepAnnounced;
use super::handshake::connect;
use super::ring::PushError;

/// Of so many sleeps, one begins with a pause in tests.
const SHAKES: u32 = 4;

impl Shm {
    /// See [`Device::arm`](tagmatch_device::Device::arm).
    pub(crate) fn fall_asleep(&mut self, waiting_to_send: &[PeerId]) -> bool {
        let now = Instant::now();
        self.look(now);
        let connections = &mut self.connections;
        connections.push_reads();
        connections.finish_drained();
        connections.needs_attention = true;
        let has_events = !connections.events.is_empty();
        let can_move = connections.reads.can_copy() || connections.regions.has_work();
        if has_events || can_move || connections.is_draining() {
            return false;
        }
        safety::shake(SHAKES);
        let announced = connections.inboxes.announce_sleep();
        let can_send = waiting_to_send.iter().any(|peer| self.has_room(*peer, &announced))
            || (0..self.connections.reads.copying().len())
                .any(|at| self.can_copy(self.connections.reads.copying()[at], &announced));
        let connections = &mut self.connections;
        if can_send {
            connections.inboxes.wake_up();
            return false;
        }
        let sleeps = connections.inboxes.fall_asleep(&announced);
        connections.wake_writers();
        if !sleeps {
            return false;
        }
        // From now on a sender that releases a piece rings the doorbell.
        if connections.reads.is_answered(&connections.peers) {
            connections.inboxes.wake_up();
            return false;
        }
        // Counted from the last sweep: a sleep that ends early doesn't put the next sweep off. The
        // first peer is the worker itself.
        let has_peers = connections.peers.len() > 1;
        let sweep = has_peers.then(|| self.last_sweep + self.local.config.sweep_interval);
        let deadlines = [self.acceptor.next_deadline(), connect::next_deadline(&connections.peers)];
        let deadline = deadlines.into_iter().chain([sweep]).flatten().min();
        connections.watcher.set_timer(deadline.map(|at| at.saturating_duration_since(now)));
        self.is_armed = true;
        true
    }

    /// Whether there is room for a message that was refused. If not, the peer will wake this
    /// worker.
    fn has_room(&mut self, peer: PeerId, announced: &SleepAnnounced) -> bool {
        let Some(connection) = self.connections.peers.connection_mut(peer) else { return false };
        let has_room = connection.producer.want_space(announced);
        self.is_true(peer, has_room)
    }

    /// Whether a message of a copied read can be sent, which needs half of the ring. If not, the
    /// peer will wake this worker.
    fn can_copy(&mut self, peer: PeerId, announced: &SleepAnnounced) -> bool {
        let Some(connection) = self.connections.peers.connection_mut(peer) else { return true };
        let producer = &mut connection.producer;
        let has_room = producer.want_space(announced).and_then(|_| producer.has_half_free());
        self.is_true(peer, has_room)
    }

    /// `true` also if the peer broke a rule: its connection is ended then, and that is to be
    /// reported.
    fn is_true(&mut self, peer: PeerId, answer: Result<bool, PushError>) -> bool {
        match answer {
            Ok(answer) => answer,
            Err(PushError::Full) => false,
            Err(PushError::Broken(what)) => {
                self.connections.finish(peer, DownReason::Misbehaved { what });
                true
            }
        }
    }

    /// See [`Device::disarm`](tagmatch_device::Device::disarm).
    pub(crate) fn wake_up(&mut self) {
        if !self.is_armed {
            return;
        }
        self.is_armed = false;
        self.connections.inboxes.wake_up();
        self.look(Instant::now());
        self.connections.needs_attention = true;
    }
}

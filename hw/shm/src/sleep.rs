//! Waiting for something to do without polling.

use std::time::{Duration, Instant};

use super::Shm;
use super::bell::Announced;
use super::ring::PushError;
use tagmatch_device::{DownReason, PeerId};

/// The longest sleep of a worker that has, or had, a peer. The peer could clear the bell that another peer, or
/// a message to oneself, has rung; then the rings are looked at after this time.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Shm {
    /// See [`Device::arm`](tagmatch_device::Device::arm).
    pub(crate) fn fall_asleep(&mut self, waiting_to_send: &[PeerId]) -> bool {
        let now = Instant::now();
        self.look(now);
        self.push_direct_reads();
        self.push_copied_reads();
        self.finish_drained();
        self.needs_attention = true;
        let has_events = !self.events.is_empty();
        if has_events || !self.direct_reads.is_empty() || !self.draining.is_empty() {
            return false;
        }
        let announced = self.inboxes.announce_sleep();
        for peer in waiting_to_send {
            if self.has_room_or_waits(*peer, &announced) {
                self.inboxes.wake_up();
                return false;
            }
        }
        for at in 0..self.copying.len() {
            if self.can_copy_or_waits(self.copying[at], &announced) {
                self.inboxes.wake_up();
                return false;
            }
        }
        let sleeps = self.inboxes.fall_asleep(&announced);
        self.wake_writers();
        if !sleeps {
            return false;
        }
        // The first lane is the one to oneself.
        let shared = (self.lanes.len() > 1).then_some(SLEEP_MAX);
        let deadline = self.next_deadline().map(|at| at.saturating_duration_since(now));
        let delay = shared.into_iter().chain(deadline).min();
        if delay.is_some() || self.is_timer_set {
            self.timer.set(delay);
            self.is_timer_set = delay.is_some();
        }
        self.is_armed = true;
        true
    }

    /// Whether there is room for a message that was refused; if not, the peer will wake us.
    fn has_room_or_waits(&mut self, peer: PeerId, announced: &Announced) -> bool {
        let Some(link) = self.link_mut(peer) else {
            return false;
        };
        match link.producer.want_space(announced) {
            Ok(has_room) => has_room,
            Err(PushError::Full) => false,
            Err(PushError::Broken(what)) => {
                self.finish(peer, DownReason::Misbehaved { what });
                true
            }
        }
    }

    /// The same for copied reads, which wait for half the ring.
    fn can_copy_or_waits(&mut self, peer: PeerId, announced: &Announced) -> bool {
        let Some(link) = self.link_mut(peer) else {
            return true;
        };
        let answer =
            link.producer.want_space(announced).and_then(|_| link.producer.has_half_free());
        match answer {
            Ok(has_room) => has_room,
            Err(PushError::Full) => false,
            Err(PushError::Broken(what)) => {
                self.finish(peer, DownReason::Misbehaved { what });
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
        self.inboxes.wake_up();
        self.look(Instant::now());
        self.needs_attention = true;
    }
}

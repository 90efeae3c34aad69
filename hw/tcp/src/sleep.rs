//! Sleeping until there is something to do. The set of descriptors wakes a sleeping worker: its
//! sockets are in there, and a timer.

use std::time::Duration;

use tagmatch_device::PeerId;

use super::clock::SleepTimer;
use super::device::Tcp;
use super::flush_wait::FlushWait;
use super::peers::PeerState;

impl Tcp {
    /// See [`Device::arm`](tagmatch_device::Device::arm).
    pub(crate) fn fall_asleep(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.keep_time();
        let can_send = waiting_to_send.iter().any(|peer| self.has_room(*peer));
        if can_send || self.has_found_work() {
            return false;
        }
        let flush = self.flush_wait.arm();
        let now = self.clock.time();
        let due = self.next_due();
        self.sleep_timer = SleepTimer { due, polls: self.polls };
        let due = due.map(|due| due.saturating_sub(now));
        self.timer.set(due.into_iter().chain(flush).min());
        self.is_timer_stale = false;
        self.is_armed = true;
        true
    }

    /// When the clock alone gives the worker something to do.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let due = [self.next_attempt(), self.next_pending(), self.next_leaving(), self.next_busy()];
        due.into_iter().flatten().min()
    }

    /// Whether there may be room for a message that was refused. If not, its socket reports room.
    fn has_room(&self, peer: PeerId) -> bool {
        let outbox_max = self.config.outbox_bytes as usize;
        match self.peers.state(peer) {
            Some(PeerState::Up(connection)) => {
                connection.out.has_room(connection.message_max, outbox_max)
            }
            // There is room for any message to oneself while none waits.
            Some(PeerState::Oneself) => self.own_messages.is_empty(),
            _ => false,
        }
    }

    /// See [`Device::disarm`](tagmatch_device::Device::disarm).
    pub(crate) fn wake_up(&mut self) {
        if self.is_armed {
            self.keep_time();
            self.is_armed = false;
            self.timer.set(None);
            self.flush_wait = FlushWait::No;
        }
    }
}

//! Noticing that a machine is gone while data is under way to it.
//!
//! The kernel's keep-alives watch idle connections only. While data is under way, the machine at
//! the other end acknowledges what is sent, and answers when it is asked whether its window is
//! still shut. So the age of the last acknowledgement tells whether the machine lives, while the
//! kernel waits for one. The kernel asks more and more seldom while a window stays shut, so the age
//! alone tells nothing. `TCP_USER_TIMEOUT` would also end connections to peers that live and don't
//! receive.

use std::os::fd::AsFd;
use std::time::Duration;

use tagmatch_device::PeerId;
use tagmatch_os::tcp;

use super::device::Tcp;

impl Tcp {
    /// Notes that data is under way to a peer.
    #[cold]
    pub(crate) fn note_busy(&mut self, peer: PeerId) {
        let now = self.clock.time();
        if let Some(connection) = self.peers.connection_mut(peer)
            && connection.busy_since.is_none()
        {
            connection.busy_since = Some(now);
            if self.busy.is_empty() {
                self.busy_look_at = now + self.busy_period();
                self.is_timer_stale = true;
            }
            self.busy.push(peer);
        }
    }

    fn busy_period(&self) -> Duration {
        self.config.acknowledge_timeout / 8
    }

    /// Looks at the peers to which data is under way.
    pub(crate) fn look_at_busy(&mut self) {
        let now = self.clock.time();
        if self.busy.is_empty() || now < self.busy_look_at {
            return;
        }
        // The process was stopped: what was sent just now had no time to be acknowledged.
        let was_stopped = now > self.busy_look_at + self.busy_period();
        self.busy_look_at = now + self.busy_period();
        for peer in std::mem::take(&mut self.busy) {
            if self.is_gone(peer, now, was_stopped)
                && let Some(connection) = self.peers.connection_mut(peer)
            {
                // What the peer has sent before is delivered first.
                connection.note_broken();
            }
        }
    }

    /// Whether a peer's machine has not acknowledged data for too long. A peer that isn't gone and
    /// has unacknowledged data stays in the list.
    fn is_gone(&mut self, peer: PeerId, now: Duration, was_stopped: bool) -> bool {
        let timeout = self.config.acknowledge_timeout;
        let Some(connection) = self.peers.connection_mut(peer) else { return false };
        if connection.unacknowledged_messages() == 0
            && connection.acknowledged() >= connection.out.accepted()
        {
            connection.busy_since = None;
            return false;
        }
        self.busy.push(peer);
        // The call fails for no connected socket.
        let Ok(answers) = tcp::answers(connection.socket.as_fd()) else { return false };
        if !answers.is_awaited || was_stopped {
            connection.busy_since = Some(now);
            return false;
        }
        // The last acknowledgement may be for much earlier data.
        let since = connection.busy_since.unwrap_or(now);
        let since = since.max(now.saturating_sub(answers.age));
        connection.busy_since = Some(since);
        now.saturating_sub(since) > timeout
    }

    /// When [`Tcp::look_at_busy`] has something to do next.
    pub(crate) fn next_busy(&self) -> Option<Duration> {
        (!self.busy.is_empty()).then_some(self.busy_look_at)
    }
}

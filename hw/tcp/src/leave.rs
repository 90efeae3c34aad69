//! Leaving in order: the connections that this worker has ended, until they are closed.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tagmatch_device::slab::Slab;
use tagmatch_device::{DownReason, PeerId};
use tagmatch_os::event::Epoll;
use tagmatch_os::sleep::sleep_until_readable;

use super::device::Tcp;
use super::leaving::{Leaving, LeavingState};
use super::numbers::Watched;
use super::peers::PeerState;
use super::sources::SharedMemory;

/// How often acknowledgements are looked for while the device is dropped: nothing reports them.
const LOOK_TIME: Duration = Duration::from_millis(1);

impl Tcp {
    /// Watches a connection until it has ended. Its socket is watched already, so that this can't
    /// fail for want of memory.
    pub(crate) fn enter_leaving(&mut self, mut leaving: Leaving) {
        if leaving.advance(&self.memory) == LeavingState::Ended {
            self.epoll.forget(leaving.socket());
            return self.count_lost(&leaving);
        }
        match self.leaving.insert(leaving, u32::MAX) {
            Ok(key) => {
                if self.watch_leaving(key.index).is_err() {
                    self.end_leaving(key.index);
                }
            }
            Err(leaving) => {
                self.epoll.forget(leaving.socket());
                self.count_lost(&leaving);
            }
        }
        self.is_timer_stale = true;
    }

    /// The messages to a peer that this worker has left, if they are not acknowledged yet.
    pub(crate) fn unacknowledged_of_leaving(&self, peer: PeerId) -> Option<usize> {
        let is_waited_for = |leaving: &Leaving| {
            leaving.peer == peer && leaving.messages > 0 && !leaving.is_acknowledged()
        };
        let key = self.leaving.keys_where(is_waited_for).into_iter().next()?;
        Some(self.leaving.get(key)?.messages)
    }

    fn watch_leaving(&self, index: u32) -> std::io::Result<()> {
        let key = self.leaving.key_at(index);
        let Some(leaving) = key.and_then(|key| self.leaving.get(key)) else { return Ok(()) };
        leaving.watch(&self.epoll, Watched::Leaving(index).number())
    }

    /// The socket of a connection that this worker has ended is ready.
    pub(crate) fn look_at_leaving(&mut self, index: u32) {
        let Some(key) = self.leaving.key_at(index) else { return };
        let Some(leaving) = self.leaving.get_mut(key) else { return };
        if leaving.advance(&self.memory) == LeavingState::Ended {
            self.end_leaving(index);
        } else {
            let _ = self.watch_leaving(index);
        }
    }

    fn end_leaving(&mut self, index: u32) {
        let Some(leaving) = self.leaving.key_at(index).and_then(|key| self.leaving.remove(key))
        else {
            return;
        };
        self.epoll.forget(leaving.socket());
        self.count_lost(&leaving);
    }

    /// Notes the messages that may not have reached the peer.
    fn count_lost(&mut self, leaving: &Leaving) {
        if !leaving.is_acknowledged()
            && let Some(lost) = self.peers.state_mut(leaving.peer).and_then(PeerState::lost_mut)
        {
            *lost = leaving.messages;
        }
    }

    /// Ends the connections that took too long to leave.
    pub(crate) fn end_late_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = self.clock.time();
        for key in self.leaving.keys_where(|leaving| leaving.until <= now) {
            self.end_leaving(key.index);
        }
    }

    /// When [`Tcp::end_late_leaving`] has something to do next.
    pub(crate) fn next_leaving(&self) -> Option<Duration> {
        let keys = self.leaving.keys_where(|_| true);
        keys.into_iter().filter_map(|key| Some(self.leaving.get(key)?.until)).min()
    }

    /// Ends all connections, and waits until what was sent is acknowledged, for a limited time.
    /// During a panic it doesn't wait.
    pub(crate) fn leave_all(&mut self) {
        self.listeners.close(&self.epoll);
        self.drop_pending();
        let up = self.peers.states().filter(|(_, state)| matches!(state, PeerState::Up(_)));
        for peer in up.map(|(peer, _)| peer).collect::<Vec<_>>() {
            self.finish(peer, DownReason::Disconnected);
        }
        self.timer.set(None);
        let start = Instant::now();
        let mut leaving = std::mem::take(&mut self.leaving);
        loop {
            end_acknowledged(&mut leaving, &self.memory, &self.epoll);
            let is_late = start.elapsed() >= self.config.leave_timeout;
            if leaving.is_empty() || is_late || std::thread::panicking() {
                return;
            }
            let _ = sleep_until_readable(&[self.epoll.as_fd()], LOOK_TIME);
        }
    }
}

/// Closes the connections that are done. If others are still leaving, those stay open: their peers
/// may be leaving as well, and need this end to receive.
fn end_acknowledged(leaving: &mut Slab<Leaving>, memory: &SharedMemory, epoll: &Epoll) {
    let mut is_done = true;
    for key in leaving.keys_where(|_| true) {
        let Some(entry) = leaving.get_mut(key) else { continue };
        match entry.advance(memory) {
            LeavingState::Ended => {
                epoll.forget(entry.socket());
                leaving.remove(key);
            }
            LeavingState::Acknowledged => {}
            LeavingState::Under => {
                is_done = false;
                // If this fails, the next look comes after a millisecond all the same.
                let _ = entry.watch(epoll, Watched::Leaving(key.index).number());
            }
        }
    }
    if is_done {
        *leaving = Slab::default();
    }
}

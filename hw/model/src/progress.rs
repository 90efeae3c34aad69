//! The poll of [`Model`]: it gives events of the inner device to the NIC, and does the work that
//! the NIC asks for.

use tagmatch_device::tm::Rvh;
use tagmatch_device::{
    Buffer, Device, DownReason, Event, Incoming, Outgoing, PeerId, ReadError, ReadRequest, Refused,
    RemoteSpan,
};

use crate::completion::{Completion, QueuePair};
use crate::device::Model;
use crate::fault::Fault;
use crate::landing::MessageLanding;
use crate::pending::{Fin, PendingEvent};
use crate::slots::Handle;
use crate::transfers::{QUEUE_PAIR_FAILED, Work};

/// The bit of a read token that marks reads of the NIC. The lower bits are the handle of the entry.
const OWN_READ: u64 = 1 << 63;

/// The result of polling the inner device once.
enum InnerPoll {
    /// There was no event.
    Empty,
    /// The NIC has handled the event.
    Handled,
    Event(PendingEvent),
}

impl<D: Device> Model<D> {
    /// The next event, which names the buffer that it will borrow.
    pub(crate) fn next_event(&mut self) -> Option<PendingEvent> {
        if let Some(wr_id) = self.lent.take() {
            self.nic.post_receive(wr_id as u64, self.message_max as u64);
        }
        self.nic.tick();
        loop {
            self.carry_out();
            if let Some(found) = self.completion_event().or_else(|| self.peer_down_event()) {
                return Some(found);
            }
            if !self.nic.is_ready() {
                return None;
            }
            match self.poll_inner() {
                InnerPoll::Empty => return None,
                InnerPoll::Handled => {}
                InnerPoll::Event(found) => return Some(found),
            }
        }
    }

    /// The event of the next completion.
    fn completion_event(&mut self) -> Option<PendingEvent> {
        loop {
            let completion = *self.nic.peek()?;
            let Some(queue_pair) = completion.queue_pair.filter(|_| completion.handle.is_none())
            else {
                if self.is_stale(&completion) {
                    self.nic.poll();
                    continue;
                }
                return Some(PendingEvent::Owned(Event::Tag(self.tag_event(&completion))));
            };
            self.nic.poll();
            let wr_id = usize::try_from(completion.wr_id).ok()?;
            self.lent = Some(wr_id);
            return Some(PendingEvent::Ordinary {
                wr_id,
                length: usize::try_from(completion.length).ok()?,
                through_list: completion.is_unexpected(),
                peer: PeerId(queue_pair.0),
                immediate: completion.immediate,
            });
        }
    }

    /// Whether the completion belongs to an entry that an unsignalled delete has removed.
    fn is_stale(&self, completion: &Completion) -> bool {
        let is_current = |handle: Handle| self.entries[handle.slot()].handle == Some(handle);
        completion.handle.is_some_and(|handle| !is_current(handle))
    }

    /// The end of a peer, once all of its completions were polled.
    fn peer_down_event(&mut self) -> Option<PendingEvent> {
        let nic = &self.nic;
        let at = self.ending_peers.iter().position(|(peer, _)| nic.is_quiet(QueuePair(peer.0)))?;
        let (peer, reason) = self.ending_peers.swap_remove(at);
        Some(PendingEvent::Owned(Event::PeerDown { peer, reason }))
    }

    /// Polls the inner device once.
    fn poll_inner(&mut self) -> InnerPoll {
        let Some(event) = self.inner.poll() else { return InnerPoll::Empty };
        let plain = match event {
            Event::Message(Incoming { peer, immediate, bytes, .. }) => {
                if (self.carries)(peer) {
                    let nic = &mut self.nic;
                    let entries = &mut self.entries;
                    let mut landing = MessageLanding { nic, entries, buffers: &mut self.buffers };
                    landing.take(peer, immediate, &bytes, self.message_max);
                    return InnerPoll::Handled;
                }
                self.uncarried.clear();
                self.uncarried.resize(bytes.len(), 0);
                bytes.copy_to(0, &mut self.uncarried);
                return InnerPoll::Event(PendingEvent::Uncarried { peer, immediate });
            }
            Event::ReadDone { token, into, result } if token & OWN_READ != 0 => {
                self.read_done(token, into, result);
                return InnerPoll::Handled;
            }
            Event::ReadDone { token, into, result } => Event::ReadDone { token, into, result },
            Event::AccessDone(end) => Event::AccessDone(end),
            Event::Tag(_) => return InnerPoll::Handled,
            Event::PeerUp { peer, limits } => Event::PeerUp { peer, limits },
            Event::PeerDown { peer, reason } => {
                self.peer_down(peer, reason);
                return InnerPoll::Handled;
            }
        };
        InnerPoll::Event(PendingEvent::Owned(plain))
    }

    fn read_done(&mut self, token: u64, into: Buffer, result: Result<(), ReadError>) {
        let handle = u32::try_from(token & !OWN_READ).map(Handle);
        let Some(handle) = handle.ok().filter(|handle| handle.slot() < self.entries.len()) else {
            return;
        };
        let held = &mut self.entries[handle.slot()];
        held.buffer = Some(into);
        let from = held.reads_from.take();
        match (result, from) {
            (Err(ReadError::PeerDown), Some(peer)) => self.failed_reads.push((peer, handle)),
            (result, _) => self.nic.read_done(handle, result.is_ok()),
        }
    }

    /// Handles the end of a peer. The inner device has reported all of its messages and reads. Its
    /// completions that are pending in the NIC are reported before its end.
    fn peer_down(&mut self, peer: PeerId, reason: DownReason) {
        self.nic.queue_pair_down(QueuePair(peer.0));
        let nic = &mut self.nic;
        self.fins.retain(|fin| {
            if fin.peer == peer {
                nic.fin_done(fin.handle, false);
            }
            fin.peer != peer
        });
        for (_, handle) in self.failed_reads.extract_if(.., |(of, _)| *of == peer) {
            self.nic.read_done(handle, false);
        }
        let broken = self.broken_peers.iter().position(|(of, _)| *of == peer);
        let reason = match (broken.map(|at| self.broken_peers.swap_remove(at)), reason) {
            (Some((_, what @ QUEUE_PAIR_FAILED)), DownReason::Disconnected) => {
                DownReason::Failed { what, errno: 0 }
            }
            (Some((_, what)), DownReason::Disconnected) => DownReason::Misbehaved { what },
            (_, reason) => reason,
        };
        self.ending_peers.push((peer, reason));
    }

    /// Does the work that the NIC asks for.
    fn carry_out(&mut self) {
        self.send_fins();
        while let Some(work) = self.nic.next_work() {
            match work {
                Work::Read { handle, queue_pair, remote } => {
                    self.start_read(handle, PeerId(queue_pair.0), remote);
                }
                Work::Fin { handle, queue_pair, headers, length } => {
                    let peer = PeerId(queue_pair.0);
                    self.fins.push_back(Fin { handle, peer, headers, length });
                    self.send_fins();
                }
                Work::Broken { queue_pair, why } => {
                    let peer = PeerId(queue_pair.0);
                    self.broken_peers.push((peer, why));
                    self.inner.disconnect(peer);
                }
            }
        }
    }

    fn start_read(&mut self, handle: Handle, peer: PeerId, remote: Rvh) {
        let held = &mut self.entries[handle.slot()];
        let Some(into) = held.buffer.take() else {
            self.nic.record(Fault::BufferGone(handle));
            return self.nic.read_done(handle, false);
        };
        let remote = RemoteSpan { address: remote.va, key: remote.rkey, length: remote.len.into() };
        let token = OWN_READ | u64::from(handle.0);
        held.reads_from = Some(peer);
        if let Err((into, error)) = self.inner.read(ReadRequest { peer, remote, into, token }) {
            self.read_done(token, into, Err(error));
        }
    }

    /// Sends the FINs that their peers have room for; a full peer does not delay the others. FINs
    /// to a peer that is down wait until the inner device has reported its last messages and its
    /// end.
    fn send_fins(&mut self) {
        for _ in 0..self.fins.len() {
            let Some(fin) = self.fins.pop_front() else { break };
            let header = &fin.headers[..fin.length];
            match self.inner.send(fin.peer, Outgoing { header, payload: &[], immediate: None }) {
                Ok(()) => self.nic.fin_done(fin.handle, true),
                Err(Refused::TooLong) => self.nic.fin_done(fin.handle, false),
                Err(Refused::Full | Refused::NotUp | Refused::Down) => self.fins.push_back(fin),
            }
        }
    }
}

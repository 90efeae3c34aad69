//! What a poll does: takes what the inner device has, lets the NIC decide, and carries that out.

use super::completion::{Completion, QueuePair};
use super::device::Model;
use super::fault::Fault;
use super::landing::Landing;
use super::pending::{Fin, Found};
use super::slots::Handle;
use super::transfers::Work;
use tagmatch_device::tm::Rvh;
use tagmatch_device::{
    Buffer, Device, DownReason, Event, Incoming, Outgoing, PeerId, ReadError, ReadRequest, Refused,
    RemoteSpan,
};

/// Marks the NIC's own reads; the lower bits are the entry's handle.
const OWN_READ: u64 = 1 << 63;

/// What one event of the inner device came to.
enum Step {
    Empty,
    Absorbed,
    Found(Found),
}

impl<D: Device> Model<D> {
    /// The next event, with what it borrows named but not borrowed.
    pub(super) fn find(&mut self) -> Option<Found> {
        if let Some(wr_id) = self.lent.take() {
            self.nic.post_receive(wr_id as u64, self.message_max as u64);
        }
        self.nic.tick();
        loop {
            self.carry_out();
            if let Some(found) = self.completed().or_else(|| self.gone()) {
                return Some(found);
            }
            if !self.nic.is_ready() {
                return None;
            }
            match self.take_one() {
                Step::Empty => return None,
                Step::Absorbed => {}
                Step::Found(found) => return Some(found),
            }
        }
    }

    /// What the next completion means.
    fn completed(&mut self) -> Option<Found> {
        loop {
            let completion = *self.nic.peek()?;
            let Some(queue_pair) = completion.queue_pair.filter(|_| completion.handle.is_none())
            else {
                if self.is_stale(&completion) {
                    self.nic.poll();
                    continue;
                }
                return Some(Found::Plain(Event::Tag(self.tag_event(&completion))));
            };
            self.nic.poll();
            let wr_id = usize::try_from(completion.wr_id).ok()?;
            self.lent = Some(wr_id);
            return Some(Found::Ordinary {
                wr_id,
                length: usize::try_from(completion.length).ok()?,
                through_list: completion.is_unexpected(),
                peer: PeerId(queue_pair.0),
                immediate: completion.immediate,
            });
        }
    }

    /// A completion of an entry that was deleted without an answer: nobody knows it any more.
    fn is_stale(&self, completion: &Completion) -> bool {
        let is_current = |handle: Handle| self.entries[handle.slot()].handle == Some(handle);
        completion.handle.is_some_and(|handle| !is_current(handle))
    }

    /// A peer that is down, once all of its events were taken.
    fn gone(&mut self) -> Option<Found> {
        let nic = &self.nic;
        let at = self.going.iter().position(|(peer, _)| nic.is_quiet(QueuePair(peer.0)))?;
        let (peer, reason) = self.going.swap_remove(at);
        Some(Found::Plain(Event::PeerDown { peer, reason }))
    }

    /// Takes one event of the inner device.
    fn take_one(&mut self) -> Step {
        let Some(event) = self.inner.poll() else { return Step::Empty };
        let plain = match event {
            Event::Message(Incoming { peer, immediate, bytes, .. }) => {
                if (self.carries)(peer) {
                    let (nic, entries) = (&mut self.nic, &mut self.entries);
                    let mut landing = Landing { nic, entries, buffers: &mut self.buffers };
                    landing.take(peer, immediate, &bytes, self.message_max);
                    return Step::Absorbed;
                }
                self.passing.clear();
                self.passing.resize(bytes.len(), 0);
                bytes.copy_to(0, &mut self.passing);
                return Step::Found(Found::Passing { peer, immediate });
            }
            Event::ReadDone { token, into, result } if token & OWN_READ != 0 => {
                self.read_done(token, into, result);
                return Step::Absorbed;
            }
            Event::ReadDone { token, into, result } => Event::ReadDone { token, into, result },
            Event::Tag(_) => return Step::Absorbed,
            Event::PeerUp { peer, limits } => Event::PeerUp { peer, limits },
            Event::PeerDown { peer, reason } => {
                self.peer_down(peer, reason);
                return Step::Absorbed;
            }
        };
        Step::Found(Found::Plain(plain))
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
            (Err(ReadError::PeerDown), Some(peer)) => self.cut_off.push((peer, handle)),
            (result, _) => self.nic.read_done(handle, result.is_ok()),
        }
    }

    /// All messages and reads of the peer are here; what the NIC holds back of them comes first.
    fn peer_down(&mut self, peer: PeerId, reason: DownReason) {
        self.nic.queue_pair_down(QueuePair(peer.0));
        let nic = &mut self.nic;
        self.fins.retain(|fin| {
            let stays = fin.peer != peer;
            if !stays {
                nic.fin_done(fin.handle, false);
            }
            stays
        });
        self.cut_off.retain(|(of, handle)| {
            let stays = *of != peer;
            if !stays {
                nic.read_done(*handle, false);
            }
            stays
        });
        let broken = self.broken.iter().position(|(of, _)| *of == peer);
        let reason = match (broken.map(|at| self.broken.swap_remove(at)), reason) {
            (Some((_, what)), DownReason::Disconnected) => DownReason::Misbehaved { what },
            (_, reason) => reason,
        };
        self.going.push((peer, reason));
    }

    /// Does what the NIC wants done.
    fn carry_out(&mut self) {
        self.send_fins();
        while let Some(work) = self.nic.next_work() {
            match work {
                Work::Read { handle, queue_pair, remote } => {
                    self.read_of(handle, PeerId(queue_pair.0), remote);
                }
                Work::Fin { handle, queue_pair, headers, length } => {
                    let peer = PeerId(queue_pair.0);
                    self.fins.push_back(Fin { handle, peer, headers, length });
                    self.send_fins();
                }
                Work::Broken { queue_pair, why } => {
                    let peer = PeerId(queue_pair.0);
                    self.broken.push((peer, why));
                    self.inner.disconnect(peer);
                }
            }
        }
    }

    fn read_of(&mut self, handle: Handle, peer: PeerId, remote: Rvh) {
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

    /// Sends what there is room for; a peer whose way is full holds up nobody else. Of a peer that is
    /// down, the inner device has last messages and that to tell: until then its FINs wait.
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

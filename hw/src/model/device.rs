//! The NIC on a device.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;

use super::completion::{Completion, QueuePair};
use super::nic::{Arrival, Nic, Verdict};
use super::transfers::{HEADERS_BYTES, Work};
use super::{Fault, Handle, ModelConfig};
use crate::tm::{Rvh, TMH_BYTES};
use crate::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, Exposure, ExposureId, Incoming,
    Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan, TagCaps,
    TagList,
};

/// Marks the NIC's own reads; the lower bits are the entry's handle.
const OWN_READ: u64 = 1 << 63;
/// Bytes in the largest message that the NIC reads: a port's `max_msg_sz` on mlx5, 1 GiB.
const READ_MAX: u64 = 1 << 30;

/// A device with a list of posted receives, made of any device without one.
///
/// Messages of the peers that the list [carries](Self::set_carried) go through a [`Nic`]; everything
/// else passes. [`Device::poll`] is the NIC's clock: delays count polls. Peers need nothing of the
/// kind; to them, this is the inner device.
///
/// What the NIC puts into an ordinary buffer is copied there, so that its completion can be late. An
/// inner device's own list is not used.
pub struct Model<D> {
    inner: D,
    pub(super) nic: Nic,
    pub(super) caps: TagCaps,
    /// By slot.
    pub(super) entries: Vec<Held>,
    /// Ordinary buffers, which grow to what they have held; their `wr_id` is their place here.
    buffers: Vec<Vec<u8>>,
    /// The ordinary buffer that the last event borrowed.
    lent: Option<usize>,
    /// The bytes of a message past the list, while its event borrows them.
    passing: Vec<u8>,
    fins: VecDeque<Fin>,
    /// Peers that are down, with events to come before that is told.
    going: Vec<(PeerId, DownReason)>,
    /// Peers that were disconnected for a queue pair error, and why.
    broken: Vec<(PeerId, &'static str)>,
    /// Of a match with one completion, the first of two events was taken.
    pub(super) is_halfway: bool,
    carries: fn(PeerId) -> bool,
}

/// What an entry of the list holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) handle: Option<Handle>,
    /// The caller's name for it.
    pub(super) entry: u32,
    pub(super) buffer: Option<Buffer>,
}

/// A FIN that the inner device hasn't taken yet.
struct Fin {
    handle: Handle,
    peer: PeerId,
    headers: [u8; HEADERS_BYTES],
    length: usize,
}

/// An event that borrows nothing yet.
enum Found {
    Ordinary {
        wr_id: usize,
        length: usize,
        through_list: bool,
        peer: PeerId,
        immediate: Option<u32>,
    },
    Passing {
        peer: PeerId,
        immediate: Option<u32>,
    },
    Plain(Event<'static>),
}

/// What one event of the inner device came to.
enum Step {
    Empty,
    Absorbed,
    Found(Found),
}

impl<D: Device> Model<D> {
    /// Puts a NIC on a device.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range.
    pub fn new(inner: D, config: &ModelConfig) -> Result<Self, DeviceError> {
        let mut nic = Nic::new(config)?;
        let message_max = inner.limits().message_max as u64;
        (0..config.buffers).for_each(|wr_id| nic.post_receive(wr_id.into(), message_max));
        Ok(Model {
            inner,
            nic,
            caps: TagCaps {
                slots: config.slots,
                operations: config.operations,
                read_max: READ_MAX,
                sync_every: config.knobs.sync_limit / 2 + 1,
                first_count: config.knobs.first_count,
            },
            entries: (0..config.slots).map(|_| Held::default()).collect(),
            buffers: vec![Vec::new(); config.buffers as usize],
            lent: None,
            passing: Vec::new(),
            fins: VecDeque::new(),
            going: Vec::new(),
            broken: Vec::new(),
            is_halfway: false,
            carries: |peer| peer != PeerId::ONESELF,
        })
    }

    /// Chooses the peers that the list carries, all but oneself by default. Messages of others come up
    /// past it, as if they came from another device. To be called before the first poll; for each peer
    /// the answer must always be the same.
    pub fn set_carried(&mut self, carries: fn(PeerId) -> bool) {
        self.carries = carries;
    }

    /// The NIC, to look at.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device below. What arrives must still be taken through this one.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// The largest eager payload that this device has announced, in bytes.
    pub(super) fn payload_max(&self) -> usize {
        self.inner.limits().message_max.saturating_sub(TMH_BYTES)
    }

    /// The next event, with what it borrows named but not borrowed.
    fn find(&mut self) -> Option<Found> {
        if let Some(wr_id) = self.lent.take() {
            self.nic.post_receive(wr_id as u64, self.inner.limits().message_max as u64);
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
                return Some(Found::Plain(Event::Tags));
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
        let message_max = self.inner.limits().message_max;
        let Some(event) = self.inner.poll() else { return Step::Empty };
        let found = match event {
            Event::Message(Incoming { peer, immediate, bytes, .. }) => {
                if !(self.carries)(peer) {
                    self.passing.clear();
                    self.passing.resize(bytes.len(), 0);
                    bytes.copy_to(0, &mut self.passing);
                    return Step::Found(Found::Passing { peer, immediate });
                }
                let queue_pair = QueuePair(peer.0);
                if bytes.len() > message_max {
                    self.nic.fail(queue_pair, "a message longer than was announced");
                    return Step::Absorbed;
                }
                let mut head = [0; HEADERS_BYTES];
                bytes.copy_to(0, &mut head);
                let length = bytes.len() as u64;
                let verdict = self.nic.arrive(&Arrival { queue_pair, length, head, immediate });
                match verdict {
                    Verdict::Ordinary { wr_id } => {
                        copy_ordinary(&mut self.buffers, wr_id, &bytes);
                    }
                    Verdict::Payload { handle, .. } => {
                        let room = bytes.len() - TMH_BYTES;
                        copy_matched(&mut self.entries, &mut self.nic, handle, room, |to| {
                            bytes.copy_to(TMH_BYTES, to);
                        });
                    }
                    Verdict::Headers { handle, .. } => {
                        copy_matched(
                            &mut self.entries,
                            &mut self.nic,
                            handle,
                            HEADERS_BYTES,
                            |to| {
                                to.copy_from_slice(&head);
                            },
                        );
                    }
                    Verdict::Rendezvous | Verdict::Dropped => {}
                    // Asked before the message was taken.
                    Verdict::NotReady => debug_assert!(false, "the NIC was ready"),
                }
                return Step::Absorbed;
            }
            Event::ReadDone { token, into, result } if token & OWN_READ != 0 => {
                self.read_done(token, into, result.is_ok());
                return Step::Absorbed;
            }
            Event::ReadDone { token, into, result } => Event::ReadDone { token, into, result },
            Event::Tags => return Step::Absorbed,
            Event::PeerUp { peer, limits } => Event::PeerUp { peer, limits },
            Event::PeerDown { peer, reason } => {
                self.peer_down(peer, reason);
                return Step::Absorbed;
            }
        };
        Step::Found(Found::Plain(found))
    }

    fn read_done(&mut self, token: u64, into: Buffer, is_ok: bool) {
        let Ok(handle) = u32::try_from(token & !OWN_READ).map(Handle) else { return };
        self.entries[handle.slot()].buffer = Some(into);
        self.nic.read_done(handle, is_ok);
    }

    /// All messages and reads of the peer are here; what the NIC holds back of them comes first.
    fn peer_down(&mut self, peer: PeerId, reason: DownReason) {
        self.nic.queue_pair_down(QueuePair(peer.0));
        for _ in 0..self.fins.len() {
            match self.fins.pop_front() {
                Some(fin) if fin.peer == peer => self.nic.fin_done(fin.handle, false),
                Some(fin) => self.fins.push_back(fin),
                None => break,
            }
        }
        let why = self.broken.iter().position(|(of, _)| *of == peer);
        let why = why.map(|at| self.broken.swap_remove(at).1);
        let reason = why.map_or(reason, |what| DownReason::Misbehaved { what });
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
        if let Err((into, _)) = self.inner.read(ReadRequest { peer, remote, into, token }) {
            held.buffer = Some(into);
            self.nic.read_done(handle, false);
        }
    }

    /// Sends what there is room for; a peer whose way is full holds up nobody else.
    fn send_fins(&mut self) {
        for _ in 0..self.fins.len() {
            let Some(fin) = self.fins.pop_front() else { break };
            let header = &fin.headers[..fin.length];
            match self.inner.send(fin.peer, Outgoing { header, payload: &[], immediate: None }) {
                Ok(()) => self.nic.fin_done(fin.handle, true),
                Err(Refused::Full) => self.fins.push_back(fin),
                Err(_) => self.nic.fin_done(fin.handle, false),
            }
        }
    }
}

/// Puts a message into an ordinary buffer.
fn copy_ordinary(buffers: &mut [Vec<u8>], wr_id: u64, bytes: &Bytes<'_>) {
    let Some(buffer) = usize::try_from(wr_id).ok().and_then(|at| buffers.get_mut(at)) else {
        return;
    };
    if buffer.len() < bytes.len() {
        buffer.resize(bytes.len(), 0);
    }
    bytes.copy_to(0, &mut buffer[..bytes.len()]);
}

/// Puts so many bytes into a matched entry's buffer.
fn copy_matched(
    entries: &mut [Held],
    nic: &mut Nic,
    handle: Handle,
    length: usize,
    copy: impl FnOnce(&mut [u8]),
) {
    let held = &mut entries[handle.slot()];
    let buffer = held.buffer.as_mut().filter(|_| held.handle == Some(handle));
    match buffer.and_then(|buffer| buffer.as_mut_slice()?.get_mut(..length)) {
        Some(room) => copy(room),
        None => nic.record(Fault::BufferGone(handle)),
    }
}

impl<D: Device> Device for Model<D> {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn address(&self) -> Address {
        self.inner.address()
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.inner.connect(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.inner.peer_address(peer)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        self.inner.read_mode(peer)
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        self.inner.send(peer, message)
    }

    fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        self.inner.expose(buffer)
    }

    fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        self.inner.withdraw(id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.inner.read(request)
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        Some(match self.find()? {
            Found::Plain(event) => event,
            Found::Passing { peer, immediate } => {
                let bytes = Bytes::from_slice(&self.passing);
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            Found::Ordinary { wr_id, length, through_list, peer, immediate } => {
                let bytes = Bytes::from_slice(self.buffers.get(wr_id)?.get(..length)?);
                Event::Message(Incoming { peer, immediate, through_list, bytes })
            }
        })
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        Some(self)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.event_descriptor()
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        if self.nic.has_work() || !self.going.is_empty() {
            return false;
        }
        if self.fins.is_empty() {
            return self.inner.arm(waiting_to_send);
        }
        let fins = self.fins.iter().map(|fin| fin.peer);
        let all: Vec<PeerId> = waiting_to_send.iter().copied().chain(fins).collect();
        self.inner.arm(&all)
    }

    fn has_work(&self) -> bool {
        self.nic.has_work() || !self.going.is_empty() || self.inner.has_work()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

impl<D: fmt::Debug> fmt::Debug for Model<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("inner", &self.inner)
            .field("nic", &self.nic)
            .finish_non_exhaustive()
    }
}

//! The NIC on a device.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;

use super::knobs::ModelConfig;
use super::nic::Nic;
use super::pending::{EntryBuffer, Fin, Found};
use super::slots::Handle;
use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, EventDescriptor, Exposure,
    ExposureId, Incoming, Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused,
    TagCaps, TagList,
};

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
#[derive(Clone)]
pub struct Model<D> {
    pub(super) inner: D,
    /// What the inner device announces, in bytes.
    pub(super) message_max: usize,
    pub(super) nic: Nic,
    pub(super) caps: TagCaps,
    /// By slot.
    pub(super) entries: Vec<EntryBuffer>,
    /// Ordinary buffers, which grow to what they have held; their `wr_id` is their place here.
    pub(super) buffers: Vec<Vec<u8>>,
    /// The ordinary buffer that the last event borrowed.
    pub(super) lent: Option<usize>,
    /// The bytes of a message past the list, while its event borrows them.
    pub(super) passing: Vec<u8>,
    pub(super) fins: VecDeque<Fin>,
    /// Reads that the end of their peer has ended: that peer's last messages and its
    /// [`Event::PeerDown`] are yet to come.
    pub(super) cut_off: Vec<(PeerId, Handle)>,
    /// Peers that are down, with events to come before that is told.
    pub(super) going: Vec<(PeerId, DownReason)>,
    /// Peers that were disconnected for a queue pair error, and why.
    pub(super) broken: Vec<(PeerId, &'static str)>,
    /// Of a match with one completion, the first of two events was taken.
    pub(super) is_halfway: bool,
    pub(super) carries: fn(PeerId) -> bool,
}

impl<D: Device> Model<D> {
    /// Puts a NIC on a device.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range.
    pub fn new(inner: D, config: &ModelConfig) -> Result<Self, DeviceError> {
        let mut nic = Nic::new(config)?;
        let message_max = inner.limits().message_max;
        for wr_id in 0..config.buffers {
            nic.post_receive(wr_id.into(), message_max as u64);
        }
        Ok(Model {
            inner,
            message_max,
            nic,
            caps: TagCaps {
                slots: config.slots,
                operations: config.operations,
                read_max: READ_MAX,
                sync_every: config.knobs.sync_limit / 2 + 1,
                first_count: config.knobs.first_count,
            },
            entries: (0..config.slots).map(|_| EntryBuffer::default()).collect(),
            buffers: vec![Vec::new(); config.buffers as usize],
            lent: None,
            passing: Vec::new(),
            fins: VecDeque::new(),
            cut_off: Vec::new(),
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

    /// The NIC, to be driven [by hand](Nic::by_hand).
    pub fn nic_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device below. What arrives must still be taken through this one.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Whether the next poll has something to do that the inner device doesn't know of.
    fn is_busy(&self) -> bool {
        self.nic.has_work() || !self.going.is_empty()
    }

    /// The largest eager payload that this device has announced, in bytes.
    pub(super) fn payload_max(&self) -> usize {
        self.message_max.saturating_sub(TMH_BYTES)
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

    fn allocate(&mut self, length: usize) -> Buffer {
        self.inner.allocate(length)
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

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        if self.is_busy() {
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
        self.is_busy() || self.inner.has_work()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

impl<D: EventDescriptor> EventDescriptor for Model<D> {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.event_descriptor()
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

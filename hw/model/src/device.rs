//! A tag-matching NIC on top of any other device.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;

use tagmatch_device::{
    AccessLimits, Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, EventDescriptor,
    Exposure, ExposureId, Flush, Incoming, Join, LearnedChoice, Limits, Network, Outgoing, PeerId,
    PeerNumbers, PublishedRegion, QuickAccess, RawMemory, ReadError, ReadMode, ReadRequest,
    Refused, RegionAccess, RegionPlace, RegionSpan, Registered, TagCaps, TagList,
};

use crate::knobs::ModelConfig;
use crate::nic::Nic;
use crate::pending::{EntryBuffer, Fin, PendingEvent};
use crate::slots::Handle;

/// The largest message that the NIC reads, in bytes: a port's `max_msg_sz` on mlx5, 1 GiB.
const READ_MAX: u64 = 1 << 30;

/// A device with a list of posted receives, made of a device without one.
///
/// Messages of the peers that the list [carries](Self::set_carried) go through a [`Nic`]; all other
/// events pass unchanged. [`Device::poll`] is the NIC's clock: delays count polls. Peers see only
/// the inner device, and need no NIC.
///
/// An unexpected message is copied to an ordinary buffer, so that its completion can be late. The
/// inner device's own list, if it has one, is not used.
#[derive(Clone)]
pub struct Model<D> {
    pub(crate) inner: D,
    /// The largest message that the inner device receives, in bytes.
    pub(crate) message_max: usize,
    pub(crate) nic: Nic,
    pub(crate) caps: TagCaps,
    /// The buffers of entries, by slot.
    pub(crate) entries: Vec<EntryBuffer>,
    /// Ordinary buffers. They grow to the longest message that they have held. Their `wr_id` is
    /// their index.
    pub(crate) buffers: Vec<Vec<u8>>,
    /// The ordinary buffer that the last event borrowed. The next poll posts it again.
    pub(crate) lent: Option<usize>,
    /// The bytes of a message that does not go through the NIC, while its event borrows them.
    pub(crate) uncarried: Vec<u8>,
    /// FINs that the inner device has not accepted yet.
    pub(crate) fins: VecDeque<Fin>,
    /// Reads that failed because their peer is down. The inner device has not reported
    /// [`Event::PeerDown`] yet.
    pub(crate) failed_reads: Vec<(PeerId, Handle)>,
    /// Peers that are down, but have completions left to poll: their [`Event::PeerDown`] comes
    /// last.
    pub(crate) ending_peers: Vec<(PeerId, DownReason)>,
    /// Peers that were disconnected after an error of their queue pair, and the reason.
    pub(crate) broken_peers: Vec<(PeerId, &'static str)>,
    /// Whether the first of the two events of a match with one completion was taken.
    pub(crate) is_halfway: bool,
    /// Whether messages of a peer go through the NIC.
    pub(crate) carries: fn(PeerId) -> bool,
}

impl<D: Device> Model<D> {
    /// Adds a NIC to a device.
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
            uncarried: Vec::new(),
            fins: VecDeque::new(),
            failed_reads: Vec::new(),
            ending_peers: Vec::new(),
            broken_peers: Vec::new(),
            is_halfway: false,
            carries: |peer| peer != PeerId::ONESELF,
        })
    }

    /// Chooses the peers whose messages go through the NIC: by default all but the worker itself.
    /// Messages of other peers bypass it, as if they came from another device. Call this before the
    /// first poll. The function must always give the same answer for a peer.
    pub fn set_carried(&mut self, carries: fn(PeerId) -> bool) {
        self.carries = carries;
    }

    /// The NIC.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The NIC, for example to make its choices [manual](Nic::set_manual).
    pub fn nic_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }

    /// The inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The inner device. Do not poll it: its events must be polled through this device.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Whether the next poll has work of which the inner device does not know.
    fn is_busy(&self) -> bool {
        self.nic.has_work() || !self.ending_peers.is_empty()
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

    fn sends_fragments(&self, peer: PeerId, length: usize) -> bool {
        self.inner.sends_fragments(peer, length)
    }

    fn note_sent(&mut self, peer: PeerId, length: usize) {
        self.inner.note_sent(peer, length);
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        self.inner.learned(peer)
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        self.inner.send(peer, message)
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        self.inner.allocate(length)
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.inner.register(memory)
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        self.inner.expose(reader, buffer)
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        self.inner.withdraw(reader, id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.inner.read(request)
    }

    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        self.inner.publish(region)
    }

    fn unpublish(&mut self, key: u64) -> bool {
        self.inner.unpublish(key)
    }

    fn access_limits(&self, peer: PeerId) -> AccessLimits {
        self.inner.access_limits(peer)
    }

    fn note_one_sided(&mut self, peer: PeerId) {
        self.inner.note_one_sided(peer);
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        self.inner.access(access)
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        self.inner.access_at_once(peer, of, access)
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        Some(match self.next_event()? {
            PendingEvent::Owned(event) => event,
            PendingEvent::Uncarried { peer, immediate } => {
                let bytes = Bytes::from_slice(&self.uncarried);
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            PendingEvent::Ordinary { wr_id, length, through_list, peer, immediate } => {
                let bytes = Bytes::from_slice(self.buffers.get(wr_id)?.get(..length)?);
                Event::Message(Incoming { peer, immediate, through_list, bytes })
            }
        })
    }

    fn unregistered(&self) -> u64 {
        self.inner.unregistered()
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        Some(self)
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        self.inner.flush(peer, mark)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn close(&mut self) {
        self.audit();
        self.inner.close();
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.audit();
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

impl<D: Join> Join for Model<D> {
    fn network(&self) -> Network {
        self.inner.network()
    }

    fn section(&self, room: usize) -> Vec<u8> {
        self.inner.section(room)
    }

    fn join(&mut self, address: Address, numbers: &PeerNumbers) {
        self.inner.join(address, numbers);
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

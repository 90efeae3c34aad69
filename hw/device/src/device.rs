//! The trait that every device implements.
//!
//! A device moves bytes; it doesn't match. Its contract with the engine above it:
//!
//! 1. Messages from one peer arrive whole, once, and in the order in which they were sent.
//! 2. [`Device::poll`] never blocks, costs nothing per idle peer, and returns one event at a time.
//!    The next call of `poll` gives the memory that an event borrows back to the peer.
//! 3. A [`Buffer`] that is passed to the device belongs to it until an event, or the call itself,
//!    returns it. So a read under way is safe whatever happens to the engine's request.
//! 4. A peer that goes down is reported once: after all its messages that arrived whole, and after
//!    the buffers of all reads and accesses were returned. No event of this peer follows.
//! 5. Nothing that a peer does makes a call panic, block, or touch memory that isn't this device's.
//!    One exception: a direct read or an access over shared memory waits for pages that the peer
//!    withholds.
//!    Copied reads (`ReadPolicy::Copied` of `tagmatch-shm`) don't.

use std::os::fd::BorrowedFd;

use crate::{
    AccessEnd, AccessLimits, Address, Buffer, Bytes, DeviceError, DownReason, Flush, LearnedChoice,
    PeerId, PublishedRegion, QuickAccess, RawMemory, RegionAccess, RegionPlace, RegionSpan,
    Registered, TagEvent, TagList,
};

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the largest message that this device *receives*, including the header. Peers learn
    /// it from [`Event::PeerUp`]. It never changes.
    pub message_max: usize,
    /// The longest message, in bytes, that arrives sooner in fragments than by a read of the
    /// sender's memory. 0 if a read is always sooner, or if this worker doesn't take fragments.
    pub fragmented_max: usize,
}

/// A message to send. Header and payload arrive as one run of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The protocol's header, at most [`Outgoing::HEADER_MAX`] bytes.
    pub header: &'a [u8],
    /// The bytes that follow the header.
    pub payload: &'a [u8],
    /// Immediate data: 32 bits that travel beside the message, as in RDMA.
    pub immediate: Option<u32>,
}

impl Outgoing<'_> {
    /// Most bytes of a header: a TMH, an RVH and 32 bytes of the protocol.
    pub const HEADER_MAX: usize = 64;
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The sender.
    pub peer: PeerId,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
    /// Whether the device's [`TagList`] has searched its entries for this message, found none, and
    /// counted the message as unexpected. Messages without a tag are not counted.
    pub through_list: bool,
    /// Header and payload in one run, as the sender passed them.
    pub bytes: Bytes<'a>,
}

/// Why [`Device::send`] did not take a message. No part of the message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for messages to this peer now. Try again after a later [`Device::poll`].
    Full,
    /// The peer is not connected yet. [`Event::PeerUp`] will report that it is.
    NotUp,
    /// The peer is down. It stays down.
    Down,
    /// The message is larger than the peer's `message_max`, or its header than
    /// [`Outgoing::HEADER_MAX`].
    TooLong,
}

/// Memory that a peer may read, as a rendezvous request describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Address of the first byte in the owner's address space.
    pub address: u64,
    /// Key that the owner's device made for it.
    pub key: u32,
    /// Length in bytes.
    pub length: u64,
}

impl RemoteSpan {
    /// The whole of a buffer that peers read with `key`.
    pub fn of(buffer: &Buffer, key: u32) -> Self {
        let address = buffer.as_ptr().expose_provenance() as u64;
        RemoteSpan { address, key, length: buffer.len() as u64 }
    }

    /// The bytes of this span, if all of them lie in `buffer`.
    pub fn bytes_in(self, buffer: &Buffer) -> Option<&[u8]> {
        let offset = self.address.checked_sub(buffer.as_ptr().addr() as u64)?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(self.length).ok()?)?;
        buffer.get(start..end)
    }
}

/// Identifies one exposed buffer of this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExposureId(pub u32);

/// A buffer that a peer may read until it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// For [`Device::withdraw`].
    pub id: ExposureId,
    /// Describes the buffer to the peer that reads it.
    pub span: RemoteSpan,
}

/// A read of a peer's exposed memory into a local buffer.
#[derive(Debug)]
pub struct ReadRequest {
    /// The peer that exposes the memory.
    pub peer: PeerId,
    /// The bytes to read. There are `remote.length` of them, at most `into.len()`.
    pub remote: RemoteSpan,
    /// The buffer to read into, from its start. The device owns it until [`Event::ReadDone`].
    pub into: Buffer,
    /// Returned in [`Event::ReadDone`]. The top bit is clear: it is reserved for the device.
    pub token: u64,
}

/// Why a read failed. The contents of its buffer are unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The peer is down, or went down while the read was under way. [`Event::PeerDown`] says why,
    /// before or afterwards.
    PeerDown,
    /// The operating system or the peer refused it.
    Failed {
        /// `errno` of the failure; 0 if there is none.
        errno: i32,
    },
    /// The peer doesn't expose this span, or not all of it.
    BadSpan,
}

/// How reads from a peer are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Straight from the peer's memory: one copy, without the peer's processor.
    Direct,
    /// Through shared memory: two copies, and the peer has to make progress.
    Copied,
    /// The device moves whole messages and doesn't tell how (UCX, libfabric).
    ByDevice,
    /// Not known, since the peer isn't connected yet.
    Unknown,
}

/// An event that [`Device::poll`] reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A message was received.
    Message(Incoming<'a>),
    /// A read has ended.
    ReadDone {
        /// The token of the [`ReadRequest`].
        token: u64,
        /// The buffer of the [`ReadRequest`].
        into: Buffer,
        /// `Ok` if all its bytes were read.
        result: Result<(), ReadError>,
    },
    /// An access has ended.
    AccessDone(AccessEnd),
    /// Something happened to the entries of the [`TagList`], or one of its operations is done.
    Tag(TagEvent),
    /// A peer is connected, so messages can be sent to it. Precedes the first message from this
    /// peer.
    PeerUp {
        /// Which.
        peer: PeerId,
        /// What the peer can receive.
        limits: Limits,
    },
    /// A peer is down for good. All reads from it have ended before.
    PeerDown {
        /// Which.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
}

/// Takes one event of [`Device::poll_into`].
pub trait EventSink {
    /// Takes a message that came the short way.
    fn message(self, incoming: Incoming<'_>);

    /// Takes any event, which may be a message, too.
    fn event(self, event: Event<'_>);
}

/// The kind of event that [`Device::poll_into`] has handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// There is nothing to do now.
    Nothing,
    /// A message that came the short way.
    Message,
    /// Any event.
    Event,
}

/// Hands on an event that [`Device::poll`] has returned.
#[inline(always)]
pub fn hand_on(event: Option<Event<'_>>, sink: impl EventSink) -> Polled {
    match event {
        Some(event) => {
            sink.event(event);
            Polled::Event
        }
        None => Polled::Nothing,
    }
}

/// A device that a thread can sleep on. A trait of its own, since a simulated device has no
/// descriptor.
pub trait EventDescriptor {
    /// A descriptor that is readable while the armed device has something to do. poll(2) and
    /// epoll(7) can watch it.
    fn event_descriptor(&self) -> BorrowedFd<'_>;
}

/// A device: ordered messages to peers, reads of their exposed memory, events.
///
/// Not thread-safe by itself; one caller at a time.
pub trait Device {
    /// The limits of this device.
    fn limits(&self) -> Limits;

    /// The address at which peers reach this device.
    fn address(&self) -> Address;

    /// Starts to connect to the peer at `address` and returns its number at once. The same address
    /// gives the same number until the peer is forgotten, also if the peer has connected first.
    /// This device's own address gives [`PeerId::ONESELF`]. An event reports success or failure.
    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError>;

    /// The address of a peer.
    fn peer_address(&self, peer: PeerId) -> Option<Address>;

    /// How reads from this peer are done.
    fn read_mode(&self, peer: PeerId) -> ReadMode;

    /// Whether a message of this length, of at most the peer's [`Limits::fragmented_max`], goes out
    /// in fragments now. Otherwise the peer reads it.
    fn sends_fragments(&self, _: PeerId, _length: usize) -> bool {
        true
    }

    /// A message of a length for which [`Device::sends_fragments`] was asked has gone out: in
    /// fragments, or as a request to read it.
    fn note_sent(&mut self, _: PeerId, _length: usize) {}

    /// The choices that this device has learned for messages to and from a peer. Empty if it learns
    /// nothing, or if the peer isn't connected.
    fn learned(&self, _: PeerId) -> Vec<LearnedChoice> {
        Vec::new()
    }

    /// Sends one message or refuses it. On return, the bytes have been copied.
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused>;

    /// A buffer of `length` bytes in the memory that this device reads and writes at least cost;
    /// ordinary memory unless there is better. It may contain bytes of an earlier buffer of this
    /// device. `None`: there is no memory.
    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        Buffer::try_zeroed(length)
    }

    /// Registers memory of the caller's own, so that operations on its parts need not do so. By
    /// default there is nothing to register.
    ///
    /// # Errors
    /// The memory can't be registered.
    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        Ok(memory.registered(Box::new(())))
    }

    /// Lets a peer read `buffer` until [`Device::withdraw`]. A device that cannot tell its readers
    /// apart, because a NIC or the kernel answers them, lets all peers read the buffer.
    ///
    /// # Errors
    /// Returns the buffer with the reason.
    fn expose(&mut self, reader: PeerId, buffer: Buffer)
    -> Result<Exposure, (Buffer, DeviceError)>;

    /// Takes a buffer back that is exposed to `reader`; `None` if there is no such buffer.
    ///
    /// The caller knows from its protocol that no peer is reading it.
    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer>;

    /// Starts a read. If the call returns `Ok`, [`Event::ReadDone`] ends the read.
    ///
    /// # Errors
    /// Returns the buffer with the reason.
    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)>;

    /// Lets peers read and write a region by themselves, as far as it grants that, until
    /// [`Device::unpublish`]. Returns what a token says of it. By default nobody can.
    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        let _ = region;
        RegionPlace::default()
    }

    /// No peer begins to read or write the region with this key by itself from now on. `true`:
    /// none is in the middle of a write either. `false`: some peer may write into the region's
    /// memory at any time, so that the memory must never be used for anything else. For a region
    /// that has a base, the call can be repeated until the answer is `true`.
    ///
    /// It may block for a tenth of a second.
    fn unpublish(&mut self, key: u64) -> bool {
        let _ = key;
        true
    }

    /// Which accesses to a peer this device takes.
    fn access_limits(&self, peer: PeerId) -> AccessLimits {
        let _ = peer;
        AccessLimits::default()
    }

    /// Starts to read or write a region of a peer: over shared memory without the peer's progress,
    /// over TCP when the peer's device is polled. If the call returns `Ok`, [`Event::AccessDone`]
    /// ends the access. The accesses to one peer take effect, and end, in their order, except that
    /// a read may see what a later write has written.
    ///
    /// # Errors
    /// Returns the buffer: this device can't do that by itself. By default it never can.
    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        Err(access.buffer)
    }

    /// Accesses a region of a peer in this call, without the peer's progress. The caller has no
    /// other access to this peer under way. `false`: this device can't do that, or finds anything
    /// wrong. Then no element was changed; of bytes that were to be written, some may be. By
    /// default it never can.
    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        let _ = (peer, of, access);
        false
    }

    /// A one-sided operation, or the answer to one, has just been sent by a message. Few of them
    /// are under way at a time, so the device keeps little of long reads in front of the next ones.
    /// By default that makes no difference.
    fn note_one_sided(&mut self, peer: PeerId) {
        let _ = peer;
    }

    /// The next event, or `None` when there is nothing to do now.
    fn poll(&mut self) -> Option<Event<'_>>;

    /// Hands the next event to `sink`, if there is one. A device that has its messages in registers
    /// hands them on there, while an [`Event`] goes through memory.
    #[inline(always)]
    fn poll_into(&mut self, sink: impl EventSink) -> Polled
    where
        Self: Sized,
    {
        hand_on(self.poll(), sink)
    }

    /// The messages so far that a device of several networks sent over another one than shared
    /// memory.
    fn sent_beyond(&self) -> u64 {
        0
    }

    /// The reads so far whose bytes went through the devices' own buffers, since memory could not
    /// be registered for them.
    fn unregistered(&self) -> u64 {
        0
    }

    /// The list of posted receives, if this device has one.
    fn tags(&mut self) -> Option<&mut dyn TagList> {
        None
    }

    /// Whether the messages that [`Device::send`] took for a peer have left this process. A series
    /// of calls with the same `mark`, which is `None` for the first one, asks about the messages
    /// that were taken before the first call. The call makes sure that the answer becomes known: it
    /// may ask the peer's transport for an acknowledgement. The device has to be polled between
    /// calls.
    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush;

    /// Ends the connection to a peer; [`Event::PeerDown`] follows. The peer reports
    /// [`DownReason::Left`] if it can still be told.
    fn disconnect(&mut self, peer: PeerId);

    /// Gives the number of a peer back whose [`Event::PeerDown`] was taken: another peer gets its
    /// index, with another generation. The caller names the peer in no later call, and has taken
    /// back what it exposed to it. Afterwards [`Device::connect`] to the peer's address begins
    /// anew, and the peer can connect again, too. `false`: not now, since the last messages to the
    /// peer are still on their way, or never, which is the default.
    fn forget(&mut self, peer: PeerId) -> bool {
        let _ = peer;
        false
    }

    /// Refuses further connections for good. A worker that tries to connect gets `ECONNREFUSED`.
    fn close(&mut self);

    /// Makes [`EventDescriptor::event_descriptor`] readable at the next event. Returns `false` if
    /// there is something to do already: poll first then, and arm again. `waiting_to_send` are the
    /// peers for which a message was refused as [`Refused::Full`]; room for them counts as an event
    /// as well.
    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool;

    /// Whether there is something to do that was begun after [`Device::arm`], and that its
    /// descriptor may not report. The thread that has begun it has to poll, and to arm again for
    /// threads that sleep.
    fn has_work(&self) -> bool {
        false
    }

    /// Ends what [`Device::arm`] began. The descriptor is unreadable once all events were polled.
    /// Without this call, senders would go on paying for waking a worker that is awake.
    fn disarm(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessKind;

    /// A device that does no more than it must.
    struct Least;

    impl Device for Least {
        fn limits(&self) -> Limits {
            unreachable!()
        }

        fn address(&self) -> Address {
            unreachable!()
        }

        fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
            unreachable!()
        }

        fn peer_address(&self, _: PeerId) -> Option<Address> {
            None
        }

        fn read_mode(&self, _: PeerId) -> ReadMode {
            ReadMode::Unknown
        }

        fn send(&mut self, _: PeerId, _: Outgoing<'_>) -> Result<(), Refused> {
            Err(Refused::Down)
        }

        fn expose(&mut self, _: PeerId, b: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
            Err((b, DeviceError::too_many_exposed()))
        }

        fn withdraw(&mut self, _: PeerId, _: ExposureId) -> Option<Buffer> {
            None
        }

        fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
            Err((request.into, ReadError::BadSpan))
        }

        fn poll(&mut self) -> Option<Event<'_>> {
            None
        }

        fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
            Flush::Done
        }

        fn disconnect(&mut self, _: PeerId) {}

        fn close(&mut self) {}

        fn arm(&mut self, _: &[PeerId]) -> bool {
            true
        }

        fn disarm(&mut self) {}
    }

    #[test]
    fn what_a_device_need_not_have_is_ordinary_memory_and_nothing_else() {
        let mut device = Least;
        assert_eq!(device.allocate(3).unwrap().into_vec(), [0; 3]);
        assert!(device.allocate(usize::MAX).is_none());
        assert!(device.tags().is_none() && !device.has_work() && !device.forget(PeerId(1)));
        assert_eq!((device.sent_beyond(), device.unregistered()), (0, 0));
        assert!(device.learned(PeerId(1)).is_empty());
        let memory = Buffer::zeroed(1);
        let region = PublishedRegion {
            key: 1,
            base: None,
            memory: &memory,
            reads: true,
            writes: true,
            changes: true,
        };
        let place = device.publish(&region);
        assert!(place == RegionPlace::default() && device.unpublish(1));
        let of = RegionSpan { key: 1, place, offset: 0 };
        let access = RegionAccess { peer: PeerId(1), of, kind: AccessKind::Write, buffer: memory };
        assert_eq!(device.access(access).unwrap_err().len(), 1);
    }
}

//! The trait of devices that match tags themselves.
//!
//! A [`Device`](crate::Device) moves bytes, and the engine above it matches. A [`MatchingDevice`]
//! is a whole tag-matching transport, such as UCX or libfabric: it holds posted receives and
//! unexpected messages, and moves data in its own way, in hardware or not. Its contract with the
//! engine above it:
//!
//! 1. It matches as `tagmatch-soft` does. A receive matches a message if and only if `(tag ^
//!    message.tag) & mask == 0` and the message is from the receive's source, if it names one. A
//!    message matches the receive that was posted first, a receive the message that arrived first.
//!    Messages of one peer never overtake each other in matching.
//! 2. Every operation that was taken (`Ok`) ends once, through [`MatchingDevice::poll`], with its
//!    token and its buffer. Until then the buffer belongs to the device, whatever happens to the
//!    engine's request. A transport below may keep the memory of an operation whose peer has died
//!    until it is closed. Such an operation ends with [`OperationError::PeerDown`] all the same:
//!    with an empty buffer if the buffer was made from a vector, which the device keeps then.
//!    Memory that is lent to the device comes back itself, and never before the transport has let
//!    go of it.
//! 3. A completion has all fields of the [`Envelope`], on every path.
//! 4. An operation that the device can't carry is refused at the call ([`Unfit`]) and never
//!    changed: immediate data, or a tag or a source for which the device's layout has no bits.
//! 5. A peer that goes down is reported once, after every operation that depends on it has ended.
//! 6. Nothing that a peer does makes a call panic, block, or touch memory that isn't this device's.

use crate::DownReason;
use crate::device::EventDescriptor;
use crate::device_error::DeviceError;
use crate::{Address, Buffer, Flush, PeerId, RawMemory, Registered};

/// When a send that the device takes is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompleteWhen {
    /// Its buffer can be used again.
    #[default]
    Reusable,
    /// The message was matched.
    Matched,
    /// Its bytes are in the receiver's buffer.
    Delivered,
}

/// A message to send.
#[derive(Debug)]
pub struct TagSend {
    /// The receiver.
    pub peer: PeerId,
    /// The tag that receives see.
    pub tag: u64,
    /// Immediate data: 32 bits for the receiver's completion.
    pub immediate: Option<u32>,
    /// The payload.
    pub buffer: Buffer,
    /// When the send is complete.
    pub complete_when: CompleteWhen,
    /// Returned in [`MatchingEvent::Sent`].
    pub token: u64,
}

/// Which messages a receive or a probe matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagPattern {
    /// Compared where `mask` has ones.
    pub tag: u64,
    /// The bits of the tag that are compared.
    pub mask: u64,
    /// The sender; `None` for any sender.
    pub source: Option<PeerId>,
}

/// The envelope of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub source: PeerId,
    /// Its tag, as the sender gave it.
    pub tag: u64,
    /// Its full length in bytes, also if the buffer was shorter.
    pub length: u64,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
}

/// Identifies a message that a matched probe took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldId(pub u64);

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The peer is down. It stays down.
    Down,
    /// There is no such peer.
    NoSuchPeer,
    /// There is no such held message.
    NoSuchMessage,
    /// The buffer of a receive can only be read.
    ReadOnly,
    /// The device can't carry the operation. One sentence says why, and what to do about it.
    NotCarried(&'static str),
    /// The device has no memory, or no room, for another operation.
    Exhausted,
}

/// How an operation that was taken failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// The receive was cancelled before it matched; its buffer is untouched.
    Cancelled,
    /// The peer that it depends on is down.
    PeerDown(PeerId),
    /// The device failed to move the bytes.
    Failed {
        /// The device's number for the reason (for UCX an `ucs_status_t`, for libfabric an error
        /// number).
        status: i32,
    },
}

/// An event that [`MatchingDevice::poll`] reports.
#[derive(Debug)]
pub enum MatchingEvent {
    /// A send has ended.
    Sent {
        /// The token of the [`TagSend`].
        token: u64,
        /// The buffer of the [`TagSend`].
        buffer: Buffer,
        /// Whether it succeeded.
        result: Result<(), OperationError>,
    },
    /// A receive has ended. If `length > buffer.len()`, the message was longer than the buffer.
    Received {
        /// The token of the receive.
        token: u64,
        /// The buffer of the receive.
        buffer: Buffer,
        /// The envelope of the message.
        result: Result<Envelope, OperationError>,
    },
    /// A peer is connected. Precedes the first message of this peer that a receive or a probe
    /// matches.
    PeerUp {
        /// The peer.
        peer: PeerId,
    },
    /// A peer is down for good.
    PeerDown {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
}

/// A transport that matches tags. The module's page has the contract.
///
/// Not thread-safe by itself; one caller at a time. No call blocks.
pub trait MatchingDevice {
    /// The address at which peers reach this device.
    fn address(&self) -> Address;

    /// Starts to connect to the peer at `address` and returns its number at once, by the rules of
    /// [`Device::connect`](crate::Device::connect).
    ///
    /// # Errors
    /// The address is not one of this kind of device.
    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError>;

    /// The address of a peer.
    fn peer_address(&self, peer: PeerId) -> Option<Address>;

    /// The transports used to reach a peer; none while it isn't connected, or if the device doesn't
    /// tell.
    fn transports(&self, peer: PeerId) -> Vec<String>;

    /// Registers memory of the caller's own, by the rules of
    /// [`Device::register`](crate::Device::register).
    ///
    /// # Errors
    /// The memory can't be registered.
    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        Ok(memory.registered(Box::new(())))
    }

    /// Sends a message. `Ok(Some(buffer))` means that the send is complete already and that no
    /// event follows. Sends to a peer that isn't connected yet wait in the device, in order.
    ///
    /// # Errors
    /// Returns the buffer with the reason.
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)>;

    /// Sends a copy of `payload` if that can be done at once; no event follows. `Ok(false)`:
    /// nothing was done, and the message has to go by [`MatchingDevice::send`].
    ///
    /// # Errors
    /// The reason why nothing was sent.
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit>;

    /// Posts a receive, or matches it with the oldest unexpected message. An event reports its end,
    /// also if it has matched in this call.
    ///
    /// # Errors
    /// Returns the buffer with the reason.
    fn receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)>;

    /// Cancels the receive with this token if it has not matched. `true` if it was cancelled; its
    /// end is then [`OperationError::Cancelled`]. A token without a receive is ignored.
    fn cancel(&mut self, token: u64) -> bool;

    /// The envelope of the oldest unexpected message that matches. Makes no progress.
    ///
    /// # Errors
    /// The device has no bits for the tag or the source of the pattern.
    fn probe(&mut self, pattern: TagPattern) -> Result<Option<Envelope>, Unfit>;

    /// Takes the oldest unexpected message that matches, so that no other receive or probe matches
    /// it. The caller must receive or discard it.
    ///
    /// # Errors
    /// Those of [`MatchingDevice::probe`].
    fn matched_probe(&mut self, pattern: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit>;

    /// Receives a message that [`MatchingDevice::matched_probe`] took.
    ///
    /// # Errors
    /// Gives the buffer back with the reason. The message stays held, if there is one.
    fn receive_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)>;

    /// Drops a message that [`MatchingDevice::matched_probe`] took; its send completes. `false` if
    /// there is no such message.
    fn discard_held(&mut self, message: HeldId) -> bool;

    /// Makes progress and returns the next event, or `None` when there is nothing to do now.
    fn poll(&mut self) -> Option<MatchingEvent>;

    /// Ends the connection to a peer. The operations that depend on it end with
    /// [`OperationError::PeerDown`], then [`MatchingEvent::PeerDown`] follows.
    fn disconnect(&mut self, peer: PeerId);

    /// Closes the device for good: refuses further connections, disconnects all peers, and cancels
    /// all receives. Events report their ends.
    fn close(&mut self);

    /// Makes [`EventDescriptor::event_descriptor`]
    /// readable at the next event. `false` if there is something to do already: poll first then,
    /// and arm again.
    fn arm(&mut self) -> bool;

    /// Whether a thread that sleeps waits for a message that no receive takes. From the next
    /// [`MatchingDevice::arm`] on, a device whose library doesn't report such a message makes the
    /// descriptor readable now and then, so that the thread looks. By default such a message is an
    /// event.
    fn await_messages(&mut self, is_awaited: bool) {
        let _ = is_awaited;
    }

    /// Ends what [`MatchingDevice::arm`] began.
    fn disarm(&mut self);

    /// Whether there is something to do that was begun after [`MatchingDevice::arm`], and that its
    /// descriptor may not report.
    fn has_work(&self) -> bool;

    /// Whether closing the device now would lose a message to another worker: a send or inject that
    /// was taken has not ended, or its bytes have not been sent. May start to send them.
    fn has_unsent(&mut self) -> bool;

    /// Whether the messages that sends and injects have taken for a peer have left this process.
    /// May start to send them. The device has to be polled between calls.
    fn flush(&mut self, peer: PeerId) -> Flush;

    /// The number of unexpected messages; `None` if the device doesn't know it.
    fn unexpected_now(&self) -> Option<u64>;
}

/// A device that matches by itself, and that a thread can sleep on.
pub trait MatchAndSleep: MatchingDevice + EventDescriptor {}

impl<D: MatchingDevice + EventDescriptor + ?Sized> MatchAndSleep for D {}
